"""What BPLS is measured against: gradient descent on the same network, by torch.optim.

Same weights to start from, same activations, no bias but a column of ones. The paper
runs its competitors with a batch of one sample; 128 is what one would do.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.bpls.activations import Activation, activation
from labkit.bpls.train import Clock
from labkit.bpls.walk import Weights, scores

# the paper's four, with the settings that Kingma and Ba (2015) and torch name as usual
OPTIMIZERS = {
    "adam": (torch.optim.Adam, {}),
    "nag": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "sgd": (torch.optim.SGD, {}),
    "adagrad": (torch.optim.Adagrad, {}),
}


@dataclass(frozen=True)
class DescentStep:
    """One step of gradient descent."""

    step: int  # from 1
    epoch: float  # passes over the data so far
    loss: Tensor  # () before the step, on its batch: nats, or half the squared error
    seconds: float  # computing time so far
    weights: Weights = field(repr=False)  # live: the next step changes them in place


def descend(
    X: Tensor,
    Y: Tensor,
    weights: Weights,
    activations: str | Activation | Sequence[str | Activation] = "sigmoid",
    *,
    output: str | Activation = "identity",
    optimizer: str = "adam",
    lr: float = 1e-3,
    batch_size: int = 1,
    epochs: int = 1,
    generator: torch.Generator | None = None,
) -> Iterator[DescentStep]:
    """Train the same network by gradient descent; yields one record per step.

    Parameters
    ----------
    X : (D, M) tensor
    Y : (..., D, J) tensor of values, or (D,) int64 tensor of labels
        Labels train on the cross-entropy of a softmax, values on half the squared
        error, summed over outputs, mean over the batch. Leading dimensions are
        independent runs, each with weights of its own; they share the order of the
        samples.
    weights : tuple of tensors
        Where to start, `random_weights`; copied.
    activations, output : see `train`
        Here ReLU may come too.
    optimizer : {"adam", "nag", "sgd", "adagrad"}
    lr : float > 0
        The paper has 1e-3, and 1e-1 for AdaGrad on the toy.
    batch_size : int >= 1
    epochs : int >= 0
    generator : torch.Generator, optional
        Of the order of the samples.

    Yields
    ------
    DescentStep

    Raises
    ------
    ValueError
        An unknown optimizer or activation; a number out of range.
    """
    check_descent(optimizer, lr, batch_size, epochs)
    hidden = len(weights) - 1
    if isinstance(activations, str | Activation):
        activations = [activations] * hidden
    activations = [activation(a) for a in activations]
    output = activation(output)
    clock = Clock()
    weights = tuple(W.detach().clone().requires_grad_() for W in weights)
    live = tuple(W.detach() for W in weights)
    method, options = OPTIMIZERS[optimizer]
    descent = method(weights, lr=lr, **options)
    D = len(X)
    labelled = Y.dtype == torch.int64
    steps = math.ceil(D / batch_size)
    source = X.device if generator is None else generator.device
    for epoch in range(epochs):
        order = torch.randperm(D, generator=generator, device=source).to(X.device)
        for i, rows in enumerate(order.split(batch_size), start=1):
            with torch.enable_grad():
                S = scores(X[rows], weights, activations)
                if labelled:
                    error = F.cross_entropy(S, Y[rows])
                else:
                    error = output.value(S) - Y[..., rows, :]
                    error = error.square().sum() / 2 / len(rows)
                descent.zero_grad()
                error.backward()
            descent.step()
            clock.stop()
            yield DescentStep(
                step=epoch * steps + i,
                epoch=epoch + min(i * batch_size, D) / D,
                loss=error.detach(),
                seconds=clock.total,
                weights=live,
            )
            clock.start()


def check_descent(optimizer, lr, batch_size, epochs) -> None:
    """Raise ValueError for options that `descend` cannot take."""
    if optimizer not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise ValueError(f"unknown optimizer {optimizer!r}; there are: {known}")
    if not lr > 0:
        raise ValueError(f"lr must be > 0, got {lr}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, got {batch_size}")
    if epochs < 0:
        raise ValueError(f"epochs must be >= 0, got {epochs}")
