"""The rows that rules learn from, tune on and are judged by, with noise if wanted."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from labkit.lab.datasets import Labelled, load


@dataclass(frozen=True, eq=False)
class Problem:
    """One data set, cut in two or three."""

    fit: Labelled  # rows to learn from
    test: Labelled  # rows for the end
    tune: Labelled | None = None  # rows to tune on, or to validate with

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.fit.name

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.fit.targets.max()) + 1


def seeded(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Make a random generator that starts from a seed."""
    return torch.Generator(device).manual_seed(seed)


def load_problem(
    dataset: str = "digits", *, samples=None, tune=0.0, dtype=torch.float32, device=None
) -> Problem:
    """Load a data set and cut it.

    Parameters
    ----------
    dataset : str, a name of :func:`labkit.lab.datasets.load` with rows and labels
    samples : int, rows to learn from, the first ones; None: all but those for tuning
    tune : float in [0, 1), share of the training rows, the last ones, kept for tuning
    """
    place = {"dtype": dtype, "device": device}
    train, test = (load(dataset, part, **place) for part in ("train", "test"))
    n = len(train.targets) - int(len(train.targets) * tune)
    kept = rows(train, slice(n, None)) if tune else None
    return Problem(rows(train, slice(min(n, samples or n))), test, kept)


def rows(data: Labelled, chosen) -> Labelled:
    """Some rows of a data set, by slice or index."""
    return replace(data, inputs=data.inputs[chosen], targets=data.targets[chosen])


def with_noise(
    problem: Problem,
    *,
    input_noise: float = 0.0,
    label_noise: float = 0.0,
    seed: int = 0,
) -> Problem:
    """Disturb the rows to learn from; those for tuning and test stay as they are.

    Parameters
    ----------
    input_noise : float >= 0, sd of Gaussian noise on every pixel (their range is 1)
    label_noise : float in [0, 1], share of labels drawn anew from all classes
    seed : int, the same disturbance at every level, scaled; each kind of device draws
        its own
    """
    if not (input_noise >= 0 and 0 <= label_noise <= 1):
        raise ValueError(
            "input_noise must be >= 0 and label_noise in [0, 1], got "
            f"{input_noise} and {label_noise}"
        )
    X, y = problem.fit.inputs, problem.fit.targets
    if input_noise:
        g = seeded(seed, X.device)
        X = X + input_noise * torch.randn(X.shape, generator=g, device=X.device).to(X)
    if label_noise:
        g = seeded(seed, y.device)
        y = noisy_labels(y, label_noise, g, problem.classes)
    return replace(problem, fit=replace(problem.fit, inputs=X, targets=y))


def noisy_labels(labels: Tensor, share: float, generator, classes: int) -> Tensor:
    """Replace a share of the labels by some drawn from all classes, on their device."""
    place = {"generator": generator, "device": labels.device}
    hit = torch.rand(len(labels), **place) < share
    return torch.where(hit, torch.randint(classes, (len(labels),), **place), labels)


def percent(outputs: Tensor, labels: Tensor) -> float:
    """Share of rows whose largest output is at the label, in percent."""
    return 100 * float((outputs.argmax(1) == labels).double().mean())


def squared_error(outputs: Tensor, targets: Tensor) -> float:
    """Squared error summed over outputs, mean over rows."""
    return float((outputs - targets).square().sum() / len(targets))
