r"""Optimal unbiased low-rank approximation of a matrix (Benzing et al., 3.4.2).

A matrix C with singular values d_1 >= ... >= d_q is replaced by a random product
L' R'^T of rank r with E[L' R'^T] = C and the smallest possible variance. Large
singular values are kept; the others are levelled to s1 / k and mixed by random signs,
as in water filling.

Symbols: m - 1 values stay as they are, k = r - (m - 1) columns carry the mixed ones, s1
and s2 are the sum and the sum of squares of the mixed values.

Deviations from the paper, each held by a test on the exact variance: the rule for m
sums to the last singular value (Algorithm 5 prints r instead of r + 1); C = L R^T
(Lemma 3 prints L^T R); s1 = 0, by which Algorithm 5 divides, makes a zero block.

Leading dimensions are batch dimensions throughout; nothing here has a data-dependent
shape, copies to the host or loops. The numbers of the equations are ours.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from labkit.check import check_options, check_tensor, integer
from labkit.precision import outside_modes

# Singular values below this fraction of the largest count as zero where they are to be
# divided by: exactly dependent terms leave such values, and their inverse is garbage.
TOLERANCE = 1e-7
_INTEGER = 1e-12  # slack when a float64 running sum is compared with an integer


def water_level(d: Tensor, rank: int) -> Tensor:
    r"""Return the level (...) that the mixed singular values share.

    Those above it are kept.

    (1) $\lambda = \min_{i \le r} \, \sum_{j \ge i} d_j \, / \, (r - i + 1)$

    Algorithm 5, with the sum to q, keeps m - 1 values, m the least i with
    $(r - i + 1)\, d_i \le \sum_{j \ge i} d_j$: up to there the quotients of (1) fall,
    from there on they rise, and that of m is its s1 / k.

    Parameters
    ----------
    d : (..., q) tensor, $d$, singular values, non-increasing, q >= rank
    rank : int, $r$ in 1..q; ValueError for another
    """
    check_rank(rank, d.shape[-1])
    tails = _tails(d.shape[-1], rank, d.dtype, d.device)
    return (d @ tails).amin(-1)  # (1)


@lru_cache
def _tails(q: int, rank: int, dtype: torch.dtype, device: torch.device):
    """Return (q, r), whose column i divides the sum of the tail from i by r - i + 1."""
    tails = torch.ones(q, rank, dtype=dtype, device=device).tril()
    return tails / torch.arange(rank, 0, -1, dtype=dtype, device=device)


def minimum_variance(d: Tensor, rank: int) -> Tensor:
    r"""Return the least E|C' - C|_F^2 of unbiased C' of rank r, s1^2 / k - s2.

    This is Theorem 6, [unit of d, squared], for d as in :func:`water_level`; with
    q <= r it is 0.

    Examples
    --------
    >>> minimum_variance(torch.tensor([10.0, 1.0, 1.0]), rank=2)
    tensor(2.)
    """
    check_rank(rank)
    if d.shape[-1] <= rank:
        return d.new_zeros(d.shape[:-1])
    level = water_level(d, rank)[..., None]
    return (d * (level - d).clamp_min(0)).sum(-1)  # of the mixed values alone


def random_signs(
    shape: Sequence[int], like: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Draw independent uniform signs -1, +1 from ``generator``."""
    return (
        torch.randint(
            0, 2, shape, generator=generator, dtype=like.dtype, device=like.device
        )
        .mul_(2)
        .sub_(1)
    )


def mixing_matrix(d: Tensor, rank: int, signs: Tensor) -> Tensor:
    r"""Return a random Y (..., q, r) with E[Y Y^T] = diag(d) and minimum variance.

    With the level $\lambda = s_1 / k$ of :func:`water_level`,

    (1) $|z_j|^2 = \min(1, d_j / \lambda)$ for the rows of Z
    (2) $\mathrm{scale}_j^2 = \max(d_j, \lambda)$
    (3) $Z^T Z = I$    (4) $Y = \mathrm{diag}(\mathrm{signs})\,Z\,
    \mathrm{diag}(\mathrm{scale})$

    Hence Y^T Y is the diagonal matrix of the kept values followed by the level. For
    q = r + 1 Z completes z0_j = sqrt(1 - d_j / level), zero where a value is kept, by
    one Householder reflection of e_q; for larger q it is the frame of Lemma 6.

    Parameters
    ----------
    d : (..., q) tensor, $d$, singular values, non-increasing, float64 advised
    rank : int, $r$
    signs : (..., q) tensor of -1 and +1, broadcastable with d
    """
    q = d.shape[-1]
    if q <= rank:  # nothing to mix
        return truncation_matrix(d, rank)
    level = water_level(d, rank)[..., None]
    share = (d / level.clamp_min(torch.finfo(d.dtype).tiny)).clamp_max(1)  # (1)
    scale = torch.maximum(d[..., :rank], level).sqrt()  # (2)
    if q == rank + 1:
        Z = _householder(share)  # (3)
    else:  # level 0: the mixed block is zero, any frame serves, this one is finite
        some = (torch.arange(q, device=d.device) < rank).to(d)
        Z = tight_frame(torch.where(level > 0, share, some), rank)  # (3)
    return signs.to(d)[..., None] * Z * scale[..., None, :]  # (4)


def _householder(share: Tensor) -> Tensor:
    """Return orthonormal columns (..., r + 1, r) of squared row norms ``share``."""
    eye = identity(share.shape[-1], share.dtype, share.device)
    z0 = (1 - share).sqrt()  # of norm 1, or its columns are multiplied by a level of 0
    v = z0 + eye[-1]  # z0 + e_q: no cancellation, z0 >= 0
    w = z0[..., :-1] / v[..., -1:]
    return torch.addcmul(eye[:, :-1], v[..., :, None], w[..., None, :], value=-1)


@lru_cache
def identity(q: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the unit matrix (q, q); it is made once."""
    return torch.eye(q, dtype=dtype, device=device)


def tight_frame(share: Tensor, columns: int) -> Tensor:
    r"""Return orthonormal columns with given row norms (Lemma 6), in O(N r + r^2).

    With $w$ = ``share``, cut into pieces where its running sum passes an integer, $f_q$
    and $l_q$ the first and the last row of piece q,

    (1) $\alpha_q = q - \sum_{j \le l_q} w_j$, what piece q lacks of a whole one,
    (2) $v_{l_q} = w_{l_q} + \alpha_q, \; v_{f_{q+1}} = w_{f_{q+1}} - \alpha_q$, lent
    by the next piece; now $Z_{jq} = \sqrt{v_j}$ on piece q has orthonormal columns.
    Turning the two rows at each cut, the last cut first, gives them their norms back:
    (3) $\sin^2_q = \alpha_q / (\alpha_q + v_{l_q} - w_{f_{q+1}})$
    (4) $Z_{l_q} \leftarrow \cos_q Z_{l_q} + \sin_q Z_{f_{q+1}}, \;
    Z_{f_{q+1}} \leftarrow \cos_q Z_{f_{q+1}} - \sin_q Z_{l_q}$

    A piece of one row, $f_q = l_q$, is turned at its lower cut before its upper one. So
    the first row of piece q comes to its upper cut as the end of a chain, with
    $t_q = \sin_q$ for such pieces, else 0, and $o_q$ its entry in column q:

    (5) $B_q = o_q e_q + t_q B_{q+1} = \sum_{p \ge q} \bigl(\prod_{i=q}^{p-1} t_i\bigr)
    o_p e_p$, a cumulative product.

    Parameters
    ----------
    share : (..., N) tensor, $w$, squared row norms 0..1, non-increasing, of sum r
    columns : int, r <= N; Z is (..., N, r)
    """
    N, r = share.shape[-1], columns
    row = torch.arange(N, device=share.device)
    p = torch.arange(r, device=share.device)
    eye = torch.eye(r, dtype=share.dtype, device=share.device)
    pad = torch.nn.functional.pad

    total = share.cumsum(-1)
    piece = (total - _INTEGER).ceil().clamp(1, r).long() - 1  # of each row, from 0
    one_hot = torch.nn.functional.one_hot(piece, r).to(share)
    size = one_hot.sum(-2).long()
    last = size.cumsum(-1).sub(1).clamp(0, N - 1)
    first = (last - size + 1).clamp(0, N - 1)
    single = size == 1
    is_last = row == last.gather(-1, piece)
    is_first = (row == first.gather(-1, piece)) & (piece > 0)

    alpha = (p + 1 - total.gather(-1, last)).clamp_min(0)  # (1)
    alpha[..., -1] = 0
    lent = pad(alpha[..., :-1], (1, 0))
    v = share + is_last * alpha.gather(-1, piece)  # (2)
    v = (v - is_first * lent.gather(-1, piece)).clamp_min(0)  # (2)
    upper = share.gather(-1, last) - torch.where(single, lent, 0)  # v less its alpha
    gap = 2 * alpha + upper - share.gather(-1, (last + 1).clamp_max(N - 1))
    sin2 = torch.where(alpha > 0, alpha / torch.where(gap > 0, gap, 1), 0)  # (3)
    sin2 = sin2.clamp(0, 1)
    sin, cos = sin2.sqrt()[..., None], (1 - sin2).sqrt()[..., None]

    root = v.sqrt()
    own = root.gather(-1, first)[..., None] * torch.where(single[..., None], cos, 1)
    link = torch.where(single[..., None], sin, 0)
    later = p >= p[:, None]
    reach = torch.where(later, link.mT, 1).cumprod(-1)
    reach = pad(reach[..., :-1], (1, 0), value=1)
    B = torch.where(later, reach * own.mT, 0)  # (5)
    below = pad(B[..., 1:, :], (0, 0, 0, 1))  # B of the next piece
    above = root.gather(-1, last)[..., None] * eye
    ends = cos * above + sin * below  # (4)
    starts = (cos * below - sin * above).roll(1, dims=-2)  # (4): by the piece begun

    Z = root[..., None] * one_hot
    index = piece[..., None].expand(*piece.shape, r)
    Z = torch.where(is_last[..., None], ends.gather(-2, index), Z)
    return torch.where(is_first[..., None], starts.gather(-2, index), Z)


@outside_modes()
def optimal_low_rank(
    C: Tensor,
    rank: int,
    signs: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return unbiased random factors of C with minimum variance (Algorithm 5, Opt).

    (1) $C = U\,\mathrm{diag}(d)\,V^T$    (2) $E[Y Y^T] = \mathrm{diag}(d)$
    (3) $L' = U Y,\; R' = V Y$

    with Y of :func:`mixing_matrix`, so E[L' R'^T] = C and E|L' R'^T - C|_F^2 =
    :func:`minimum_variance` (d, rank). Returns L' (..., M, r) and R' (..., N, r), never
    NaN for finite C. It raises TypeError or ValueError if C is no stack of finite
    matrices, if rank is below 1, or if the signs do not fit.

    Parameters
    ----------
    C : (..., M, N) tensor, $C$, real matrices, any rank
    rank : int, r >= 1
    signs : (..., min(M, N)) tensor of -1 and +1, optional; drawn if not given
    generator : torch.Generator, optional, on the device of C
    """
    check_tensor("C", C, shape=("...", "M", "N"), finite=True)
    check_rank(rank)
    if signs is not None:
        shape = ("...", min(C.shape[-2:]))
        check_tensor("signs", signs, shape=shape, like=C)
    U, d, V = _svd(C)  # (1)
    if signs is None:
        signs = random_signs(d.shape, d, generator)
    Y = mixing_matrix(d, rank, signs)  # (2)
    return U @ Y, V @ Y  # (3)


def _svd(C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, d, V; the largest entry of each column of U is positive.

    Libraries choose the signs of singular vectors differently. With this choice the
    same signs make the same factors on every device, up to rounding.
    """
    U, d, Vh = torch.linalg.svd(C, full_matrices=False)
    largest = U.gather(-2, U.abs().argmax(-2, keepdim=True))
    turn = torch.ones_like(largest).copysign(largest)
    return U * turn, d, Vh.mT * turn


def truncation_matrix(d: Tensor, rank: int) -> Tensor:
    """Return the (..., q, r) matrix of the biased mixing, which keeps the r largest."""
    Y = torch.diag_embed(d.sqrt())[..., :rank]
    return torch.nn.functional.pad(Y, (0, rank - Y.shape[-1]))


def check_rank(rank: int, limit: int | None = None, *, name: str = "rank") -> int:
    """Return ``rank`` if it is an integer in 1..limit, else raise ValueError."""
    check_options({name: rank}, {name: integer(1, limit or math.inf)})
    return rank
