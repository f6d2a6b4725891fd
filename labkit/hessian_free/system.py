r"""The system that :func:`labkit.hessian_free.lsmr` solves, as one operator.

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

With several workers U has the rows of one of them, and everything else is the same on
all: A'U is a sum over the workers, and so is each inner product of two U.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.check import check_tensor, described
from labkit.hessian_free.options import LSMROptions
from labkit.hessian_free.vectors import (
    Space,
    Vector,
    as_tuple,
    check_like,
    flat_norm,
)

DTYPES = torch.float32, torch.float64


@dataclass(frozen=True, eq=False, repr=False)
class System:
    """The problem min |A d - b|^2 + damping^2 |d|^2, d = scale o v, all flat."""

    A: Callable  # flat -> flat, in new memory
    At: Callable  # flat -> flat, likewise, summed over workers
    d: Tensor  # the start d0
    r: Tensor  # b - A d0
    g: Tensor  # A'r
    scale: Tensor | None
    options: LSMROptions
    space: Space  # of d
    workers: object = None  # see labkit.scale

    def forward(self, v: Tensor) -> Tensor:
        """Return K v, in new memory."""
        d, damping = v if self.scale is None else self.scale * v, self.options.damping
        if not damping:
            return self.A(d)
        identity = self.options.damping_norm == "identity"
        u = torch.cat((self.A(d), d if identity else v))
        u[len(self.r) :].mul_(damping)
        return u

    def transpose(self, u: Tensor, beta: Tensor) -> Tensor:
        """Return K'u / beta, in new memory; beta is (1,)."""
        U, z = u[: len(self.r)], u[len(self.r) :]
        return self._transposed(self.At(U / beta), z, beta)

    def _transposed(self, g: Tensor, z: Tensor, beta: Tensor) -> Tensor:
        """Return K'(U, z) / beta in the place of g = A'U / beta."""
        damping = self.options.damping
        identity = self.options.damping_norm == "identity"
        if damping and identity:
            g.addcdiv_(z, beta, value=damping)
        if self.scale is not None:
            g.mul_(self.scale)
        if damping and not identity:
            g.addcdiv_(z, beta, value=damping)
        return g

    def start(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return a copy of d0, the residual u of K there, and K'u."""
        options = self.options
        z = self.d * (-options.damping if options.damp_towards == "zero" else 0.0)
        if options.damping_norm == "scaled" and self.scale is not None:
            z = z / self.scale
        u = torch.cat((self.r, z)) if options.damping else self.r
        return self.d.clone(), u, self._transposed(self.g.clone(), z, u.new_ones(1))

    def dot(self, u: Tensor, w: Tensor) -> Tensor:
        """Return <u, w>, (1,), over the rows of all workers."""
        both = u * w
        rows = both[: len(self.r)].sum()[None]
        if self.workers is not None:
            (rows,) = self.workers.sum([rows])
        return rows + both[len(self.r) :].sum()

    def norm(self, u: Tensor) -> Tensor:
        """Return |u|, (1,)."""
        return flat_norm(u) if self.workers is None else self.dot(u, u).sqrt()


def build_system(
    A: Tensor | Callable,
    b: Vector,
    *,
    At: Callable | None = None,
    x0: Vector | None = None,
    scale: Vector | None = None,
    workers: object = None,
    options: LSMROptions | None = None,
    **given: object,
) -> System:
    """Check the arguments of :func:`labkit.hessian_free.lsmr` and build its system.

    With ``workers``, b and A x are one worker's rows, and At sums over all workers.
    """
    options = options or LSMROptions(**given)
    blocks = as_tuple(b)
    check_tensor("b", blocks[0], dtype=DTYPES)
    for block in blocks[1:]:
        check_tensor("b", block, like=blocks[0])
    if isinstance(A, Tensor):
        if At is not None:
            raise TypeError(f"At must be None where A is a matrix, got {described(At)}")
        check_tensor("A", A, shape=("m", "n"), like=blocks[0])
        check_tensor("b", b, shape=A.shape[:1], like=A)
        if x0 is not None:
            check_tensor("x0", x0, shape=A.shape[1:], like=A)
        A, At = A.mv, A.mT.mv
    if not (callable(A) and callable(At)):
        raise TypeError(
            "A must be a tensor (m, n), or A and At functions: lsmr(A, b, At=At); got "
            f"A: {described(A)} and At: {described(At)}. For arrays, sparse matrices "
            "and LinearOperators there is scipy.sparse.linalg.lsmr"
        )
    if x0 is None:
        like = Space(At(b))
        zeros = blocks[0].new_zeros(sum(like.sizes))
        x0 = like.outside(like.blocks(zeros))
    Ax0 = A(x0)
    check_like("A x", Ax0, b)
    rows, space = Space(b), Space(x0)
    r = rows.flat(b) - rows.flat(Ax0)
    g = At(rows.outside(rows.blocks(r)))
    check_like("A'b", g, x0)
    if scale is not None:
        check_like("scale", scale, x0)
        scale = space.flat(scale)
    return System(
        A=lambda x: rows.flat(A(space.outside(space.blocks(x)))),
        At=lambda u: space.flat(At(rows.outside(rows.blocks(u)))),
        d=space.flat(x0),
        r=r,
        g=space.flat(g),
        scale=scale,
        options=options,
        space=space,
        workers=workers,
    )
