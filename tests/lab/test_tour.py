"""The tour's pictures, and the papers' experiments that it measures beside them."""

from pathlib import Path

import nbformat
import pytest

from labkit.lab.panels import LiveLab

TOUR = Path(__file__).resolve().parents[2] / "notebooks" / "00_tour.ipynb"
PICTURES = {"ellipse", "curve", "bowl", "functions", "noise", "race"}
PAPERS = {"rls", "bpls", "hessian_free", "broad", "rtrl"}


@pytest.fixture(scope="module")
def toured(tmp_path_factory):
    """Run the tour's cells, but for its checks, three steps a picture."""
    folder = tmp_path_factory.mktemp("tour")
    names = {"steps": 3, "rank": 2, "seed": 0, "device": "cpu"}
    names |= {"interactive": True, "run_dir": str(folder)}
    for cell in nbformat.read(TOUR, as_version=4).cells:
        tags = cell.metadata.get("tags", [])
        left = "parameters" in tags or ("keep_output" in tags and "still" not in tags)
        if cell.cell_type == "code" and not left:
            exec(cell.source, names)
    names["picture"].run(3)  # opens before its first step
    return folder, [each for each in names.values() if isinstance(each, LiveLab)]


def test_six_pictures_and_every_paper_have_a_file_of_their_own(toured):
    folder, labs = toured
    assert {live.experiment.name for live in labs} == PICTURES
    assert all(live.figure["data"] and live.stepper.position >= 3 for live in labs)
    written = {path.name for path in folder.iterdir()}
    assert written == {f"{name}-1.jsonl" for name in PICTURES | PAPERS}
