r"""Updates by new samples in place of new nodes, and leave-one-out errors.

Neither is in Zhu's paper; the numbering is ours. A form of either by sums of squares
would lose half of the digits: the weights' relative error is about
$\epsilon |A|^2 / \lambda$ with normal equations, and $\epsilon |A| / \sqrt\lambda$ with
a triangle kept by QR (digits, 340 columns, ridge 1e-6, four pieces: 2e-7 and 3e-12).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.linalg import solve_triangular

from labkit.broad.ridge import smallest_pivot
from labkit.broad.state import BorderedState, FactorState, square_room
from labkit.broad.triangular import gram, lower_t_solve, mm, upper_t_mm

TAKE_ROWS = ("chol-1", "chol-2", "bordered")  # solvers with an exact factor of R


def rows_start(k: int, Y: Tensor, ridge: float) -> BorderedState:
    """Return the state of k columns before any sample, with R = ridge I.

    Y gives the number of outputs, the dtype and the device.
    """
    L = ridge**0.5 * torch.eye(k, dtype=Y.dtype, device=Y.device)
    none = Y.new_zeros(k, Y.shape[1])
    return BorderedState(L, none, none, ridge, L[0, 0].square())


def rows_update(
    state: FactorState | BorderedState, A: Tensor, Y: Tensor
) -> FactorState | BorderedState:
    """Add the samples A (n, k), Y (n, c) to a state that holds a factor of R.

    The factor F of Chol-1 and Chol-2 is inverted for :func:`rows_step` and back again,
    for another 2 k^3 / 3 operations; such a state stays as accurate as it was.
    """
    k = len(state.W)
    if isinstance(state, BorderedState):
        L, z, W = rows_step(state.L, state.z, A, Y)
        new = {"z": z, "W": W, "pivot": L.diagonal().amin().square()}
    else:
        one = torch.eye(k, dtype=A.dtype, device=A.device)
        L = solve_triangular(state.F, one, upper=True).T
        L, z, W = rows_step(L, upper_t_mm(state.F, state.AY), A, Y)
        AY = state.AY + mm(A.T, Y)
        L = solve_triangular(L, one, upper=False)  # F^T, as the buffer has it
        new = {"AY": AY, "W": W, "pivot": smallest_pivot(L)}
    buffer = square_room(L, k, state.capacity)  # the old state stays as it is
    buffer[:k, :k] = L
    return replace(state, buffer=buffer, **new)


def rows_step(
    L: Tensor, z: Tensor, A: Tensor, Y: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Perform one update by samples; return L, z and W for all samples.

    $L L^T = R$ and $z = L^{-1} A_{old}^T Y_{old}$ are those of the samples before.

    (1) $[[L^T, z], [A, Y]] = Q [[L'^T, z'], [0, \cdot]]$    (2) $W = L'^{-T} z'$

    No pivot can be lost. The cost is 2 (k + n) k^2 - 2 k^3 / 3 operations, so that
    pieces with fewer samples n than columns k are expensive.

    Parameters
    ----------
    L, z : (k, k), (k, c) tensors, lower triangular, positive on the diagonal
    A, Y : (n, k), (n, c) tensors, the new samples
    """
    k = len(L)
    old, new = torch.cat([L.T, z], 1), torch.cat([A, Y], 1)
    M = torch.linalg.qr(torch.cat([old, new]), mode="r").R[:k]  # (1)
    M = torch.where(M.diagonal() < 0, -1, 1)[:, None] * M  # (1)
    L, z = M[:, :k].T, M[:, k:]  # (1)
    return L, z, lower_t_solve(L, z)  # (2)


def leave_one_out(
    blocks: Callable[[], Iterable[tuple[Tensor, Tensor]]],
    shape: tuple[int, int],
    ridges: Sequence[float],
    counts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Compute the leave-one-out squared error at each of many ridges.

    Every sample is predicted by a fit to all others. One eigendecomposition serves all
    ridges. With $A^T A = Q\,\mathrm{diag}(s)\,Q^T$,
    $B = A Q$ and $d = 1 / (s + \lambda)$,

    (1) $h_i = \sum_j B_{ij}^2 d_j$    (2) $E = Y - B\,\mathrm{diag}(d)\,B^T Y$
    (3) $e_i = E_i / (1 - h_i)$, the residual without sample i

    Where there are at least as many columns as samples, $A A^T = Q\,\mathrm{diag}(s)\,
    Q^T$, $1 - h = \lambda\,\mathrm{diag}(Q\,\mathrm{diag}(d)\,Q^T)$ and
    $E = \lambda\,Q\,\mathrm{diag}(d)\,Q^T Y$ are used instead. Of a sample that counts
    w times, one of w repetitions is left out, or the whole sample if w < 1:
    $h / \max(w, 1)$ takes the place of h, so that weights act as repeated rows here.

    Parameters
    ----------
    blocks : callable, gives chunks (A, Y) of the samples, whose rows are multiplied by
        the roots of all weights; called twice
    shape : l, k
    ridges : sequence of float > 0
    counts : (l,) tensor, optional, how often every sample counts, weights of classes
        apart: these belong to every repetition

    Returns
    -------
    errors : (r,) tensor, sums over samples and outputs
    norm : () tensor, |A|^2

    Notes
    -----
    The cost is about 9 m^3 operations with m = min(l, k), and 3 l k^2 more for l > k.
    """
    (l, k), i = shape, 0  # noqa: E741
    wide = l <= k
    if wide:
        A, Y = (torch.cat(parts) for parts in zip(*blocks(), strict=True))
        S = gram(A.T.contiguous())
    else:
        S, BY = 0, 0
        for A, Y in blocks():
            S, BY = S + gram(A), BY + mm(A.T, Y)
    s, Q = torch.linalg.eigh(S)
    lam = s.new_tensor(ridges)
    d = 1 / (s.clamp_min(0)[:, None] + lam)  # (m, r)
    most = s.new_ones(l) if counts is None else counts.clamp_min(1)
    if wide:
        seen, BY = [(Q, Y)], Q.T @ Y
    else:
        seen, BY = ((A @ Q, Y) for A, Y in blocks()), Q.T @ BY
    errors = d.new_zeros(len(ridges))
    for B, Y in seen:
        h = B.square() @ d  # (1)
        w = most[i : i + len(Y), None]
        rest = (w - 1 + lam * h) / w if wide else 1 - h / w
        for r, each in enumerate(lam):
            fit = B @ (d[:, r, None] * BY)
            E = each * fit if wide else Y - fit  # (2)
            errors[r] += (E / rest[:, r, None]).square().sum()  # (3)
        i += len(Y)
    return errors, s[-1]
