r"""What the theorems say of the learners, judged by running them on small examples.

Real steps of the library are taken, and a :class:`~labkit.theorems.Finding` is
returned. An expectation is exact: the batch dimension holds one copy of the learner for
each pattern of signs, so that a mean over the batch is the mean over all noise (Benzing
et al. 2019; Tallec and Ollivier 2017; Menick et al. 2021).
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.rtrl.cells import Cell, CellStep
from labkit.rtrl.learner import Learner
from labkit.rtrl.low_rank import minimum_variance
from labkit.theorems import Finding

Maker = Callable[[int], Learner]  # from a batch size


# Dense versions, from the definitions


def all_signs(q: int) -> Tensor:
    """Return every pattern of q signs, (2^q, q), in float64."""
    bits = torch.arange(2**q)[:, None] >> torch.arange(q).flip(0)
    return 2.0 * (bits % 2).double() - 1


def dense_D(D: Tensor) -> Tensor:
    """Return D (b, S / n, K, n) with its zeros, (b, S, K n)."""
    eye = torch.eye(D.shape[-1], dtype=D.dtype)
    return torch.einsum("bpkj,ij->bpikj", D, eye).flatten(3).flatten(1, 2)


def immediate(h_hat: Tensor, D: Tensor) -> Tensor:
    """Return F (b, S, m K n), the Kronecker product of h_hat (b, m) with all of D."""
    return torch.einsum("bm,bsc->bsmc", h_hat, dense_D(D)).flatten(2)


def kronecker_sum(u: Tensor, A: Tensor) -> Tensor:
    """Return sum_i u_i (x) A_i as (b, S, m K n), from u (b, r, m) and transposed A."""
    return torch.einsum("brm,brcs->bsmc", u, A).flatten(2)


def advanced(G: Tensor, H: Tensor, h_hat: Tensor, D: Tensor) -> Tensor:
    r"""Return $H G + F$, what an exact step makes of the influence G (b, S, m K n)."""
    return H @ G + immediate(h_hat, D)


# What is true of a set of draws


def mean_of_draws(draws: Tensor, truth: Tensor, tolerance: float = 1e-10) -> Finding:
    """Judge whether draws (c, S, W), one for each pattern of signs, average to truth.

    Parameters
    ----------
    draws, truth : (c, S, W) and (S, W) tensors, estimates and the exact influence
    tolerance : float, see :class:`~labkit.theorems.Finding`
    """
    claim = "The mean of the estimate $G'$ over all signs is the exact influence $G$."
    example = f"all {len(draws)} patterns of signs"
    return Finding(claim, draws.mean(0), truth, example, tolerance)


def variance_of_theorem_6(
    draws: Tensor, truth: Tensor, rows: int, rank: int, tolerance: float = 1e-8
) -> Finding:
    r"""Judge whether draws have the least variance of any unbiased estimate of a rank.

    Theorem 6: $E|G' - G|^2 = s_1^2 / k - s_2$ of the singular values of the exact
    influence, as a matrix with one row for each of the ``rows`` entries of a u_i.

    Parameters
    ----------
    draws, truth : (c, S, m K n) and (S, m K n) tensors, for each pattern of signs
    rows : int, m
    rank : int, r terms of the estimate
    tolerance : float, see :class:`~labkit.theorems.Finding`
    """
    d = torch.linalg.svdvals(truth.unflatten(1, (rows, -1)).movedim(1, 0).flatten(1))
    wanted = minimum_variance(d, rank)
    found = (draws - truth).square().sum((1, 2)).mean()
    claim = (
        "$E|G' - G|^2$ is the least that an unbiased estimate of this rank can have: "
    )
    claim += "$s_1^2 / k - s_2$ (Theorem 6)."
    example = f"$r = {rank}$ and all {len(draws)} patterns of signs"
    return Finding(claim, found, wanted, example, tolerance)


def least_cross_terms(u: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
    r"""Return the least square of the noise of $u v^T + x y^T$ in one product.

    $(\rho_0 u \pm \rho_1 x)(v / \rho_0 \pm y / \rho_1)^T$ has beside the two products
    the cross terms $a\, u y^T + x v^T / a$ with $a = \rho_0 / \rho_1$. Their square is
    least at $a^2 = |x| |v| / (|u| |y|)$, where it is

    $2\,|u||v||x||y| + 2\,\langle u, x\rangle \langle v, y\rangle$.

    The vectors lie in the last dimension.
    """
    norms = [torch.linalg.vector_norm(each, dim=-1) for each in (u, v, x, y)]
    return 2 * math.prod(norms) + 2 * (u * x).sum(-1) * (v * y).sum(-1)


# Learners that are run


class Drawn(NamedTuple):
    """The last step of a learner, taken with every pattern of signs."""

    learner: Learner  # after the step; a copy for each pattern
    step: CellStep  # the cell's step, the same in all copies
    before: dict[str, Tensor]  # the learner's tensors before the step
    signs: Tensor  # (c, q), of this step
    draws: Tensor  # (c, S, m K n), the influence after the step
    truth: Tensor  # (S, m K n), what exact steps make of the influence before the signs


def signs_of(make: Maker, x: Tensor) -> int:
    """Return how many signs a learner draws in a step on the input x (d_x,)."""
    learner, drawn = make(1), []
    draw = learner._signs
    learner._signs = lambda *shape: drawn.append(math.prod(shape)) or draw(*shape)
    learner.step(x[None])
    return sum(drawn)


def every_draw(
    make: Maker, start: Tensor, xs: Sequence[Tensor], free: int | None = None
) -> Drawn:
    """Step a learner through inputs, with every pattern of the signs of its last steps.

    Parameters
    ----------
    make : callable, from a batch size to a new learner
    start : (1, S) tensor, $s$, the state to start from, in float64
    xs : (T, d_x) tensor, inputs
    free : int, optional
        Number of last steps whose signs take every pattern; all by default. In the
        steps before, all copies have the same signs.
    """
    q, free = signs_of(make, xs[0]), len(xs) if free is None else free
    patterns = all_signs(q * free)
    learner = make(len(patterns))
    learner.state = start.repeat(len(patterns), 1)
    truth, first = learner.influence()[0], len(xs) - free
    generator = torch.Generator().manual_seed(0)
    alike = 2.0 * torch.randint(0, 2, (first, q), generator=generator).double() - 1
    for t, x in enumerate(xs):
        enumerated = patterns[:, (t - first) * q : (t - first + 1) * q]
        signs = alike[t].expand(len(patterns), q) if t < first else enumerated
        before = {name: getattr(learner, name).clone() for name in learner.tensors}
        step = learner.cell.step(x[None], learner.state[:1])
        _step_with(learner, x.expand(len(patterns), -1), signs)
        truth = advanced(truth, *step[2:])[0]
        if t < first:
            truth = learner.influence()[0]
    return Drawn(learner, step, before, signs, learner.influence(), truth)


def _step_with(learner: Learner, x: Tensor, signs: Tensor) -> None:
    """Step on x (b, d_x) with the given signs (b, q), in the order they are drawn."""
    left = list(signs.unbind(1))

    def given(*shape: int) -> Tensor:
        taken = [left.pop(0) for _ in range(math.prod(shape))]
        return torch.stack(taken, 1).reshape(-1, *shape)

    learner._signs = given
    learner.step(x)


def sequences_apart(make: Maker, xs: Tensor) -> Finding:
    """Judge whether each sequence of a batch is treated as it would be by itself.

    xs is (T, b, d_x); the sequences have the same signs in the batch and alone.
    """
    T, b, _ = xs.shape
    whole, alone = make(b), [make(1) for _ in range(b)]
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, 2, (T, b, signs_of(make, xs[0, 0])), generator=generator)
    for x, signs in zip(xs, 2 * drawn.to(xs) - 1, strict=True):
        _step_with(whole, x, signs)
        for i, learner in enumerate(alone):
            _step_with(learner, x[i : i + 1], signs[i : i + 1])
    wanted = torch.cat([learner.influence() for learner in alone])
    claim = "A sequence of a batch has the estimate that it would have by itself."
    return Finding(claim, whole.influence(), wanted, f"{b} sequences and {T} steps")


def unbiased(
    make: Maker, start: Tensor, xs: Sequence[Tensor], free: int | None = None
) -> Finding:
    """Judge whether a learner's estimate is unbiased; arguments of :func:`every_draw`.

    With fewer free steps than inputs, the mean is judged given the signs before them.
    """
    drawn = every_draw(make, start, xs, free)
    return mean_of_draws(drawn.draws, drawn.truth)


def of_least_variance(
    make: Maker, start: Tensor, xs: Sequence[Tensor], rank: int
) -> Finding:
    """Judge the noise that the last step of OK adds by Theorem 6."""
    drawn = every_draw(make, start, xs, free=1)
    rows = drawn.learner.cell.augmented_size
    return variance_of_theorem_6(drawn.draws, drawn.truth, rows, rank)


def balanced_kf(make: Maker, start: Tensor, xs: Sequence[Tensor]) -> Finding:
    """Judge whether KF-RTRL's factors make the noise least, in each copy and draw."""
    drawn = every_draw(make, start, xs, free=1)
    u, A = (drawn.before[name] for name in ("u", "A"))
    h_hat, D = drawn.step.h_hat, dense_D(drawn.step.D).mT.flatten(1)
    HA = (A @ drawn.step.H.mT).flatten(2)
    truth = u[..., None] * HA[:, :, None] + (h_hat[..., None] * D[:, None])[:, None]
    new_u, new_A = drawn.learner.u, drawn.learner.A.flatten(2)
    found = (new_u[..., None] * new_A[:, :, None] - truth).square().sum((2, 3))
    wanted = least_cross_terms(u, HA, h_hat[:, None], D[:, None])
    claim = "$p_1$ and $p_2$ make the square of the cross terms, the noise, least."
    return Finding(claim, found, wanted, _sizes(drawn.learner, len(xs)))


def balanced_uoro(make: Maker, start: Tensor, xs: Sequence[Tensor]) -> Finding:
    """Judge whether UORO's factors make the noise least, in each draw."""
    drawn = every_draw(make, start, xs, free=1)
    Hu, v, nu = drawn.before["u"] @ drawn.step.H[0].T, drawn.before["v"], drawn.signs
    v, w = v.flatten(1), nu @ immediate(drawn.step.h_hat, drawn.step.D)[0]
    truth = Hu[..., None] * v[:, None] + nu[..., None] * w[:, None]
    found = (drawn.draws - truth).square().sum((1, 2))
    wanted = least_cross_terms(Hu, v, nu, w)
    claim = (
        r"$\rho_0$ and $\rho_1$ make the square of the cross terms, the noise, least."
    )
    return Finding(claim, found, wanted, _sizes(drawn.learner, len(xs)))


def recursion(
    learner: Learner, xs: Sequence[Tensor], kept: Tensor | None = None
) -> Finding:
    r"""Judge whether a learner carries $G_t = H_t G_{t-1} + F_t$.

    Parameters
    ----------
    learner : Learner, to be stepped
    xs : (T, b, d_x) tensor, inputs
    kept : (S, m K n) tensor of 0 and 1, optional
        Where it is 0, G is forgotten after each step; by default nowhere.
    """
    G = torch.zeros_like(learner.influence())
    for x in xs:
        _, _, H, h_hat, D = learner.cell.step(x, learner.state)
        G = advanced(G, H, h_hat, D) * (1 if kept is None else kept)
        learner.step(x)
    claim = "The influence is $H_t G_{t-1} + F_t$"
    claim += ", of which no more than a part is kept." if kept is not None else "."
    found, example = learner.influence(), _sizes(learner, len(xs))
    return Finding(claim, found, G, example, tolerance=1e-12)


def _sizes(learner: Learner, steps: int) -> str:
    """Say in words on which example a learner was run."""
    cell = learner.cell
    sizes = f"$n = {cell.hidden_size}$ units, $d_x = {cell.input_size}$ inputs"
    return f"{type(cell).__name__} with {sizes} and {steps} steps"


def own_unit(cell: Cell) -> Tensor:
    """Return (S, m K n), 1 where a weight acts on its own unit's state, as SnAp-1 does.

    A weight of unit j is one that enters its pre-activations.
    """
    n, m = cell.hidden_size, cell.augmented_size
    own = torch.eye(n, dtype=cell.weight.dtype)[None, :, None, None]
    own = own.expand(cell.parts, n, m, cell.blocks, n)
    return own.reshape(cell.state_size, -1)


def back_propagate(
    cell: Cell,
    xs: Sequence[Tensor],
    dLs: Sequence[Tensor],
    state: Tensor,
    restart: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return autograd's gradient of $\sum_t \langle dL_t, h_t \rangle$, last state.

    Parameters
    ----------
    cell, xs, dLs : the cell; inputs (T, b, d_x) and derivatives of the loss (T, b, n)
    state : (b, S) tensor, $s$, to start from
    restart : (T, b) bool tensor, optional, where a state is set to 0 before a step
    """
    loss = 0
    for t, (x, dL) in enumerate(zip(xs, dLs, strict=True)):
        if restart is not None:
            state = torch.where(restart[t][:, None], 0, state)
        state = cell(x, state)
        loss = loss + (cell.hidden(state) * dL).sum()
    return torch.autograd.grad(loss, cell.weight)[0], state.detach()


def back_propagation(
    learner: Learner, xs: Sequence[Tensor], dLs: Sequence[Tensor]
) -> Finding:
    """Judge whether an exact learner, stepped here, gives back-propagation's gradient.

    xs and dLs are those of :func:`back_propagate`; the start is the learner's state.
    """
    wanted, _ = back_propagate(learner.cell, xs, dLs, learner.state.clone())
    total = torch.zeros_like(wanted)
    for x, dL in zip(xs, dLs, strict=True):
        learner.step(x)
        total += learner.gradient(dL)
    claim = "The gradient is that of back-propagation through time."
    return Finding(claim, total, wanted, _sizes(learner, len(xs)), tolerance=1e-12)
