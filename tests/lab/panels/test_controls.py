"""Knobs: a widget for each kind of field, what they say, and what they refuse."""

from dataclasses import dataclass

import ipywidgets as widgets
import pytest

from labkit.lab.panels import Controls, knob, within

LOOK = "A loss <below> that of before."


@dataclass(frozen=True)
class Parameters:
    rank: int = knob(8, low=1, high=64, unit="terms", help="terms kept")
    rate: float = knob(
        1e-2, low=1e-4, high=1, unit="1/step", log=True, restart=False, look_for=LOOK
    )
    noise: float = knob(0.0, low=0, high=2, label="noise level")
    exact: bool = knob(True)
    cell: str = knob("rnn", choices=("rnn", "lstm"))
    batch: int = knob(16, choices=(16, 32), restart=False, label="rows")
    name: str = knob("free")


@pytest.fixture(params=[True, False], ids=["interactive", "headless"])
def controls(request):
    return Controls(Parameters(), interactive=request.param)


def test_each_kind_of_field_has_its_widget():
    made = Controls(Parameters()).widgets
    kinds = {
        "rank": widgets.IntSlider,
        "rate": widgets.SelectionSlider,
        "noise": widgets.FloatSlider,
        "exact": widgets.Checkbox,
        "cell": widgets.Dropdown,
        "batch": widgets.Dropdown,
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
    controls.observe(lambda *news: heard.append(news))
    controls.set(rate=1e-4, cell="rnn", rank=16)
    assert controls.value == Parameters(rank=16, rate=1e-4)
    controls.set(rank=16)  # nothing changed
    assert heard == [(controls.value, ("rank", "rate"))]
    controls.reset()
    assert controls.value == Parameters() and len(heard) == 2
    if controls.interactive:
        assert controls.widgets["rank"].value == 8


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"rnak": 3}, ValueError, "unknown parameter 'rnak'; there are rank, rate"),
        ({"rank": 65}, ValueError, "rank must be from 1 to 64 terms, got 65"),
        ({"rate": float("nan")}, ValueError, "rate must be from 0.0001 to 1"),
        ({"cell": "gru"}, ValueError, "cell must be one of rnn, lstm, got 'gru'"),
        ({"rank": 2.5}, TypeError, "rank must be of type int, got float"),
        ({"rank": True}, TypeError, "rank must be of type int, got bool"),
        ({"exact": 1}, TypeError, "exact must be of type bool"),
        ({"rate": "1e-3"}, TypeError, "rate must be of type float, got str"),
    ],
)
def test_bad_values_are_refused_all_or_none(controls, values, error, message):
    with pytest.raises(error, match=message):
        controls.set(noise=1.0, **values)
    assert controls.value == Parameters()


def text(controls, name):
    return controls._texts[name].value


def test_each_knob_says_what_a_change_does_and_what_to_look_for():
    controls = Controls(Parameters())
    assert "restarts</span> from 1 to 64 terms, terms kept" in text(controls, "rank")
    wanted = "next step</span> from 0.0001 to 1 1/step</div><div>A loss &lt;below"
    assert wanted in text(controls, "rate")
    assert "restarts</span> on or off" in text(controls, "exact")
    assert "one of rnn, lstm" in text(controls, "cell")
    assert "next step" in text(controls, "batch")


def test_a_turned_knob_is_heard_and_reset():
    controls, heard = Controls(Parameters()), []
    controls.observe(lambda *news: heard.append(news))
    controls.widgets["rank"].value = 9
    controls.widgets["rate"].index = len(controls.widgets["rate"].options) - 1
    controls.widgets["cell"].value = "lstm"
    assert controls.value == Parameters(rank=9, rate=1, cell="lstm")
    assert [changed for _, changed in heard] == [("rank",), ("rate",), ("cell",)]
    controls.set(rate=0.0123)  # between two round values
    assert controls.widgets["rate"].label == "0.0123"


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
    assert "low &lt;= high" in controls._message.value
    controls.widgets["low"].value = 2
    assert controls.value == Pair(low=2) and controls._message.value == ""


def test_headless_its_values_stand_there():
    controls = Controls(Parameters(name="<b>"), interactive=False)
    assert controls.widget is None and controls.widgets == {}
    shown = controls._still.html
    assert "rank=8" in shown and "&lt;b&gt;" in shown


def test_values_of_a_notebook_are_cut_to_the_knobs_bounds():
    assert within(Parameters, rank=100, noise=-1.0) == Parameters(rank=64)


@pytest.mark.parametrize(
    ("default", "options", "message"),
    [
        (9, {"low": 1, "high": 8}, "default must be from 1 to 8, got 9"),
        (1, {"low": 1}, "both bounds or neither"),
        (1, {"low": 2, "high": 1}, "low must be below high"),
        (1.0, {"low": 0, "high": 1, "log": True}, "bounds > 0"),
        (1.0, {}, "needs bounds or choices"),
        ("c", {"choices": ("a", "b")}, "one of a, b"),
        ((1, 2), {}, "int, float, bool or str, got tuple"),
    ],
)
def test_inconsistent_knobs_are_refused(default, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        knob(default, **options)


def test_what_cannot_be_a_knob_is_refused():
    @dataclass(frozen=True)
    class Plain:
        size: int = 5

    for error, message, given in (
        (TypeError, r"'size' must be declared by knob\(\)", Plain()),
        (TypeError, "instance of a dataclass", Parameters),
        (ValueError, "rank must be", Parameters(rank=0)),
    ):
        with pytest.raises(error, match=message):
            Controls(given)
    with pytest.raises(ValueError, match="unknown parameter 'rat'; there are rank"):
        Controls(Parameters(), front=["rat"])
