"""Knobs: a widget for each kind of field, what they say, and what they refuse."""

from dataclasses import dataclass

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


def test_each_field_has_its_widget_with_its_value():
    made = Controls(Parameters()).widgets
    assert {name: each.value for name, each in made.items()} == vars(Parameters())
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


def test_each_knob_says_what_a_change_does_and_what_to_look_for():
    controls = Controls(Parameters())
    for name, words in (
        ("rank", "restarts</span> from 1 to 64 terms, terms kept"),
        ("rate", "next step</span> from 0.0001 to 1 1/step</div><div>A loss &lt;below"),
        ("exact", "restarts</span> on or off"),
        ("cell", "one of rnn, lstm"),
        ("batch", "next step"),
    ):
        assert words in controls._texts[name].value


def test_a_turned_knob_is_heard_and_reset():
    controls, heard = Controls(Parameters()), []
    controls.observe(lambda _, changed: heard.extend(changed))
    made = controls.widgets
    made["rank"].value, made["cell"].value = 9, "lstm"
    made["rate"].index = len(made["rate"].options) - 1
    assert controls.value == Parameters(rank=9, rate=1, cell="lstm")
    assert heard == ["rank", "cell", "rate"]
    controls.set(rate=0.0123)  # between two round values
    assert made["rate"].label == "0.0123"


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
    shown = Controls(Parameters(name="<b>"), interactive=False)._still.html
    assert "rank=8" in shown and "&lt;b&gt;" in shown


def test_values_of_a_notebook_are_cut_to_the_knobs_bounds():
    assert within(Parameters, rank=100, noise=-1.0) == Parameters(rank=64)


@dataclass(frozen=True)
class Plain:
    size: int = 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: knob(9, low=1, high=8), "default must be from 1 to 8, got 9"),
        (lambda: knob(1, low=1), "both bounds or neither"),
        (lambda: knob(1, low=2, high=1), "low must be below high"),
        (lambda: knob(1.0, low=0, high=1, log=True), "bounds > 0"),
        (lambda: knob(1.0), "needs bounds or choices"),
        (lambda: knob("c", choices=("a", "b")), "one of a, b"),
        (lambda: knob((1, 2)), "int, float, bool or str, got tuple"),
        (lambda: Controls(Plain()), r"'size' must be declared by knob\(\)"),
        (lambda: Controls(Parameters), "instance of a dataclass"),
        (lambda: Controls(Parameters(rank=0)), "rank must be"),
        (lambda: Controls(Parameters(), front=["rat"]), "unknown parameter 'rat'"),
    ],
)
def test_what_cannot_be_a_knob_is_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
