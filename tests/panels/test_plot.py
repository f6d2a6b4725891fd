"""The widget of a figure: its state is what is drawn."""

import json

import numpy as np
from plotly.offline import get_plotlyjs

from labkit.panels import curves
from labkit.panels.plot import Plot


def drawn(power):
    x = np.linspace(0, 1, 50)
    return curves({"A": {"one": (x, x**power)}}, "x", "y", caption="It bends.")


def test_whoever_attaches_later_gets_the_newest_figure():
    plot = Plot(drawn(1))
    assert plot.show(drawn(2)) and not plot.show(drawn(2)) and plot.version == 1
    state = plot.get_state()
    assert state["figure"] == drawn(2).to_json() and "It bends." in state["figure"]


def test_the_state_is_plain_json_and_small():
    """plotly's own widget brings five megabytes of script in every figure."""
    state = Plot(drawn(2)).get_state()
    assert len(json.dumps(state)) < 40_000


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
    plot.when_drawn(lambda: heard.append(plot.version))
    plot.show(drawn(2))
    plot._heard(plot, {"drawn": 0}, [])
    assert not heard
    plot._heard(plot, {"drawn": 1}, [])
    assert heard == [1]
