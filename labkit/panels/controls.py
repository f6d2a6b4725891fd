"""The knobs of a lab: one labelled widget for each field of a parameters dataclass."""

import dataclasses
import html
import math
import numbers
import typing
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from labkit.panels.aria import Aria

KINDS = (bool, int, float, str)
LAYOUT = {"width": "400px", "flex": "0 0 auto"}
STYLE = {"description_width": "160px"}
# Beside the widget where there is room, else under it.
TEXT = {"flex": "1 1 300px", "min_width": "0"}
ROW = {"flex_flow": "row wrap", "align_items": "center"}


def knob(
    default,
    *,
    low=None,
    high=None,
    step=None,
    unit: str = "",
    help: str = "",
    choices=None,
    label: str | None = None,
    log: bool = False,
    look_for: str = "",
    restart: bool | Callable[[Any], bool] = True,
):
    """Declare a dataclass field that `Controls` can turn into a knob.

    Parameters
    ----------
    default : int, float, bool or str
        The first value.
    low, high : number, optional
        Bounds, both included; both or neither.
    step : number, optional
        Distance between two positions of a slider; for `log`, in powers of ten.
    unit, help : str
        Shown beside the name, and in the text beside the knob.
    choices : sequence, optional
        The values allowed; makes a drop-down list.
    label : str, optional
        Shown in place of the field's name.
    log : bool
        Logarithmic slider (floats only).
    look_for : str
        One sentence, shown beside the knob: what to look for when turning it.
    restart : bool or callable
        Whether a change begins the run anew; False: it holds from the next step of the
        run in progress on. Said beside the knob. A function is given the values of all
        knobs: what a method allows another may not.

    Returns
    -------
    dataclasses.Field
        Its metadata hold all of the above but the default.

    Raises
    ------
    ValueError
        If the bounds or choices are inconsistent or do not allow the default.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Parameters:
    ...     rank: int = knob(8, low=1, high=64, unit="terms", help="terms kept")
    >>> Parameters().rank
    8
    """
    metadata = {
        "low": low,
        "high": high,
        "step": step,
        "unit": unit,
        "help": help,
        "choices": None if choices is None else tuple(choices),
        "label": label,
        "log": log,
        "look_for": look_for,
        "restart": restart,
    }
    if (low is None) != (high is None):
        raise ValueError(f"give both bounds or neither, got low={low}, high={high}")
    if low is not None and not low < high:
        raise ValueError(f"low must be below high, got low={low}, high={high}")
    if log and (low is None or low <= 0):
        raise ValueError(f"a logarithmic knob needs bounds > 0, got low={low}")
    _check_allowed("default", default, metadata)
    return dataclasses.field(default=default, metadata=metadata)


# Of the static table.
COLUMNS = ("parameter", "value", "unit", "allowed", "a change", "what", "look for")

# Many knobs scroll, so that the figure below stays in sight while one is turned.
_STYLE = """<style>
.labkit-knobs {max-height: 45vh; overflow-y: auto}
.labkit-knobs > * {flex-shrink: 0}
.labkit-knob-text .widget-html-content {line-height: 1.35; padding: 2px 8px;
  color: var(--jp-ui-font-color1, inherit)}
.labkit-knob-mark {border: 1px solid currentColor; border-radius: 3px; padding: 0 4px;
  margin-right: 4px; font-size: 85%; white-space: nowrap}
</style>"""


class Controls:
    """Labelled knobs for the fields of a parameters dataclass.

    Ints and floats with bounds become sliders (without: boxes to type in), bools check
    boxes, values with choices drop-down lists, other strings text boxes.

    Parameters
    ----------
    parameters : dataclass instance
        The first values.  Its fields' metadata may hold what `knob` takes.
    only : sequence of str, optional
        Names of the fields that get a knob; the others stay what `set` makes them.
    interactive : bool
        Make widgets; otherwise a static table is shown, and `set` works all the same.

    Attributes
    ----------
    widget : ipywidgets.VBox or None
        All knobs, each with the CSS class ``labkit-knob-<name>``, beside each what it
        does, and a button back to the first values (``labkit-knobs-reset``); None
        headless.
    widgets : dict
        The knobs by field name; empty headless.

    Raises
    ------
    TypeError
        If `parameters` is no dataclass instance, a field has another type, or one
        that is no float is to be logarithmic.
    ValueError
        If a first value is not allowed, or `only` names no field.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Parameters:
    ...     rank: int = knob(8, low=1, high=64, unit="terms")
    >>> controls = Controls(Parameters(), interactive=False)
    >>> stop = controls.observe(print)
    >>> controls.set(rank=16)
    Parameters(rank=16) ('rank',)
    """

    def __init__(self, parameters, *, only=None, interactive: bool = True):
        if not dataclasses.is_dataclass(parameters) or isinstance(parameters, type):
            raise TypeError(
                "parameters must be an instance of a dataclass, "
                f"got {type(parameters).__name__}"
            )
        self._first = self._value = parameters
        self._fields = {f.name: f for f in dataclasses.fields(parameters) if f.init}
        self._kinds = _kinds(parameters, self._fields)
        for name in self._fields:
            self._checked(name, getattr(parameters, name))
            if (
                self._fields[name].metadata.get("log")
                and self._kinds[name] is not float
            ):
                raise TypeError(f"{name}: only a float can have a logarithmic knob")
        self._shown = tuple(self._fields if only is None else only)
        self._known(self._shown)
        self._observers: list[list[Callable]] = []
        self._quiet = False  # true while the widgets follow the values, not the user
        self.interactive = interactive
        self.widgets, self._texts = {}, {}
        self.widget = None
        if interactive:
            self._message = widgets.HTML()
            self._message.add_class("labkit-knobs-message")
            self.widgets = {name: self._make(name) for name in self._shown}
            rows = [self._row(name, made) for name, made in self.widgets.items()]
            reset = widgets.Button(
                description="Reset knobs",
                icon="undo",
                tooltip="Back to the first values of all knobs",
                layout={"width": "130px"},
            )
            reset.add_class("labkit-knobs-reset")
            reset.on_click(lambda _: self.reset())
            style = widgets.HTML(_STYLE, layout={"display": "none"})
            knobs = widgets.VBox(rows)
            knobs.add_class("labkit-knobs")
            self.widget = widgets.VBox([style, knobs, reset, self._message, Aria()])

    @property
    def value(self):
        """The current values, an instance of the dataclass given."""
        return self._value

    def observe(self, callback: Callable) -> Callable[[], None]:
        """Have `callback(new_value, changed)` called after a change.

        `changed` holds the names of the fields that changed.  Returns the unsubscribe.
        """
        entry = [callback]  # a fresh list: the same callback may be given twice
        self._observers.append(entry)

        def unsubscribe():
            self._observers = [e for e in self._observers if e is not entry]

        return unsubscribe

    def set(self, **values) -> None:
        """Set some values from code, all or none; one call of the callbacks if changed.

        Raises
        ------
        ValueError
            For an unknown name or a value out of bounds, saying what is allowed.
        TypeError
            For a value of the wrong type.
        """
        self._known(values)
        checked = {name: self._checked(name, v) for name, v in values.items()}
        self._commit(dataclasses.replace(self._value, **checked))

    def reset(self) -> None:
        """Go back to the first values."""
        if self.interactive:
            self._message.value = ""
        self._commit(self._first)

    def restarts(self, name: str) -> bool:
        """Whether a change of this field begins the run anew; see `knob`."""
        restart = self._fields[name].metadata.get("restart", True)
        return restart(self._value) if callable(restart) else restart

    def _commit(self, new) -> None:
        old, self._value = self._value, new
        changed = tuple(
            name for name in self._fields if getattr(old, name) != getattr(new, name)
        )
        self._show()
        if changed:
            for entry in list(self._observers):
                entry[0](new, changed)

    def _known(self, names) -> None:
        unknown = [name for name in names if name not in self._fields]
        if unknown:
            raise ValueError(
                f"unknown parameter {unknown[0]!r}; there are {', '.join(self._fields)}"
            )

    def _checked(self, name: str, value):
        kind = self._kinds[name]
        if not _fits(value, kind):
            raise TypeError(
                f"{name} must be of type {kind.__name__}, "
                f"got {type(value).__name__} {value!r}"
            )
        value = kind(value)
        _check_allowed(name, value, self._fields[name].metadata)
        return value

    def _make(self, name: str):
        field = self._fields[name]
        made = _widget(self._kinds[name], getattr(self._value, name), field.metadata)
        made.description = _label(field)
        made.tooltip = field.metadata.get("help") or _label(field)
        made.add_class(f"labkit-knob-{name}")
        made.observe(lambda change: self._turned(name, change["new"]), names="value")
        return made

    def _row(self, name: str, made) -> widgets.Box:
        """A knob, and beside it what can be known of it before it is turned."""
        self._texts[name] = text = widgets.HTML(self._text(name), layout=TEXT)
        text.add_class("labkit-knob-text")
        row = widgets.Box([made, text], layout=ROW)
        row.add_class("labkit-knob-row")
        return row

    def _text(self, name: str) -> str:
        metadata = self._fields[name].metadata
        mark = f"<span class='labkit-knob-mark'>{self._effect(name)}</span>"
        facts = [_span(self._kinds[name], metadata), metadata.get("help")]
        facts = html.escape(", ".join(fact for fact in facts if fact))
        look_for = html.escape(metadata.get("look_for") or "")
        return f"<div>{mark} {facts}</div><div>{look_for}</div>"

    def _effect(self, name: str) -> str:
        return "restarts" if self.restarts(name) else "next step"

    def _turned(self, name: str, value) -> None:
        """Take over what the user set; what the dataclass refuses is put back."""
        if self._quiet:
            return
        self._message.value = ""
        try:
            self.set(**{name: _clip(value, self._fields[name].metadata)})
        except (ValueError, TypeError) as error:
            self._show()
            self._message.value = f"<b>{html.escape(str(error))}</b>"

    def _show(self) -> None:
        """Have the widgets follow the values."""
        self._quiet = True
        try:
            for name, made in self.widgets.items():
                made.value = getattr(self._value, name)
                self._texts[name].value = self._text(name)
        finally:
            self._quiet = False

    def _table(self) -> str:
        cells = ["".join(f"<th>{title}</th>" for title in COLUMNS)]
        for name in self._shown:
            field = self._fields[name]
            row = (
                field.metadata.get("label") or name,
                getattr(self._value, name),
                field.metadata.get("unit") or "",
                _allowed(field.metadata),
                self._effect(name),
                field.metadata.get("help") or "",
                field.metadata.get("look_for") or "",
            )
            cells.append("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row))
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        if self.interactive:
            return self.widget._repr_mimebundle_(include=include, exclude=exclude)
        return {"text/html": self._table(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Controls({self._value!r})"


def _kinds(parameters, fields) -> dict[str, type]:
    """Return each field's type: as annotated, else the type of its value."""
    try:
        hints = typing.get_type_hints(type(parameters))
    except NameError:  # an annotation that only its own scope could resolve
        hints = {}
    kinds = {}
    for name in fields:
        value = getattr(parameters, name)
        kind = hints.get(name, type(value))
        kinds[name] = kind if kind in KINDS else type(value)
        if kinds[name] not in KINDS:
            raise TypeError(
                f"parameter {name!r} must be an int, float, bool or str, "
                f"got {type(value).__name__} {value!r}"
            )
    return kinds


def _fits(value, kind: type) -> bool:
    if kind in (bool, str):
        return isinstance(value, kind)
    number = numbers.Integral if kind is int else numbers.Real
    return isinstance(value, number) and not isinstance(value, bool)


def _check_allowed(name: str, value, metadata) -> None:
    low, high = metadata.get("low"), metadata.get("high")
    choices = metadata.get("choices")
    if choices is not None and value not in choices:
        raise ValueError(f"{name} must be {_allowed(metadata)}, got {value!r}")
    # Asked this way round, nan is refused too.
    if low is not None and high is not None and not low <= value <= high:
        raise ValueError(f"{name} must be {_allowed(metadata)}, got {value!r}")


def _allowed(metadata) -> str:
    if metadata.get("choices") is not None:
        return "one of " + ", ".join(map(repr, metadata["choices"]))
    if metadata.get("low") is None or metadata.get("high") is None:
        return "any"
    unit = f" {metadata['unit']}" if metadata.get("unit") else ""
    return f"from {metadata['low']} to {metadata['high']}{unit}"


def _span(kind: type, metadata) -> str:
    """Return the bounds in a few characters."""
    choices, low, high = (metadata.get(key) for key in ("choices", "low", "high"))
    if choices is not None:
        return f"{len(choices)} choices"
    if low is None or high is None:
        return {bool: "on or off", str: "any text"}.get(kind, "any number")
    unit = f" {metadata['unit']}" if metadata.get("unit") else ""
    return f"{low:g} to {high:g}{unit}"


def _clip(value, metadata):
    """Return the value within its bounds: a log slider's ends are rounded powers."""
    if metadata.get("low") is None or metadata.get("high") is None:
        return value
    return min(max(value, metadata["low"]), metadata["high"])


def _label(field) -> str:
    name = field.metadata.get("label") or field.name.replace("_", " ")
    unit = field.metadata.get("unit")
    return f"{name} [{unit}]" if unit else name


def _widget(kind: type, value, metadata):
    low, high = metadata.get("low"), metadata.get("high")
    step = metadata.get("step")
    look = {"value": value, "style": STYLE, "layout": LAYOUT}
    if metadata.get("choices") is not None:
        return widgets.Dropdown(options=list(metadata["choices"]), **look)
    if kind is bool:
        # Indented, the box stands under the other knobs, not at the left edge.
        return widgets.Checkbox(indent=True, **look)
    if kind is str:
        return widgets.Text(continuous_update=False, **look)
    if low is None or high is None:
        return (widgets.IntText if kind is int else widgets.FloatText)(**look)
    # Without continuous_update a drag is one change, not a hundred.
    look["continuous_update"] = False
    if kind is int:
        return widgets.IntSlider(min=low, max=high, step=step or 1, **look)
    if metadata.get("log"):
        # A hair wider than the bounds, else rounding could push an end value inside.
        ends = {"min": math.log10(low) - 1e-12, "max": math.log10(high) + 1e-12}
        return widgets.FloatLogSlider(
            **ends, step=step or 0.1, readout_format=".3g", **look
        )
    return widgets.FloatSlider(
        min=low, max=high, step=step or (high - low) / 100, readout_format=".4g", **look
    )
