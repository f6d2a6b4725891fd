"""The tour's five pictures: the real experiments, with few knobs."""

from pathlib import Path

import nbformat
import pytest

from labkit.panels import LiveLab

TOUR = Path(__file__).resolve().parents[2] / "notebooks" / "00_tour.ipynb"


@pytest.fixture(scope="module")
def toured(tmp_path_factory):
    """Run the tour's cells, but for its checks, three steps a picture."""
    folder = tmp_path_factory.mktemp("tour")
    names = {"steps": 3, "rank": 2, "seed": 0, "device": "cpu"}
    names |= {"interactive": True, "run_dir": str(folder)}
    for cell in nbformat.read(TOUR, as_version=4).cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "code" and not {"parameters", "keep_output"} & {*tags}:
            exec(cell.source, names)
    return folder, [each for each in names.values() if isinstance(each, LiveLab)]


def test_a_glance_is_the_real_experiment_with_few_knobs_and_a_file_of_its_own(toured):
    folder, labs = toured
    assert len(labs) == 5
    for live in labs:
        assert len(live.controls.widgets) == 3 and len(live.plot.panels) == 2
        frame = live.trace.frame()
        for panel in live.plot.panels:
            drawn = [c for c in panel.columns if c in frame]
            assert any(frame[c].notna().any() for c in drawn), panel.title
    written = sorted(path.name for path in folder.iterdir())
    assert written == sorted(f"{live.experiment.name}-1.jsonl" for live in labs)
