"""Problems: the rows that rules learn from, are tuned on and are judged by; noise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from labkit.check import (
    BELOW_ONE,
    COUNT,
    NOT_NEGATIVE,
    SHARE,
    check_device,
    check_options,
    check_tensor,
    integer,
    optional,
)
from labkit.errors import DataError
from labkit.lab.datasets import Labelled, Text, load

MOST_JUDGES = 10_000  # rows that judge: as many as MNIST has
SEED = integer(-(2**63), 2**64 - 1)  # that torch takes
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
    target: str = "",
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
    target : str, the column to be predicted, of data of one's own; see ``load``

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
        load(dataset, part, dtype=dtype, device=device, target=target)
        for part in ("train", "test")
    )
    if isinstance(train, Text):
        raise DataError(f"{dataset} is a text, but rows with targets are needed")
    count = len(train.targets) - min(int(len(train.targets) * tune), MOST_JUDGES)
    kept = rows(train, slice(count, None)) if tune else None
    fit = rows(train, slice(min(count, samples or count)))
    return Problem(fit, rows(test, slice(MOST_JUDGES)), kept)


def rows(data: Labelled, chosen: slice | Sequence[int] | Tensor) -> Labelled:
    """Return some rows of a data set, by slice or index."""
    if not isinstance(chosen, slice):
        chosen = torch.as_tensor(chosen)
    return replace(data, inputs=data.inputs[chosen], targets=data.targets[chosen])


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
    check_options({"input_noise": input_noise, "label_noise": label_noise}, NOISE)
    X, y = problem.fit.inputs, problem.fit.targets
    if input_noise:
        generator = seeded(seed, X.device)
        X = X + float(input_noise) * torch.randn(
            X.shape, generator=generator, device=X.device
        ).to(X)
    if label_noise:
        generator, count = seeded(seed, y.device), len(y)
        numbers = y.is_floating_point()
        labels = torch.arange(count, device=y.device) if numbers else y
        classes = count if numbers else problem.classes
        drawn = noisy_labels(labels, label_noise, generator, classes)
        y = y[drawn] if numbers else drawn
    return replace(problem, fit=replace(problem.fit, inputs=X, targets=y))


def noisy_labels(
    labels: Tensor, label_noise: float, generator: torch.Generator, classes: int
) -> Tensor:
    """Replace a share of the labels (n,) by labels drawn from all classes."""
    check_options({"label_noise": label_noise}, NOISE)
    options = {"generator": generator, "device": labels.device}
    hit = torch.rand(len(labels), **options) < label_noise
    return torch.where(hit, torch.randint(classes, (len(labels),), **options), labels)


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
    for parameter in model.parameters():
        parameter.register_hook(
            lambda gradient: disturbed(gradient, level(), generator)
        )


def percent(outputs: Tensor, labels: Tensor) -> float:
    """Return the share of rows [%] whose largest output stands at the label."""
    check_tensor("outputs", outputs, shape=("rows", "classes"))
    check_tensor("labels", labels, shape=outputs.shape[:1], dtype=torch.int64)
    return 100 * float((outputs.argmax(1) == labels).double().mean())


def squared_error(outputs: Tensor, targets: Tensor) -> float:
    """Return the squared error, summed over the outputs, in the mean over the rows."""
    check_tensor("targets", targets, shape=outputs.shape)
    return float((outputs - targets).square().sum() / len(targets))
