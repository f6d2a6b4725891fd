r"""Sums of Kronecker products: KF-RTRL and the optimal Kronecker sum OK.

Benzing et al. 2019, sections 3.3 and 3.4. The influence is kept as sum_i u_i (x) A_i,
entry [s, i K n + c] = u[i] A[s, c], with u_i (m,) and A_i (S, K n).

Every A_i is stored transposed, all of them as one tensor A of shape (b, r, K n, S): so
H A_i for all i is one batched product, and so are the Gram matrix of the A's and their
recombination. D is sparse and never materialised: it touches only the diagonals j = j'
of an A_i.
"""

import math

import torch
from torch import Tensor

from labkit.rtrl.cells import Cell
from labkit.rtrl.decompose import gram_root, svd, waits
from labkit.rtrl.ktp import diagonal_factors
from labkit.rtrl.learner import Learner
from labkit.rtrl.low_rank import (
    TOLERANCE,
    check_rank,
    identity,
    mixing_matrix,
    truncation_matrix,
)
from labkit.rtrl.uoro import balance, norm

GRAM_ROWS = 128  # of a product on an accelerator
MIXED_ROWS = 32
SEQUENCES = 4  # combined in one go on the CPU, by its caches
COLUMNS = 2048


def propagate(A: Tensor, H: Tensor, out: Tensor) -> Tensor:
    """Return H A_i for all terms in ``out``; A (b, r, K n, S) holds A_i^T."""
    b, r, Kn, S = A.shape
    torch.bmm(A.view(b, r * Kn, S), H.mT, out=out.view(b, r * Kn, S))  # A_i^T H^T
    return out


def cut(A: Tensor, rows: int) -> Tensor:
    """Return rows (b, r k, N / k) of A (b, r, ...), each cut in k, about ``rows``.

    An accelerator takes a matrix in tiles of 32 rows or more, and for one of a few long
    rows most of it is idle: what is computed in vain of more rows costs less.
    """
    flat = A.flatten(2)
    _, r, N = flat.shape
    return flat.view(len(A), r * math.gcd(N, max(rows // r, 1)), -1)


def combine(A: Tensor, weights: Tensor) -> Tensor:
    """Return sum_i weights_ij A_i for all j; A and weights are (b, r, ...), (b, r, r).

    On the CPU the result takes the place of A, piece by piece: fresh memory of that
    size costs more there than the product.
    """
    if A.device.type != "cpu":
        rows = cut(A, MIXED_ROWS)
        eye = identity(rows.shape[1] // A.shape[1], A.dtype, A.device)
        return (torch.kron(weights, eye[None]).mT @ rows).view_as(A)
    flat = A.flatten(2)
    for some, their in zip(
        flat.split(SEQUENCES), weights.mT.split(SEQUENCES), strict=True
    ):
        for piece in some.split(COLUMNS, dim=2):
            piece.copy_(their @ piece)
    return flat.view_as(A)


def gram(A: Tensor) -> Tensor:
    """Return the Gram matrices (b, r, r) of A (b, r, ...)."""
    on_cpu, r = A.device.type == "cpu", A.shape[1]
    rows = cut(A, r if on_cpu else GRAM_ROWS)
    G = rows @ rows.mT
    if on_cpu:
        return G
    return torch.einsum("biaja->bij", G.unflatten(2, (r, -1)).unflatten(1, (r, -1)))


def diagonals(A: Tensor, D: Tensor) -> Tensor:
    """Return a view (b, r, K, P, n) of the entries of A (b, r, K n, S) that D meets."""
    _, P, K, n = D.shape
    return A.view(*A.shape[:2], K, n, P, n).diagonal(dim1=3, dim2=5)


def kf_step(
    u: Tensor,
    HA: Tensor,
    h_hat: Tensor,
    D: Tensor,
    signs: Tensor,
    *,
    factors: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Compute one step of KF-RTRL for c independent copies at once.

    (1) $p_1 = \sqrt{|HA| / |u|}$    (2) $p_2 = \sqrt{|D| / |\hat h|}$
    (3) $u' = p_1 u + c\, p_2 \hat h$    (4) $A' = HA / p_1 + c\, D / p_2$

    Only the product of the paper's two signs matters, so one sign c is drawn. Returns
    u' and A', which takes the place of HA. Cost 2 c S^2 K n per sequence, with HA.

    Parameters
    ----------
    u, HA : (b, c, m) and (b, c, K n, S) tensors, $u$, $HA$, the latter transposed
    h_hat, D : tensors, $\hat h$, $D$ of the cell's step
    signs : (b, c) tensor of -1 and +1, $c$
    factors : pair of (b, c, q, S) and (b, c, q, K n), optional
        Their product stands in for D (KF-RTRL-r-APPROX, section 4.3).
    """
    size = norm(D, 3)
    if factors is not None:
        d, e = factors
        dense = e.mT @ d  # (b, c, K n, S)
        size = norm(dense, 2)
    c = signs[..., None]
    p1 = balance(norm(HA, 2)[..., 0], norm(u, 1))  # (1)
    p2 = balance(size[..., 0], norm(h_hat, 1)[:, None])  # (2)
    u = p1 * u + c * p2 * h_hat[:, None]  # (3)
    A = HA.div_(p1[..., None])  # (4)
    weight = (c / p2)[..., None]
    if factors is None:
        diagonals(A, D).add_(weight[..., None] * D.transpose(1, 2)[:, None])  # (4)
    else:
        A += weight * dense  # (4)
    return u, A


def kf_count(n: int, m: int, K: int, P: int, r: int) -> tuple[int, int]:
    """Return the count of :class:`~labkit.rtrl.learners.Method` for r copies."""
    S = P * n
    A = S * K * n
    mix = 3 * r * A + 2 * r * K * S + 6 * r * m
    return _common_count(n, m, K, P, r) + mix, r * (m + A)


def kf_approx_count(n: int, m: int, K: int, P: int, r: int) -> tuple[int, int]:
    """Return the count of :class:`~labkit.rtrl.learners.Method` for D of rank r."""
    flops, numbers = kf_count(n, m, K, P, 1)
    factors = 2 * r * min(P, K) * n * (P + K)
    return flops + factors + 2 * r * P * n * K * n, numbers


def _common_count(n: int, m: int, K: int, P: int, r: int) -> int:
    """Return the operations of the forward pass, H, its product and the gradient."""
    S = P * n
    cell = 2 * m * K * n + 2 * K * S * n
    return cell + 2 * r * S * S * K * n + 2 * r * (S + m) * K * n


class KroneckerSum(Learner):
    """What KF-RTRL and OK share: an influence sum_i u_i (x) A_i, and what it gives."""

    tensors = ("u", "A")

    def _dL_A(self, delta: Tensor) -> Tensor:
        """Return dL @ A_i for all terms, (b, r, K n)."""
        b, r, Kn, S = self.A.shape
        return torch.bmm(self.A.view(b, r * Kn, S), delta[..., None]).view(b, r, Kn)

    def _per_sequence(self, delta: Tensor) -> Tensor:
        return self.u.mT @ self._dL_A(delta)

    def _gradient(self, delta: Tensor) -> Tensor:
        return self.u.flatten(0, 1).T @ self._dL_A(delta).flatten(0, 1)

    def _influence(self) -> Tensor:
        return torch.einsum("brm,brcs->bsmc", self.u, self.A).flatten(2)


class KFRTRL(KroneckerSum):
    """KF-RTRL, KF-RTRL-AVG and KF-RTRL-r-APPROX (Mujika et al. 2018; Benzing et al.).

    Parameters
    ----------
    cell, batch_size, generator : see :class:`Learner`
    copies : int, c >= 1 independent estimates of all of G, averaged; variance 1 / c
    diagonal_rank : int, optional, of an unbiased product for D; slower, noisier here
    """

    def __init__(
        self,
        cell: Cell,
        *,
        batch_size: int,
        copies: int = 1,
        diagonal_rank: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(cell, batch_size=batch_size, generator=generator)
        self.copies = check_rank(copies, name="copies")
        if diagonal_rank is not None:
            check_rank(diagonal_rank, cell.state_size, name="diagonal_rank")
        self.diagonal_rank = diagonal_rank
        self.u = self._zeros(copies, cell.augmented_size)
        self.A = self._zeros(copies, cell.weight.shape[1], cell.state_size)
        self._work = torch.empty_like(self.A)

    def _advance(self, x: Tensor) -> dict[str, Tensor]:
        step = self.cell.step(x, self.state)
        factors = None
        if self.diagonal_rank:
            signs = self._signs(self.copies, self.cell.state_size)
            D = step.D[:, None].expand(-1, self.copies, -1, -1, -1)
            factors = diagonal_factors(D, self.diagonal_rank, signs)
        signs = self._signs(self.copies)
        HA = propagate(self.A, step.H, out=self._work)
        u, A = kf_step(self.u, HA, step.h_hat, step.D, signs, factors=factors)
        return {"state": step.state, "u": u, "A": A, "_work": self.A}

    def _dL_A(self, delta: Tensor) -> Tensor:
        return super()._dL_A(delta) / self.copies

    def _influence(self) -> Tensor:
        return super()._influence() / self.copies


def ok_step(
    u: Tensor, HA: Tensor, h_hat: Tensor, D: Tensor, signs: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Compute one step of r-OK (Algorithm 4) by way of Gram matrices.

    With the r + 1 terms $(u_1, HA_1), \dots, (u_r, HA_r), (\hat h, D)$ and any square
    roots of their Gram matrices,

    (1) $L^T L = \langle u_i, u_j \rangle$    (2) $R^T R = \langle A_i, A_j \rangle$
    (3) $C = L R^T = U\,\mathrm{diag}(d)\,V^T$    (4) $E[Y Y^T] = \mathrm{diag}(d)$
    (5) $X = R^T V\,\mathrm{diag}(1/d)\,Y$    (6) $Z = L^T U\,\mathrm{diag}(1/d)\,Y$
    (7) $u'_j = \sum_i X_{ij} u_i$    (8) $A'_j = \sum_i Z_{ij} A_i$

    E[X Z^T] = I for any invertible L and R, so rounding in the Gram matrices costs a
    little variance and never bias. Cost per sequence 2 r S^2 K n for HA, then
    4 r^2 S K n, two eigendecompositions and one SVD of size r + 1 in float64
    (:mod:`~labkit.rtrl.decompose`).

    Parameters
    ----------
    u, HA : (b, r, m) and (b, r, K n, S) tensors, $u_i$, $HA_i$, the latter transposed
    h_hat, D : tensors, $\hat h$, $D$ of the cell's step
    signs : (b, r + 1) tensor of -1 and +1; None truncates (r-B-OK, Algorithm 6)

    Returns
    -------
    u', A', d, Y : like u and HA, of which A' may take the place; (b, r + 1) and
        (b, r + 1, r) in float64. Whatever the signs, |Y Y^T - diag(d)|^2 is
        :func:`minimum_variance` (d, r).
    """
    u = torch.cat([u, h_hat[:, None]], 1)  # all r + 1
    X, Z, d, Y = mix(u @ u.mT, gram_with_D(HA, D), signs)  # (1)-(6)
    u = X.mT @ u  # (7)
    A = combine(HA, Z[:, :-1])  # (8)
    of_D = Z[:, -1, :, None, None, None]  # (8)
    diagonals(A, D).addcmul_(of_D, D.transpose(1, 2)[:, None])  # (8)
    return u, A, d, Y


def gram_with_D(HA: Tensor, D: Tensor) -> Tensor:
    """Return the products (b, r + 1, r + 1) of the matrices HA_1, ..., HA_r and D."""
    Dt = D.transpose(1, 2)[:, None]  # (b, 1, K, P, n)
    met = torch.cat([diagonals(HA, D), Dt], 1).flatten(2)  # what D meets in each
    by_D = met @ met[:, -1, :, None]  # (b, r + 1, 1)
    G = torch.cat([gram(HA), by_D[:, :-1].mT], 1)
    return torch.cat([G, by_D], 2)


def ok_count(n: int, m: int, K: int, P: int, r: int) -> tuple[int, int]:
    """Return the count of :class:`~labkit.rtrl.learners.Method` for r terms."""
    S = P * n
    A = S * K * n
    mix = 4 * r * r * A + 4 * r * K * S + 4 * r * r * m + 4 * r * m
    return _common_count(n, m, K, P, r) + mix, r * (m + A)


def mix(
    G_u: Tensor, G_A: Tensor, signs: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute (1)-(6) of :func:`ok_step` in float64.

    G_u and G_A are (b, r + 1, r + 1); X and Z have their dtype. The sign of a pair of
    singular vectors is arbitrary: LAPACK's choice can change with the last bit of C,
    since L and R are arbitrary roots, and another sign means other noise. So the sign
    is chosen that gives the last term, the new one, a positive weight. Then ``signs``
    determine the noise on every machine and in every batch, up to rounding, and its
    distribution stays the same.
    """
    roots = gram_root(torch.stack([G_u, G_A]).double())
    L, R = roots.unbind(0)  # (1), (2)
    U, d, V = svd(L @ R.mT)  # (3)
    d = d * (d > TOLERANCE * d[..., :1])
    r = d.shape[-1] - 1
    ZX = roots.mT @ torch.stack([U, V])  # (5), (6): both at once
    if signs is not None:
        signs = signs.copysign(signs * ZX[0, ..., -1, :])
    Y = truncation_matrix(d, r) if signs is None else mixing_matrix(d, r, signs)  # (4)
    inverse = d.reciprocal().nan_to_num(math.nan, posinf=0)  # 1 / 0 is 0
    Z, X = (ZX @ (inverse[..., None] * Y)).to(G_u.dtype)  # (5), (6)
    return X, Z, d, Y


class OK(KroneckerSum):
    """r-OK, the optimal Kronecker sum; ``biased=True`` gives r-B-OK.

    Parameters
    ----------
    cell, batch_size, generator : see :class:`Learner`
    rank : int, r terms, 1..m
    biased : bool, keep the r largest singular values: a smaller, but systematic error

    Attributes
    ----------
    spectrum : (b, r + 1) float64 tensor, $d$, singular values of the last step's C
    mixing : (b, r + 1, r) float64 tensor, $Y$ of the last step; neither is saved by
        ``state_dict``, and both are computed for sequences that a mask leaves out, too
    """

    def __init__(
        self,
        cell: Cell,
        *,
        batch_size: int,
        rank: int,
        biased: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self.biased, self.draws = biased, not biased
        super().__init__(cell, batch_size=batch_size, generator=generator)
        self.rank = check_rank(rank, cell.augmented_size)
        self.on_host = waits(cell.weight.device)
        self.u = self._zeros(rank, cell.augmented_size)
        self.A = self._zeros(rank, cell.weight.shape[1], cell.state_size)
        self._work = torch.empty_like(self.A)
        self.spectrum = self._zeros(rank + 1).double()
        self.mixing = self._zeros(rank + 1, rank).double()

    def _advance(self, x: Tensor) -> dict[str, Tensor]:
        step = self.cell.step(x, self.state)
        signs = None if self.biased else self._signs(self.rank + 1)
        HA = propagate(self.A, step.H, out=self._work)
        u, A, d, Y = ok_step(self.u, HA, step.h_hat, step.D, signs)
        new = {"state": step.state, "u": u, "A": A, "_work": self.A}
        return new | {"spectrum": d, "mixing": Y}
