"""The knobs of a lab: one labelled widget for each field of a parameters dataclass."""

import dataclasses
import html
import math
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from labkit.lab.panels.figures.shown import Page, Shown
from labkit.lab.panels.live.aria import Aria
from labkit.lab.panels.live.experiment import Knob, knobs_of
from labkit.lab.panels.live.turn import ANSWERS

LAYOUT = {"width": "auto", "margin": "0"}
STYLE = {"description_width": "auto"}
SKIP = "skip"  # the answer of a reader who does not want to predict
SAME = 1e-6  # a smaller change, as a share, is a slider's rounding, and no turn
ROUND = (1, 1.25, 1.6, 2, 2.5, 3, 4, 5, 6, 8)  # where a logarithmic slider stands
# A column of knobs, or rows of them where it is wide: the name above each, what it does
# in one place below them all, while it is touched. The rest is folded by a button, in
# the page alone, since a kernel may be at work.
_STYLE = """<style>
.labkit-screen.labkit-screen, .labkit-side.labkit-side, .labkit-side .labkit-controls {
  overflow: visible}
.labkit-side {container-type: inline-size}
.labkit-controls {position: relative; padding-bottom: 164px}
/* JupyterLab gives each box a scroll of its own, which would cut the hint off. */
.labkit-controls .labkit-knobs {display: flex; flex-flow: row wrap;
  align-content: flex-start; position: static; overflow: visible}
.labkit-controls .labkit-knob-row {flex: 1 1 190px; max-width: 320px;
  margin: 0 8px 2px 0; position: static; overflow: visible}
.labkit-knob-row > :first-child {flex-wrap: wrap; height: auto}
.labkit-knob-row .widget-label {flex: 0 0 100%; text-align: left; width: auto;
  line-height: 22px; height: 22px}
.labkit-knob-row .slider-container {flex: 1 1 60px; min-width: 60px; margin-left: 8px}
.labkit-knob-row .widget-readout {flex: 0 0 auto}
.labkit-knob-row .widget-checkbox .widget-label {flex: 0 0 auto}
.labkit-knob-row .widget-label:empty {display: none}
.labkit-controls .labkit-knob-hint {position: absolute; bottom: 0; left: 0; right: 0;
  height: 160px; margin: 0; visibility: hidden; overflow: hidden auto; z-index: 2}
/* Where the knobs stand above the picture, the hint lies over what is below them: they
   are wider there, on a phone too, than the 212 pixels that they have beside it. */
@container (min-width: 225px) {
  .labkit-controls.labkit-controls {padding-bottom: 0}
  .labkit-controls .labkit-knob-hint {bottom: auto; top: 100%; height: auto;
    padding: 4px 8px; border: 1px solid var(--jp-border-color1, #bdbdbd);
    background: var(--jp-layout-color1, white)}
}
/* Where there is room for it beside them, as in a page that is enlarged, it covers no
   button. */
@container (min-width: 400px) {
  .labkit-controls.labkit-controls {padding-right: 208px; min-height: 140px}
  .labkit-controls .labkit-knob-hint {top: 0; left: auto; width: 184px;
    max-height: 100%}
}
.labkit-knob-row:focus-within > .labkit-knob-hint {visibility: visible}
.labkit-knobs:not(:focus-within) > .labkit-knob-row:hover > .labkit-knob-hint {
  visibility: visible}
.labkit-controls .labkit-waits > .labkit-knob-hint {visibility: visible; z-index: 3}
.labkit-waits .labkit-predict {outline: 2px solid #C25310; outline-offset: 2px}
.labkit-screen .jupyter-widgets.labkit-note {white-space: normal; height: auto}
.labkit-knob-text .widget-html-content {line-height: 1.35; padding: 2px 0;
  font-size: 12px; color: var(--jp-ui-font-color1, inherit)}
.labkit-knob-row .labkit-predict {flex-flow: row wrap; height: auto; margin: 0}
.labkit-predict.labkit-predict .widget-label {white-space: normal; height: auto}
.labkit-predict .widget-toggle-button {padding: 0 6px; font-size: 12px}
.labkit-right .mod-active::after {content: " ✓"}
.labkit-wrong .mod-active::after {content: " ✗"}
.labkit-knob-mark {border: 1px solid currentColor; border-radius: 3px; padding: 0 4px;
  margin-right: 4px; white-space: nowrap}
.labkit-opening .labkit-knob-mark {display: none}
.labkit-controls .labkit-folded {display: none}
.labkit-controls .labkit-more:has(.mod-active) ~ .labkit-folded {display: flex}
</style>"""


class Controls(Shown):
    """Labelled knobs for the fields of a parameters dataclass.

    Numbers become sliders, bools check boxes, values with choices drop-down lists,
    other strings text boxes.

    Parameters
    ----------
    parameters : dataclass instance, the first values; its fields are made by `knob`
    front : sequence of str, knobs always in sight; all if not given, else folded
    interactive : bool, make widgets; otherwise the values are shown

    Attributes
    ----------
    widget : ipywidgets.VBox or None
        All knobs, each with the CSS class ``labkit-knob-<name>``. Below them stand what
        the knob under the hand does, and the question which way its column will go
        (``labkit-predict``); a button that unfolds more knobs, and a button that goes
        back to the first values (``labkit-knobs-reset``).
    knobs : dict of Knob, by the names of the fields
    widgets : dict, the same as widgets; empty headless
    asks : callable, from the name of a knob
        Whether a knob that is about a column waits for a prediction when a hand turns
        it. The reader may skip the question; the knob then waits no more until it is
        answered again.
    asked : dict, the questions by the names of their knobs

    Raises
    ------
    TypeError, ValueError
        If a field is no knob, or `front` names no field.

    Examples
    --------
    >>> from labkit.lab.panels import knob
    >>> @dataclasses.dataclass(frozen=True)
    ... class Parameters:
    ...     rank: int = knob(8, low=1, high=64, unit="terms")
    >>> controls = Controls(Parameters(), interactive=False)
    >>> controls.observe(print)
    >>> controls.set(rank=16)
    Parameters(rank=16) ('rank',)
    """

    def __init__(
        self,
        parameters: Any,
        *,
        front: Sequence[str] | None = None,
        interactive: bool = True,
    ):
        if not dataclasses.is_dataclass(parameters) or isinstance(parameters, type):
            kind = type(parameters).__name__
            raise TypeError(
                f"parameters must be an instance of a dataclass, got {kind}"
            )
        self._first = self._value = parameters
        self.knobs = knobs_of(parameters)
        front = tuple(self.knobs) if front is None else front
        self._known(front)
        self._observers: list[Callable] = []
        self._quiet = False  # true while the widgets follow the values, not the user
        self.interactive, self.widget = interactive, None
        self.widgets, self._texts, self.asked, self._rows = {}, {}, {}, {}
        self.asks: Callable[[str], bool] = lambda name: False
        self._answers = {}  # by name of a knob that is not turned yet; None: skipped
        self._held = None  # name and value of a knob that waits for an answer
        self._message = widgets.HTML().add_class("labkit-knobs-message")
        if interactive:
            self.widgets = {name: self._make(name) for name in self.knobs}
            self.widget = self._build(front)

    @property
    def value(self) -> Any:
        """The current values, an instance of the dataclass given."""
        return self._value

    def observe(self, callback: Callable) -> None:
        """Have `callback(new_value, changed)` called after a change.

        `changed` holds the names of the fields that changed.
        """
        self._observers.append(callback)

    def set(self, **values: Any) -> None:
        """Set some values from code, all or none; one call of the callbacks if changed.

        A TypeError or ValueError says what is allowed.
        """
        self._known(values)
        checked = {
            name: self.knobs[name].checked(value) for name, value in values.items()
        }
        self._commit(dataclasses.replace(self._value, **checked))

    def turn(self, **values: Any) -> None:
        """Set values as a hand does, cut to their bounds.

        A refusal is written below the knobs, and then all values stay.
        """
        self._message.value = ""
        try:
            self.set(
                **{name: self._by_hand(name, value) for name, value in values.items()}
            )
        except (ValueError, TypeError) as error:
            self._show()
            self._message.value = f"<b>{html.escape(str(error))}</b>"

    def reset(self) -> None:
        """Go back to the first values."""
        self._message.value = ""
        self._commit(self._first)

    def about(self, name: str) -> tuple[str, str]:
        """Return what this field's knob is about in words, and as a column."""
        words, _, column = self.knobs[name].about.partition(": ")
        return words, column or words

    def take_prediction(self, name: str) -> str | None:
        """Return the user's answer to the knob's question, and ask it anew."""
        if answer := self._answers.get(name):
            del self._answers[name]
        return answer

    def judge(self, name: str | None, right: bool = False) -> None:
        """Mark the answer to a knob's question as right or wrong, and no other."""
        for other, asked in self.asked.items():
            asked.remove_class("labkit-right").remove_class("labkit-wrong")
            if other == name:
                asked.add_class("labkit-right" if right else "labkit-wrong")

    def _by_hand(self, name: str, value: Any) -> Any:
        """Return a value within its bounds, without what a slider has rounded."""
        knob, now = self.knobs[name], getattr(self._value, name)
        value = knob.clip(value)
        near = isinstance(value, float) and math.isclose(value, now, rel_tol=SAME)
        return now if near else value

    def _commit(self, new) -> None:
        self._hold(None)
        old, self._value = self._value, new
        changed = tuple(
            name for name in self.knobs if getattr(old, name) != getattr(new, name)
        )
        self._show()
        if changed:
            for callback in self._observers:
                callback(new, changed)

    def _known(self, names) -> None:
        for name in names:
            if name not in self.knobs:
                there = ", ".join(self.knobs)
                raise ValueError(f"unknown parameter {name!r}; there are {there}")

    def _build(self, front) -> widgets.VBox:
        rows = {name: self._row(name, made) for name, made in self.widgets.items()}
        first = widgets.VBox([rows[name] for name in front])
        rest = widgets.VBox([row for name, row in rows.items() if name not in front])
        reset = widgets.Button(
            description="Reset knobs",
            icon="undo",
            tooltip="Back to the first values of all knobs",
            layout={"width": "auto"},
        )
        reset.on_click(lambda _: self.reset())
        below = [reset.add_class("labkit-knobs-reset")]
        if rest.children:
            more = widgets.ToggleButton(
                description=f"{len(rest.children)} more",
                icon="sliders",
                tooltip="Show the other knobs, or hide them",
                layout={"width": "auto"},
            )
            below.insert(0, more)
        parts = [
            widgets.HTML(_STYLE, layout={"display": "none"}),
            first.add_class("labkit-knobs"),
            # A button that is narrower has its name cut.
            widgets.HBox(below, layout={"flex_flow": "row wrap"}).add_class(
                "labkit-more"
            ),
            rest.add_class("labkit-knobs").add_class("labkit-folded"),
            self._message,
            Aria(),
        ]
        return widgets.VBox(parts).add_class("labkit-controls")

    def _make(self, name: str):
        knob = self.knobs[name]
        made = _widget(knob, getattr(self._value, name))
        made.description, made.tooltip = knob.title, knob.help or knob.title
        made.observe(lambda change: self._turned(name, change["new"]), names="value")
        return made.add_class(f"labkit-knob-{name}")

    def _row(self, name: str, made) -> widgets.Box:
        """A knob, and what can be known of it before it is turned."""
        self._texts[name] = text = widgets.HTML(self._text(name))
        parts = [text.add_class("labkit-knob-text")]
        if words := self.about(name)[0]:
            asked = widgets.ToggleButtons(
                options=(*ANSWERS, SKIP),
                value=None,
                description=f"Which way will {words} go?",
                style={"description_width": "auto", "button_width": "auto"},
            )
            asked.observe(lambda change: self._answered(name, change["new"]), "value")
            self.asked[name] = asked.add_class("labkit-predict")
            parts.insert(0, asked)  # the text below it may be long
        hint = widgets.VBox(parts).add_class("labkit-knob-hint")
        self._rows[name] = widgets.VBox([made, hint]).add_class("labkit-knob-row")
        return self._rows[name]

    def _text(self, name: str) -> str:
        knob = self.knobs[name]
        effect = "restarts" if knob.restart else "next step"
        facts = html.escape(", ".join(filter(None, (knob.span, knob.help))))
        # Where the reader is asked first, what is to be seen comes after the turn.
        asks = knob.about and getattr(self._value, name) == getattr(self._first, name)
        after = "" if asks else html.escape(knob.look_for)
        mark = f"<span class='labkit-knob-mark'>{effect}</span>"
        return f"<div>{mark} {facts}</div><div>{after}</div>"

    def _turned(self, name: str, value) -> None:
        """Take over what the user set; what the dataclass refuses is put back."""
        if self._quiet:
            return
        open_question = name in self.asked and name not in self._answers
        moved = self._by_hand(name, value) != getattr(self._value, name)
        if open_question and moved and self.asks(name):
            self._hold(name, value)
        else:
            self.turn(**{name: value})

    def _hold(self, name: str | None, value: Any = None) -> None:
        """Have this knob wait for a prediction, and no other; with None, none."""
        if self._held:
            before, self._held = self._held[0], None
            self._rows[before].remove_class("labkit-waits")
            self._message.value = ""
            if before != name:
                self._show()
        if name is not None:
            self._held, self.asked[name].value = (name, value), None
            self._rows[name].add_class("labkit-waits")
            title = html.escape(self.knobs[name].title)
            text = f"<b>{title}</b> waits: predict what it does, or skip."
            self._message.value = text

    def _answered(self, name: str, answer: str | None) -> None:
        """Hear a prediction; the knob that waited for it is turned."""
        if answer is None:
            return
        self._answers[name] = None if answer == SKIP else answer
        if answer == SKIP:
            self.asked[name].value = None
        if self._held and self._held[0] == name:
            value = self._held[1]
            self._hold(None)
            self.turn(**{name: value})

    def _show(self) -> None:
        """Have the widgets follow the values."""
        self._quiet = True
        try:
            for name, made in self.widgets.items():
                value = getattr(self._value, name)
                if self.knobs[name].log and value not in dict(made.options).values():
                    made.options = _stops(self.knobs[name], value)
                made.value = value
                self._texts[name].value = self._text(name)
        finally:
            self._quiet = False

    @property
    def _still(self) -> Page:
        return Page(f"<p>{html.escape(repr(self))}</p>", repr(self))

    def __repr__(self) -> str:
        return f"Controls({self._value!r})"


def _widget(knob: Knob, value):
    low, high, step = knob.low, knob.high, knob.step
    look = {"value": value, "style": STYLE, "layout": LAYOUT}
    if knob.choices is not None:
        return widgets.Dropdown(options=list(knob.choices), **look)
    if isinstance(value, bool):
        return widgets.Checkbox(indent=False, **look)
    # Without continuous_update a drag is one change, not a hundred.
    look["continuous_update"] = False
    if isinstance(value, str):
        return widgets.Text(**look)
    if knob.log:
        made = widgets.SelectionSlider(options=_stops(knob, value), **look)
        return made.add_class("labkit-stops")
    if knob.kind is int:
        return widgets.IntSlider(min=low, max=high, step=step or 1, **look)
    look |= {"readout_format": ".4", "step": step or (high - low) / 100}
    return widgets.FloatSlider(min=low, max=high, **look)


def _stops(knob: Knob, value: float) -> list[tuple[str, float]]:
    """Return the values of a logarithmic slider, with their names: round ones.

    The page would take a slider of powers for turned wherever it stands between two.
    """
    powers = range(math.floor(math.log10(knob.low)), math.ceil(math.log10(knob.high)))
    found = {
        knob.kind(float(f"{digit}e{power}")) for power in powers for digit in ROUND
    }
    found = {each for each in found if knob.low <= each <= knob.high}
    return [
        (f"{each:.4g}", each) for each in sorted(found | {knob.low, knob.high, value})
    ]
