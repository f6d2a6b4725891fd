r"""The damped, preconditioned least-squares system as one operator on flat vectors.

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

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from labkit.hessian_free.flat import Space, as_tuple
from labkit.ranges import NOT_NEGATIVE, check, one_of

DAMPING_NORMS = ("identity", "scaled")
DAMP_TOWARDS = ("zero", "start")
FORMS = {"damping": NOT_NEGATIVE, "damping_norm": one_of(DAMPING_NORMS)}
FORMS["damp_towards"] = one_of(DAMP_TOWARDS)


@dataclass(frozen=True, eq=False)
class System:
    """min |A d - b|^2 + damping^2 |d|^2, d = scale o v, everything flat."""

    A: Callable = field(repr=False)  # flat -> flat; what it gives is not written to
    At: Callable = field(repr=False)  # flat -> flat, in new memory
    b: Tensor = field(repr=False)
    x0: Tensor | None = field(repr=False)
    At_b: Tensor | None = field(repr=False)  # A'b where there is no x0
    scale: Tensor | None = field(repr=False)
    damping: float
    damping_norm: str
    damp_towards: str
    space: Space = field(repr=False)  # of x

    def forward(self, v: Tensor) -> Tensor:
        """K v, in new memory."""
        if not self.damping:
            return self.A(v if self.scale is None else self.scale * v).clone()
        m = self.b.shape[-1]
        out = v.new_empty(*v.shape[:-1], m + v.shape[-1])
        U, z = out[..., :m], out[..., m:]
        if self.scale is None or self.damping_norm == "scaled":
            U.copy_(self.A(v if self.scale is None else self.scale * v))
            torch.mul(v, self.damping, out=z)
        else:
            U.copy_(self.A(torch.mul(self.scale, v, out=z)))
            z *= self.damping
        return out

    def transpose(self, u: Tensor) -> Tensor:
        """K'u, in new memory."""
        m, identity = self.b.shape[-1], self.damping_norm == "identity"
        g, z = self.At(u[..., :m]), u[..., m:]
        if self.damping and identity:
            g.add_(z, alpha=self.damping)
        if self.scale is not None:
            g *= self.scale
        if self.damping and not identity:
            g.add_(z, alpha=self.damping)
        return g

    def start(self) -> tuple[Tensor, Tensor, Tensor]:
        """A copy of d0, the residual u of K there, and K'u."""
        if self.x0 is None:
            d, U = torch.zeros_like(self.At_b), self.b
        else:
            d = self.x0.clone(memory_format=torch.contiguous_format)
            U = self.b - self.A(d)
        u = U
        if self.damping:
            z = d * (-self.damping if self.damp_towards == "zero" else 0.0)
            if self.damping_norm == "scaled" and self.scale is not None:
                z /= self.scale
            u = torch.cat((U, z), -1)
        if self.x0 is not None:
            return d, u, self.transpose(u)
        return d, u, self.At_b * (1.0 if self.scale is None else self.scale)

    def unknowns(self) -> int:
        """Unknowns of one system."""
        return (self.At_b if self.x0 is None else self.x0).shape[-1]


def build_system(A, At, b, *, x0=None, scale=None, **form) -> System:
    """Check the arguments of :func:`labkit.hessian_free.lsmr` and join them.

    The entries of ``scale`` are looked at with the first norms, in one read.
    """
    form = {"damping": 0.0, "damping_norm": "identity", "damp_towards": "zero"} | form
    form["damping"] = float(form["damping"])
    check(form, FORMS)
    columns, matrix = False, A
    if isinstance(A, Tensor):
        A, At = _dense(A, At, b)
        columns = b.ndim == 2
    elif not (callable(A) and callable(At)):
        raise TypeError("A and At must both be functions, unless A is a tensor")
    _check_floating(b, "b")
    if isinstance(matrix, Tensor):
        _check_dtype(matrix, "A", b)
    inner = Space(b, columns)
    At_b = At(b) if x0 is None else None
    if x0 is None:
        _check_dtype(At_b, "A'b", b)
    space = Space(At_b if x0 is None else x0, columns)

    def flat(x, name):
        if x is None:
            return None
        if isinstance(x, Tensor) != space.bare:
            raise TypeError("x0 and scale must both be tensors or both be tuples")
        _check_floating(x, name)
        return space.flat(x).to(as_tuple(b)[0].dtype)

    return System(
        A=lambda x: inner.flat(A(space.outside(space.blocks(x)))),
        At=lambda u: space.copied(At(inner.outside(inner.blocks(u)))),
        b=inner.flat(b),
        x0=flat(x0, "x0"),
        At_b=None if At_b is None else space.flat(At_b),
        scale=flat(scale, "scale"),
        space=space,
        **form,
    )


def _dense(A, At, b):
    """A matrix as a pair of functions."""
    if At is not None:
        raise TypeError("At must be None where A is a tensor")
    if A.ndim != 2:
        raise ValueError(f"A must be (m, n), got shape {tuple(A.shape)}")
    m = len(A)
    if not isinstance(b, Tensor) or b.ndim not in (1, 2) or len(b) != m:
        shape = tuple(b.shape) if isinstance(b, Tensor) else type(b).__name__
        raise ValueError(f"b must have shape ({m},) or ({m}, k), got {shape}")
    return (lambda x: A @ x), (lambda u: A.mT @ u)


def _check_dtype(x, name, b):
    """Also of blocks of one vector, which become one tensor."""
    dtype = as_tuple(b)[0].dtype
    for t in (*as_tuple(x), *as_tuple(b)):
        if t.dtype != dtype:
            raise TypeError(f"{name} has dtype {t.dtype}, but b has {dtype}")


def _check_floating(x, name):
    for t in as_tuple(x):
        if not (isinstance(t, Tensor) and t.is_floating_point()):
            kind = t.dtype if isinstance(t, Tensor) else type(t).__name__
            raise TypeError(f"{name} must hold real floating-point tensors, got {kind}")
