r"""The two small decompositions of OK: a root of a Gram matrix, and an SVD.

On the CPU LAPACK computes them. Its counterparts on an accelerator make the host wait,
so each is one operator there, ``labkit::jacobi``: rotations that make the columns of a
matrix orthogonal (Hestenes 1958), each pair once in a sweep, disjoint pairs at a time
(the circle of a tournament). On CUDA that is one Triton kernel, a program per matrix;
without Triton torch decomposes there, with its waits. All of it is float64.
"""

from __future__ import annotations  # Triton, whose words stand below, comes late

from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None  # only torch for CUDA brings it
tl = None  # triton.language, once it is needed
SWEEPS = 20  # upper limit; order 17 takes 7 to 14 sweeps to reach rounding
SMALL = 1e-300  # replaces zero in a divisor


def on_host(x: Tensor) -> bool:
    """Return whether LAPACK decomposes this tensor."""
    return x.device.type == "cpu"


def waits(device: torch.device) -> str:
    """Return why the host waits for a decomposition there; empty if it does not."""
    if device.type == "cuda" and not HAS_TRITON:
        return "OK decomposes by torch, which waits: Triton is not installed"
    return ""


def gram_root(G: Tensor) -> Tensor:
    """Return L with L^T L = G (..., q, q) for a Gram matrix, which may be singular.

    After a reset it is singular, so that Cholesky's factor would fail. G is first
    scaled to a diagonal of ones, since its entries may lie decades apart.
    """
    size = G.diagonal(dim1=-2, dim2=-1).clamp_min(SMALL).sqrt()
    unit = G / (size[..., :, None] * size[..., None, :])
    if on_host(G):
        # LAPACK raises for nan, which ``size`` has too, so that it stays one.
        w, V = torch.linalg.eigh(unit.nan_to_num(0, 0, 0))
        w = w.clamp_min_(0)
    else:
        _, w, V = torch.ops.labkit.jacobi(unit)
    return w.sqrt()[..., None] * V.mT * size[..., None, :]


def svd(C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, d, V of square C = U diag(d) V^T (..., q, q); d does not increase.

    Where d is 0, the column of U may be zero.
    """
    if not on_host(C):
        return torch.ops.labkit.jacobi(C)
    U, d, Vh = torch.linalg.svd(C.nan_to_num(0, 0, 0))  # the roots keep their nan
    return U, d, Vh.mT


@lru_cache
def tournament(q: int) -> list[tuple[list[int], list[int]]]:
    """Return rounds of disjoint pairs of 0..q-1, q even; each pair meets once."""
    rounds = []
    for turn in range(q - 1):
        ring = [0] + [1 + (turn + i) % (q - 1) for i in range(q - 1)]
        rounds.append((ring[: q // 2], ring[: q // 2 - 1 : -1]))
    return rounds


torch.library.define("labkit::jacobi", "(Tensor C) -> (Tensor, Tensor, Tensor)")


@torch.library.impl("labkit::jacobi", "default")
def _jacobi(C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute :func:`svd` by rotations on any device, with many kernels."""
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
def _jacobi_shapes(C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(C), C.new_empty(C.shape[:-1]), torch.empty_like(C)


def rotated(x: Tensor, y: Tensor, q: int) -> tuple[Tensor, Tensor]:
    """Rotate columns x, y (..., p, k) so that their first q entries are orthogonal."""
    a, b = x[..., :q, :], y[..., :q, :]
    product = (a * b).sum(-2, keepdim=True)
    gap = (a.square() - b.square()).sum(-2, keepdim=True) / 2
    toward = gap + torch.hypot(gap, product).copysign(gap)
    tan = torch.where(product == 0, 0, product / toward)
    cos = (1 + tan.square()).rsqrt()
    return cos * (x + tan * y), cos * (y - tan * x)


def _kernel(C, U, D, V, q, sweeps, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Rotate W = C V and V together, and sweep until all pairs are orthogonal.

    A tile holds the columns of W, above those of V, in registers. Each column computes
    its angle a with its partner: tan(2 a) = xy / gap, cos(a)^2 = (1 + cos(2 a)) / 2.
    """
    matrix = tl.program_id(0).to(tl.int64)
    N = q + q % 2  # a column of zeros where q is odd
    index = tl.arange(0, COLS)
    col, row = index[:, None], tl.arange(0, ROWS)[None, :]
    top, below = (row < q) & (col < q), row - q
    at = C + matrix * q * q + row * q + col
    w = tl.load(at, mask=top, other=0.0)
    size = tl.sum(w * w)
    w = tl.where((below == col) & (col < q), 1.0, w)

    sweep = 0
    while sweep < sweeps:
        turned = tl.zeros([COLS], tl.int32)
        for turn in range(N - 1):
            # the circle, in which i meets 2 turn - i, and turn itself the last
            other = (2 * turn + N - 1 - index) % (N - 1)
            other = tl.where(index == turn, N - 1, other)
            other = tl.where(index == N - 1, turn, tl.where(index < N, other, index))
            y = tl.gather(w, other[:, None] + 0 * row, 0)
            xx = tl.sum(tl.where(top, w * w, 0.0), 1)
            xy = tl.sum(tl.where(top, w * y, 0.0), 1)
            yy = tl.gather(xx, other, 0)
            gap = 0.5 * (xx - yy)  # a division by 2 would be one
            square = gap * gap + xy * xy
            scale = tl.rsqrt(tl.where(square > 0, square, 1.0))
            cos2 = tl.where(square > 0, 0.5 + 0.5 * tl.abs(gap) * scale, 1.0)
            root = tl.rsqrt(cos2)
            back = (gap < 0) | ((gap == 0) & (index > other))
            sin = tl.where(back, -0.5, 0.5) * xy * scale * root
            w = (cos2 * root)[:, None] * w + sin[:, None] * y
            # orthogonal to 1e-14; columns below 1e-8 of all are noise
            xx, yy = tl.maximum(xx, 1e-16 * size), tl.maximum(yy, 1e-16 * size)
            turned |= (xy * xy > 1e-28 * xx * yy).to(tl.int32)
        sweep = tl.where(tl.max(turned) == 0, sweeps, sweep + 1)

    d = tl.sqrt(tl.sum(tl.where(top, w * w, 0.0), 1))
    d = tl.where(index < q, d, -1.0)
    larger = d[:, None] > d[None, :]
    first = (d[:, None] == d[None, :]) & (index[:, None] < index[None, :])
    place = tl.sum((larger | first).to(tl.int32), 0)
    tl.store(D + matrix * q + place, d, mask=index < q)
    at = matrix * q * q + place[:, None]
    tl.store(U + at + row * q, w / tl.where(d > 0, d, 1.0)[:, None], mask=top)
    tl.store(V + at + below * q, w, mask=(below >= 0) & (below < q) & (col < q))


@lru_cache
def _compiled():
    """Import Triton, which takes a third of a second, and return the kernel."""
    global tl
    import triton
    import triton.language as tl

    return triton.jit(_kernel)


def _jacobi_on_cuda(C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute :func:`svd` by the kernel, or by torch without Triton."""
    if not HAS_TRITON:
        U, d, Vh = torch.linalg.svd(C)
        return U, d, Vh.mT.contiguous()
    q, C = C.shape[-1], C.contiguous()
    U, D, V = torch.empty_like(C), C.new_empty(C.shape[:-1]), torch.empty_like(C)
    rows = 1 << (2 * q - 1).bit_length()  # powers of 2
    cols = 2 << ((q - 1) // 2).bit_length()
    warps = min(max(rows * cols // 512, 1), 8)
    with torch.cuda.device_of(C):
        _compiled()[(C.numel() // q**2,)](
            C, U, D, V, q, SWEEPS, ROWS=rows, COLS=cols, num_warps=warps
        )
    return U, D, V


torch.library.impl("labkit::jacobi", "cuda")(_jacobi_on_cuda)
