r"""Kronecker triple product: G' = sum_i a_i (x) b_i (x) c_i (Benzing et al., 3.5).

The format consists of vectors, O(r (m + S + K n)) memory, so the state Jacobian is
never built. No minimum-variance mixing exists for three factors (Lemma 2), so random
signs mix.

Deviations from the paper, each held by a test: the rank-r form of the diagonal D needs
the frame of Lemma 6 (Algorithm 5 as printed covers r + 1 values only); each triple is
balanced to a common norm before mixing, which the text does not say and without which
the estimate is noise.
"""

import torch
from torch import Tensor

from labkit.rtrl.cells import Cell
from labkit.rtrl.decompose import SMALL, rotated
from labkit.rtrl.learner import Learner
from labkit.rtrl.low_rank import check_rank, mixing_matrix
from labkit.rtrl.uoro import balance, norm


def diagonal_factors(D: Tensor, rank: int, signs: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the factors of an unbiased D' = sum_i d_i e_i^T of minimum variance.

    D is block diagonal over the units: unit j owns a (P, K) block with its own small
    SVD, so the singular values of D are those of the blocks together. Returns d
    (..., r, P n) and e (..., r, K n). Cost O(P n (r (P + K) + log n)).

    Parameters
    ----------
    D : (..., P, K, n) tensor, $D$ of the cell's step
    rank : int, r
    signs : (..., P n) tensor of -1 and +1
    """
    n = D.shape[-1]
    U, sigma, Vh = _svd_of_rows(D.movedim(-1, -3).double())  # of (..., n, P, K)
    q = sigma.shape[-1]
    ordered, order = sigma.flatten(-2).sort(dim=-1, descending=True)
    Y = mixing_matrix(ordered, rank, signs[..., : n * q])
    Y = torch.empty_like(Y).scatter_(-2, order[..., None].expand_as(Y), Y)
    Y = Y.unflatten(-2, (n, q))
    d = torch.einsum("...jpq,...jqr->...rpj", U, Y).flatten(-2)
    e = torch.einsum("...jqk,...jqr->...rkj", Vh, Y).flatten(-2)
    return d.to(D.dtype), e.to(D.dtype)


def _svd_of_rows(blocks: Tensor):
    """Return U, sigma, V^T of (..., P, K); for P = 1, 2 in closed form, unordered."""
    P, K = blocks.shape[-2:]
    if P > 2:
        return torch.linalg.svd(blocks, full_matrices=False)
    U = torch.eye(P, dtype=blocks.dtype, device=blocks.device)
    rows = blocks.mT
    if P == 2:
        both = torch.cat([rows, U.expand(*rows.shape[:-2], 2, 2)], -2)
        both = torch.cat(rotated(both[..., :1], both[..., 1:], K), -1)
        rows, U = both.split([K, 2], -2)
    sigma = torch.linalg.vector_norm(rows, dim=-2)
    Vh = rows.mT / sigma.clamp_min(SMALL)[..., None]
    return U.expand(*rows.shape[:-2], P, P), sigma, Vh


def ktp_step(
    a: Tensor, Hb: Tensor, c: Tensor, h_hat: Tensor, d: Tensor, e: Tensor, signs: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Compute one step of r-KTP, whose r terms have their own a_i.

    (1) $x \leftarrow x\,(|a_i|\,|H b_i|\,|c_i|)^{1/3} / |x|$ for $x$ each of the three,
    one norm with the same product; and so for $\hat h, d_i, e_i$
    (2) $a'_i = a_i + s_i \hat h$    (3) $b'_i = H b_i + t_i d_i$
    (4) $c'_i = c_i + s_i t_i e_i$

    Returns a', b', c'. All six cross terms carry s, t or s t, so the mean is exact.

    Parameters
    ----------
    a, Hb, c : (b, r, m), (b, r, S) and (b, r, K n) tensors, $a_i$, $H b_i$, $c_i$
    h_hat, d, e : tensors, $\hat h$, and $d_i$, $e_i$ of :func:`diagonal_factors`
    signs : (b, r, 2) tensor of -1 and +1, s and t, independent of those in d and e
    """
    s, t = signs[..., :1], signs[..., 1:]
    a, Hb, c = _common_norm(a, Hb, c)  # (1)
    h, d, e = _common_norm(h_hat[:, None].expand(-1, d.shape[1], -1), d, e)  # (1)
    return a + s * h, Hb + t * d, c + s * t * e  # (2)-(4)


def ktp_shared_step(
    a: Tensor, Hb: Tensor, c: Tensor, h_hat: Tensor, d: Tensor, e: Tensor, signs: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Compute one step of the variant with one vector a for all terms.

    With $A = \sum_i (H b_i) c_i^T$ and $D' = \sum_i d_i e_i^T$, first as in KF-RTRL,

    (1) $p_1 = \sqrt{|A| / |a|},\; p_2 = \sqrt{|D'| / |\hat h|}$
    (2) $a' = p_1 a + s\, p_2 \hat h$,

    then term by term, with $\beta_i = H b_i / p_1$ and $\delta_i = s\, d_i / p_2$,

    (3) $q = \sqrt{|c_i| / |\beta_i|},\; q' = \sqrt{|e_i| / |\delta_i|}$
    (4) $b'_i = q \beta_i + t_i q' \delta_i$    (5) $c'_i = c_i / q + t_i e_i / q'$

    Returns a', b', c'. Parameters as in :func:`ktp_step`, but

    Parameters
    ----------
    a : (b, m) tensor, $a$
    signs : (b, 1 + r) tensor of -1 and +1, s, then t
    """
    s, t = signs[:, :1], signs[:, 1:, None]
    p1 = balance(_sum_norm(Hb, c), norm(a, 1))  # (1)
    p2 = balance(_sum_norm(d, e), norm(h_hat, 1))  # (1)
    a = p1 * a + s * p2 * h_hat  # (2)
    beta, delta = Hb / p1[..., None], d * (s / p2)[..., None]
    q1 = balance(norm(c, 1), norm(beta, 1))  # (3)
    q2 = balance(norm(e, 1), norm(delta, 1))  # (3)
    return a, q1 * beta + t * q2 * delta, c / q1 + t * e / q2  # (4), (5)


def ktp_count(n: int, m: int, K: int, P: int, r: int) -> tuple[int, int]:
    """Return the count of :class:`~labkit.rtrl.learners.Method` for r terms."""
    S = P * n
    numbers = r * (m + S + K * n)
    carry = r * (2 * K * n * n + 2 * K * S + 2 * P * S)
    factors = 2 * r * min(P, K) * n * (P + K)
    gradient = r * (2 * S + K * n + 2 * m * K * n)
    return 2 * m * K * n + carry + factors + 8 * numbers + gradient, numbers


def ktp_shared_count(n: int, m: int, K: int, P: int, r: int) -> tuple[int, int]:
    """Return the count of :class:`~labkit.rtrl.learners.Method` for r terms, one a."""
    flops, numbers = ktp_count(n, m, K, P, r)
    spared = (r - 1) * (8 * m + 2 * m * K * n)
    grams = 4 * r * r * (P + K) * n
    return flops - spared + grams, numbers - (r - 1) * m


class KTP(Learner):
    """r-KTP; ``shared=True`` keeps one vector a for all terms.

    Parameters
    ----------
    cell, batch_size, generator : see :class:`Learner`
    rank : int, r terms, 1..S
    shared : bool, the variant that the published figures come from; a little noisier
    """

    tensors = ("a", "b", "c")

    def __init__(
        self,
        cell: Cell,
        *,
        batch_size: int,
        rank: int,
        shared: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(cell, batch_size=batch_size, generator=generator)
        self.rank = check_rank(rank, cell.state_size)
        self.shared = shared
        a = self._zeros(rank, cell.augmented_size)
        self.a = a[:, 0] if shared else a
        self.b = self._zeros(rank, cell.state_size)
        self.c = self._zeros(rank, cell.weight.shape[1])

    def _advance(self, x: Tensor) -> dict[str, Tensor]:
        step, Hb = self.cell.jvp(x, self.state, self.b)
        d, e = diagonal_factors(step.D, self.rank, self._signs(self.cell.state_size))
        if self.shared:
            advance, signs = ktp_shared_step, self._signs(1 + self.rank)
        else:
            advance, signs = ktp_step, self._signs(self.rank, 2)
        a, b, c = advance(self.a, Hb, self.c, step.h_hat, d, e, signs)
        return {"state": step.state, "a": a, "b": b, "c": c}

    def _per_sequence(self, delta: Tensor):
        dL_b = self.b @ delta[..., None]  # (b, r, 1)
        if self.shared:
            return self.a[..., None] * (dL_b * self.c).sum(1, keepdim=True)
        return self.a.mT @ (dL_b * self.c)

    def _influence(self) -> Tensor:
        a = self.a[:, None].expand(-1, self.rank, -1) if self.shared else self.a
        return torch.einsum("brm,brs,brc->bsmc", a, self.b, self.c).flatten(2)


def _common_norm(*factors: Tensor) -> tuple[Tensor, ...]:
    """Rescale the factors to one norm with the same product; all are 0 if one is 0."""
    norms = [norm(x, 1) for x in factors]
    common = torch.stack(norms).prod(0).pow(1 / len(factors))
    scales = [common / size.clamp_min(torch.finfo(size.dtype).tiny) for size in norms]
    return tuple(map(torch.mul, factors, scales))


def _sum_norm(x: Tensor, y: Tensor) -> Tensor:
    """Return the Frobenius norm (b, 1) of sum_i x_i y_i^T by the two Gram matrices."""
    total = ((x @ x.mT) * (y @ y.mT)).sum((1, 2))
    return total.clamp_min(0).sqrt()[:, None]
