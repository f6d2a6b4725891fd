r"""The two small decompositions of OK: a root of a Gram matrix, and an SVD.

On the CPU they are LAPACK's. Its likes on an accelerator make the host wait, so there
each is one operator, ``labkit::jacobi``: rotations that make the columns of a matrix
orthogonal (Hestenes 1958), all pairs once a sweep, disjoint pairs at a time (the
circle of a tournament). On CUDA that is one kernel if there is Triton, and cuSOLVER
with its waits if not. :func:`on_host` makes the choice; all of it is float64.
"""

from functools import lru_cache

import torch
from torch import Tensor

SWEEPS = 20  # at most; order 17 takes 7 to 14 to reach rounding
SMALL = 1e-300  # in place of zero where it divides


def on_host(x: Tensor) -> bool:
    """Whether LAPACK is to decompose this."""
    return x.device.type == "cpu"


def waits(device: torch.device) -> str:
    """Why the host waits for a decomposition there, if it does."""
    if device.type != "cuda":
        return ""
    from labkit.rtrl import jacobi_kernel  # not before: Triton takes its time

    known = jacobi_kernel.triton is not None
    return "" if known else "OK decomposes by cuSOLVER, which waits: install triton"


def gram_root(G: Tensor) -> Tensor:
    """L with L^T L = G (..., q, q), a Gram matrix, which after resets is singular.

    So not Cholesky's. G is first scaled to a diagonal of ones, since its entries may
    lie decades apart.
    """
    size = G.diagonal(dim1=-2, dim2=-1).clamp_min(SMALL).sqrt()
    unit = G / (size[..., :, None] * size[..., None, :])
    if on_host(G):
        w, V = torch.linalg.eigh(unit)
        w = w.clamp_min_(0)
    else:
        _, w, V = torch.ops.labkit.jacobi(unit)
    return w.sqrt()[..., None] * V.mT * size[..., None, :]


def svd(C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, d, V of square matrices C = U diag(d) V^T (..., q, q); d does not increase.

    Where d is 0, the column of U may be zero.
    """
    if on_host(C):
        U, d, Vh = torch.linalg.svd(C)
        return U, d, Vh.mT
    return torch.ops.labkit.jacobi(C)


@lru_cache
def tournament(q: int) -> list[tuple[list[int], list[int]]]:
    """Rounds of disjoint pairs of 0..q-1, q even, in which every two meet once."""
    rounds = []
    for turn in range(q - 1):
        ring = [0] + [1 + (turn + i) % (q - 1) for i in range(q - 1)]
        rounds.append((ring[: q // 2], ring[: q // 2 - 1 : -1]))
    return rounds


torch.library.define("labkit::jacobi", "(Tensor C) -> (Tensor, Tensor, Tensor)")


@torch.library.impl("labkit::jacobi", "default")
def jacobi(C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`svd`; the form for any device, of many kernels."""
    q = C.shape[-1]
    eye = torch.eye(q, dtype=C.dtype, device=C.device).expand_as(C)
    WV = torch.cat([C, eye], -2)  # rotated together: W = C V
    WV = torch.nn.functional.pad(WV, (0, q % 2))
    for _ in range(SWEEPS):
        for left, right in tournament(q + q % 2):
            WV[..., left], WV[..., right] = rotated(WV[..., left], WV[..., right], q)
    W, V = WV[..., :q].split(q, -2)
    d, order = torch.linalg.vector_norm(W, dim=-2).sort(descending=True, stable=True)
    order = order[..., None, :].expand_as(W)
    W, V = W.gather(-1, order), V.gather(-1, order)
    return W / d.clamp_min(SMALL)[..., None, :], d, V


@torch.library.register_fake("labkit::jacobi")
def _jacobi_shapes(C):
    return torch.empty_like(C), C.new_empty(C.shape[:-1]), torch.empty_like(C)


@torch.library.impl("labkit::jacobi", "cuda")
def _jacobi_on_cuda(C):
    if not waits(C.device):
        from labkit.rtrl import jacobi_kernel

        return jacobi_kernel.jacobi(C)
    U, d, Vh = torch.linalg.svd(C)
    return U, d, Vh.mT.contiguous()


def rotated(x: Tensor, y: Tensor, q: int) -> tuple[Tensor, Tensor]:
    """Columns x, y (..., p), turned until their first q entries are orthogonal."""
    a, b = x[..., :q, :], y[..., :q, :]
    product = (a * b).sum(-2, keepdim=True)
    gap = (a.square() - b.square()).sum(-2, keepdim=True) / 2
    toward = gap + torch.hypot(gap, product).copysign(gap)
    tan = torch.where(product == 0, 0, product / toward)
    cos = (1 + tan.square()).rsqrt()
    return cos * (x + tan * y), cos * (y - tan * x)
