"""What a live panel is declared by: its knobs, its rows and what is drawn of them."""

import dataclasses
import numbers
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from labkit.check import (
    FUNCTION,
    NUMBER,
    YES_OR_NO,
    Range,
    check_options,
    described,
    optional,
)

TEXT = Range("a text", lambda v: isinstance(v, str))
VALUES = Range("a sequence", lambda v: isinstance(v, list | tuple | range))
VALUE = Range(
    "a number or a text", lambda v: isinstance(v, bool | str) or NUMBER.holds(v)
)
KNOB = {  # what `knob` says of a field
    **dict.fromkeys(("low", "high", "step"), optional(NUMBER)),
    **dict.fromkeys(("unit", "help", "look_for", "about"), TEXT),
    "label": optional(TEXT),
    "log": YES_OR_NO,
    "choices": optional(VALUES),
    "offers": VALUES,
    "restart": Range(
        "True, False or a function", lambda v: YES_OR_NO.holds(v) or FUNCTION.holds(v)
    ),
}

KINDS = (bool, int, float, str)


@dataclasses.dataclass(frozen=True)
class Knob:
    """One field: its name and type, and what `knob` says of it."""

    name: str
    kind: type
    low: Any = None
    high: Any = None
    step: Any = None
    unit: str = ""
    help: str = ""
    choices: tuple | None = None
    offers: tuple[str, ...] = ()
    label: str | None = None
    log: bool = False
    look_for: str = ""
    restart: bool | Callable[[Any], bool] = True
    about: str = ""

    def checked(self, value: Any) -> Any:
        """Return a value in the field's type; a TypeError if it has another."""
        number = {int: numbers.Integral, float: numbers.Real}.get(self.kind)
        fits = isinstance(value, number or self.kind)
        if not fits or (number and isinstance(value, bool)):
            wanted, kind = self.kind.__name__, type(value).__name__
            raise TypeError(
                f"{self.name} must be of type {wanted}, got {kind} {value!r}"
            )
        self.check(value)
        return self.kind(value)

    def check(self, value: Any) -> None:
        """Raise a ValueError for a value that is not allowed, whatever its type."""
        if self.choices is not None:
            good = value in self.choices
        else:  # asked this way round, nan is refused too
            good = self.low is None or self.low <= value <= self.high
        if not good:
            raise ValueError(f"{self.name} must be {self.allowed}, got {value!r}")

    def clip(self, value: Any) -> Any:
        """Return the value cut to its bounds: a log slider's ends are rounded."""
        return value if self.low is None else min(max(value, self.low), self.high)

    @property
    def allowed(self) -> str:
        """The values that are allowed, in words."""
        if self.choices is not None:
            return "one of " + ", ".join(map(repr, self.choices))
        if self.low is None:
            return "any"
        return f"from {self.low} to {self.high} {self.unit}".rstrip()

    @property
    def span(self) -> str:
        """The same in a few characters."""
        if self.choices is not None:
            return f"{len(self.choices)} choices"
        if self.low is None:
            return {bool: "on or off", str: "any text"}.get(self.kind, "any number")
        return f"{self.low:g} to {self.high:g} {self.unit}".rstrip()

    @property
    def title(self) -> str:
        """The words before the knob."""
        name = self.label or self.name.replace("_", " ")
        return f"{name} [{self.unit}]" if self.unit else name


def knob(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    step: float | None = None,
    unit: str = "",
    help: str = "",
    choices: Sequence | None = None,
    offers: Sequence[str] = (),
    label: str | None = None,
    log: bool = False,
    look_for: str = "",
    restart: bool | Callable[[Any], bool] = True,
    about: str = "",
) -> Any:
    """Declare a dataclass field, by its metadata, that `Controls` makes a knob of.

    Parameters
    ----------
    default : int, float, bool or str, the first value
    low, high : number, bounds, both included; both or neither
        A ValueError if they or the choices are inconsistent or exclude the default.
    step : number, between two positions of a slider; for `log`, in powers of ten
    unit, help : str, shown beside the name, and in the text beside the knob
    choices : sequence, the values allowed; makes a drop-down list
    offers : sequence of str, of a string: values in a list, beside which any is typed
    label : str, shown in place of the field's name
    log : bool, logarithmic slider; of an int, its values are rounded
    look_for : str, one sentence beside the knob: what to look for when turning it
    restart : bool or callable
        Whether a change begins the run anew; if not, it holds from the next step on.
        The text beside the knob says which. A function is given the values of all
        knobs, since one method may allow what another does not.
    about : str
        Column of a run's rows that a turn may change: a live panel asks which way
        before the turn, and compares the run with the same run without the turn. The
        panel's words for the column may stand before it: ``"the noise: variance"``.
    """
    said = dict(locals())
    del said["default"]
    check_options(said, KNOB)
    if isinstance(default, str) and low is not None:
        raise ValueError(f"only a number has bounds, got default={default!r}")
    check_options({"default": default}, {"default": VALUE})
    said["choices"] = None if choices is None else tuple(choices)
    said["offers"] = tuple(offers)
    if (low is None) != (high is None):
        raise ValueError(f"give both bounds or neither, got low={low}, high={high}")
    if low is not None and not low < high:
        raise ValueError(f"low must be below high, got low={low}, high={high}")
    if log and (low is None or low <= 0):
        raise ValueError(f"a logarithmic knob needs bounds > 0, got low={low}")
    Knob("default", type(default), **said).check(default)
    return dataclasses.field(default=default, metadata=said)


def knobs_of(parameters: Any) -> dict[str, Knob]:
    """Return the knobs of a dataclass by name, and check the values that it has."""
    try:
        hints = typing.get_type_hints(type(parameters))
    except NameError:  # an annotation that only its own scope could resolve
        hints = {}
    found = {}
    for field in (each for each in dataclasses.fields(parameters) if each.init):
        name, value = field.name, getattr(parameters, field.name)
        # The type annotated, else that of the value.
        kind = next((k for k in (hints.get(name), type(value)) if k in KINDS), None)
        if kind is None:
            what = f"got {type(value).__name__} {value!r}"
            message = f"parameter {name!r} must be an int, float, bool or str, {what}"
            raise TypeError(message)
        said = {k.name for k in dataclasses.fields(Knob)} & field.metadata.keys()
        found[name] = Knob(name, kind, **{key: field.metadata[key] for key in said})
        found[name].checked(value)
        if found[name].log and kind not in (int, float):
            raise TypeError(f"{name}: only a number can have a logarithmic knob")
    return found


def within(knobs: type, **values: Any) -> Any:
    """Return knobs with some values, each cut to the bounds that its knob declares.

    Parameters
    ----------
    knobs : type, dataclass with fields made by :func:`knob`
    values : numbers, by the names of knobs

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Knobs:
    ...     rank: int = knob(1, low=1, high=16)
    >>> within(Knobs, rank=100)
    Knobs(rank=16)
    """
    if not (isinstance(knobs, type) and dataclasses.is_dataclass(knobs)):
        raise TypeError(f"knobs must be a dataclass, got {described(knobs)}")
    declared = knobs_of(knobs())
    bounded = {name for name, each in declared.items() if each.low is not None}
    check_options(
        values, {name: NUMBER if name in bounded else VALUE for name in declared}
    )
    return knobs(**{name: declared[name].clip(value) for name, value in values.items()})


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What can be turned, what runs, and what is drawn of it.

    Attributes
    ----------
    name : str, each run writes its own trace, ``NAME-1.jsonl``, ``NAME-2.jsonl``, ...
    knobs : type, frozen dataclass with fields made by :func:`~labkit.lab.panels.knob`
    rows : callable
        ``rows(settings, *problem)`` yields mappings to log, each with ``step``.
        ``settings`` has the knobs as attributes. Knobs declared with ``restart=False``
        change between two rows, so ``rows`` reads them before each step; the others
        never change in one run. A row with ``measured`` False, such as one of a
        training before, does not count towards :meth:`LiveLab.run`. A row may hold
        under ``pictures`` what ``picture`` draws; that is not logged.
    panels : sequence of Lines and Bars, what is drawn of the rows; may be empty
    caption : str, the sentence below the figure: what to look at, and what it means
    status : callable, from a row to the line of text under the buttons
    front : tuple of str, knobs that are always in sight; the others are folded
    picture : callable, draws what rows hold under ``pictures``; see
        :class:`~labkit.lab.panels.figures.images.Scene`
    opening : callable, ``opening(settings, *problem)``
        Returns what ``picture`` draws before the first step. A panel that is made calls
        it, so it trains nothing and builds no optimiser of torch.
    drag : callable, ``drag(now, knobs, name, index, point)``
        Returns the values of knobs, by name, that a hand on the picture of an
        :class:`~labkit.lab.panels.Opening` turns, which has brought to ``point`` what
        :attr:`~labkit.lab.panels.figures.plot.Plot.touched` names.
    playable : mapping of a knob to values, at which an exported page can play a run
    """

    name: str
    knobs: type
    rows: Callable[..., Iterator[Mapping]]
    panels: Sequence
    caption: str = ""
    status: Callable[[Mapping], str] | None = None
    front: tuple[str, ...] | None = None
    picture: Callable[[Any, Any], dict] | None = None
    opening: Callable[..., Any] | None = None
    drag: Callable[..., dict] | None = None
    playable: Mapping[str, Sequence] = dataclasses.field(default_factory=dict)
