r"""The damped, preconditioned least-squares system as one operator on tuples.

What :func:`labkit.hessian_free.lsmr` iterates on. With C = diag(c) and lambda > 0,

==========  ==============================  ============================================
norm        K v                             K'(U, z)
==========  ==============================  ============================================
identity    ( A(c o v), lam c o v )         c o (A'U + lam z)
scaled      ( A(c o v), lam v )             c o A'U + lam z
==========  ==============================  ============================================

and the residual of the start is (b - A d0, -lam d0) or (b - A d0, -lam d0 / c); its
second part is 0 when the damping is towards the start. Where it is not, damping cannot
be one more plane rotation, as it is elsewhere, hence the explicit blocks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from labkit.hessian_free.tuples import add, add_, add_product_, combine_, copied, scale_
from labkit.ranges import NOT_NEGATIVE, check, one_of

DAMPING_NORMS = ("identity", "scaled")
DAMP_TOWARDS = ("zero", "start")
FORMS = {"damping": NOT_NEGATIVE, "damping_norm": one_of(DAMPING_NORMS)}
FORMS["damp_towards"] = one_of(DAMP_TOWARDS)


@dataclass(frozen=True, eq=False)
class System:
    """min |A d - b|^2 + damping^2 |d|^2, d = scale o v, everything as tuples."""

    A: Callable = field(repr=False)  # tuple -> tuple
    At: Callable = field(repr=False)  # tuple -> tuple
    b: tuple[Tensor, ...] = field(repr=False)
    x0: tuple[Tensor, ...] | None = field(repr=False)
    damping: float
    scale: tuple[Tensor, ...] | None = field(repr=False)
    damping_norm: str
    damp_towards: str
    At_b: tuple[Tensor, ...] | None = field(repr=False)  # A'b where there is no x0
    batch: int  # leading dimensions that count systems
    bare: bool  # whether outside x is a tensor rather than a tuple

    def forward_(self, u, a, v, work) -> None:
        """u = K v + a u, in place; ``work`` is scratch space like v."""
        U, z = self.parts(u)
        cv = v
        if self.scale is not None:
            cv = work
            for out, c, t in zip(cv, self.scale, v, strict=True):
                torch.mul(c, t, out=out)
        combine_(U, a, self.A(cv))
        if z:
            scale_(z, a)
            add_(z, self.damping, cv if self.damping_norm == "identity" else v)

    def transpose_(self, v, a, u, work) -> None:
        """v = K'u + a v, in place; ``work`` is scratch space like v."""
        U, z = self.parts(u)
        g = self.At(U)
        if not z and self.scale is None:
            combine_(v, a, g)
            return
        scale_(v, a)
        if z and self.damping_norm == "identity":
            for out, s, t in zip(work, g, z, strict=True):
                torch.add(s, t, alpha=self.damping, out=out)
            g = work
        add_product_(v, 1.0, self.scale, g)
        if z and self.damping_norm == "scaled":
            add_(v, self.damping, z)

    def parts(self, u):
        """U and z of u; z is empty without damping."""
        return u[: len(self.b)], u[len(self.b) :]

    def start(self):
        """A copy u of the residual of K at d0, with copies of d0 and of K'u."""
        if self.x0 is None:
            d, U = tuple(map(torch.zeros_like, self.At_b)), copied(self.b)
        else:
            d = copied(self.x0)
            U = add(self.b, -1.0, self.A(d))
        u = U
        if self.damping:
            z = copied(d)
            scale_(z, -self.damping if self.damp_towards == "zero" else 0.0)
            if self.damping_norm == "scaled" and self.scale is not None:
                z = tuple(torch._foreach_div(z, self.scale))
            u = (*U, *z)
        v = tuple(map(torch.zeros_like, d))
        if self.x0 is None:
            add_product_(v, 1.0, self.scale, self.At_b)
        else:
            self.transpose_(v, 0.0, u, copied(d))
        return d, u, v

    def unknowns(self) -> int:
        """Unknowns of one system."""
        x = self.At_b if self.x0 is None else self.x0
        return sum(t[(0,) * self.batch].numel() for t in x)

    def outside(self, x):
        """x as the caller has it: a tensor or a tuple."""
        return x[0] if self.bare else tuple(x)


def build_system(A, At, b, *, x0=None, scale=None, **form) -> System:
    """Check the arguments of :func:`labkit.hessian_free.lsmr` and join them."""
    form = {"damping": 0.0, "damping_norm": "identity", "damp_towards": "zero"} | form
    form["damping"] = float(form["damping"])
    check(form, FORMS)
    batch = 0
    if isinstance(A, Tensor):
        A, At, batch = _dense(A, At, b)
    elif not (callable(A) and callable(At)):
        raise TypeError("A and At must both be functions, unless A is a tensor")
    b_bare = isinstance(b, Tensor)
    b = (b,) if b_bare else tuple(b)
    _check_floating(b, "b")
    At_b = At(b[0] if b_bare else b) if x0 is None else None
    bare = isinstance(At_b if x0 is None else x0, Tensor)
    x0, scale = _blocks(x0, "x0", bare), _blocks(scale, "scale", bare)
    At_b = None if At_b is None else _as_tuple(At_b)
    if scale is not None:
        _check_positive(scale)
    apply = lambda x: _as_tuple(A(x[0] if bare else x))  # noqa: E731
    adjoint = lambda u: _as_tuple(At(u[0] if b_bare else u))  # noqa: E731
    given = {"x0": x0, "scale": scale, "At_b": At_b, "batch": batch, "bare": bare}
    return System(A=apply, At=adjoint, b=b, **given, **form)


def _dense(A, At, b):
    """A matrix, or a batch of them, as a pair of functions."""
    if At is not None:
        raise TypeError("At must be None where A is a tensor")
    if A.ndim < 2:
        raise ValueError(f"A must be (..., m, n), got shape {tuple(A.shape)}")
    if not isinstance(b, Tensor) or b.shape != A.shape[:-1]:
        shape = tuple(b.shape) if isinstance(b, Tensor) else type(b).__name__
        raise ValueError(f"b must have shape {tuple(A.shape[:-1])}, got {shape}")

    def product(M):
        return lambda x: (M @ x[..., None])[..., 0]

    return product(A), product(A.mT), A.ndim - 2


def _as_tuple(x):
    return (x,) if isinstance(x, Tensor) else tuple(x)


def _blocks(x, name, bare):
    """A given vector as a tuple, or None."""
    if x is None:
        return None
    if isinstance(x, Tensor) != bare:
        raise TypeError("x0 and scale must both be tensors or both be tuples")
    x = _as_tuple(x)
    _check_floating(x, name)
    return x


def _check_positive(scale):
    least = float(torch.stack([c.min() for c in scale]).min())
    if math.isnan(least):
        raise FloatingPointError("scale has entries that are not finite")
    if not least > 0:
        raise ValueError(f"scale must have entries > 0 only, got {least}")


def _check_floating(x, name):
    for t in x:
        if not (isinstance(t, Tensor) and t.is_floating_point()):
            kind = t.dtype if isinstance(t, Tensor) else type(t).__name__
            raise TypeError(f"{name} must hold real floating-point tensors, got {kind}")
