"""What a live panel is declared by: its knobs, its rows and what is drawn of them."""

import dataclasses
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

KINDS = {bool: bool, int: numbers.Integral, float: numbers.Real, str: str}


@dataclasses.dataclass(frozen=True)
class Knob:
    """What is said of a field, of which `Controls` makes a knob.

    Attributes
    ----------
    first : int, float, bool or str, the first value, and the type of all
    low, high : number, bounds, both included, of a number without choices
    step : number, between two positions of a slider; for `log`, in powers of ten
    unit, help : str, shown beside the name, and in the text beside the knob
    choices : sequence, the values allowed; makes a drop-down list
    label : str, shown in place of the field's name
    log : bool, logarithmic slider; of an int, its values are whole
    look_for : str, one sentence beside the knob: what to look for when turning it
    restart : bool
        Whether a change begins the run anew; if not, it holds from the next step on.
        The text beside the knob says which.
    about : str
        Column of a run's rows that a turn may change: a live panel asks which way
        before the turn, and compares the run with the same run without the turn. The
        panel's words for the column may stand before it: ``"the noise: variance"``.
    name : str, of the field

    Raises
    ------
    TypeError, ValueError
        If these contradict each other, or exclude the first value.
    """

    first: Any
    low: float | None = None
    high: float | None = None
    step: float | None = None
    unit: str = ""
    help: str = ""
    choices: Sequence | None = None
    label: str = ""
    log: bool = False
    look_for: str = ""
    restart: bool = True
    about: str = ""
    name: str = "default"

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if type(self.first) not in KINDS:
            kind = type(self.first).__name__
            raise TypeError(
                f"{self.name} must be an int, float, bool or str, got {kind}"
            )
        ends = self.low, self.high
        if (self.low is None) != (self.high is None):
            low, high = ends
            raise ValueError(f"give both bounds or neither, got low={low}, high={high}")
        if self.low is None:
            free = type(self.first) in (bool, str)
            if self.log or not (free or self.choices):
                raise ValueError(f"a number needs bounds or choices, got {self.first}")
        elif not self.low < self.high:
            raise ValueError(f"low must be below high, got {ends}")
        elif self.log and self.low <= 0:
            raise ValueError(f"a logarithmic knob needs bounds > 0, got {ends}")
        self.checked(self.first)

    def checked(self, value: Any) -> Any:
        """Return a value in the field's type, or say why it is not allowed."""
        kind = self.kind
        if not isinstance(value, KINDS[kind]) or isinstance(value, bool) > (
            kind is bool
        ):
            wanted, given = kind.__name__, type(value).__name__
            raise TypeError(
                f"{self.name} must be of type {wanted}, got {given} {value!r}"
            )
        if self.choices is not None:
            good = value in self.choices
        else:  # asked this way round, nan is refused too
            good = self.low is None or self.low <= value <= self.high
        if not good:
            raise ValueError(f"{self.name} must be {self.span}, got {value!r}")
        return kind(value)

    def clip(self, value: Any) -> Any:
        """Return the value cut to its bounds: a log slider's ends are rounded."""
        return value if self.low is None else min(max(value, self.low), self.high)

    @property
    def span(self) -> str:
        """The values that are allowed, in words."""
        if self.choices is not None:
            return "one of " + ", ".join(map(str, self.choices))
        if self.low is None:
            return "on or off" if isinstance(self.first, bool) else "any text"
        return f"from {self.low:g} to {self.high:g} {self.unit}".rstrip()

    @property
    def kind(self) -> type:
        """The type of all values."""
        return type(self.first)

    @property
    def title(self) -> str:
        """The words before the knob."""
        return f"{self.words} [{self.unit}]" if self.unit else self.words

    @property
    def words(self) -> str:
        """The field's name, or what is shown in its place."""
        return self.label or self.name.replace("_", " ")

    def in_words(self, value: Any) -> str:
        """Return a value in words, after the name; of a text the name alone."""
        if self.span == "any text":
            return self.words
        shown = f"{value:.4g}" if isinstance(value, float) else value
        return f"{self.words} = {shown}"


def knob(default: Any, **options: Any) -> Any:
    """Declare a dataclass field as a knob, with the options that :class:`Knob` has."""
    return dataclasses.field(
        default=default, metadata={"knob": Knob(default, **options)}
    )


def knobs_of(parameters: Any) -> dict[str, Knob]:
    """Return the knobs of a dataclass by name, and check the values that it has."""
    found = {}
    for field in dataclasses.fields(parameters):
        if "knob" not in field.metadata:
            raise TypeError(f"parameter {field.name!r} must be declared by knob()")
        made = dataclasses.replace(field.metadata["knob"], name=field.name)
        made.checked(getattr(parameters, field.name))
        found[field.name] = made
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
    first = knobs()
    declared = knobs_of(first)
    clipped = {name: declared[name].clip(value) for name, value in values.items()}
    return dataclasses.replace(first, **clipped)


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
    panels : sequence of Lines, what is drawn of the rows; may be empty
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
    playable : mapping of a knob to values, at which an exported page plays the picture
        Such a picture has a story: it runs slowly, and the panels below it are folded.
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
