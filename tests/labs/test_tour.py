import pytest

from labkit.labs import tour
from labkit.labs.rtrl import read_text

GLANCES = ("rls", "bpls", "hessian_free", "broad", "rtrl")


@pytest.fixture(scope="module")
def text():
    return read_text("text")


@pytest.mark.parametrize("name", GLANCES)
def test_a_glance_is_the_real_experiment_with_few_knobs(name, text, tmp_path):
    given = (text,) if name == "rtrl" else ()
    live = getattr(tour, name)(*given, folder=str(tmp_path), interactive=True)
    assert len(live.controls.widgets) == 3
    frame = live.run(3)
    assert len(live.plot.panels) == 2
    for panel in live.plot.panels:
        assert any(frame[c].notna().any() for c in panel.columns if c in frame), panel
    assert [path.name for path in tmp_path.iterdir()] == [f"{live.name}-1.jsonl"]


def test_the_traces_of_one_tour_do_not_share_a_file(text):
    names = {
        getattr(tour, name)(
            *((text,) if name == "rtrl" else ()), interactive=False
        ).name
        for name in GLANCES
    }
    assert len(names) == len(GLANCES)
