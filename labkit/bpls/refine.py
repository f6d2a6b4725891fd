r"""Refine a network by Gauss-Newton sweeps, a method that is ours and not the paper's.

The paper corrects a hidden value, clamps it into the range of the activation and
inverts the activation. Here the correction is made before the activation instead:
linearise $a(z + \Delta z) \approx a(z) + a'(z) \circ \Delta z$ and take the smallest
damped $\Delta z$ that removes the residual. This needs no clamp and no inverse, so ReLU
is allowed too. With the identity and without damping it is (5'), the joint
interpretation of the paper's correction.

There is one hidden layer, and the output layer has a constant unit beside the hidden
ones. It is fitted to one-hot labels or values by least squares, on all samples in every
sweep.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.bpls.activations import Activation, activation
from labkit.bpls.checks import DTYPES, check_matrix, check_shapes, check_weights
from labkit.bpls.samples import (
    checked_weight,
    counted,
    judged,
    relative,
)
from labkit.bpls.solve import Factor, cross, factor, solve_layer, weighed
from labkit.bpls.train import WalkEnd, read
from labkit.bpls.walk import Weights
from labkit.check import POSITIVE, check_options, check_tensor, described, integer
from labkit.clock import Clock
from labkit.errors import DivergedError

RIDGE = 1e-3  # relative, of both layers
SCALE = 0.3  # of the initial weights; with 1 tanh units start saturated
RANGES = {
    "sweeps": integer(0, 10**6),
    "alpha": POSITIVE,
    "mu": POSITIVE,
    "ridge": POSITIVE,
}
CLASSES = 2**20  # at most


class State(NamedTuple):
    """The network and its values on all samples."""

    W1: Tensor  # (M, N)
    Z: Tensor  # (D, N) pre-activations X W_1
    H: Tensor  # (D, N) a(Z)
    W2: Tensor  # (N + 1, J), its last row for the constant unit
    R: Tensor  # (D, J) residual


def gauss_newton_targets(
    R: Tensor, W: Tensor, slope: Tensor, mu: float, share: Tensor | None = None
) -> Tensor:
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
    share : (D, 1) tensor, optional, weights of the samples in (2), of mean 1

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
    t = weighed(share, diagonal).mean()  # (2)
    diagonal += torch.where(t > 0, mu * t, 1)
    L, _ = torch.linalg.cholesky_ex(K)
    solved = torch.cholesky_solve(R[..., None], L).squeeze(-1)
    return slope * (solved @ W.T)  # (3)


def sweep(
    X: Tensor,
    B: Tensor,
    state: State,
    regular: Factor,
    a: Activation,
    *,
    alpha: float,
    mu: float,
    ridge: float,
    share: Tensor | None = None,
) -> tuple[State, Tensor, Tensor]:
    r"""Run one refinement sweep over all samples.

    With $\Delta Z$ of `gauss_newton_targets`,

    (4) $\Delta W_1 = \alpha\,(X^T X + \lambda I)^{-1} X^T \Delta Z$
    (5) $W_1' = W_1 + \Delta W_1$

    The output layer is then solved again by `with_output`. The gradient of half the
    squared error is computed as well, for the cosine:

    (6) $g = -X^T (R\,W_2^T \circ a'(Z))$.

    Cost 3 D M N multiply-adds, a third for the gradient, and the output layer's solve.

    Parameters
    ----------
    X : (D, M) tensor, inputs
    B : (D, J) tensor, targets of the outputs
    regular : Factor, of X, made once for all sweeps
    alpha, mu, ridge : as for `refine`
    share : (D, 1) tensor, optional, weights of the samples, of mean 1

    Returns
    -------
    state : State
    ratio : () tensor
        Linearised overshoot, <J dz, r> / |r|^2: the share of the residual that the
        damping lets dz remove, before it is fitted by W_1.
    along : () tensor, cosine of the change of W_1 with -g
    """
    W = state.W2[:-1]
    slope = a.slope(state.Z, state.H)
    dZ = gauss_newton_targets(state.R, W, slope, mu, share)
    pull = slope * (state.R @ W.T)
    both = weighed(share, torch.cat([dZ, pull], 1))
    both = cross(X, both)  # one pass over X
    fit, descent = both.split(dZ.shape[1], 1)  # (6)
    change = alpha * regular.solve(fit)  # (4)
    ratio = weighed(share, dZ * pull).sum() / weighed(share, state.R.square()).sum()
    along = F.cosine_similarity(change.flatten(), descent.flatten(), 0)
    W1 = state.W1 + change  # (5)
    state = with_output(X, B, W1, a, ridge, share, careful=False)
    return state, ratio, along


def with_output(
    X: Tensor,
    B: Tensor,
    W1: Tensor,
    a: Activation,
    ridge: float,
    share: Tensor | None = None,
    careful: bool = True,
) -> State:
    """Solve the output layer on the hidden values of W_1 and the constant unit.

    Without ``careful`` the result is nan if there is no Cholesky factor; see
    `solve_layer`.
    """
    Z = X @ W1
    H = a.value(Z)
    A = F.pad(H, (0, 1), value=1)
    root = None if share is None else share.sqrt()
    W2, _ = solve_layer(A, B, ridge=ridge, careful=careful, root=root)
    return State(W1, Z, H, W2, B - A @ W2)


def refine(
    X: Tensor,
    Y: Tensor,
    W1: Tensor,
    a: str | Activation = "tanh",
    *,
    sweeps: int = 10,
    alpha: float = 2.0,
    mu: float = 1e-2,
    ridge: float = RIDGE,
    weight: Tensor | None = None,
) -> Iterator[WalkEnd]:
    """Refine by Gauss-Newton sweeps (ours), and yield one `WalkEnd` per sweep.

    Sweep 0 solves the output layer on the initial hidden layer. The error may rise in a
    sweep, especially on a small problem; the best weights are kept. Cost: D M^2
    multiply-adds once for the factor of X^T X + lambda I, then 3 D M N in each sweep.

    Parameters
    ----------
    X : (D, M) tensor, inputs, dense or in COO form; a bias is a column of ones
    Y : (D, J) tensor of values, or (D,) int64 tensor of labels
        The largest label determines the number of classes.
    W1 : (M, N) tensor, where the hidden layer starts; U[-0.3, 0.3] suits images
    a : str or Activation, any but softmax, whose slope is not one number per unit
    sweeps : int >= 0
    alpha : float > 0
        Step; 1 is the plain Gauss-Newton step, 2 takes about half the sweeps.
    mu : float > 0, damping relative to the mean diagonal of J_d J_d^T
    ridge : float > 0, relative, of both layers; see `solve_layer`
    weight : (D,) tensor, optional, of the samples; see `train`

    Yields
    ------
    WalkEnd
        ``weights`` are (W_1, W_2) with W_2 (N + 1, J). ``overshoot`` is the linearised
        one, below 1 because of the damping; ``clamped`` is 0 and ``blend`` 1. The
        cosine is between the change of W_1 and the squared error's negative gradient,
        nan for sweep 0.

    Raises
    ------
    TypeError, ValueError
        A softmax; options out of range; tensors whose types or shapes do not fit;
        weights as in `train`.
    DivergedError
        An error that is not finite, for instance if values are too large to be squared.
    """
    a = activation(a)
    check_options({"sweeps": sweeps, "alpha": alpha, "mu": mu, "ridge": ridge}, RANGES)
    alpha, mu, ridge = float(alpha), float(mu), float(ridge)
    if a.slope is None:
        raise ValueError(
            f"the refinement needs one slope per hidden unit, and {a.name!r} couples "
            "the units of a layer; use tanh or sigmoid, say"
        )
    check_matrix("X", X, ("D", "M"), sparse=True)
    check_matrix("W_1", W1, ("M", "N"), like=X)
    outputs = outputs_of(Y)
    check_shapes(X, Y, (W1, W1.new_zeros(W1.shape[-1], outputs)))
    X, Y, W1, labelled = X.detach(), Y.detach(), W1.detach(), Y.dtype == torch.int64
    weight = checked_weight(weight, X)
    mass = len(X) if weight is None else weight.sum().item()
    best, least = None, math.inf
    clock = Clock(X.device)
    with clock:
        B = F.one_hot(Y, outputs).to(X.dtype) if labelled else Y
        share = relative(weight)
        regular = factor(X if share is None else share.sqrt() * X, ridge)
        kind = read(regular.info()._asdict())
        state = with_output(X, B, W1, a, ridge, share, careful=False)
    for tau in range(sweeps + 1):
        with clock:
            if tau:
                state, ratio, along = sweep(
                    X,
                    B,
                    state,
                    regular,
                    a,
                    alpha=alpha,
                    mu=mu,
                    ridge=ridge,
                    share=share,
                )
            numbers = outcome(state, B, Y, weight)
            if tau:
                numbers |= {"overshoot": ratio, "cosine": along}
            numbers = read(numbers)
            if not math.isfinite(numbers["rmse"]):  # solve again with care, or raise
                state = with_output(X, B, state.W1, a, ridge, share)
                numbers |= read(outcome(state, B, Y, weight))
            if not math.isfinite(numbers["rmse"]):
                raise DivergedError(f"sweep {tau}: the error is not finite")
        weights = (state.W1, state.W2)
        error = numbers["misses" if labelled else "rmse"]
        kept = error < least
        if kept:
            best, least = weights, error
        judgement = judged(error, mass, labelled)
        yield WalkEnd(
            walk=tau,
            samples=len(X),
            blend=1.0,
            misses=judgement.misses,
            accuracy=judgement.accuracy,
            rmse=judgement.rmse,
            kept=kept,
            seconds=clock.seconds,
            rank=int(kind["rank"]),
            condition=kind["condition"],
            overshoot=numbers.get("overshoot", math.nan),
            clamped=0.0,
            cosine=numbers.get("cosine", math.nan),
            weights=weights,
            best=best,
        )
        clock = Clock(X.device)


def outputs_of(Y: Tensor) -> int:
    """Return the number of outputs of values (D, J), or by the largest label."""
    check_tensor("Y", Y, dtype=(torch.int64, *DTYPES))
    if Y.ndim == 0 or not Y.numel():
        raise ValueError(f"Y must have a row and a column, got {tuple(Y.shape)}")
    if Y.dtype != torch.int64:
        return Y.shape[-1]
    least, most = torch.stack(Y.aminmax()).tolist()
    if least < 0 or most >= CLASSES:
        raise ValueError(f"labels must lie in 0..{CLASSES - 1}, got {least}..{most}")
    return most + 1


def outcome(
    state: State, B: Tensor, Y: Tensor, weight: Tensor | None = None
) -> dict[str, Tensor]:
    """Compute the RMSE of all outputs and, for labels, the misses or their weight."""
    numbers = {"rmse": weighed(relative(weight), state.R.square()).mean().sqrt()}
    if Y.dtype == torch.int64:
        numbers["misses"] = counted((B - state.R).argmax(-1) != Y, weight)
    return numbers


def refined_scores(X: Tensor, weights: Weights, a: str | Activation) -> Tensor:
    """Compute the outputs (D, J) of a refined network, [a(X W_1), 1] W_2.

    TypeError or ValueError if the weights do not fit X or each other.
    """
    check_matrix("X", X, ("D", "M"), sparse=True)
    if not isinstance(weights, tuple | list) or len(weights) != 2:
        raise TypeError(f"weights must be W_1 and W_2, got {described(weights)}")
    check_weights(X, weights[:1])
    W1, W2 = weights
    check_matrix("W_2", W2, (W1.shape[-1] + 1, "J"), like=X)
    return activation(a).value(X @ W1) @ W2[:-1] + W2[-1]
