r"""The system that :func:`labkit.hessian_free.lsmr` iterates on, and what A may be.

It is damped and preconditioned, and one operator on flat vectors. With C = diag(c) and
lambda > 0,

==========  ==============================  ============================================
norm        K v                             K'(U, z)
==========  ==============================  ============================================
identity    ( A(c o v), lam c o v )         c o (A'U + lam z)
scaled      ( A(c o v), lam v )             c o A'U + lam z
==========  ==============================  ============================================

and the residual of the start is (b - A d0, -lam d0) or (b - A d0, -lam d0 / c). Its
second part is 0 when the damping is towards the start. When it is not, damping cannot
be one more plane rotation, as it is in Fong and Saunders, so that K and its residual
have the second block.

A of LSMR, and B of :func:`labkit.hessian_free.cg`, are functions on vectors of the
caller's kind. Tensors, dense or sparse, go with tensors. NumPy arrays, SciPy's sparse
matrices and anything with ``matvec`` and ``rmatvec``, such as a SciPy
``LinearOperator``, go with NumPy arrays; functions with whatever b is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from labkit.hessian_free.vectors import Space, Vector, as_tuple, flat_norm
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
    fresh: bool = False  # what A gives is new memory

    def forward(self, v: Tensor) -> Tensor:
        """Return K v, in new memory."""
        if not self.damping:
            u = self.A(v if self.scale is None else self.scale * v)
            return u if self.fresh else u.clone()
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

    def transpose(self, u: Tensor, beta: Tensor) -> Tensor:
        """Return K'u / beta, in new memory; beta is a scalar beside u."""
        m, identity = self.b.shape[-1], self.damping_norm == "identity"
        g, z = self.At(u[..., :m] / beta), u[..., m:]
        if self.damping and identity:
            g.addcdiv_(z, beta, value=self.damping)
        if self.scale is not None:
            g *= self.scale
        if self.damping and not identity:
            g.addcdiv_(z, beta, value=self.damping)
        return g

    def start(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return a copy of d0, the residual u of K there, and K'u."""
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
            return d, u, self.transpose(u, u.new_ones(*u.shape[:-1], 1))
        return d, u, self.At_b * (1.0 if self.scale is None else self.scale)

    def size(self, x: tuple[Tensor, ...] | None) -> float | np.ndarray:
        """Read |x / c| of an iterate, or |b| for None: a number, or an array (k,)."""
        if x is None:
            x = self.b
        else:
            x = self.space.flat(x)
            x = x if self.scale is None else x / self.scale
        size = flat_norm(x)
        return size.item() if size.ndim == 1 else size[:, 0].double().cpu().numpy()

    def unknowns(self) -> int:
        """Return the number of unknowns of one system."""
        return (self.At_b if self.x0 is None else self.x0).shape[-1]


def build_system(
    A: object,
    At: Callable | None,
    b: Vector,
    *,
    x0: Vector | None = None,
    scale: Vector | None = None,
    damping: float = 0.0,
    damping_norm: str = "identity",
    damp_towards: str = "zero",
) -> System:
    """Check the arguments of :func:`labkit.hessian_free.lsmr` and join them.

    The entries of ``scale`` are checked with the first norms, in one read.
    """
    damping = float(damping)
    form = {"damping": damping, "damping_norm": damping_norm}
    check(form | {"damp_towards": damp_towards}, FORMS)
    A, At, matrix = operator(A, At, b)
    inner = Space(b, matrix and b.ndim == 2)
    right = inner.flat(b)
    At_b = At(b) if x0 is None else None
    if x0 is None:
        check_dtype(At_b, "A'b", b)
    space = Space(At_b if x0 is None else x0, inner.columns)

    def flat(x, name):
        if x is None:
            return None
        if (not isinstance(x, tuple | list)) != space.bare:
            raise TypeError("x0 and scale must both be tensors or both be tuples")
        check_floating(x, name)
        return space.flat(x).to(right.dtype)

    def forward(x):
        u = inner.flat(A(space.outside(space.blocks(x))))
        if u.dtype != right.dtype:
            raise TypeError(f"A x has dtype {u.dtype}, but b has {right.dtype}")
        if u.shape != right.shape:
            what = f"{u.numel()} entries, but b has {right.numel()}"
            raise ValueError(f"A x must be like b, but has {what}")
        return u

    back = space.flat if matrix else space.copied
    return System(
        A=forward,
        At=lambda u: back(At(inner.outside(inner.blocks(u)))),
        b=right,
        x0=flat(x0, "x0"),
        At_b=None if At_b is None else space.flat(At_b),
        scale=flat(scale, "scale"),
        damping=damping,
        damping_norm=damping_norm,
        damp_towards=damp_towards,
        space=space,
        fresh=matrix,
    )


def operator(
    A: object, At: Callable | None, b: Vector
) -> tuple[Callable, Callable, bool]:
    """Return A and A' as functions, and whether A is a matrix.

    What a matrix's products give is new memory; b of a matrix may have columns.
    """
    check_floating(b, "b")
    if callable(A) and callable(At):
        return A, At, False
    if not hasattr(A, "shape"):
        raise TypeError("A and At must both be functions, unless A is a matrix")
    kind = "tensor" if isinstance(A, Tensor) else type(A).__name__
    if At is not None:
        raise TypeError(f"At must be None where A is a {kind}")
    own = Tensor if isinstance(A, Tensor) else np.ndarray
    if not isinstance(b, own):
        what = "a tensor" if own is Tensor else "a NumPy array"
        got = type(b).__name__
        raise TypeError(f"b must be {what}, for A is a {kind}, got a {got}")
    if len(A.shape) != 2:
        raise ValueError(f"A must be (m, n), got shape {tuple(A.shape)}")
    m = A.shape[0]
    if b.ndim not in (1, 2) or len(b) != m:
        raise ValueError(f"b must have shape ({m},) or ({m}, k), got {tuple(b.shape)}")
    dtype = getattr(A, "dtype", None)
    if dtype is not None and dtype != b.dtype:
        raise TypeError(f"A has dtype {dtype}, but b has {b.dtype}")
    if hasattr(A, "rmatvec"):
        pair = (A.matvec, A.rmatvec) if b.ndim == 1 else (A.matmat, A.rmatmat)
        return *pair, True
    if isinstance(A, np.ndarray):
        A = np.asarray(A)  # products of an np.matrix would keep two axes
    T = A.T if own is np.ndarray else A.mT
    return A.__matmul__, T.__matmul__, True


def symmetric(B: object, b: Vector) -> Callable:
    """Return B of CG as a function; it is a square matrix, or a function already."""
    if not hasattr(B, "shape"):
        check_floating(b, "b")
        if not callable(B):
            raise TypeError(f"B must be a matrix or a function, got {type(B).__name__}")
        return B
    product = operator(B, None, b)[0]
    if B.shape[0] != B.shape[1]:
        raise ValueError(f"B must be square, got shape {tuple(B.shape)}")
    return product


def check_floating(x: Vector, name: str) -> None:
    """Refuse what is not tensors, or arrays, of real floating-point numbers."""
    for t in as_tuple(x):
        if not (isinstance(t, Tensor) and t.is_floating_point()):
            kind = t.dtype if isinstance(t, Tensor) else type(t).__name__
            raise TypeError(f"{name} must hold real floating-point tensors, got {kind}")


def check_dtype(x: Vector, name: str, b: Vector) -> None:
    """Refuse blocks of different dtypes: those of one vector become one tensor."""
    dtype = as_tuple(b)[0].dtype
    for t in (*as_tuple(x), *as_tuple(b)):
        if t.dtype != dtype:
            raise TypeError(f"{name} has dtype {t.dtype}, but b has {dtype}")
