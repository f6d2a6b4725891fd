"""One run of an experiment, with its settings and its rows."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from labkit.lab.panels.live.experiment import Experiment


class Chance:
    """torch's random numbers of one run alone: what draws meanwhile changes none.

    ``state`` is where they begin, by default where torch's are now. As a context it is
    entered for each step of the run.
    """

    def __init__(self, state: torch.Tensor | None = None):
        self.state = torch.get_rng_state() if state is None else state

    def __enter__(self) -> None:
        self._outside = torch.get_rng_state()
        torch.set_rng_state(self.state)

    def __exit__(self, *_: object) -> None:
        self.state = torch.get_rng_state()
        torch.set_rng_state(self._outside)


class Run:
    """A generator of an experiment's rows, and the settings that it reads.

    Its draws from torch's random numbers are its own: each row is computed in the
    state that the row before has left, so that two runs do not disturb each other.

    Parameters
    ----------
    experiment : Experiment
    problem : what its ``rows`` are handed after the settings
    knobs : mapping, the values at the beginning
    chance : tensor, the state of torch's random numbers at the beginning; that of now
        if not given

    Attributes
    ----------
    settings : the one object that the rows read; see :meth:`tell`
    measured : list of the measured rows, without their pictures
    picture : that of the newest row
    ended : str, why there is no further row; empty while there may be
    """

    def __init__(
        self,
        experiment: "Experiment",
        problem: Sequence[Any],
        knobs: Mapping[str, Any],
        chance: torch.Tensor | None = None,
    ):
        self._experiment, self._problem, self._knobs = experiment, problem, dict(knobs)
        self._chance = Chance(chance)
        self._begin = self._chance.state
        self.settings = SimpleNamespace(**knobs)
        self.measured, self.picture, self.ended = [], None, ""
        self._turns = []  # of each: measured rows before it, and the values told
        self._rows = experiment.rows(self.settings, *problem)

    @property
    def count(self) -> int:
        """How many measured rows there are."""
        return len(self.measured)

    def tell(self, values: Mapping[str, Any]) -> None:
        """Turn knobs: from the next row on the settings have these values."""
        self._turns.append((self.count, values))
        vars(self.settings).update(values)

    def again(self, **knobs: Any) -> "Run":
        """Return the same run at its beginning, perhaps with other values of knobs."""
        return Run(self._experiment, self._problem, self._knobs | knobs, self._begin)

    def __iter__(self) -> Iterator[Mapping]:
        return self

    def __next__(self) -> Mapping:
        try:
            with self._chance:
                row = next(self._rows)
        except StopIteration:
            self.ended = "it has ended"
            raise
        except Exception as error:
            self.ended = f"it ends with {type(error).__name__}"
            raise
        self.picture = row.get("pictures", self.picture)
        if row.get("measured", True):
            self.measured.append(
                {name: value for name, value in row.items() if name != "pictures"}
            )
        return row

    def follow(self, other: "Run") -> bool:
        """Take a step after another run that began alike, and is told the same.

        Returns whether there was one to take.
        """
        for count, values in other._turns[len(self._turns) :]:
            if count <= self.count:
                self.tell(values)
        return self.count < other.count and self.advance()

    def advance(self) -> bool:
        """Take a step, if there is one; what goes wrong is kept in ``ended``."""
        with contextlib.suppress(Exception):
            if not self.ended:
                next(self)
        return not self.ended
