"""What is published of a panel: its widget or figure, its caption, its text."""

import json
from itertools import count

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from labkit.instruments import Trace
from labkit.lab.panels import Controls, Lines, LivePlot, Stepper, curves
from labkit.lab.panels.figures import shown
from tests.lab.panels.test_controls import Parameters
from tests.lab.panels.test_live_lab import make as make_lab

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
CAPTION = "It falls </p> until 'step' 3."
LOSS = [Lines({"a": "train", "b": "test"}, "Loss", "nats")]
TABLES = {
    "knobs": lambda **how: Controls(Parameters(), **how),
    "stepper": lambda **how: Stepper(count, **how),
}
PANELS = TABLES | {
    "plot": lambda **how: LivePlot(Trace(), LOSS, caption=CAPTION, **how),
    "lab": make_lab,
}


@pytest.fixture
def published(monkeypatch):
    """What reaches the page, one dictionary of data an output."""
    outputs, shell = [], InteractiveShell.instance()
    publish = lambda data, **_: outputs.append(data)  # noqa: E731
    monkeypatch.setattr(shell.display_pub, "publish", publish)
    yield outputs
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("name", PANELS)
def test_below_a_panel_stands_what_to_do_once_its_kernel_is_gone(published, name):
    """The page hides it while the panel's widget, known by its class, is there."""
    panel = PANELS[name]()
    display(panel)
    above, below = published
    assert above[WIDGET]["model_id"] == panel.widget.model_id
    assert "labkit-panel" in panel.widget._dom_classes
    assert ".labkit-panel" in below["text/html"] and shown.LOST in below["text/html"]
    assert below["text/plain"] == ""


@pytest.mark.parametrize("name", PANELS)
def test_without_widgets_a_panel_is_a_figure_or_a_table(published, name):
    panel = PANELS[name](interactive=False)
    display(panel)
    kind = "text/html" if name in TABLES else PLOTLY
    assert kind in published[0]
    assert WIDGET not in published[0] and shown.LOST not in json.dumps(published)
    assert len(published) == (1 if name in TABLES else 2)  # a caption below


def test_a_figure_is_followed_by_its_caption_and_has_its_text(published):
    display(PANELS["plot"](interactive=False))
    figure, below = published
    assert figure[PLOTLY]["layout"]["meta"]["caption"] == CAPTION
    assert "It falls &lt;/p&gt; until" in below["text/html"]
    meta = json.loads(PANELS["plot"]().widget.figure)["layout"]["meta"]
    alt = "Loss: nats against step; train; test"
    assert meta == {"caption": CAPTION, "alt": f"{alt}. {CAPTION}"}
    figure = curves({"A": {"one": ([1], [2])}, "B": {"two": ([1], [2])}}, "s", "m")
    alt = figure["layout"]["meta"]["alt"]
    assert alt == "A: m against s; one. B: m against s; two."
