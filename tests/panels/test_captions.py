import json

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

from labkit.instruments import Trace
from labkit.panels import HeatMap, Lines, LivePlot
from labkit.panels.captions import Figure, describe, panel_text
from labkit.panels.curves import curves
from labkit.panels.images import Pictures
from labkit.panels.theme import COLOURS, dark

PLOTLY = "application/vnd.plotly.v1+json"
CAPTION = "It falls </p> until 'step' 3."
PANELS = [Lines({"a": "train", "b": "test"}, "Loss", "nats")]


def plots(interactive):
    return {
        "live": LivePlot(Trace(), PANELS, interactive=interactive, caption=CAPTION),
        "heat": HeatMap(
            [[1, 2]],
            "R",
            "size",
            limits=(0, 2),
            interactive=interactive,
            caption=CAPTION,
        ),
        "pictures": Pictures(
            ("in", "out"),
            count=2,
            side=(2, 2),
            interactive=interactive,
            caption=CAPTION,
        ),
    }


@pytest.fixture
def published(monkeypatch):
    """What reaches the page, one dictionary of data an output."""
    outputs = []
    shell = InteractiveShell.instance()
    monkeypatch.setattr(
        shell.display_pub, "publish", lambda data, **_: outputs.append(data)
    )
    yield outputs
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("name", ["live", "heat", "pictures"])
def test_a_finished_figure_is_followed_by_its_caption(published, name):
    plots(interactive=False)[name]._ipython_display_()
    figure, below = published
    assert figure[PLOTLY]["layout"]["meta"]["caption"] == CAPTION
    assert "It falls &lt;/p&gt; until" in below["text/html"]
    assert below["text/plain"] == CAPTION
    # The text in the figure's place cannot end the script that sets it.
    script = below["text/html"].split("<script>")[1]
    assert "It falls <\\/p>" in script and script.count("</") == 1


@pytest.mark.parametrize("name", ["live", "heat", "pictures"])
def test_a_live_figure_brings_its_caption_and_its_text(name):
    plot = plots(interactive=True)[name]
    meta = json.loads(plot.widget.figure)["layout"]["meta"]
    assert meta["caption"] == CAPTION and CAPTION.rstrip(".") in meta["alt"]
    bundle, _ = plot._repr_mimebundle_()
    assert any("widget-view" in mime for mime in bundle)


def test_the_text_names_title_axes_and_curves():
    plot = LivePlot(Trace(), PANELS, interactive=False, title="Lab")
    assert plot.figure.layout.meta["alt"] == (
        "Lab. Loss: nats against step; train; test."
    )
    figure = curves({"A": {"one": ([1], [2])}, "B": {"two": ([1], [2])}}, "s", "m")
    assert figure.layout.meta["alt"] == "A: m against s; one. B: m against s; two."
    assert panel_text("", "y", "") == "y"


def test_a_figure_in_dark_has_the_twins_of_its_colours():
    figure = describe(Figure(), CAPTION, [])
    figure.add_scatter(x=np.arange(3.0), y=[1, 2, 3], line={"color": COLOURS[0]})
    black = figure.in_theme("dark")
    assert black.data[0].line.color == dark(COLOURS[0]) != COLOURS[0]
    drawn = [json.loads(each.to_json())["data"][0] for each in (figure, black)]
    assert drawn[0]["x"] == drawn[1]["x"] and drawn[0]["y"] == drawn[1]["y"]
    assert figure.data[0].line.color == COLOURS[0]
    assert figure.in_theme("light").data[0].line.color == COLOURS[0]
    with pytest.raises(ValueError, match="got 'grey'"):
        figure.in_theme("grey")
    json.dumps(black._repr_mimebundle_())
