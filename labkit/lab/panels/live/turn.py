"""What a turned knob does: the run with the turn beside its twin without it."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from labkit.lab.panels.figures.curves import number
from labkit.lab.panels.live.run import Run

ROWS = 10  # rows after a turn at which the two runs are compared
MOST = 60  # where none of those has the column, the first row that has it, up to here
LEAST = 0.02  # a smaller difference, as a share of the value, counts as none
ANSWERS = ("up", "down", "nothing")


def direction(without: float, turned: float) -> str:
    """Return which way a turn moved a value, beside the value without the turn.

    Examples
    --------
    >>> direction(28, 55), direction(28, 28.1)
    ('up', 'nothing')
    """
    near = LEAST * max(abs(turned), abs(without))
    if math.isfinite(turned) and abs(turned - without) <= near:
        return "nothing"
    return "up" if turned > without else "down"


class Question(NamedTuple):
    """What a turned knob is about, and the reader's answer, if there is one."""

    knob: str
    column: str
    words: str
    predicted: str | None


class Turn:
    """One turn of a knob, and what became of it.

    Parameters
    ----------
    question : Question
    run, twin : Run, with the turn and without it
    since : int, measured rows of both before the turn
    """

    def __init__(self, question: Question, run: Run, twin: Run, since: int):
        self.question, self.since = question, since
        self.run, self.twin = run, twin

    def catch_up(self) -> bool:
        """Have the twin take a step after the run; return whether there was one."""
        most = self.since + (ROWS if self.values else MOST)
        return self.twin.count < min(self.run.count, most) and self.twin.advance()

    @property
    def values(self) -> tuple[int, float, float] | None:
        """The steps after the turn, and the values without and with it."""
        found, new = None, slice(self.since, self.since + MOST)
        pairs = zip(self.twin.measured[new], self.run.measured[new], strict=False)
        for count, pair in enumerate(pairs, 1):
            without, turned = (number(row.get(self.question.column)) for row in pair)
            if count > ROWS and found:
                break
            if math.isfinite(without) and not math.isnan(turned):
                found = count, without, turned
        return found

    @property
    def whole(self) -> bool:
        """Whether the answer will not change any more."""
        first, last = sorted((self.run, self.twin), key=lambda run: run.count)
        over = first.ended or (last.ended and first.count == last.count)
        rows = first.count - self.since
        return bool(over) or rows >= (ROWS if self.values else MOST)

    @property
    def happened(self) -> str | None:
        """Which way the turn moved the column; None where that is not known."""
        return self.values and direction(*self.values[1:])

    def __str__(self) -> str:
        """What the turn did, in a line; until then what is waited for."""
        _, _, words, predicted = self.question
        if self.values is None:
            if not self.whole:
                return "the same run goes on without the turn"
            why = self.twin.ended or self.run.ended or f"no row has {words}"
            return f"no answer: {why}"
        steps, without, turned = self.values
        count = f"{steps} steps" if steps > 1 else "1 step"
        values = f"{words} {without:.3g} without, {turned:.3g} with"
        judged = {None: "", self.happened: ", as predicted"}
        judged = judged.get(predicted, f", not {predicted} as predicted")
        return f"after {count}: {values}: {self.happened}{judged}"


class Turns:
    """A run, its twin, and the newest turn of a knob.

    The twin is a second run of the same problem and seed that follows the first, and of
    a turn is simply not told the new value; then another begins to follow. Of a knob
    that begins the run anew the twin is the run before.

    Parameters
    ----------
    run : Run
    patience : float, steps that the twin may be behind and still is brought level
    """

    def __init__(self, run: Run, patience: float = math.inf):
        self.run, self._twin, self.newest = run, run.again(), None
        self._patience = patience

    @property
    def open(self) -> bool:
        """Whether a turn that was predicted waits for its answer."""
        turn = self.newest
        return bool(turn and turn.question.predicted) and not turn.whole

    def level(self) -> bool:
        """Whether the twin has come as far as the run; what little is left it does."""
        if self.run.count - self._twin.count <= self._patience:
            while self._twin.follow(self.run):
                pass
        return self._twin.count == self.run.count

    def step(self) -> bool:
        """Have a twin take a step after the run; return whether there was one."""
        behind = self.newest and self.newest.catch_up()
        return behind or self._twin.follow(self.run)

    def tell(self, values: Mapping[str, Any], question: Question | None) -> bool:
        """Tell the run of turned knobs, and not the twin, if a question is asked.

        A turn that waits for its answer gets it first: its twin is told the rest.
        Returns whether a hand goes on to turn the knob of the newest turn.
        """
        own = self.newest.question.knob if self.newest else None
        further = [*values] == [own] and not self.newest.whole
        further = further and not (question and question.predicted)
        if self.open or further:
            self.newest.twin.tell(
                {name: value for name, value in values.items() if name != own}
            )
        elif question and self.level():
            self.newest = Turn(question, self.run, self._twin, self.run.count)
            self._twin = self.run.again()
        else:
            self.newest = None
        self.run.tell(values)
        return further

    def begin_anew(self, run: Run, question: Question | None) -> None:
        """Go on with another run, and compare it with the one before.

        A turn that waits for its answer gets it first: both its runs begin anew.
        """
        before, self.run, self._twin = self.run, run, run.again()
        if self.open:
            knob = self.newest.question.knob
            without = vars(self.newest.twin.settings)[knob]
            twin = run.again(**{knob: without})
            self.newest = Turn(self.newest.question, run, twin, 0)
        else:
            self.newest = Turn(question, run, before, 0) if question else None
