r"""The system that :func:`labkit.hessian_free.lsmr` solves, and the kinds of A.

The damped and preconditioned system is one operator on flat vectors. With C = diag(c)
and lambda > 0,

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
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from labkit.check import NOT_NEGATIVE, check_options, check_tensor, described, one_of
from labkit.hessian_free.vectors import Space, Vector, as_tuple, flat_norm

FLOATING = (torch.float32, torch.float64, torch.complex64, torch.complex128)
DAMPING_NORMS = ("identity", "scaled")
DAMP_TOWARDS = ("zero", "start")
FORMS = {"damping": NOT_NEGATIVE, "damping_norm": one_of(DAMPING_NORMS)}
FORMS["damp_towards"] = one_of(DAMP_TOWARDS)


@dataclass(frozen=True, eq=False)
class System:
    """The problem min |A d - b|^2 + damping^2 |d|^2, d = scale o v, all flat."""

    A: Callable = field(repr=False)  # flat -> flat; its result is not written to
    At: Callable = field(repr=False)  # flat -> flat, in new memory
    b: Tensor = field(repr=False)
    x0: Tensor | None = field(repr=False)
    At_b: Tensor | None = field(repr=False)  # A'b where there is no x0
    scale: Tensor | None = field(repr=False)
    damping: float
    damping_norm: str
    damp_towards: str
    space: Space = field(repr=False)  # of x
    fresh: bool = False  # whether A returns new memory

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
        """Return |x / c|, or |b| for None, on the host: a number or an array (k,)."""
        if x is None:
            x = self.b
        else:
            x = self.space.flat(x)
            x = x if self.scale is None else x / self.scale
        size = flat_norm(x)
        return size.item() if size.ndim == 1 else size[:, 0].double().cpu().numpy()

    def unknowns(self) -> int:
        """Return the number of unknowns of one system."""
        entries = (self.At_b if self.x0 is None else self.x0).shape[-1]
        return entries // 2 if self.space.complex else entries


def build_system(
    A: object,
    b: Vector,
    *,
    At: Callable | None = None,
    x0: Vector | None = None,
    scale: Vector | None = None,
    damping: float = 0.0,
    damping_norm: str = "identity",
    damp_towards: str = "zero",
) -> System:
    """Check the arguments of :func:`labkit.hessian_free.lsmr` and build its system.

    The entries of ``scale`` are checked with the first norms, in one read.
    """
    if isinstance(damping, Tensor) and damping.numel() == 1:
        damping = damping.item()
    form = {"damping": damping, "damping_norm": damping_norm}
    check_options(form | {"damp_towards": damp_towards}, FORMS)
    damping = float(damping)
    A, At, b, matrix = operator(A, b, At, x0)
    inner = Space(b, matrix and b.ndim == 2)
    right = inner.flat(b)
    _check_squarable(damping, right.dtype)
    if x0 is None:
        start = At(b)
        check_dtype(start, "A'b", b)
    else:
        x0 = start = in_dtype(x0, "x0", b)
    space = Space(start, inner.columns)
    scale = vector_like(start, "scale", scale, real=True)

    def forward(x):
        u = A(space.outside(space.blocks(x)))
        _check_blocks(u, "A x")
        u = inner.flat(u)
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
        x0=None if x0 is None else space.flat(x0),
        At_b=None if x0 is not None else space.flat(start),
        scale=None if scale is None else space.factors(scale),
        damping=damping,
        damping_norm=damping_norm,
        damp_towards=damp_towards,
        space=space,
        fresh=matrix,
    )


def operator(
    A: object, b: Vector, At: Callable | None = None, x0: Vector | None = None
) -> tuple[Callable, Callable, Vector, bool]:
    """Return A and A' as functions, b in their dtype, and whether A is a matrix.

    The products of a matrix are new memory, and its b may have columns. Real numbers
    become complex if A, b or x0 is complex, and integers become floating point.
    """
    A, b = _plain(A), _plain(b)
    _check_blocks(b, "b")
    if callable(A) and callable(At):
        return A, At, in_dtype(b, "b", None), False
    if not hasattr(A, "shape"):
        raise TypeError(
            "A is no matrix, so that A and At must be functions: lsmr(A, b, At=At); "
            f"got A: {described(A)} and At: {described(At)}"
        )
    kind = "tensor" if isinstance(A, Tensor) else type(A).__name__
    if At is not None:
        raise TypeError(f"At must be None where A is a {kind}, got {described(At)}")
    own = Tensor if isinstance(A, Tensor) else np.ndarray
    x0 = _plain(x0)
    for name, x in (("b", b), ("x0", x0)):
        if not isinstance(x, own) and (name == "b" or x is not None):
            what = "a tensor" if own is Tensor else "a NumPy array"
            raise TypeError(
                f"{name} must be {what}, for A is a {kind}, got {described(x)}"
            )
    if len(A.shape) != 2 or 0 in A.shape:
        shape = tuple(A.shape)
        raise ValueError(f"A must be (m, n), neither of them 0, got shape {shape}")
    m = A.shape[0]
    if b.ndim not in (1, 2) or len(b) != m or 0 in b.shape:
        raise ValueError(f"b must have shape ({m},) or ({m}, k), got {tuple(b.shape)}")
    wanted = (A.shape[1], *b.shape[1:])
    if x0 is not None and tuple(x0.shape) != wanted:
        raise ValueError(f"x0 must have shape {wanted}, got {tuple(x0.shape)}")
    dtype = _common(A=A, b=b)
    if x0 is not None and _common(x0=x0).is_complex:
        dtype = dtype.to_complex()
    if own is Tensor:
        _check_device("b", b, A)
    b = _cast(b, dtype)
    if hasattr(A, "rmatvec"):
        pair = (A.matvec, A.rmatvec) if b.ndim == 1 else (A.matmat, A.rmatmat)
        return *pair, b, True
    if isinstance(A, np.ndarray):
        A = np.asarray(A)  # products of an np.matrix would keep two axes
    A = _cast(A, dtype)
    if isinstance(A, Tensor) and A.layout in (torch.sparse_csr, torch.sparse_csc):
        # Only products in CSR form are fast, so the adjoint is computed once.
        A = A.to_sparse_csr()
        T = _transposed(A)
        T = T.conj_physical() if dtype.is_complex else T
    elif dtype.is_complex:
        T = A.mH if own is Tensor else A.conj().T
    else:
        T = A.mT if own is Tensor else A.T
    if own is Tensor:
        return A.__matmul__, T.__matmul__, b, True
    # SciPy's product of a sparse row and a vector is a number.
    return lambda x: np.atleast_1d(A @ x), lambda u: np.atleast_1d(T @ u), b, True


def _transposed(A: Tensor) -> Tensor:
    """Return the transpose of a CSR tensor in CSR form, by SciPy on a CPU.

    SciPy takes as long as some ten products, torch ten times that.
    """
    if A.device.type != "cpu":
        return A.mT.to_sparse_csr()
    import scipy.sparse  # it takes a second, which a step does not need

    parts = A.values().numpy(), A.col_indices().numpy(), A.crow_indices().numpy()
    T = scipy.sparse.csr_array(parts, shape=A.shape).T.tocsr()
    parts = (torch.from_numpy(part) for part in (T.indptr, T.indices, T.data))
    return torch.sparse_csr_tensor(*parts, T.shape)


def symmetric(B: object, b: Vector) -> tuple[Callable, Vector]:
    """Return the B of CG as a function, and b; B is a square matrix or a function."""
    if not hasattr(B, "shape"):
        if not callable(B):
            raise TypeError(f"B must be a matrix or a function, got {described(B)}")
        _check_blocks(b, "b")
        return B, in_dtype(b, "b", None)
    if len(B.shape) == 2 and B.shape[0] != B.shape[1]:
        raise ValueError(f"B must be square, got shape {tuple(B.shape)}")
    product, _, b, _ = operator(B, b)
    return product, b


def in_dtype(x: Vector, name: str, like: Vector | None, real: bool = False) -> Vector:
    """Return a vector in the dtype of ``like``, as real numbers if ``real``.

    Without ``like``, integers become floating point, and other dtypes stay.
    """
    x = _plain(x)
    _check_blocks(x, name)
    blocks = as_tuple(x)
    for t in (t for t in blocks if isinstance(t, Tensor)):
        check_tensor(name, t, dtype=t.dtype)
    first = (blocks if like is None else as_tuple(like))[0]
    if like is not None and {(t.dtype, t.device) for t in blocks} == {
        (first.dtype.to_real() if real else first.dtype, first.device)
    }:
        return x
    given = [_common(**{name: t}) for t in blocks]
    dtype = given[0] if like is None else first.dtype
    dtype = dtype.to_real() if real else dtype
    for t, own in zip(blocks, given, strict=True):
        if own.is_complex and not dtype.is_complex:
            raise TypeError(f"{name} must be real, of {dtype}, got {own}")
        _check_device(name, t, first)
    if isinstance(x, tuple | list):
        return tuple(_cast(t, dtype) for t in x)
    return _cast(x, dtype)


def vector_like(
    right: Vector, name: str, x: Vector | None, real: bool = False
) -> Vector | None:
    """Return a vector in the dtype of another, or None; it must have its blocks."""
    if x is None:
        return None
    x = in_dtype(x, name, right, real)
    if isinstance(x, tuple | list) != isinstance(right, tuple | list):
        raise TypeError(
            f"{name} must be a tuple where the vectors of the system are tuples, and "
            f"one tensor or array where they are, got {described(x)}"
        )
    shapes = [[tuple(t.shape) for t in as_tuple(v)] for v in (x, right)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{name} must have the shapes {shapes[1]}, got {shapes[0]}")
    return x


def check_dtype(x: Vector, name: str, b: Vector) -> None:
    """Raise a TypeError unless all blocks have b's dtype, to form one tensor."""
    _check_blocks(x, name)
    dtype = as_tuple(b)[0].dtype
    for t in (*as_tuple(x), *as_tuple(b)):
        if t.dtype != dtype:
            raise TypeError(f"{name} has dtype {t.dtype}, but b has {dtype}")


def _plain(x):
    """Return the array of a pandas frame or series, and anything else unchanged."""
    return x.to_numpy() if hasattr(x, "to_numpy") else x


def _check_blocks(x, name):
    """Raise a TypeError unless x is a tensor, an array or a tuple of these."""
    blocks = x if isinstance(x, tuple | list) else (x,)
    wrong = [t for t in blocks if not isinstance(t, Tensor | np.ndarray)]
    if wrong or not blocks:
        what = described(wrong[0]) if wrong else "none"
        raise TypeError(
            f"{name} must be a tensor, a NumPy array or a tuple of these, got {what}"
        )


def _common(**given) -> torch.dtype:
    """Return the common floating-point dtype, or raise a TypeError if there is none.

    Integers take the dtype of the others, or float64 if there are no others.
    """
    dtypes = {name: _dtype(name, x) for name, x in given.items()}
    dtypes = {name: dtype for name, dtype in dtypes.items() if dtype is not None}
    if len({dtype.to_real() for dtype in dtypes.values()}) > 1:
        words = ", but ".join(f"{name} has {dtype}" for name, dtype in dtypes.items())
        raise TypeError(f"both must have the same precision: {words}")
    real = [dtype.to_real() for dtype in dtypes.values()] or [torch.float64]
    is_complex = any(dtype.is_complex for dtype in dtypes.values())
    return real[0].to_complex() if is_complex else real[0]


def _dtype(name, x) -> torch.dtype | None:
    """Return the dtype as torch's, or None for integers or if x has no dtype."""
    dtype = getattr(x, "dtype", None)
    if dtype is not None and not isinstance(dtype, torch.dtype):
        with suppress(TypeError):  # torch has no such dtype
            dtype = torch.from_numpy(np.empty(0, dtype)).dtype
    if dtype in FLOATING:
        return dtype
    whole = isinstance(dtype, torch.dtype)
    whole = whole and not (dtype.is_floating_point or dtype.is_complex)
    if not (dtype is None or whole):
        raise TypeError(
            f"{name} must hold numbers of 32 or 64 bits, real, complex or integer, got "
            f"{dtype}"
        )
    return None


def _check_device(name, x, like):
    """Raise a ValueError if a tensor is on another device."""
    if isinstance(x, Tensor) and isinstance(like, Tensor) and x.device != like.device:
        raise ValueError(f"{name} must be on {like.device}, got {x.device}")


def _cast(x, dtype: torch.dtype):
    """Return a tensor or an array in a dtype, or itself if it has that dtype."""
    if isinstance(x, Tensor):
        return x.to(dtype)
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    return x if x.dtype == kind else x.astype(kind)


def _check_squarable(damping, dtype):
    """Raise a ValueError if the square of the damping overflows the dtype."""
    most = torch.finfo(dtype).max ** 0.5
    if damping > most:
        raise ValueError(
            f"damping must be at most {most:.2g} in {dtype}, for it is squared, got "
            f"{damping:g}"
        )
