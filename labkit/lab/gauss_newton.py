r"""Refine a network of one hidden layer by Gauss-Newton sweeps; ours, not a paper's.

Where BPLS corrects hidden values, clamps them and inverts the activation, a sweep moves
the pre-activations by what removes the residual to first order. It needs no clamp and
no inverse. The hidden units are tanh; with the identity and no damping the move would
be (5') of BPLS.

The output layer has a constant unit beside the hidden ones. It is fitted to one-hot
labels or values by least squares, on all samples in every sweep.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.bpls.solve import Factor, cross, factor, solve_layer
from labkit.clock import Clock
from labkit.errors import DivergedError

Weights = tuple[Tensor, Tensor]  # W_1 (M, N); W_2 (N + 1, J), last the constant unit's


class State(NamedTuple):
    """The network and its values on all samples."""

    weights: Weights
    H: Tensor  # (D, N) tanh(X W_1)
    R: Tensor  # (D, J) residual


class Sweep(NamedTuple):
    """The result of a sweep; of sweep 0, the output layer's solve alone."""

    walk: int  # sweeps so far
    error: float  # misses, or of values the rms of the residual
    seconds: float  # computing time of the sweep
    weights: Weights
    best: Weights  # of the least error so far


def gauss_newton_targets(R: Tensor, W: Tensor, slope: Tensor, mu: float) -> Tensor:
    r"""Compute the pre-activations' change that removes the residual to first order.

    For each sample d, with the Jacobian $J_d = W^T \mathrm{diag}(a'(z_d))$ (J, N),

    (1) $K_d = J_d J_d^T$    (2) $t = \mathrm{mean}_d\,\mathrm{tr}(K_d) / J$

    (3) $\Delta z_d = J_d^T (K_d + \mu t I)^{-1} r_d$.

    Parameters
    ----------
    R : (D, J) tensor, residual of the outputs
    W : (N, J) tensor, output weights, without the constant unit's
    slope : (D, N) tensor, a'(Z)
    mu : float >= 0, relative damping; with 0, every K_d must be regular

    Returns
    -------
    (D, N) tensor
        With mu = 0, $(\Delta Z \circ a'(Z))\,W = R$; the identity gives $R\,W^+$.

    Notes
    -----
    Cost D (N J^2 + J^3 / 6 + N J) multiply-adds: all K_d are one product of the squared
    slopes with the N outer products of the rows of W.
    """
    N, J = W.shape
    outer = (W[:, :, None] * W[:, None, :]).reshape(N, J * J)
    K = (slope.square() @ outer).view(-1, J, J)  # (1)
    diagonal = K.diagonal(dim1=-2, dim2=-1)
    t = diagonal.mean()  # (2)
    diagonal += torch.where(t > 0, mu * t, 1)
    L, _ = torch.linalg.cholesky_ex(K)
    solved = torch.cholesky_solve(R[..., None], L).squeeze(-1)
    return slope * (solved @ W.T)  # (3)


def sweep(
    X: Tensor,
    B: Tensor,
    state: State,
    regular: Factor,
    *,
    alpha: float,
    mu: float,
    ridge: float,
) -> State:
    r"""Run one refinement sweep over all samples.

    With $\Delta Z$ of `gauss_newton_targets`,

    (4) $\Delta W_1 = \alpha\,(X^T X + \lambda I)^{-1} X^T \Delta Z$
    (5) $W_1' = W_1 + \Delta W_1$

    The output layer is then solved again by `with_output`. Cost 2 D M N multiply-adds,
    and the output layer's solve.
    """
    W1, W2 = state.weights
    dZ = gauss_newton_targets(state.R, W2[:-1], 1 - state.H.square(), mu)
    W1 = W1 + alpha * regular.solve(cross(X, dZ))  # (4), (5)
    return with_output(X, B, W1, ridge)


def with_output(X: Tensor, B: Tensor, W1: Tensor, ridge: float) -> State:
    """Solve the output layer on the hidden values of W_1 and the constant unit."""
    H = (X @ W1).tanh()
    A = F.pad(H, (0, 1), value=1)
    W2, _ = solve_layer(A, B, ridge=ridge)
    return State((W1, W2), H, B - A @ W2)


def refine(
    X: Tensor,
    Y: Tensor,
    W1: Tensor,
    *,
    sweeps: int = 10,
    alpha: float = 2.0,
    mu: float = 1e-2,
    ridge: float = 1e-3,
) -> Iterator[Sweep]:
    """Refine by Gauss-Newton sweeps, and yield one `Sweep` for each.

    The error may rise in a sweep, especially on a small problem; the best weights are
    kept. Cost: D M^2 multiply-adds once for the factor of X^T X + lambda I, then
    2 D M N in each sweep.

    Parameters
    ----------
    X : (D, M) tensor, inputs; a bias is a column of ones
    Y : (D, J) tensor of values, or (D,) int64 tensor of labels
        The largest label determines the number of classes.
    W1 : (M, N) tensor, where the hidden layer starts; U[-0.3, 0.3] suits images
    sweeps : int >= 0
    alpha : float > 0
        Step; 1 is the plain Gauss-Newton step, 2 takes about half the sweeps.
    mu : float > 0, damping relative to the mean diagonal of J_d J_d^T
    ridge : float > 0, relative, of both layers; see `solve_layer`

    Raises
    ------
    DivergedError
        An error that is not finite, for instance if values are too large to be squared.
    """
    best, least, labelled = None, math.inf, Y.dtype == torch.int64
    clock = Clock(X.device)
    with clock:
        B = F.one_hot(Y).to(X.dtype) if labelled else Y
        regular = factor(X, ridge)
        state = with_output(X, B, W1, ridge)
    for walk in range(sweeps + 1):
        with clock:
            if walk:
                state = sweep(X, B, state, regular, alpha=alpha, mu=mu, ridge=ridge)
            error = rms = float(state.R.square().mean().sqrt())
            if labelled:
                error = int(((B - state.R).argmax(-1) != Y).sum())
        if not math.isfinite(rms):
            raise DivergedError(f"sweep {walk}: the error is not finite")
        if error < least:
            best, least = state.weights, error
        yield Sweep(
            walk=walk,
            error=error,
            seconds=clock.seconds,
            weights=state.weights,
            best=best,
        )
        clock = Clock(X.device)


def refined_scores(X: Tensor, weights: Weights) -> Tensor:
    """Compute the outputs (D, J) of a refined network, [tanh(X W_1), 1] W_2."""
    W1, W2 = weights
    return (X @ W1).tanh() @ W2[:-1] + W2[-1]
