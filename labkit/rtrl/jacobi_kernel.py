"""``labkit::jacobi`` for CUDA in Triton: one program per matrix, without a wait."""

from functools import lru_cache
from types import SimpleNamespace

import torch
from torch import Tensor

from labkit.rtrl.decompose import SWEEPS

try:
    import triton
    import triton.language as tl
except ImportError:  # only torch for CUDA brings it
    triton, tl = None, SimpleNamespace(constexpr=int)


def _kernel(
    C,
    WV,
    U,
    D,
    V,
    q,
    sweeps,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    HALF: tl.constexpr,
):
    """Rotate W = C V and V together, and sweep until all pairs are orthogonal.

    A tile has the matrix's columns along its first axis, over which Triton spreads a
    warp here: each thread computes the angle of one pair, and not those of all.
    """
    matrix = tl.program_id(0).to(tl.int64)
    N = q + q % 2  # a column of zeros where q is odd
    col, row = tl.arange(0, COLS)[:, None], tl.arange(0, ROWS)[None, :]
    top, own = row < q, (row < 2 * q) & (col < N)
    C, WV = C + matrix * q * q, WV + matrix * 2 * q * N
    w = tl.load(C + row * q + col, mask=top & (col < q), other=0.0)
    size = tl.sum(w * w)
    w = tl.where(~top & (row - q == col), 1.0, w)
    tl.store(WV + row * N + col, w, mask=own)
    tl.debug_barrier()

    pair = tl.arange(0, HALF)[:, None]
    used = (row < 2 * q) & (pair < N // 2)
    sweep = 0
    while sweep < sweeps:
        rotations = 0
        for turn in range(N - 1):
            # the circle of labkit.rtrl.decompose.tournament
            left = tl.where(pair == 0, 0, 1 + (turn + pair + N - 2) % (N - 1))
            right = 1 + (turn + N - 2 - pair) % (N - 1)
            at_left, at_right = WV + row * N + left, WV + row * N + right
            x = tl.load(at_left, mask=used, other=0.0)
            y = tl.load(at_right, mask=used, other=0.0)
            aa = tl.sum(tl.where(top, x * x, 0.0), 1)
            bb = tl.sum(tl.where(top, y * y, 0.0), 1)
            ab = tl.sum(tl.where(top, x * y, 0.0), 1)
            gap = (aa - bb) / 2
            length = tl.sqrt(gap * gap + ab * ab)
            toward = tl.where(gap < 0, gap - length, gap + length)
            tan = tl.where(ab == 0, 0.0, ab / tl.where(ab == 0, 1.0, toward))[:, None]
            cos = 1 / tl.sqrt(1 + tan * tan)
            tl.store(at_left, cos * (x + tan * y), mask=used)
            tl.store(at_right, cos * (y - tan * x), mask=used)
            # orthogonal to 1e-14; columns below 1e-8 of all are noise
            aa, bb = tl.maximum(aa, 1e-16 * size), tl.maximum(bb, 1e-16 * size)
            turned = ab * ab > 1e-28 * aa * bb
            rotations += tl.sum(turned.to(tl.int32))
            tl.debug_barrier()
        sweep = tl.where(rotations == 0, sweeps, sweep + 1)

    w = tl.load(WV + row * N + col, mask=top & (col < q), other=0.0)
    v = tl.load(WV + (row + q) * N + col, mask=top & (col < q), other=0.0)
    d = tl.sqrt(tl.sum(w * w, 1))
    index = tl.arange(0, COLS)
    d = tl.where(index < q, d, -1.0)
    larger = d[:, None] > d[None, :]
    first = (d[:, None] == d[None, :]) & (index[:, None] < index[None, :])
    place = tl.sum((larger | first).to(tl.int32), 0)
    tl.store(D + matrix * q + place, d, mask=index < q)
    at = matrix * q * q + row * q + place[:, None]
    kept = top & (col < q)
    tl.store(U + at, w / tl.where(d > 0, d, 1.0)[:, None], mask=kept)
    tl.store(V + at, v, mask=kept)


@lru_cache
def _compiled():
    return triton.jit(_kernel)


def jacobi(C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute :func:`labkit.rtrl.decompose.svd` in float64 on CUDA."""
    q, C = C.shape[-1], C.contiguous()
    count = C.numel() // q**2
    WV = C.new_empty(count, 2 * q, q + q % 2)
    U, D, V = torch.empty_like(C), C.new_empty(C.shape[:-1]), torch.empty_like(C)
    rows, half = triton.next_power_of_2(2 * q), triton.next_power_of_2((q + 1) // 2)
    warps = min(max(rows * half // 256, 1), 8)  # the fastest of 1 to 8 on an H200
    with torch.cuda.device_of(C):
        _compiled()[(count,)](
            C,
            WV,
            U,
            D,
            V,
            q,
            SWEEPS,
            ROWS=rows,
            COLS=2 * half,
            HALF=half,
            num_warps=warps,
        )
    return U, D, V
