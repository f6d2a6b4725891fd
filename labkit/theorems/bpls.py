r"""What a walk of BPLS must fulfil, on a small example.

Each function solves layers by the library, in float64, and returns a
:class:`~labkit.theorems.Finding`. No constant is 1 and all sizes differ: D = 11
samples, K = 6 inputs, N = 5 and 4 neurons, J = 3 outputs.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from labkit.bpls.activations import activation
from labkit.bpls.solve import METHODS, RIDGE, solve_layer
from labkit.bpls.targets import hidden_targets
from labkit.bpls.walk import LayerStep, hidden_values, random_weights, walk
from labkit.theorems import Finding, drawn

SIZES = 6, 5, 4, 3  # inputs, neurons of two hidden layers, outputs
SAMPLES = 11
ACTIVATIONS = ["sigmoid", "tanh"]


def walking(**options: object) -> Iterator[tuple[Tensor, Tensor, LayerStep]]:
    """Walk through a network with two hidden layers; options are those of `walk`.

    Yields the values below a layer, its targets and its step, from the output down.
    """
    generator = torch.Generator().manual_seed(3)
    weights = random_weights(SIZES, generator=generator, dtype=torch.float64)
    H = hidden_values(drawn(SAMPLES, SIZES[0], seed=4), weights, ACTIVATIONS)
    B = drawn(SAMPLES, SIZES[-1], seed=5)
    hidden = [activation(name) for name in ACTIVATIONS]
    for step in walk(H, B, hidden, **options):
        yield H[step.layer - 1], B, step
        B = step.B


def layer(D: int, N: int, J: int) -> list[Tensor]:
    """Draw the values of a layer, the weights above it, and their targets."""
    shapes = (D, N), (N, J), (D, J)
    return [drawn(*shape, seed=i) for i, shape in enumerate(shapes)]


def weights_solve_the_ridge_problem(
    ridge: float | None = None, method: str = "cholesky"
) -> Finding:
    r"""The ridge gradient vanishes in every layer, (6).

    $A^T (A W - B) + \lambda W = 0$ with $\lambda = \rho\,\mathrm{tr}(A^T A) / K$, for a
    layer's values A, targets B and weights W, relative to $A^T B$.
    """
    rho, found = RIDGE if ridge is None else ridge, []
    for A, B, step in walking(ridge=ridge, method=method):
        lam = rho * A.square().sum() / A.shape[1]
        gradient = A.T @ (A @ step.W - B) + lam * step.W
        found.append((gradient / torch.linalg.norm(A.T @ B)).flatten())
    found = torch.cat(found)
    claim = (
        r"In every layer the ridge gradient $A^\top (A W - B) + \lambda W$ vanishes, "
        r"with $\lambda = \rho\,\mathrm{tr}(A^\top A) / K$."
    )
    example = rf"$D = {SAMPLES}$ samples, layers of {SIZES} units, $\rho = {rho:g}$"
    return Finding(claim, found, torch.zeros_like(found), example, tolerance=1e-9)


def neurons_move_one_after_the_other(D: int = 11, N: int = 5, J: int = 3) -> Finding:
    r"""After the moves of neurons 1 to i, the residual is orthogonal to $w_i$ (5b).

    Then no other value of neuron i alone would leave a smaller residual. The targets of
    the later neurons do not enter, since they have not moved yet.
    """
    H, W, B = layer(D, N, J)
    T = hidden_targets(H, W, B, "gauss_seidel")
    now, found = H.clone(), []
    for i in range(N):
        now[:, i] = T[:, i]
        found.append((B - now @ W) @ W[i])
    found = torch.stack(found, 1)
    claim = (
        "When neuron $i$ has moved, after those before it, the residual that is left "
        r"is orthogonal to its weights: $(B - H W)\,w_i^\top = 0$."
    )
    example = f"$D = {D}$ samples, $N = {N}$ neurons, $J = {J}$ outputs"
    return Finding(claim, found, torch.zeros_like(found), example)


def targets_repair_the_residual(D: int = 11, N: int = 5, J: int = 3) -> Finding:
    r"""The targets (5') meet the layer above exactly where N >= J, $T W = B$."""
    H, W, B = layer(D, N, J)
    T = hidden_targets(H, W, B)
    claim = r"With the corrected values the layer above is right: $\hat H W = B$."
    example = f"$D = {D}$ samples, $N = {N}$ neurons, $J = {J}$ outputs"
    return Finding(claim, T @ W, B, example)


def targets_are_the_smallest_change(D: int = 11, N: int = 5, J: int = 3) -> Finding:
    r"""The change of (5') lies in the row space of $W^T$: no smaller one fits as well.

    A part of the change that is orthogonal to all columns of W repairs nothing. With
    $\Pi = W W^+$ it is the change times $I - \Pi$, and has to be 0.
    """
    H, W, B = layer(D, N, J)
    change = hidden_targets(H, W, B) - H
    Q = torch.linalg.qr(W).Q
    found = change - change @ Q @ Q.T
    claim = (
        "The change of the hidden values has no part that repairs nothing: it lies in "
        "the space that the columns of $W$ span."
    )
    example = f"$D = {D}$ samples, $N = {N}$ neurons, $J = {J}$ outputs"
    return Finding(claim, found, torch.zeros_like(found), example)


def all_methods_agree(ridge: float = 0.05) -> Finding:
    r"""Cholesky, eigenvectors and singular vectors solve the same ridge problem (6)."""
    A, B = drawn(SAMPLES, SIZES[0], seed=4), drawn(SAMPLES, SIZES[-1], seed=5)
    first, *others = (
        solve_layer(A, B, ridge=ridge, rcond=0, method=each)[0] for each in METHODS
    )
    claim = "Cholesky, eigenvectors and singular vectors give the same weights."
    example = rf"$D = {SAMPLES}$ samples, $K = 6$ inputs, $\rho = {ridge:g}$"
    wanted = torch.cat([first] * len(others))
    return Finding(claim, torch.cat(others), wanted, example)


THEOREMS = {
    theorem.__name__: theorem
    for theorem in (
        weights_solve_the_ridge_problem,
        neurons_move_one_after_the_other,
        targets_repair_the_residual,
        targets_are_the_smallest_change,
        all_methods_agree,
    )
}
