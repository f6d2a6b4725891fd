"""Learning rules with ranges, tuned equally, then compared by one score.

A :class:`Comparison` makes runners of rules: tuning, a race and a race under noise are
all one :func:`~labkit.lab.race.run_race` of its runners.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
import torch
from scipy.stats import qmc
from torch import Tensor

from labkit.lab.claims import compared, plus_minus
from labkit.lab.datasets import Labelled
from labkit.lab.problem import Problem, with_noise
from labkit.lab.race import Runner, run_race, spread
from labkit.ranges import COUNT, check, one_of

TUNING_SEED = 1000  # from here on: weights, batches and nodes that serve no race


@dataclass(frozen=True)
class Sizes:
    """What a rule may read, and how large it is."""

    passes: int  # rows handed to it at most, in multiples of the training rows
    batch: int  # rows of a minibatch
    hidden: int  # units
    rank: int = 1  # of OK

    def __post_init__(self):
        check(vars(self), dict.fromkeys(vars(self), COUNT))


@dataclass(frozen=True)
class Rule:
    """A learning rule, and what is tuned of it.

    ``run(fit, sizes, values, seed)`` learns from ``fit`` and yields looks at its
    network, ``(passes, seconds, outputs)``: rows handed to it / training rows, its own
    work, both so far, and a function of inputs that is valid until it goes on.
    """

    run: Callable[..., Iterator[tuple[float, float, Callable[[Tensor], Tensor]]]]
    ranges: Mapping[str, tuple[float, float]]  # logarithmic, one for each of ``values``
    loss: str = "squares"  # what it minimises


@dataclass(frozen=True, eq=False)
class Comparison:
    """One task, the rules that can do it, and the score that judges them all."""

    name: str
    problem: Problem
    rules: Mapping[str, Rule]
    sizes: Sizes
    score: Callable[[Tensor, Tensor], float]  # of outputs and targets
    shares: bool = True  # it is a share of rows [%], better when higher; else an error

    def runner(
        self, label: str, values, *, on: Labelled | None = None, first=0, **noise
    ) -> Runner:
        """A rule at these values: looks with a score on rows that it does not see.

        A rule's clock stands still while it is scored.

        Parameters
        ----------
        on : Labelled, rows to score on; those for the end if not given
        first : int, what seeds are counted from
        noise : levels of :func:`~labkit.lab.problem.with_noise`, on rows to learn from
        """
        check({"rule": label}, {"rule": one_of(self.rules)})
        on = self.problem.test if on is None else on

        def looks(seed):
            fit = with_noise(self.problem, seed=first + seed, **noise).fit
            run = self.rules[label].run(fit, self.sizes, values, first + seed)
            for passes, seconds, outputs in run:
                with torch.no_grad():
                    score = self.score(outputs(on.inputs), on.targets)
                yield {"passes": passes, "seconds": seconds, "score": score}

        return looks

    def runners(self, values: Mapping[str, Mapping], **noise) -> dict[str, Runner]:
        """Rules at their values, for :func:`~labkit.lab.race.run_race`."""
        return {label: self.runner(label, v, **noise) for label, v in values.items()}

    def compared(self, a, b, judge=compared) -> str:
        """Whether a is ahead of b by the score, as ``judge`` says of both.

        The least gap is the standard error that the number of test rows leaves. The
        spread over the seeds does not hold it: all seeds have the same test rows.
        """
        p, least = b["mean"] / 100, 0.0
        if self.shares:
            least = 100 * math.sqrt(p * (1 - p) / len(self.problem.test.targets))
        return judge(a, b, higher=self.shares, least=least)

    def best(self, column: pd.Series):
        """Where a score is best, the first such place; a failure never is."""
        values = column.fillna(-math.inf if self.shares else math.inf)
        return values.idxmax() if self.shares else values.idxmin()

    def words(self, row) -> str:
        """Mean and spread of the score: ``97.1 ± 0.3 %``, ``1.89 ± 0.12``."""
        return plus_minus(row) if self.shares else plus_minus(row, "", 2)


def halton(ranges: Mapping[str, tuple[float, float]], count: int) -> list[dict]:
    """The values that tuning tries: the first points of Halton's sequence.

    The same points of the unit square for every rule, mapped to its ranges; one range
    takes their first coordinate.

    Examples
    --------
    >>> [round(each["lr"], 3) for each in halton({"lr": (0.01, 1.0)}, 3)]
    [0.1, 0.032, 0.316]
    """
    check({"trials": count}, {"trials": COUNT})
    points = qmc.Halton(len(ranges), scramble=False).fast_forward(1).random(count)
    return [
        {
            name: float(low * (high / low) ** u)
            for u, (name, (low, high)) in zip(point, ranges.items(), strict=True)
        }
        for point in points
    ]


def tune(
    comparison: Comparison, count: int, *, seeds=1, progress=False
) -> tuple[dict, pd.DataFrame]:
    """Give every rule equally many trials; the best on the tuning rows is chosen.

    A trial has the whole budget, and its last look counts. Of equal trials the earlier
    one is chosen, and the first one if all fail.

    Returns
    -------
    chosen : dict of label to values
    tried : DataFrame, a row a trial
        ``label``, ``values``, ``mean`` and ``sd`` of the score, ``seconds``.
    """
    rows = [
        {"label": label, "values": values}
        for label, rule in comparison.rules.items()
        for values in halton(rule.ranges, count)
    ]
    runners = {
        number: comparison.runner(**row, on=comparison.problem.tune, first=TUNING_SEED)
        for number, row in enumerate(rows)
    }
    ends = run_race(runners, seeds=seeds, progress=progress).last()
    tried = pd.DataFrame(rows).join(spread(ends, "score", "seconds"))
    by_rule = tried.groupby("label", sort=False)["mean"]
    return {
        label: rows[comparison.best(mine)]["values"] for label, mine in by_rule
    }, tried
