r"""The two small decompositions of OK: a root of a Gram matrix, and an SVD.

On the CPU LAPACK computes them. Its counterparts on an accelerator make the host wait,
so each is one operator there, ``labkit::jacobi``: rotations that make the columns of a
matrix orthogonal (Hestenes 1958), each pair once in a sweep, disjoint pairs at a time
(the circle of a tournament). On CUDA that is one Triton kernel. On its first use on a
device it is compared with torch's decomposition on small matrices; if it is missing,
fails or differs, torch's is used, with its waits, and one warning says so. All of it
is float64. :data:`CHOICES` lists the choices of the user.
"""

import warnings
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from labkit.check import one_of

CHOICES = {
    "auto": "LAPACK on the CPU; elsewhere the rotations, on CUDA once they are proven",
    "own": "the rotations, on any device, without a proof",
    "torch": "torch's own, for which the host waits on an accelerator",
}
CHOICE = one_of(CHOICES)

SWEEPS = 20  # upper limit; order 17 takes 7 to 14 sweeps to reach rounding
SMALL = 1e-300  # replaces zero in a divisor


def on_host(x: Tensor) -> bool:
    """Return whether LAPACK decomposes this tensor if nothing was chosen."""
    return x.device.type == "cpu"


def by_torch(x: Tensor, decomposition: str) -> bool:
    """Return whether torch, and not the rotations, decomposes this tensor."""
    return decomposition == "torch" or (decomposition == "auto" and on_host(x))


def waits(device: torch.device, decomposition: str = "auto") -> str:
    """Return why the host waits for a decomposition there; empty if it does not."""
    if device.type == "cpu" or decomposition == "own":
        return ""
    if decomposition == "torch":
        return "OK decomposes by torch, which waits, as decomposition='torch' asks"
    reason = distrust(device) if device.type == "cuda" else ""
    return f"OK decomposes by torch, which waits: {reason}" if reason else ""


def own_kernel() -> Callable | None:
    """Return the kernel for CUDA, or None if Triton is not installed."""
    from labkit.rtrl import jacobi_kernel  # imported late: importing Triton is slow

    return jacobi_kernel.jacobi if jacobi_kernel.triton is not None else None


@lru_cache
def distrust(device: torch.device) -> str:
    """Return why the kernel is not used on a device; empty if it is used.

    The first call waits for the device and warns if there is a reason; the answer is
    cached.
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
    """Return how a kernel differs from torch on the CPU; empty if it does not.

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
    """Return small test matrices: graded, singular, zero, of odd and even order."""
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
    """Return L with L^T L = G (..., q, q) for a Gram matrix, which may be singular.

    After a reset it is singular, so that Cholesky's factor would fail. G is first
    scaled to a diagonal of ones, since its entries may lie decades apart.
    ``decomposition`` is one of :data:`CHOICES`.
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
    """Return U, d, V of square C = U diag(d) V^T (..., q, q); d does not increase.

    Where d is 0, the column of U may be zero. ``decomposition`` is one of
    :data:`CHOICES`.
    """
    if by_torch(C, decomposition):
        U, d, Vh = torch.linalg.svd(C)
        return U, d, Vh.mT
    return torch.ops.labkit.jacobi(C, decomposition == "own")


@lru_cache
def tournament(q: int) -> list[tuple[list[int], list[int]]]:
    """Return rounds of disjoint pairs of 0..q-1, q even; each pair meets once."""
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
def _jacobi_shapes(C: Tensor, unproven: bool = False) -> tuple[Tensor, ...]:
    return torch.empty_like(C), C.new_empty(C.shape[:-1]), torch.empty_like(C)


def _jacobi_on_cuda(C: Tensor, unproven: bool = False) -> tuple[Tensor, ...]:
    """Decompose by the kernel if it is asked for or proven, else by torch."""
    if unproven and own_kernel() is None:
        raise ValueError("decomposition='own' needs Triton on CUDA: install triton")
    if unproven or not distrust(C.device):
        return own_kernel()(C)
    U, d, Vh = torch.linalg.svd(C)
    return U, d, Vh.mT.contiguous()


torch.library.impl("labkit::jacobi", "cuda")(_jacobi_on_cuda)


def rotated(x: Tensor, y: Tensor, q: int) -> tuple[Tensor, Tensor]:
    """Rotate columns x, y (..., p, k) so that their first q entries are orthogonal."""
    a, b = x[..., :q, :], y[..., :q, :]
    product = (a * b).sum(-2, keepdim=True)
    gap = (a.square() - b.square()).sum(-2, keepdim=True) / 2
    toward = gap + torch.hypot(gap, product).copysign(gap)
    tan = torch.where(product == 0, 0, product / toward)
    cos = (1 + tan.square()).rsqrt()
    return cos * (x + tan * y), cos * (y - tan * x)
