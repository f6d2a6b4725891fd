"""What A of LSMR and B of CG may be, as functions on vectors of the caller's kind.

Tensors, dense or sparse, go with tensors. NumPy arrays, SciPy's sparse matrices and
anything with ``matvec`` and ``rmatvec``, such as a SciPy ``LinearOperator``, go with
NumPy arrays; functions with whatever b is.
"""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from labkit.hessian_free.flat import as_tuple


def operator(A, At, b) -> tuple[Callable, Callable, bool]:
    """A and A' as functions, and whether A is a matrix.

    A matrix's products are new memory; b of a matrix may have columns.
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
        A = np.asarray(A)  # of np.matrix, whose products keep two axes
    T = A.T if own is np.ndarray else A.mT
    return A.__matmul__, T.__matmul__, True


def symmetric(B, b) -> Callable:
    """B of CG as a function: a matrix, square, or a function already."""
    if not hasattr(B, "shape"):
        check_floating(b, "b")
        if not callable(B):
            raise TypeError(f"B must be a matrix or a function, got {type(B).__name__}")
        return B
    product = operator(B, None, b)[0]
    if B.shape[0] != B.shape[1]:
        raise ValueError(f"B must be square, got shape {tuple(B.shape)}")
    return product


def check_floating(x, name) -> None:
    """Refuse what is not tensors, or arrays, of real floating-point numbers."""
    for t in as_tuple(x):
        if not (isinstance(t, Tensor) and t.is_floating_point()):
            kind = t.dtype if isinstance(t, Tensor) else type(t).__name__
            raise TypeError(f"{name} must hold real floating-point tensors, got {kind}")


def check_dtype(x, name, b) -> None:
    """Refuse two dtypes, also of blocks of one vector, which become one tensor."""
    dtype = as_tuple(b)[0].dtype
    for t in (*as_tuple(x), *as_tuple(b)):
        if t.dtype != dtype:
            raise TypeError(f"{name} has dtype {t.dtype}, but b has {dtype}")
