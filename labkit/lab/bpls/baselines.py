"""Train the same network by gradient descent with torch.optim, to compare with BPLS.

The descent has the same initial weights and activations, and no bias but a column of
ones. The paper runs its competitors with a batch of one sample; 128 is usual.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.bpls.activations import Activation, activation, per_layer
from labkit.bpls.checks import check_shapes
from labkit.bpls.walk import Weights, scores
from labkit.clock import Clock
from labkit.ranges import COUNT, POSITIVE, check, integer, one_of

# the paper's four, with the usual settings of Kingma and Ba (2015) and torch
OPTIMIZERS = {
    "adam": (torch.optim.Adam, {}),
    "nag": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "sgd": (torch.optim.SGD, {}),
    "adagrad": (torch.optim.Adagrad, {}),
}
RANGES = {
    "optimizer": one_of(OPTIMIZERS),
    "lr": POSITIVE,
    "batch_size": COUNT,
    "epochs": integer(0),
}


@dataclass(frozen=True)
class DescentStep:
    """One step of gradient descent."""

    step: int  # from 1
    epoch: float  # passes over the data so far
    loss: Tensor  # () before the step, on its batch: nats, or half the squared error
    seconds: float  # computing time so far
    # both live: the next step changes them in place
    weights: Weights = field(repr=False)
    optimizer: torch.optim.Optimizer = field(repr=False)


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
    state: dict | None = None,
) -> Iterator[DescentStep]:
    """Train the same network by gradient descent, and yield one record per step.

    Parameters
    ----------
    X, weights, activations, output
        As for `train`. The weights are copied, and ReLU may come too.
    Y : (..., D, J) tensor of values, or (D,) int64 tensor of labels
        Labels train on the cross-entropy of a softmax, values on half the squared
        error, summed over outputs, mean over the batch. Leading dimensions are
        independent runs with weights of their own; they share the order of the samples.
    optimizer : {"adam", "nag", "sgd", "adagrad"}
    lr : float > 0, in the paper 1e-3, and 1e-1 for AdaGrad on the toy
    batch_size : int >= 1
    epochs : int >= 0
    generator : torch.Generator, optional, of the order of the samples
    state : dict, optional
        ``state_dict()`` of an earlier run's optimizer, saved after whole epochs. With
        its weights and the state of its generator, its run goes on to the same bits.

    Raises
    ------
    ValueError
        An unknown optimizer or activation; a number out of range; shapes that do not
        fit.
    """
    options = dict(optimizer=optimizer, lr=lr, batch_size=batch_size, epochs=epochs)
    check(options, RANGES)
    activations = per_layer(activations, len(weights) - 1)
    output = activation(output)
    check_shapes(X, Y, weights)
    steps = math.ceil(len(X) / batch_size)
    source = X.device if generator is None else generator.device
    clock = Clock(X.device)
    with clock:
        weights = tuple(W.detach().clone().requires_grad_() for W in weights)
        method, momentum = OPTIMIZERS[optimizer]
        descent = method(weights, lr=lr, **momentum)
        if state is not None:
            descent.load_state_dict(state)
    live = tuple(W.detach() for W in weights)
    for epoch in range(epochs):
        with clock:
            order = torch.randperm(len(X), generator=generator, device=source)
            batches = order.to(X.device).split(batch_size)
        for i, rows in enumerate(batches, start=1):
            with clock:
                with torch.enable_grad():
                    S = scores(X[rows], weights, activations)
                    if Y.dtype == torch.int64:
                        error = F.cross_entropy(S, Y[rows])
                    else:
                        error = output.value(S) - Y[..., rows, :]
                        error = error.square().sum() / 2 / len(rows)
                    descent.zero_grad()
                    error.backward()
                descent.step()
            step, passes = epoch * steps + i, min(i * batch_size, len(X)) / len(X)
            yield DescentStep(
                step, epoch + passes, error.detach(), clock.seconds, live, descent
            )
