"""The images that the BPLS lab trains on, with noise where asked for."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from labkit.bpls import READINGS
from labkit.datasets import load

PRINTED = "one output"  # reading (5f), its first output
READING_NAMES = (*READINGS, PRINTED)


@dataclass(frozen=True, eq=False)
class Problem:
    """Images and labels; no bias column."""

    name: str
    X: Tensor  # (D, M) training pixels in [0, 1], before noise
    y: Tensor  # (D,) int64
    X_test: Tensor
    y_test: Tensor

    def sizes(self, hidden) -> tuple[int, ...]:
        """M, the hidden widths given, J."""
        return (self.X.shape[1], *hidden, int(self.y.max()) + 1)


def make_problem(
    dataset="digits", *, samples=None, dtype=torch.float32, device=None
) -> Problem:
    """Load "digits", "mnist" or "fashion-mnist".

    Parameters
    ----------
    samples : so many training images, the first ones (the paper: 40,000); None: all.
    """
    train, test = (
        load(dataset, part, dtype=dtype, device=device) for part in ("train", "test")
    )
    rows = slice(samples)
    return Problem(
        dataset, train.inputs[rows], train.targets[rows], test.inputs, test.targets
    )


def with_noise(problem: Problem, *, sigma=0.0, label_noise=0.0, seed=0) -> Problem:
    """Disturb the training images; those of the test stay clean.

    Parameters
    ----------
    sigma : standard deviation of Gaussian noise on every pixel (their range is 1).
    label_noise : share of labels drawn anew from all classes.
    """
    g = torch.Generator().manual_seed(seed)
    X, y = problem.X, problem.y
    noise = torch.randn(X.shape, generator=g, dtype=torch.float64)
    hit = torch.rand(len(y), generator=g, dtype=torch.float64) < label_noise
    drawn = torch.randint(int(y.max()) + 1, (len(y),), generator=g)
    y = torch.where(hit.to(y.device), drawn.to(y.device), y)
    return replace(problem, X=X + sigma * noise.to(X) if sigma else X, y=y)


def reading_of(name: str) -> str | int:
    """What `labkit.bpls` calls the reading with this name."""
    return 0 if name == PRINTED else name


def percent(S: Tensor, y: Tensor) -> float:
    """Share of rows whose largest score is at the label, in percent."""
    return 100 * float((S.argmax(1) == y).double().mean())
