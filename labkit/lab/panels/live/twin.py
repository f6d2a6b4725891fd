"""The same run without a turn of a knob, so that the training is not credited to it."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from labkit.lab.panels.figures.kinds import number
from labkit.lab.panels.live.cells import MIN_SLEEP

if TYPE_CHECKING:
    from labkit.lab.panels.live.experiment import Experiment

ROWS = 10  # rows after a turn at which the two runs are compared
MOST = 60  # where none of those has the column, the first row that has it, up to here
LONGEST = 5.0  # seconds that a replay may take
LEAST = 0.02  # a smaller difference, as a share of the value, counts as none
ANSWERS = ("up", "down", "nothing")

Turn = tuple[int, Mapping[str, Any]]  # measured rows before it, and the values turned


def replay(
    experiment: "Experiment",
    problem: Iterable[Any],
    knobs: Mapping[str, Any],
    turns: Iterable[Turn] = (),
) -> Iterator[Mapping]:
    """Yield the measured rows of a run that begins anew and is turned as another was.

    Rows of a training before, which one run may have and another takes from a cache,
    are left out and not counted.

    Parameters
    ----------
    experiment : Experiment
    problem : what its ``rows`` are handed after the settings
    knobs : mapping, the values at the beginning
    turns : of the other run, in order
    """
    settings, left, done = SimpleNamespace(**knobs), list(turns), 0
    rows = experiment.rows(settings, *problem)
    while True:
        while left and left[0][0] <= done:
            vars(settings).update(left.pop(0)[1])
        row = next(rows, None)
        if row is None:
            return
        if row.get("measured", True):
            done += 1
            yield row


def direction(without: float, turned: float) -> str:
    """Return which way a turn moved a value, beside the value without the turn.

    Examples
    --------
    >>> direction(28, 55), direction(28, 28.1)
    ('up', 'nothing')
    """
    if abs(turned - without) <= LEAST * max(abs(turned), abs(without)):
        return "nothing"
    return "up" if turned > without else "down"


class Twin:
    """The run without one turn of a knob, and how the real run compares with it.

    Parameters
    ----------
    rows : iterator of measured rows, of the run without the turn; see `replay`
    knob, column, words : str
        What was turned; what it is about, as a column and in words.
    since : int, measured rows of both runs before the turn
    known : float, newest number in the column before the turn, nan if there is none
        The replay has to come to the same, or no answer is given.
    predicted : str, optional, the reader's answer to the knob's question
    unit : str, written behind both values
    seconds : float, how long the replay is expected to take
    lock : held while a row is computed
    on_row : callable, called after each row of the replay

    Attributes
    ----------
    shown : list of rows without the turn, after it
    """

    def __init__(
        self,
        rows: Iterator[Mapping],
        knob: str,
        column: str,
        words: str,
        *,
        since: int,
        known: float,
        predicted: str | None,
        unit: str = "",
        seconds: float,
        lock: AbstractContextManager,
        on_row: Callable[[], None],
    ):
        self.knob, self.column, self.words = knob, column, words
        self.predicted = predicted
        self._unit = unit
        self.since, self.shown, self._turned_at = since, [], since
        self.refused = ""  # why there is no answer
        self.kept = False  # whether the prediction has been added to the score
        self._rows, self._known, self._lock, self._on_row = rows, known, lock, on_row
        self._count, self._ended, self._newest = 0, False, math.nan
        self._without, self._turned = [], []  # values of the column, row by row
        self._chance = torch.get_rng_state()
        if seconds > LONGEST:
            said = f"to repeat {since + ROWS} steps would take about {seconds:.0f} s"
            self.refused = f"no answer: {said}"

    def again(self, since: int) -> None:
        """Hear that the same hand has turned the knob further, after more rows."""
        del self.shown[: since - self.since]
        del self._without[: since - self.since]
        self.since, self._turned = since, []

    def add(self, row: Mapping) -> None:
        """Take in a measured row of the real run, after the turn."""
        if len(self._turned) < MOST:
            self._turned.append(number(row.get(self.column)))

    @property
    def done(self) -> bool:
        """Whether the replay need not go on."""
        found = sum(map(math.isfinite, self._without)) > 0
        enough = len(self._without) >= (ROWS if found else MOST)
        return bool(self.refused) or self._ended or enough

    @property
    def whole(self) -> bool:
        """Whether the answer will not change any more."""
        compared = self._compared()
        return compared is not None and min(len(self._turned), MOST) >= ROWS

    def take(self, _turn: object) -> float | None:
        """Compute a row; see :func:`labkit.lab.panels.live.cells.run`."""
        with self._lock:
            if not self.done:
                self._advance()
            self._on_row()
        return None if self.done else MIN_SLEEP

    def finish(self) -> None:
        """Compute all that is needed, at once."""
        while self.take(None):
            pass

    def _advance(self) -> None:
        # Two runs that share torch's random numbers would disturb each other.
        with torch.random.fork_rng():
            torch.set_rng_state(self._chance)
            try:
                row = next(self._rows, None)
            except Exception as error:
                row, name = None, type(error).__name__
                self.refused = f"no answer: the run without the turn ends, {name}"
            self._chance = torch.get_rng_state()
        self._ended = row is None
        if self._ended:
            return
        self._count += 1
        value = number(row.get(self.column))
        if self._count <= self._turned_at and math.isfinite(value):
            self._newest = value
        if self._count > self.since:
            self._without.append(value)
            self.shown.append(row)
        if self._count == self._turned_at and not self._same():
            self.refused = "no answer: this run cannot be repeated"

    @property
    def picture(self) -> tuple[Any, bool]:
        """The picture without the turn, None if there is none yet, and at which step.

        It is the one of the real run's newest step if the replay has come so far; then
        the second is True. Else it is the last one that the replay has.
        """
        at, there = len(self._turned), len(self.shown)
        if self.refused or not at or not there:
            return None, False
        return self.shown[min(at, there) - 1].get("pictures"), at <= there

    def _same(self) -> bool:
        both = self._newest, self._known
        return both[0] == both[1] or all(map(math.isnan, both))

    def _compared(self) -> tuple[int, float, float] | None:
        """Return the steps after the turn, and the values without and with it."""
        pairs = list(zip(self._without, self._turned, strict=False))
        found = [i for i, pair in enumerate(pairs) if all(map(math.isfinite, pair))]
        if not found or self.refused:
            return None
        at = next((i for i in reversed(found) if i < ROWS), found[0])
        return at + 1, *pairs[at]

    @property
    def happened(self) -> str | None:
        """Which way the turn moved the column; None where that is not known."""
        compared = self._compared()
        return compared and direction(*compared[1:])

    def __str__(self) -> str:
        """What the turn did, in a line; until then how far the replay is."""
        if (compared := self._compared()) is None:
            if self.refused or self.done:
                return self.refused
            step = f"step {self._count} of {self.since + ROWS}"
            return f"the same run goes on without the turn: {step}"
        steps, without, turned = compared
        count = f"{steps} steps" if steps > 1 else "1 step"
        unit = self._unit
        values = f"{self.words} {without:.3g}{unit} without, {turned:.3g}{unit} with"
        happened = self.happened
        said = {None: "", happened: ", as predicted"}
        judged = said.get(self.predicted, f", not {self.predicted} as predicted")
        return f"after {count}: {values}: {happened}{judged}"
