"""Problems: the rows that rules learn from, are tuned on and are judged by; noise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from labkit.check import (
    BELOW_ONE,
    COUNT,
    NOT_NEGATIVE,
    SHARE,
    check_device,
    check_kind,
    check_options,
    check_tensor,
    described,
    integer,
    optional,
)
from labkit.errors import DataError
from labkit.lab.datasets import Labelled, Text, load

MOST_JUDGES = 10_000  # rows that judge: as many as MNIST has
SEED = integer(-(2**63), 2**64 - 1)  # that torch takes
LABELS = {"label_noise": SHARE, "classes": integer(1, 2**31)}
NOISE = {"input_noise": NOT_NEGATIVE, "label_noise": SHARE}  # levels of `with_noise`


@dataclass(frozen=True, eq=False)
class Problem:
    """One data set, cut into two or three parts that share no row.

    Attributes
    ----------
    fit : Labelled, rows to learn from
    test : Labelled, rows that judge the end of a run
    tune : Labelled, optional, rows to tune on or to validate with
    """

    fit: Labelled
    test: Labelled
    tune: Labelled | None = None

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.fit.name

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.fit.outputs


def seeded(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Make a random generator that starts from a seed."""
    check_options({"seed": seed}, {"seed": SEED})
    check_device(device)
    return torch.Generator(device).manual_seed(int(seed))


def load_problem(
    dataset: str = "digits",
    *,
    samples: int | None = None,
    tune: float = 0.0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    **own: str | int,
) -> Problem:
    """Load a data set and cut it into rows to learn from, to tune on and for the end.

    Parameters
    ----------
    dataset : str, a name of :func:`labkit.lab.datasets.load` with rows and targets
    samples : int, optional
        How many of the first training rows to learn from; by default all that are not
        kept for tuning.
    tune : float in [0, 1), share of the training rows, the last ones, kept for tuning
        At most 10,000 rows are kept, and as many judge the end.
    dtype : torch.dtype, of the inputs
    device : torch.device or str, where the rows go
    own : ``target`` and ``seed``, of data of one's own; see ``load``

    Returns
    -------
    Problem

    Raises
    ------
    DataError
        If the data set is a text.
    """
    ranges = {"samples": optional(COUNT), "tune": BELOW_ONE}
    check_options({"samples": samples, "tune": tune}, ranges)
    train, test = (
        load(dataset, part, dtype=dtype, device=device, **own)
        for part in ("train", "test")
    )
    if isinstance(train, Text):
        raise DataError(f"{dataset} is a text, but rows with targets are needed")
    n = len(train.targets) - min(int(len(train.targets) * tune), MOST_JUDGES)
    kept = rows(train, slice(n, None)) if tune else None
    fit = rows(train, slice(min(n, samples or n)))
    return Problem(fit, rows(test, slice(MOST_JUDGES)), kept)


def rows(data: Labelled, chosen: slice | Sequence[int] | Tensor) -> Labelled:
    """Return some rows of a data set, by slice or index.

    ValueError, with what was chosen, if it has no such rows.
    """
    check_kind("data", data, Labelled, "a data set with targets")
    kinds = slice, list, tuple, range, np.ndarray, Tensor
    check_kind("chosen", chosen, kinds, "a slice or indices")
    if not isinstance(chosen, slice):
        chosen = _indices(chosen, len(data.inputs))
    return replace(data, inputs=data.inputs[chosen], targets=data.targets[chosen])


def _indices(chosen, n):
    """Return indices, or a mask, of n rows as a tensor that fits."""
    try:
        index = torch.as_tensor(chosen)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"chosen must be indices, got {described(chosen)}") from error
    if not index.numel():
        index = index.long()
    check_tensor("chosen", index, shape=("k",), dtype=(torch.int64, torch.bool))
    inside = len(index) == n if index.dtype == torch.bool else True
    if index.dtype == torch.int64 and len(index):
        inside = -n <= index.min() <= index.max() < n
    if not inside:
        raise ValueError(f"chosen must be among {n} rows, got {described(chosen)}")
    return index


def with_noise(
    problem: Problem,
    *,
    input_noise: float = 0.0,
    label_noise: float = 0.0,
    seed: int = 0,
) -> Problem:
    """Disturb the rows to learn from. Those for tuning and for the test stay clean.

    Parameters
    ----------
    input_noise : float >= 0
        Standard deviation of Gaussian noise on every input, such as a pixel, whose
        range is 1.
    label_noise : float in [0, 1]
        Share of labels drawn anew from all classes; of targets that are numbers, share
        of rows that get the numbers of another row.
    seed : int
        One seed gives the same disturbance at every level, scaled. Each kind of device
        draws its own.

    Raises
    ------
    ValueError
        If a level is outside its range.
    """
    check_kind("problem", problem, Problem, "a Problem")
    check_options({"input_noise": input_noise, "label_noise": label_noise}, NOISE)
    X, y = problem.fit.inputs, problem.fit.targets
    if input_noise:
        g = seeded(seed, X.device)
        X = X + float(input_noise) * torch.randn(
            X.shape, generator=g, device=X.device
        ).to(X)
    if label_noise:
        g = seeded(seed, y.device)
        y = noisy_targets(problem.fit, label_noise, g)
    return replace(problem, fit=replace(problem.fit, inputs=X, targets=y))


def noisy_labels(
    labels: Tensor, label_noise: float, generator: torch.Generator, classes: int
) -> Tensor:
    """Replace a share of the labels (n,) by labels drawn from all classes."""
    check_tensor("labels", labels, shape=("n",), dtype=torch.int64)
    check_kind("generator", generator, torch.Generator, "a torch.Generator")
    check_options({"label_noise": label_noise, "classes": classes}, LABELS)
    options = {"generator": generator, "device": labels.device}
    hit = torch.rand(len(labels), **options) < label_noise
    return torch.where(hit, torch.randint(classes, (len(labels),), **options), labels)


def noisy_targets(
    fit: Labelled, label_noise: float, generator: torch.Generator
) -> Tensor:
    """Replace a share of the targets: labels by any class, numbers by another row's."""
    y = fit.targets
    if not y.is_floating_point():
        return noisy_labels(y, label_noise, generator, fit.outputs)
    drawn = noisy_labels(
        torch.arange(len(y), device=y.device), label_noise, generator, len(y)
    )
    return y[drawn]


def disturbed(gradient: Tensor, level: float, generator: torch.Generator) -> Tensor:
    r"""Add Gaussian noise to a gradient of one minibatch.

    $g + \mathrm{level} \cdot \mathrm{rms}(g)\, \varepsilon$: noise of level 1 is about
    as long as the gradient of a weight matrix, whatever loss a rule minimises.

    Parameters
    ----------
    gradient : tensor, $g$, of one weight matrix or bias
    level : float >= 0, 0 returns the gradient itself and draws nothing
    generator : torch.Generator, on the gradient's device, source of $\varepsilon$
    """
    if not level:
        return gradient
    noise = torch.randn(gradient.shape, generator=generator, device=gradient.device)
    noise = noise.to(gradient)
    return gradient + level * gradient.square().mean().sqrt() * noise


def disturb(
    model: nn.Module, level: Callable[[], float], generator: torch.Generator
) -> None:
    """Have every gradient of a model's weights disturbed as it is computed.

    ``level`` is asked at each backward pass, so that a knob may be turned in between.
    """
    for p in model.parameters():
        p.register_hook(lambda gradient: disturbed(gradient, level(), generator))


def in_classes(problem: Problem, parts: int = 5) -> Problem:
    """Cut targets (n, 1) that are numbers into classes of equal size; labels stay.

    The cuts are quantiles of the rows to learn from.
    """
    check_options({"parts": parts}, {"parts": integer(2, 1000)})
    fit = problem.fit.targets
    if not fit.is_floating_point():
        return problem
    shares = torch.arange(1, parts, device=fit.device, dtype=fit.dtype) / parts
    cuts = torch.quantile(fit[:, 0], shares)
    names = tuple(f"part {i + 1} of {parts}" for i in range(parts))
    cut = {
        name: replace(
            part, targets=torch.bucketize(part.targets[:, 0], cuts), classes=names
        )
        for name, part in vars(problem).items()
        if part is not None
    }
    return replace(problem, **cut)


def percent(outputs: Tensor, labels: Tensor) -> float:
    """Return the share of rows [%] whose largest output stands at the label."""
    check_tensor("outputs", outputs, shape=("rows", "classes"))
    if not outputs.shape[1]:
        raise ValueError(f"outputs must have classes, got {tuple(outputs.shape)}")
    check_tensor("labels", labels, shape=outputs.shape[:1], dtype=torch.int64)
    return 100 * float((outputs.argmax(1) == labels).double().mean())


def squared_error(outputs: Tensor, targets: Tensor) -> float:
    """Return the squared error, summed over the outputs, in the mean over the rows."""
    check_tensor("outputs", outputs)
    check_tensor("targets", targets)  # float32, where some rules compute in float64
    as_targets = outputs.to(targets.dtype)
    check_tensor("targets", targets, shape=outputs.shape, like=as_targets)
    return float((outputs - targets).square().sum() / len(targets))
