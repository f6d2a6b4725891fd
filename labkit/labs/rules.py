"""Learning rules with ranges, tuned equally; and those that take minibatches.

Tuning, a race and a race under noise are all one :func:`~labkit.labs.race.race` of the
runners that a :class:`Job` makes.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import torch
from scipy.stats import qmc
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labkit.datasets import Labelled
from labkit.labs.problem import Problem, with_noise
from labkit.labs.race import Runner, compared, plus_minus, race, spread
from labkit.labs.rls import Training, make_training
from labkit.ranges import COUNT, check, one_of
from labkit.rls import SequenceClassifier, loss_mse, train

TUNING_SEED = 1000  # from here on: weights, batches and nodes that serve no race
LOOKS = 12  # at a run by minibatches, closer together at its start
CLIP, RECURRENT_CLIP = 5.0, 1.0  # joint norm of the gradient
CEILING = 1e3  # a loss above it ends a rule that runs live
ENTROPY, SQUARES = "cross-entropy", "squares"
BY_ENTROPY = ("SGD", "Adam", "HRLS+M")


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

    Attributes
    ----------
    run : callable
        ``run(fit, sizes, values, seed)`` learns from ``fit`` and yields looks at its
        network, ``(passes, seconds, outputs)``: rows handed to it / training rows, its
        own work, both so far, and a function of inputs that is valid until it goes on.
    ranges : mapping of name to (low, high)
        Ends of a logarithmic range for each of ``values``.
    loss : str
        What it minimises.
    """

    run: Callable[..., Iterator[tuple[float, float, Callable[[Tensor], Tensor]]]]
    ranges: Mapping[str, tuple[float, float]]
    loss: str


@dataclass(frozen=True, eq=False)
class Job:
    """One task, the rules that can do it, and the score that judges them all.

    Attributes
    ----------
    name : str
    problem : Problem
    rules : mapping of label to Rule
    sizes : Sizes
    score : callable
        Of outputs and targets.
    shares : bool
        The score is a share of the rows, in percent, and better when higher; otherwise
        it is an error.
    """

    name: str
    problem: Problem
    rules: Mapping[str, Rule]
    sizes: Sizes
    score: Callable[[Tensor, Tensor], float]
    shares: bool = True

    def runner(
        self, label: str, values, *, on: Labelled | None = None, first=0, **noise
    ) -> Runner:
        """A rule at these values: looks with a score on rows that it does not see.

        A rule's clock stands still while it is scored.

        Parameters
        ----------
        on : Labelled, optional
            Rows to score on; those for the end if not given.
        first : int
            What seeds are counted from.
        noise : levels
            Of :func:`~labkit.labs.problem.with_noise`, on the rows to learn from.
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
        """Rules at their values, for :func:`~labkit.labs.race.race`."""
        return {label: self.runner(label, v, **noise) for label, v in values.items()}

    def compared(self, a, b, judge=compared) -> str:
        """Whether a is ahead of b; rows with ``mean`` and ``sd`` of the score.

        The least gap is the standard error that the number of test rows leaves. The
        spread over the seeds does not hold it: all seeds have the same test rows.

        Parameters
        ----------
        judge : callable
            Or :func:`~labkit.labs.race.verdict`, whether "a is better than b" holds.
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


def tune(job: Job, count: int, *, seeds=1) -> tuple[dict, pd.DataFrame]:
    """Give every rule equally many trials; the best on the tuning rows is chosen.

    A trial has the whole budget, and its last look counts. Of equal trials the earlier
    one is chosen, and the first one if all fail.

    Returns
    -------
    chosen : dict of label to values
    tried : DataFrame
        A row for each trial: ``label``, ``values``, ``mean`` and ``sd`` of the score,
        ``seconds``.
    """
    rows = [
        {"label": label, "values": values}
        for label, rule in job.rules.items()
        for values in halton(rule.ranges, count)
    ]
    runners = {
        number: job.runner(**row, on=job.problem.tune, first=TUNING_SEED)
        for number, row in enumerate(rows)
    }
    ends = spread(race(runners, seeds=seeds).last(), "score", "seconds")
    tried = pd.DataFrame(rows).join(ends)
    by_rule = tried.groupby("label", sort=False)["mean"]
    return {label: rows[job.best(mine)]["values"] for label, mine in by_rule}, tried


def seeded(seed: int, device="cpu") -> torch.Generator:
    """A generator of one's own."""
    return torch.Generator(device).manual_seed(seed)


def look_at(steps: int) -> set:
    """Some of the steps 1 .. steps: dense at first, and the last one."""
    return set(np.geomspace(1, steps, LOOKS).round())


# Minibatch by minibatch: SGD, Adam, RLS and its hybrid


def training_of(name, model, values, clip, *, labels=True) -> Training:
    """Optimiser and loss of a rule; squares where the targets are no labels."""
    if name == "SGD":
        sgd = torch.optim.SGD(model.parameters(), momentum=0.9, **values)
        return Training(sgd, cross_entropy, clip)
    if name == "Adam":
        name, values = "Adam-CE", {"adam_lr": values["lr"]}
    made = make_training(name, model, clip=clip, **values)
    return made if labels else replace(made, loss=loss_mse)


def descend(name, make, fit, sizes, values, seed):
    """Train ``make``'s network for all passes; a look now and then, at the end too.

    A recurrent network has a tighter clip, and takes whole minibatches only.
    """
    model = make(fit, sizes.hidden, seed)
    recurrent = isinstance(model, SequenceClassifier)
    clip = RECURRENT_CLIP if recurrent else CLIP
    labels = not fit.targets.is_floating_point()
    training = training_of(name, model, values, clip, labels=labels)
    N, batch = len(fit.inputs), min(sizes.batch, len(fit.inputs))
    steps = N // batch if recurrent else math.ceil(N / batch)
    at, seconds = look_at(steps * sizes.passes), 0.0
    options = {"epochs": sizes.passes, "batch_size": batch, "drop_last": recurrent}
    options |= {"loss": training.loss, "max_grad_norm": training.max_grad_norm}
    options["generator"] = seeded(seed)
    for record in train(model, training.optimizer, fit.inputs, fit.targets, **options):
        seconds += record.seconds
        if record.step in at:
            epochs, part = divmod(record.step, steps)
            rows = epochs * min(steps * batch, N) + part * batch
            model.eval()
            yield rows / N, seconds, model


def minibatch_step(name, model, values) -> Callable[[Tensor, Tensor], None]:
    """One step of a classifier's rule on a minibatch of rows and labels."""
    training = training_of(name, model, values, CLIP)

    def step(X, y):
        model.train()
        training.optimizer.zero_grad()
        loss = training.loss(model(X), y)
        loss.backward()
        if training.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), training.max_grad_norm)
        training.optimizer.step()
        if not loss < CEILING:
            raise FloatingPointError(f"the loss of {name} is {loss}")

    return step


def by_minibatch(name, make, **ranges) -> Rule:
    """A rule of :func:`descend`."""
    loss = ENTROPY if name in BY_ENTROPY else SQUARES
    return Rule(partial(descend, name, make), ranges, loss)
