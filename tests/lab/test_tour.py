"""The tour's pictures, and the papers' experiments that it measures beside them."""

import re
from pathlib import Path

import nbformat
import pytest

from labkit.lab.panels import LiveLab, Opening
from labkit.lab.panels.live.experiment import knobs_of
from labkit.lab.rtrl import training

TOUR = Path(__file__).resolve().parents[2] / "notebooks" / "00_tour.ipynb"
PICTURES = {"ellipse", "pair", "bowl", "functions", "clouds", "race"}
PAPERS = {"rls", "bpls", "hessian_free", "broad", "rtrl"}


@pytest.fixture(scope="module")
def toured(tmp_path_factory):
    """Run the tour's cells, but for its checks, three steps a picture and training."""
    train = training.train_network
    short = lambda *given, **options: train(*given, **options | {"updates": 3})  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train_network", short)
        return run_tour(tmp_path_factory)


def run_tour(tmp_path_factory):
    """Return the folder that it wrote into, and its pictures."""
    folder = tmp_path_factory.mktemp("tour")
    names = {"steps": 3, "rank": 2, "seed": 0, "device": "cpu"}
    names |= {"interactive": True, "run_dir": str(folder)}
    for cell in nbformat.read(TOUR, as_version=4).cells:
        tags = cell.metadata.get("tags", [])
        left = "parameters" in tags or ("keep_output" in tags and "still" not in tags)
        if cell.cell_type == "code" and not left:
            exec(cell.source, names)
    labs = [each for each in names.values() if isinstance(each, LiveLab | Opening)]
    for live in labs:  # each waits for Run
        if isinstance(live, LiveLab):
            live.run(3)
    return folder, labs


def test_six_pictures_and_every_paper_have_a_file_of_their_own(toured):
    folder, labs = toured
    assert {live.experiment.name for live in labs} == PICTURES
    assert all(live.figure["data"] for live in labs)
    written = {path.name for path in folder.iterdir()}
    runs = (PICTURES - {"ellipse", "bowl", "clouds"}) | PAPERS
    assert written == {f"{name}-1.jsonl" for name in runs}


def test_every_question_of_the_tour_names_a_knob(toured):
    _, labs = toured
    known = {
        (knob.label or name.replace("_", " "))
        for live in labs
        for name, knob in knobs_of(live.experiment.knobs()).items()
    }
    text = (c.source for c in nbformat.read(TOUR, as_version=4).cells)
    asked = re.findall(r"\*[^*]*\*\*([a-z ]+)\*\*[^*]*\?\*", "\n".join(text))
    assert len(asked) == len(PICTURES) and set(asked) <= known, asked
