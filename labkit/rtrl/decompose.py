r"""The two small decompositions of OK: a root of a Gram matrix, and an SVD.

On the CPU they are LAPACK's. Its likes on an accelerator make the host wait, so there
each is one operator, ``labkit::jacobi``: rotations that make the columns of a matrix
orthogonal (Hestenes 1958), all pairs once a sweep, disjoint pairs at a time (the
circle of a tournament). On CUDA that is one kernel of Triton's. The first time on a
device it is compared with torch's decomposition on small matrices; if it is missing,
fails or differs, torch's is taken, with its waits, and one warning says so. All of it
is float64. :data:`CHOICES` are the ways to choose by hand.
"""

import warnings
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from labkit.ranges import one_of

CHOICES = {
    "auto": "LAPACK on the CPU; elsewhere the rotations, on CUDA once they are proven",
    "own": "the rotations, on any device, without a proof",
    "torch": "torch's own, for which the host waits on an accelerator",
}
CHOICE = one_of(CHOICES)

SWEEPS = 20  # at most; order 17 takes 7 to 14 to reach rounding
SMALL = 1e-300  # in place of zero where it divides


def on_host(x: Tensor) -> bool:
    """Whether LAPACK is to decompose this if nothing was chosen."""
    return x.device.type == "cpu"


def by_torch(x: Tensor, decomposition: str) -> bool:
    """Whether torch is to decompose this, not the rotations."""
    return decomposition == "torch" or (decomposition == "auto" and on_host(x))


def waits(device: torch.device, decomposition: str = "auto") -> str:
    """Why the host waits for a decomposition there, if it does."""
    if device.type == "cpu" or decomposition == "own":
        return ""
    if decomposition == "torch":
        return "OK decomposes by torch, which waits, as decomposition='torch' asks"
    reason = distrust(device) if device.type == "cuda" else ""
    return f"OK decomposes by torch, which waits: {reason}" if reason else ""


def own_kernel() -> Callable | None:
    """The kernel for CUDA; None where there is no Triton."""
    from labkit.rtrl import jacobi_kernel  # not before: Triton takes its time

    return jacobi_kernel.jacobi if jacobi_kernel.triton is not None else None


@lru_cache
def distrust(device: torch.device) -> str:
    """Why the kernel is not taken on a device, said once in a warning; empty if it is.

    The first question waits for the device; the answer is kept.
    """
    reason = fault_of(own_kernel(), device)
    if reason:
        warnings.warn(
            f"OK's own decomposition is not taken on {device}: {reason}. torch's is "
            "taken in its place, and the host waits for it at each step",
            RuntimeWarning,
            stacklevel=2,
        )
    return reason


def fault_of(kernel: Callable | None, device: torch.device) -> str:
    """Say what is wrong with a kernel, beside torch on the CPU; empty if nothing is.

    Parameters
    ----------
    kernel : callable, C to U, d and V as in :func:`svd`; None is missing
    device : torch.device, on which it is tried
    """
    if kernel is None:
        return "Triton is not installed"
    for C in probes():
        try:
            U, d, V = (each.cpu() for each in kernel(C.to(device)))
        except Exception as error:  # of any kind: a compiler's, a driver's
            return f"it failed with {type(error).__name__}: {error}"
        close, eye = 1e-12 * C.norm(dim=(-2, -1)).max(), torch.eye(C.shape[-1]).to(C)
        off = {
            "singular values": d - torch.linalg.svdvals(C),
            "product": (U * d[..., None, :]) @ V.mT - C,
            "vectors": (V.mT @ V - eye) * close / 1e-12,
        }
        for name, error in off.items():
            largest = float(error.abs().max().nan_to_num(torch.inf))
            if not largest <= close:
                q = C.shape[-1]
                return f"its {name} of order {q} are {largest:.2g} off torch's"
    return ""


def probes() -> list[Tensor]:
    """Small matrices to try a kernel on: graded, without full rank, zero, odd, even."""
    g = torch.Generator().manual_seed(0)
    found = []
    for q in (3, 8):
        C = torch.randn(4, q, q, generator=g, dtype=torch.float64)
        C[1] *= 10.0 ** -torch.arange(q)
        C[2, :, 1:] = C[2, :, :1]
        C[3] = 0
        found.append(C)
    return found


def gram_root(G: Tensor, decomposition: str = "auto") -> Tensor:
    """L with L^T L = G (..., q, q), a Gram matrix, which after resets is singular.

    So not Cholesky's. G is first scaled to a diagonal of ones, since its entries may
    lie decades apart. ``decomposition`` is one of :data:`CHOICES`.
    """
    size = G.diagonal(dim1=-2, dim2=-1).clamp_min(SMALL).sqrt()
    unit = G / (size[..., :, None] * size[..., None, :])
    if by_torch(G, decomposition):
        w, V = torch.linalg.eigh(unit)
        w = w.clamp_min_(0)
    else:
        _, w, V = torch.ops.labkit.jacobi(unit, decomposition == "own")
    return w.sqrt()[..., None] * V.mT * size[..., None, :]


def svd(C: Tensor, decomposition: str = "auto") -> tuple[Tensor, Tensor, Tensor]:
    """U, d, V of square matrices C = U diag(d) V^T (..., q, q); d does not increase.

    Where d is 0, the column of U may be zero. ``decomposition`` is one of
    :data:`CHOICES`.
    """
    if by_torch(C, decomposition):
        U, d, Vh = torch.linalg.svd(C)
        return U, d, Vh.mT
    return torch.ops.labkit.jacobi(C, decomposition == "own")


@lru_cache
def tournament(q: int) -> list[tuple[list[int], list[int]]]:
    """Rounds of disjoint pairs of 0..q-1, q even, in which every two meet once."""
    rounds = []
    for turn in range(q - 1):
        ring = [0] + [1 + (turn + i) % (q - 1) for i in range(q - 1)]
        rounds.append((ring[: q // 2], ring[: q // 2 - 1 : -1]))
    return rounds


torch.library.define(
    "labkit::jacobi", "(Tensor C, bool unproven=False) -> (Tensor, Tensor, Tensor)"
)


@torch.library.impl("labkit::jacobi", "default")
def jacobi(C: Tensor, unproven: bool = False) -> tuple[Tensor, Tensor, Tensor]:
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
def _jacobi_shapes(C: Tensor, unproven: bool = False) -> tuple[Tensor, ...]:
    return torch.empty_like(C), C.new_empty(C.shape[:-1]), torch.empty_like(C)


def _jacobi_on_cuda(C: Tensor, unproven: bool = False) -> tuple[Tensor, ...]:
    """The kernel if it is asked for or proven, else torch's."""
    if unproven and own_kernel() is None:
        raise ValueError("decomposition='own' needs Triton on CUDA: install triton")
    if unproven or not distrust(C.device):
        return own_kernel()(C)
    U, d, Vh = torch.linalg.svd(C)
    return U, d, Vh.mT.contiguous()


torch.library.impl("labkit::jacobi", "cuda")(_jacobi_on_cuda)


def rotated(x: Tensor, y: Tensor, q: int) -> tuple[Tensor, Tensor]:
    """Columns x, y (..., p), turned until their first q entries are orthogonal."""
    a, b = x[..., :q, :], y[..., :q, :]
    product = (a * b).sum(-2, keepdim=True)
    gap = (a.square() - b.square()).sum(-2, keepdim=True) / 2
    toward = gap + torch.hypot(gap, product).copysign(gap)
    tan = torch.where(product == 0, 0, product / toward)
    cos = (1 + tan.square()).rsqrt()
    return cos * (x + tan * y), cos * (y - tan * x)
