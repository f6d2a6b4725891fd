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
from labkit.bpls.train import check_samples
from labkit.bpls.walk import Weights, hidden_values
from labkit.check import COUNT, INSIDE, POSITIVE, check_options, integer, one_of
from labkit.clock import Clock

# the paper's four, with the usual settings of Kingma and Ba (2015) and torch
OPTIMIZERS = {
    "adam": (torch.optim.Adam, {}),
    "nag": (torch.optim.SGD, {"nesterov": True}),
    "sgd": (torch.optim.SGD, {}),
    "adagrad": (torch.optim.Adagrad, {}),
}
RANGES = {
    "optimizer": one_of(OPTIMIZERS),
    "lr": POSITIVE,
    "momentum": INSIDE,
    "batch_size": COUNT,
    "epochs": integer(0),
}


@dataclass(frozen=True)
class DescentStep:
    """One step of gradient descent. The loss is the sum of that of all runs."""

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
    momentum: float = 0.9,
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
    Y : (..., D, J) tensor of values, or (..., D) int64 tensor of labels
        Labels train on the cross-entropy of a softmax, values on half the squared
        error, summed over outputs, mean over the batch. Leading dimensions are
        independent runs with weights of their own, and with samples of their own where
        X has them, too; they share the order of the samples.
    optimizer : {"adam", "nag", "sgd", "adagrad"}
    lr : float > 0, in the paper 1e-3, and 1e-1 for AdaGrad on the toy
    momentum : float in (0, 1), which NAG alone uses
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
    options = dict(optimizer=optimizer, lr=lr, momentum=momentum)
    check_options(options | dict(batch_size=batch_size, epochs=epochs), RANGES)
    activations = per_layer(activations, len(weights) - 1)
    output = activation(output)
    check_samples(X, Y, weights, leading=("...",))
    labelled, samples = Y.dtype == torch.int64, X.shape[-2]
    _check_runs(X, Y, weights)
    steps = math.ceil(samples / batch_size)
    source = X.device if generator is None else generator.device
    clock = Clock(X.device)
    with clock:
        weights = tuple(W.detach().clone().requires_grad_() for W in weights)
        method, settings = OPTIMIZERS[optimizer]
        if optimizer == "nag":
            settings = settings | {"momentum": momentum}
        descent = method(weights, lr=lr, **settings)
        if state is not None:
            descent.load_state_dict(state)
    live = tuple(W.detach() for W in weights)
    for epoch in range(epochs):
        with clock:
            order = torch.randperm(samples, generator=generator, device=source)
            batches = order.to(X.device).split(batch_size)
        for i, rows in enumerate(batches, start=1):
            with clock:
                drawn = X.index_select(-2, rows)
                wanted = Y.index_select(-1 if labelled else -2, rows)
                with torch.enable_grad():
                    S = hidden_values(drawn, weights, activations)[-1] @ weights[-1]
                    if labelled:
                        wanted = wanted.expand(S.shape[:-1]).flatten()
                        error = F.cross_entropy(S.flatten(end_dim=-2), wanted)
                        error = error * S.shape[:-2].numel()
                    else:
                        error = output.value(S) - wanted
                        error = error.square().sum() / 2 / len(rows)
                    descent.zero_grad()
                    error.backward()
                descent.step()
            step, passes = epoch * steps + i, min(i * batch_size, samples) / samples
            yield DescentStep(
                step, epoch + passes, error.detach(), clock.seconds, live, descent
            )


def _check_runs(X: Tensor, Y: Tensor, weights: Weights) -> None:
    """Raise ValueError unless every run of the samples has weights of its own."""
    given = Y.shape[: -1 if Y.dtype == torch.int64 else -2]
    for name, runs in (("X", X.shape[:-2]), ("Y", given)):
        for layer, W in enumerate(weights, start=1):
            own = W.shape[:-2]
            if runs and own[len(own) - len(runs) :] != runs:
                raise ValueError(
                    f"W_{layer} must have the leading dimensions of {name}, "
                    f"{tuple(runs)}, a network for each run, got {tuple(W.shape)}"
                )
