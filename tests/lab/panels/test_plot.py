"""The widget of a figure: its state is what is drawn."""

import asyncio
import json
import math

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from labkit.lab.panels import curves
from labkit.lab.panels.figures.captions import as_json
from labkit.lab.panels.figures.plot import Plot
from tests.lab.panels.conftest import in_loop


def drawn(power):
    x = np.linspace(0, 1, 50)
    return curves({"A": {"one": (x, x**power)}}, "x", "y", caption="It bends.")


def test_whoever_attaches_later_gets_the_newest_figure():
    plot = Plot(drawn(1))
    assert plot.show(drawn(2)) and not plot.show(drawn(2)) and plot.version == 1
    state = plot.get_state()
    assert state["figure"] == as_json(drawn(2)) and "It bends." in state["figure"]


def test_the_state_is_plain_json_and_small():
    """plotly's own widget brings five megabytes of script in every figure."""
    _, state = Plot(drawn(1)), Plot(drawn(2)).get_state()
    assert not state.pop("library")
    assert len(json.dumps(state)) < 40_000


def test_a_kernels_first_figure_brings_plotly_along(monkeypatch):
    monkeypatch.setattr(Plot, "_brought", False)
    first, second = Plot(drawn(1)), Plot(drawn(1))
    assert first.library.decode() == get_plotlyjs() and second.library == b""


def test_what_is_held_back_is_sent_before_it_is_displayed():
    plot = Plot(drawn(1), clock=lambda: 0.0)
    plot.show(drawn(2))
    plot.show(drawn(3))
    assert plot.figure == as_json(drawn(2))
    plot.flush()
    assert plot.figure == as_json(drawn(3))
    plot.flush()
    assert plot.version == 2


def test_a_page_is_given_plotly_once_it_asks():
    plot, sent = Plot(drawn(1)), []
    plot.send = lambda content, buffers=None: sent.append((content, buffers))
    plot._heard(plot, {"drawn": 0}, [])
    assert not sent
    plot._heard(plot, "plotly.js", [])
    ((content, (source,)),) = sent
    assert content == "plotly.js" and source.decode() == get_plotlyjs()


def test_only_the_newest_figure_counts_as_drawn():
    plot, heard = Plot(drawn(1)), []
    plot.when_drawn(lambda seconds: heard.append(plot.version))
    plot.show(drawn(2))
    plot._heard(plot, {"drawn": 0}, [])
    assert not heard
    plot._heard(plot, {"drawn": 1}, [])
    assert heard == [1]


@pytest.mark.parametrize(("heard", "most"), [(True, 6), (False, 12)])
def test_few_figures_are_on_their_way_to_a_page_that_draws_none(heard, most):
    """A minute of six redraws a second, as in a cell that blocks the kernel."""
    now = [0.0]
    plot = Plot({"data": [], "layout": {}}, clock=lambda: now[0])
    if heard:
        plot._heard(plot, {"drawn": 0}, [])
    for step in range(360):
        now[0] = step / 6
        assert plot.show({"data": [], "layout": {"title": str(step)}})
    assert 0 < plot.version <= most
    plot._heard(plot, {"drawn": plot.version}, [])
    assert "359" in plot.figure


@pytest.mark.parametrize("shown", [(4,), ()])  # while nothing is sent
@pytest.mark.parametrize("says", ["drawn", "has"])  # late, once connected again
@pytest.mark.parametrize("version", [1, 0])  # 0: the last figure is lost, too
@in_loop
async def test_where_no_page_draws_nothing_more_is_sent_until_one_speaks(
    monkeypatch, shown, says, version
):
    monkeypatch.setattr("labkit.lab.panels.figures.plot.GIVE_UP", 0.01)
    plot, page = Plot(drawn(1), clock=lambda: 0.0), {}
    plot.show(drawn(2))
    while not plot.lost:
        await asyncio.sleep(0.01)
    plot._clock = lambda: 1e9
    for power in shown:
        plot.show(drawn(power))
    assert plot.version == 1 and plot.figure == as_json(drawn(2))
    plot.send_state = lambda key: page.update(plot.get_state(key))
    plot._heard(plot, {says: version}, [])
    newest = as_json(drawn(*shown or [2]))
    assert not plot.lost and plot.due < math.inf
    assert page["figure"] == newest and page["version"] == plot.version


def test_the_next_figure_of_what_moves_is_sent_while_a_page_draws():
    plot = Plot(drawn(1), ahead=True, clock=lambda: 0.0)
    for power in (2, 3, 4):
        plot.show(drawn(power))
    assert plot.version == 1
    plot._heard(plot, {"taken": 1}, [])
    assert plot.version == 2 and plot.figure == as_json(drawn(4))
    plot.show(drawn(5))
    plot._heard(plot, {"taken": 1}, [])  # by another page
    plot._heard(plot, {"drawn": 1}, [])
    assert plot.version == 2  # one is on its way
    plot._heard(plot, {"taken": 2}, [])
    assert plot.version == 3 and plot.figure == as_json(drawn(5))
    plot._heard(plot, {"drawn": 3}, [])
    assert plot.due == -math.inf


@in_loop
async def test_a_figure_that_waits_goes_out_by_itself():
    """Also where the page has said nothing, and nobody shows another."""
    plot = Plot(drawn(1))
    plot.show(drawn(2))
    plot.show(drawn(3))
    assert plot.version == 1
    while plot.version == 1:
        await asyncio.sleep(0.01)
    assert plot.figure == as_json(drawn(3))
