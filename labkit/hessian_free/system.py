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

from labkit.hessian_free.flat import Space, norm
from labkit.hessian_free.operators import check_dtype, check_floating, operator
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
    fresh: bool = False  # A gives new memory

    def forward(self, v: Tensor) -> Tensor:
        """K v, in new memory."""
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
        """K'u / beta, in new memory; beta is a scalar beside u."""
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
            return d, u, self.transpose(u, u.new_ones(*u.shape[:-1], 1))
        return d, u, self.At_b * (1.0 if self.scale is None else self.scale)

    def size(self, x):
        """|x / c| of an iterate, read, or |b|; numbers, or arrays (k,)."""
        if x is None:
            x = self.b
        else:
            x = self.space.flat(x)
            x = x if self.scale is None else x / self.scale
        found = norm(x)
        return found.item() if found.ndim == 1 else found[:, 0].double().cpu().numpy()

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
        space=space,
        fresh=matrix,
        **form,
    )
