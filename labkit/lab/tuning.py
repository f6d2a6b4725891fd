"""Learning rules with ranges, which are tuned equally and compared by one error.

A :class:`Comparison` makes runners of its rules. Tuning, a race and a race under noise
are all one :func:`~labkit.lab.race.race_rows` of such runners.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.check import (
    COUNT,
    POSITIVE,
    Range,
    check_kind,
    check_options,
    integer,
    one_of,
)
from labkit.lab.datasets import Labelled
from labkit.lab.problem import Problem, with_noise
from labkit.lab.race import Runner

ENDS = Range(
    "two numbers (low, high) with 0 < low <= high",
    lambda value: (
        isinstance(value, Sequence)
        and len(value) == 2
        and all(POSITIVE.holds(each) for each in value)
        and value[0] <= value[1]
    ),
)
TUNING_SEED = 1000  # the first seed of tuning; races count from 0


@dataclass(frozen=True)
class Sizes:
    """How much a rule may read, and how large its network is.

    Attributes
    ----------
    passes : int, rows handed to it at most, in multiples of the training rows
    batch : int, rows of a minibatch
    hidden : int, hidden units
    """

    passes: int
    batch: int
    hidden: int

    def __post_init__(self) -> None:
        check_options(vars(self), dict.fromkeys(vars(self), COUNT))


@dataclass(frozen=True)
class Rule:
    """A learning rule, and the ranges of what is tuned.

    Attributes
    ----------
    run : callable
        ``run(fit, sizes, values, seed)`` learns from ``fit`` and yields
        ``(passes, seconds, outputs)`` now and then: the rows handed to it so far over
        the training rows, the seconds of its own work so far, and a function from
        inputs to outputs that is valid until it goes on.
    ranges : mapping of name to (low, high), tuned on a logarithmic scale
    training : callable, optional
        ``training(model, clip=..., **values)`` returns optimiser and loss of a rule
        that takes minibatches.
    gradients : bool
        Whether the rule steps by a gradient, so that ``run`` takes ``gradient_noise``,
        a level of :func:`~labkit.lab.problem.disturbed`, as a keyword.
    """

    run: Callable[..., Iterator[tuple[float, float, Callable[[Tensor], Tensor]]]]
    ranges: Mapping[str, tuple[float, float]]
    training: Callable | None = None
    gradients: bool = False

    def __post_init__(self) -> None:
        check_options(self.ranges, dict.fromkeys(self.ranges, ENDS))


@dataclass(frozen=True, eq=False)
class Comparison:
    """One task, the rules that can do it, and the error that judges them all.

    Attributes
    ----------
    problem : Problem
    rules : mapping of label to Rule
    sizes : Sizes
    error : callable, from outputs and targets to a number, the smaller the better
    """

    problem: Problem
    rules: Mapping[str, Rule]
    sizes: Sizes
    error: Callable[[Tensor, Tensor], float]

    def runner(
        self,
        label: str,
        values: Mapping[str, float],
        *,
        on: Labelled | None = None,
        first: int = 0,
        gradient_noise: float = 0.0,
        **noise: float,
    ) -> Runner:
        """Return a runner of a rule; its looks have the error on rows it does not see.

        The rule's clock stands still while it is judged.

        Parameters
        ----------
        label : str, name of the rule
        values : mapping, what is tuned of it
        on : Labelled, optional, rows to judge by; by default the test rows
        first : int, what seeds are counted from
        gradient_noise : float, level of noise on a rule's gradients, if it has any
        noise : levels of :func:`~labkit.lab.problem.with_noise`, on rows to learn from
        """
        check_options({"rule": label}, {"rule": one_of(self.rules)})
        rule = self.rules[label]
        disturbed = {"gradient_noise": gradient_noise} if gradient_noise else {}
        on = self.problem.test if on is None else on

        def looks(seed: int) -> Iterator[dict[str, float]]:
            fit = with_noise(self.problem, seed=first + seed, **noise).fit
            run = rule.run(fit, self.sizes, values, first + seed, **disturbed)
            for passes, seconds, outputs in run:
                with torch.no_grad():
                    error = self.error(outputs(on.inputs), on.targets)
                yield {"passes": passes, "seconds": seconds, "error": error}

        return looks

    def runners(
        self, values: Mapping[str, Mapping[str, float]], **noise: float
    ) -> dict[str, Runner]:
        """Return runners of rules at their values, by label, as :meth:`runner` does.

        Under gradient noise the rules without a gradient are left out.
        """
        chosen = values.items()
        if noise.get("gradient_noise"):
            chosen = [
                (label, own) for label, own in chosen if self.rules[label].gradients
            ]
        return {label: self.runner(label, own, **noise) for label, own in chosen}


def halton(ranges: Mapping[str, tuple[float, float]], count: int) -> list[dict]:
    """Return the values that tuning tries: the first points of Halton's sequence.

    Every rule gets the same points of the unit square, mapped to its ranges. A rule
    with one range takes their first coordinate, and a rule without ranges, such as Adam
    at its default rate, has nothing to try but its one setting.

    Examples
    --------
    >>> [round(each["lr"], 3) for each in halton({"lr": (0.01, 1.0)}, 3)]
    [0.1, 0.032, 0.316]
    """
    check_options({"trials": count}, {"trials": integer(1, 100_000)})
    check_kind("ranges", ranges, Mapping, "a mapping from names to pairs")
    if not ranges:
        return [{}]
    check_options(ranges, dict.fromkeys(ranges, ENDS))
    from scipy.stats import qmc  # takes a second

    points = qmc.Halton(len(ranges), scramble=False).fast_forward(1).random(count)
    return [
        {
            name: float(low * (high / low) ** u)
            for u, (name, (low, high)) in zip(point, ranges.items(), strict=True)
        }
        for point in points
    ]
