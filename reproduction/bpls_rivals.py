"""The rivals of BPLS: the same network, trained by gradient descent with torch.optim.

It has the same initial weights and activations, and no bias but a column of ones. The
paper runs its competitors with a batch of one sample; 128 is usual.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from labkit.bpls.activations import activation, per_layer
from labkit.bpls.walk import Weights, hidden_values
from labkit.clock import Clock

# the paper's four, with the usual settings of Kingma and Ba (2015) and torch
OPTIMIZERS = {
    "adam": torch.optim.Adam,
    "nag": torch.optim.SGD,
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
}


@dataclass(frozen=True)
class DescentStep:
    """One step of gradient descent."""

    epoch: float  # passes over the data so far
    seconds: float  # computing time so far
    # both live: the next step changes them in place
    weights: Weights = field(repr=False)
    optimizer: torch.optim.Optimizer = field(repr=False)


def descend(
    X: Tensor,
    Y: Tensor,
    weights: Weights,
    activations: str = "sigmoid",
    *,
    output: str = "identity",
    optimizer: str = "adam",
    lr: float = 1e-3,
    momentum: float = 0.9,
    batch_size: int = 1,
    epochs: int = 1,
    generator: torch.Generator,
    state: dict | None = None,
) -> Iterator[DescentStep]:
    """Train the same network by gradient descent, and yield one record per step.

    Parameters
    ----------
    X, weights, activations, output
        As for :func:`labkit.bpls.train`. The weights are copied.
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
    generator : torch.Generator, of the order of the samples
    state : dict, optional
        ``state_dict()`` of an earlier run's optimizer, saved after whole epochs. With
        its weights and the state of its generator, its run goes on to the same bits.
    """
    activations = per_layer(activations, len(weights) - 1)
    output = activation(output)
    labelled, samples = Y.dtype == torch.int64, X.shape[-2]
    weights = tuple(W.detach().clone().requires_grad_() for W in weights)
    live = tuple(W.detach() for W in weights)
    nesterov = {"nesterov": True, "momentum": momentum} if optimizer == "nag" else {}
    descent = OPTIMIZERS[optimizer](weights, lr=lr, **nesterov)
    if state is not None:
        descent.load_state_dict(state)
    clock = Clock(X.device)
    for epoch in range(epochs):
        device = generator.device
        order = torch.randperm(samples, generator=generator, device=device)
        passed = 0
        for rows in order.to(X.device).split(batch_size):
            with clock:
                drawn = X.index_select(-2, rows)
                wanted = Y.index_select(-1 if labelled else -2, rows)
                S = hidden_values(drawn, weights, activations)[-1] @ weights[-1]
                if labelled:
                    wanted = wanted.expand(S.shape[:-1]).flatten()
                    error = cross_entropy(S.flatten(end_dim=-2), wanted)
                    error = error * S.shape[:-2].numel()
                else:
                    error = (output.value(S) - wanted).square().sum() / 2 / len(rows)
                descent.zero_grad()
                error.backward()
                descent.step()
            passed += len(rows)
            seen = epoch + passed / samples
            yield DescentStep(seen, clock.seconds, live, descent)
