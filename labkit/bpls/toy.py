r"""Run the paper's toy (section III-A), with all Monte-Carlo runs in one batch.

It has two inputs, one of them constant 1, one hidden layer of three, and two outputs.
It trains on x = 1, 3, 5, 7, 9 and tests on x = 2, 4, 6, 8, 10. The paper does not say
what the noise is added to; here it is the training outputs.

For the linear problem every interpretation of equation (5) but "label", which picks
another output for every sample, gives ordinary least squares on (x, 1). So the errors
are known exactly: $2\sigma$ in training and $\sqrt{4.25}\,\sigma$ in test.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.bpls.activations import CLAMP, activation
from labkit.bpls.walk import Weights, output_targets, scores, solve_output, walked
from labkit.check import check_options, one_of

SIZES = (2, 3, 2)
THEORY = {"train": 2.0, "test": math.sqrt(4.25)}  # RMSE over sigma, linear


class Toy(NamedTuple):
    """A problem without noise."""

    X: Tensor  # (5, 2) training inputs, x and 1
    Y: Tensor  # (5, 2) training outputs
    X_test: Tensor  # (5, 2)
    Y_test: Tensor  # (5, 2)
    activation: str  # of the hidden layer and of the outputs


def toy_problem(
    kind: str = "linear",
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
) -> Toy:
    r"""Make the linear or the non-linear toy; ValueError for another ``kind``.

    linear: $y_1 = -x/3 + 2$, $y_2 = 2x - 1$, no activations;
    nonlinear: $y_1 = 1 / (1 + \exp(\log_{10} x^{-3/2}))$,
    $y_2 = 1 / (1 + \exp(x^{-1/4}))$, sigmoids in the hidden layer and at the outputs.
    """
    check_options({"kind": kind}, {"kind": one_of(["linear", "nonlinear"])})

    def outputs(x: Tensor) -> Tensor:
        if kind == "linear":
            return torch.stack([2 - x / 3, 2 * x - 1], -1)
        exponents = torch.stack([-1.5 * torch.log10(x), x**-0.25], -1)
        return torch.sigmoid(-exponents)

    x = torch.arange(1, 11, dtype=dtype, device=device)
    X, Y = torch.stack([x, torch.ones_like(x)], -1), outputs(x)
    a = "identity" if kind == "linear" else "sigmoid"
    return Toy(X[::2], Y[::2], X[1::2], Y[1::2], a)


def noisy_outputs(
    toy: Toy,
    sigma: float | Tensor,
    runs: int,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw training outputs (runs, 5, 2) with noise of standard deviation sigma.

    For a tensor of S values the result is (S, runs, 5, 2), and all use the same draws.
    """
    source = toy.Y.device if generator is None else generator.device
    noise = torch.randn(
        runs, *toy.Y.shape, generator=generator, dtype=torch.float64, device=source
    ).to(toy.Y)
    return toy.Y + torch.as_tensor(sigma).to(toy.Y)[..., None, None, None] * noise


def toy_walk(
    toy: Toy,
    Y: Tensor,
    weights: Weights,
    *,
    interpretation: str | int = "min_norm",
    clamp: float | None = CLAMP,
    solve_again: bool = False,
    **solver: Any,
) -> Weights:
    """Run Algorithm 1 on all runs at once.

    Parameters
    ----------
    Y : (..., 5, 2) tensor, `noisy_outputs`
    weights : (..., 2, 3) and (..., 3, 2) tensors
        `random_weights` of `SIZES`, one network per run.
    interpretation, clamp : as for `walk`
    solve_again : bool
        Solve the output layer once more at the end; with ``interpretation="none"`` the
        other remedy against saturated draws.
    **solver : ``ridge``, ``rcond``, ``method`` of `solve_layer`
    """
    a = activation(toy.activation)
    B = output_targets(Y, a, clamp)
    weights = walked(
        toy.X, B, weights, [a], interpretation=interpretation, clamp=clamp, **solver
    )
    return solve_output(toy.X, B, weights, [a], **solver) if solve_again else weights


def toy_errors(toy: Toy, weights: Weights) -> tuple[Tensor, Tensor]:
    """Compute the squared errors of each run, train and test, without noise.

    The error is against the outputs without noise, summed over the samples and the
    outputs of a run. The root of the mean over runs, the last dimension, is the paper's
    figure; single runs show its tail.
    """
    a = activation(toy.activation)
    S, S_test = (a.value(scores(X, weights, [a])) for X in (toy.X, toy.X_test))
    squares = (S - toy.Y).square(), (S_test - toy.Y_test).square()
    return tuple(each.sum((-2, -1)) for each in squares)


def rmse(squares: Tensor) -> Tensor:
    """Compute the root of the mean over runs, the last dimension of `toy_errors`."""
    return squares.mean(-1).sqrt()
