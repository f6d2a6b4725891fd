"""The tour's pictures, and the questions that it asks of them."""

import ast
import re

import nbformat
import pytest

from labkit.lab.panels import LiveLab, Opening
from labkit.lab.panels.live.experiment import knobs_of
from tests import ROOT

TOUR = ROOT / "notebooks" / "00_tour.ipynb"
PICTURES = {"ellipse", "pair", "bowl", "columns", "clouds", "race"}


@pytest.fixture(scope="module")
def toured(tmp_path_factory):
    """Run the tour's cells; return the folder that it writes into and its pictures."""
    folder = tmp_path_factory.mktemp("tour")
    names = {"steps": 3, "rank": 2, "seed": 0, "device": "cpu"}
    names |= {"interactive": True, "run_dir": str(folder)}
    shown = []
    for cell in nbformat.read(TOUR, as_version=4).cells:
        if cell.cell_type != "code" or "parameters" in cell.metadata.get("tags", []):
            continue
        *body, last = ast.parse(cell.source).body
        exec(compile(ast.Module(body, []), "tour", "exec"), names)
        shown.append(eval(ast.unparse(last), names))
    return folder, [each for each in shown if isinstance(each, LiveLab | Opening)]


def test_the_race_alone_waits_for_run_and_writes_a_file(toured):
    folder, pictures = toured
    assert {each.experiment.name for each in pictures} == PICTURES
    assert all(each.figure["data"] for each in pictures)
    (race,) = (each for each in pictures if isinstance(each, LiveLab))
    race.run(3)
    assert [path.name for path in folder.iterdir()] == ["race-1.jsonl"]


def test_every_question_of_the_tour_names_a_knob(toured):
    known = {
        (knob.label or name.replace("_", " "))
        for each in toured[1]
        for name, knob in knobs_of(each.experiment.knobs()).items()
    }
    text = (c.source for c in nbformat.read(TOUR, as_version=4).cells)
    asked = re.findall(r"\*[^*]*\*\*([a-z ]+)\*\*[^*]*\?\*", "\n".join(text))
    assert len(asked) == len(PICTURES) and set(asked) <= known, asked
