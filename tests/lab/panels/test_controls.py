from dataclasses import dataclass, field

import ipywidgets as widgets
import pytest

from labkit.lab.panels import Controls, knob

LOOK = "A loss <below> that of before."


@dataclass(frozen=True)
class Parameters:
    rank: int = knob(8, low=1, high=64, unit="terms", help="terms kept")
    rate: float = knob(
        1e-2, low=1e-4, high=1, unit="1/step", log=True, restart=False, look_for=LOOK
    )
    noise: float = knob(0, low=0, high=2, label="noise level")
    exact: bool = knob(True)
    cell: str = knob("rnn", choices=("rnn", "lstm"))
    batch: int = knob(16, choices=(16, 32))
    size: int = 5
    name: str = field(default="free")


@pytest.fixture(params=[True, False], ids=["interactive", "headless"])
def controls(request):
    return Controls(Parameters(), interactive=request.param)


def test_each_kind_of_field_has_its_widget():
    made = Controls(Parameters()).widgets
    kinds = {
        "rank": widgets.IntSlider,
        "rate": widgets.FloatLogSlider,
        "noise": widgets.FloatSlider,
        "exact": widgets.Checkbox,
        "cell": widgets.Dropdown,
        "batch": widgets.Dropdown,
        "size": widgets.IntText,
        "name": widgets.Text,
    }
    assert {name: type(widget) for name, widget in made.items()} == kinds
    for name, widget in made.items():
        assert widget.value == getattr(Parameters(), name)
        assert f"labkit-knob-{name}" in widget._dom_classes
    assert made["rank"].description == "rank [terms]"
    assert made["rank"].tooltip == "terms kept"
    assert made["noise"].description == "noise level"
    assert (made["rank"].min, made["rank"].max) == (1, 64)
    assert not made["rank"].continuous_update and not made["rate"].continuous_update


def test_set_changes_some_and_calls_back_once(controls):
    heard = []
    stop = controls.observe(lambda *news: heard.append(news))
    controls.set(rate=1e-4, size=5, rank=16)
    assert controls.value == Parameters(rank=16, rate=1e-4)
    assert heard == [(controls.value, ("rank", "rate"))]
    assert type(controls.value) is Parameters
    controls.set(rank=16)
    assert len(heard) == 1  # nothing changed
    stop()
    stop()
    controls.set(rank=17)
    assert len(heard) == 1


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"rnak": 3}, ValueError, "unknown parameter 'rnak'; there are rank, rate"),
        ({"rank": 65}, ValueError, "rank must be from 1 to 64 terms, got 65"),
        ({"rate": float("nan")}, ValueError, "rate must be from 0.0001 to 1"),
        ({"cell": "gru"}, ValueError, "cell must be one of 'rnn', 'lstm', got 'gru'"),
        ({"rank": 2.5}, TypeError, "rank must be of type int, got float"),
        ({"rank": True}, TypeError, "rank must be of type int, got bool"),
        ({"exact": 1}, TypeError, "exact must be of type bool"),
        ({"rate": "1e-3"}, TypeError, "rate must be of type float, got str"),
    ],
)
def test_bad_values_are_refused_all_or_none(controls, values, error, message):
    heard = []
    controls.observe(lambda *news: heard.append(news))
    with pytest.raises(error, match=message):
        controls.set(noise=1.0, **values)
    assert controls.value == Parameters() and heard == []


def test_reset_goes_back_to_the_first_values(controls):
    controls.set(rank=3, cell="lstm")
    heard = []
    controls.observe(lambda *news: heard.append(news))
    controls.reset()
    assert controls.value == Parameters()
    assert heard == [(Parameters(), ("rank", "cell"))]
    if controls.interactive:
        assert controls.widgets["rank"].value == 8
        controls.set(rank=3)
        (button,) = find(controls.widget, "labkit-knobs-reset")
        button.click()
        assert controls.value == Parameters() and controls.widgets["rank"].value == 8


def find(widget, css_class):
    """All widgets below one, itself included, that have the class."""
    children = getattr(widget, "children", ())
    own = [widget] if css_class in getattr(widget, "_dom_classes", ()) else []
    return own + [found for child in children for found in find(child, css_class)]


def test_each_knob_says_what_a_change_does_and_what_to_look_for():
    controls = Controls(Parameters())
    texts = [text.value for text in find(controls.widget, "labkit-knob-text")]
    said = dict(zip(controls.widgets, texts, strict=True))
    assert "restarts</span> 1 to 64 terms, terms kept" in said["rank"]
    assert (
        "next step</span> 0.0001 to 1 1/step</div><div>A loss &lt;below" in said["rate"]
    )
    assert "restarts</span> on or off" in said["exact"]
    assert "2 choices" in said["cell"] and "any number" in said["size"]
    assert controls.restarts("rank") and controls.restarts("name")
    assert not controls.restarts("rate")


def test_refuses_a_front_that_is_no_field():
    with pytest.raises(ValueError, match="unknown parameter 'rat'; there are rank"):
        Controls(Parameters(), front=["rat"])


def test_whether_a_knob_restarts_may_hang_on_another():
    @dataclass(frozen=True)
    class Methods:
        method: str = knob("OK", choices=("OK", "UORO"))
        rank: int = knob(1, low=1, high=9, restart=lambda all: all.method != "OK")

    controls = Controls(Methods())

    def said():
        return find(controls.widget, "labkit-knob-text")[1].value

    assert not controls.restarts("rank") and "next step" in said()
    controls.set(method="UORO")
    assert controls.restarts("rank") and "restarts" in said()


def test_a_turned_knob_is_heard():
    controls = Controls(Parameters())
    heard = []
    controls.observe(lambda *news: heard.append(news))
    controls.widgets["rank"].value = 9
    controls.widgets["rate"].value = 1.0000000000001  # rounding past the bound
    controls.widgets["cell"].value = "lstm"
    assert controls.value == Parameters(rank=9, rate=1, cell="lstm")
    assert [changed for _, changed in heard] == [("rank",), ("rate",), ("cell",)]


def test_what_the_dataclass_refuses_is_put_back_and_said():
    @dataclass(frozen=True)
    class Pair:
        low: int = knob(1, low=0, high=9)
        high: int = knob(5, low=0, high=9)

        def __post_init__(self):
            if self.low > self.high:
                raise ValueError("low <= high, please")

    controls = Controls(Pair())
    controls.widgets["low"].value = 6
    assert controls.value == Pair() and controls.widgets["low"].value == 1
    (message,) = find(controls.widget, "labkit-knobs-message")
    assert "low &lt;= high" in message.value
    controls.widgets["low"].value = 2
    assert controls.value == Pair(low=2) and message.value == ""


def test_headless_its_values_stand_there():
    controls = Controls(Parameters(name="<b>"), interactive=False)
    assert controls.widget is None and controls.widgets == {}
    text = controls._repr_mimebundle_()["text/html"]
    assert "rank=8" in text and "&lt;b&gt;" in text


@pytest.mark.parametrize(
    ("default", "options", "message"),
    [
        (9, {"low": 1, "high": 8}, "default must be from 1 to 8, got 9"),
        (1, {"low": 1}, "both bounds or neither"),
        (1, {"low": 2, "high": 1}, "low must be below high"),
        (1.0, {"low": 0, "high": 1, "log": True}, "bounds > 0"),
        ("c", {"choices": ("a", "b")}, "one of 'a', 'b'"),
    ],
)
def test_inconsistent_knobs_are_refused(default, options, message):
    with pytest.raises(ValueError, match=message):
        knob(default, **options)


def test_what_cannot_be_a_knob_is_refused():
    @dataclass(frozen=True)
    class Listed:
        sizes: tuple = (1, 2)

    @dataclass(frozen=True)
    class Logarithmic:
        rank: bool = knob(True, low=1, high=9, log=True)

    for error, message, parameters in (
        (TypeError, "'sizes' must be", Listed()),
        (TypeError, "only a number", Logarithmic()),
        (TypeError, "instance of a dataclass", Parameters),
        (ValueError, "rank must be", Parameters(rank=0)),
    ):
        with pytest.raises(error, match=message):
            Controls(parameters)
