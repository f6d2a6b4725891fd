"""What makes a comparison fair: one cut of the data, one budget, the same trials.

A rule is a function that yields a :class:`Look` at its network now and then. All that
follows, the trials, the race and the noise, treats every rule alike and knows none.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from scipy.stats import qmc
from torch import Tensor

from labkit.broad import NotPositiveDefinite
from labkit.datasets import Labelled, load
from labkit.hessian_free import DivergedError as NewtonDiverged
from labkit.labs.rls import noisy_labels
from labkit.rls import DivergedError

TUNE_SHARE = 6  # one row in so many is for tuning
FAILURES = (
    DivergedError,
    NewtonDiverged,
    FloatingPointError,
    NotPositiveDefinite,
    torch.linalg.LinAlgError,
)


@dataclass(frozen=True)
class Setting:
    """The budget, and the size of what is trained."""

    passes: float  # rows handed to a rule at most, in multiples of the training rows
    batch: int  # rows of a minibatch
    hidden: int  # units
    rank: int = 1  # of OK


@dataclass(frozen=True, eq=False)
class Look:
    """A network as it is now; valid until the rule goes on."""

    passes: float  # rows handed to the rule so far / training rows
    seconds: float  # its own work so far
    outputs: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Rule:
    """A learning rule with what is tuned of it.

    ``run`` takes training rows, a Setting, the knobs' values and a seed.
    """

    run: Callable[[Labelled, Setting, Mapping[str, float], int], Iterator[Look]]
    knobs: Mapping[str, tuple[float, float]]  # ends of a logarithmic range
    loss: str  # what it minimises


@dataclass(frozen=True, eq=False)
class Data:
    """Rows to learn from, rows to tune on, rows for the end."""

    fit: Labelled
    tune: Labelled
    test: Labelled


@dataclass(frozen=True, eq=False)
class Job:
    """One task, and the rules that can do it."""

    name: str
    data: Data
    rules: Mapping[str, Rule]
    setting: Setting
    score: Callable[[Tensor, Tensor], float]  # of outputs and targets
    unit: str
    higher: bool  # whether a higher score is better

    def __post_init__(self):
        if self.setting.passes < 1 or self.setting.batch < 1:
            raise ValueError(
                f"passes and batch must be at least 1, got {self.setting.passes} and "
                f"{self.setting.batch}"
            )

    def rule(self, label: str) -> Rule:
        """The rule called ``label``."""
        if label not in self.rules:
            known = ", ".join(self.rules)
            raise ValueError(f"unknown rule {label!r}; there are {known}")
        return self.rules[label]


def load_data(dataset="digits", *, samples=None, device=None) -> Data:
    """Cut a data set: the last sixth of the training rows is for tuning.

    Parameters
    ----------
    dataset : "digits", "mnist" or "fashion-mnist".
    samples : so many rows to learn from, the first ones; None: all but those for
        tuning.
    """
    train, test = (load(dataset, part, device=device) for part in ("train", "test"))
    n = len(train.targets) - len(train.targets) // TUNE_SHARE
    tune = _rows(train, slice(n, None))
    return Data(_rows(train, slice(min(n, samples or n))), tune, test)


def _rows(data: Labelled, chosen) -> Labelled:
    return replace(data, inputs=data.inputs[chosen], targets=data.targets[chosen])


def with_noise(data: Data, *, inputs=0.0, labels=0.0, seed=0) -> Data:
    """Disturb the rows to learn from; those of tuning and test stay as they are.

    Parameters
    ----------
    inputs : standard deviation of Gaussian noise on every pixel (their range is 1).
    labels : share of labels drawn anew from all classes.
    """
    if not (inputs >= 0 and 0 <= labels <= 1):
        raise ValueError(
            f"inputs must be >= 0 and labels in [0, 1], got {inputs} and {labels}"
        )
    fit = data.fit
    g = torch.Generator().manual_seed(seed)
    X = fit.inputs + inputs * torch.randn(fit.inputs.shape, generator=g).to(fit.inputs)
    y = noisy_labels(fit.targets, labels, seed=seed)
    return replace(data, fit=replace(fit, inputs=X, targets=y))


def trials(rule: Rule, count: int) -> list[dict[str, float]]:
    """The values that tuning tries: the first points of Halton's sequence.

    The same points of the unit square for every rule, mapped to its ranges, which are
    logarithmic; a rule with one knob takes their first coordinate.

    Examples
    --------
    >>> rule = Rule(None, {"rate": (0.01, 1.0)}, "cross-entropy")
    >>> [round(each["rate"], 3) for each in trials(rule, 3)]
    [0.1, 0.032, 0.316]
    """
    if count < 1:
        raise ValueError(f"there must be at least one trial, got {count}")
    sequence = qmc.Halton(len(rule.knobs), scramble=False)
    points = sequence.fast_forward(1).random(count)
    return [
        {
            name: float(low * (high / low) ** u)
            for u, (name, (low, high)) in zip(point, rule.knobs.items(), strict=True)
        }
        for point in points
    ]


def scored(job: Job, label: str, values, seed: int, *, on: Labelled, fit=None):
    """Run a rule; yields passes, seconds and score on other rows, outside its clock.

    A run that fails ends with a score of nan.
    """
    fit = job.data.fit if fit is None else fit
    passes = seconds = 0.0
    try:
        for look in job.rule(label).run(fit, job.setting, values, seed):
            with torch.no_grad():
                score = job.score(look.outputs(on.inputs), on.targets)
            passes, seconds = look.passes, look.seconds
            yield {"passes": passes, "seconds": seconds, "score": score}
    except FAILURES:
        yield {"passes": passes, "seconds": seconds, "score": float("nan")}


def percent(outputs: Tensor, labels: Tensor) -> float:
    """Rows whose largest output is at the label, in percent."""
    return 100 * float((outputs.argmax(1) == labels).double().mean())


def squared_error(outputs: Tensor, targets: Tensor) -> float:
    """Squared error summed over pixels, mean over images."""
    return float((outputs - targets).square().sum() / len(targets))
