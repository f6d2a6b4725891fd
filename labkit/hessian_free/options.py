"""Options as frozen dataclasses, each field with its default and its range."""

from dataclasses import dataclass, field, fields
from typing import Any

from labkit.check import (
    COUNT,
    INSIDE,
    NOT_NEGATIVE,
    SHARE,
    YES_OR_NO,
    Range,
    check_options,
    integer,
    number,
    one_of,
    optional,
)

DAMPING_NORMS = ("identity", "scaled")
DAMP_TOWARDS = ("zero", "start")
KINDS = ("random_signs", "fisher", "jacobi", "none")  # of preconditioners
MOST = 1e18  # damping, which is squared: float32 holds the square
DAMPING = number(
    "> 0 and at most 1e18, for it is squared", lambda value: 0 < value <= MOST
)


def option(default: object, allowed: Range) -> Any:
    """Return the field of an option, which :class:`Options` checks."""
    return field(default=default, metadata={"range": allowed})


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options by name; a value out of its range is a ValueError."""

    def __post_init__(self) -> None:
        check_options(
            vars(self), {each.name: each.metadata["range"] for each in fields(self)}
        )


@dataclass(frozen=True, kw_only=True)
class LSMROptions(Options):
    """The options of :func:`labkit.hessian_free.lsmr`, which says what each does."""

    damping: float = option(0.0, NOT_NEGATIVE)
    damping_norm: str = option("identity", one_of(DAMPING_NORMS))
    damp_towards: str = option("zero", one_of(DAMP_TOWARDS))
    atol: float = option(1e-6, NOT_NEGATIVE)
    ftol: float = option(1e-5, NOT_NEGATIVE)
    maxiter: int | None = option(None, optional(COUNT))
    miniter: int = option(50, integer(0))
    patience: int = option(100, integer(0))
    as_published: bool = option(False, YES_OR_NO)


@dataclass(frozen=True, kw_only=True)
class HessianFreeOptions(LSMROptions):
    """The options of :class:`labkit.hessian_free.HessianFree`."""

    damping: float = option(1.0, DAMPING)
    damping_decay: float = option(0.9, INSIDE)
    gamma: float = option(0.7, SHARE)
    preconditioner: str = option("random_signs", one_of(KINDS))
    maxiter: int = option(150, COUNT)
    alpha: float = option(1e-4, INSIDE)


@dataclass(frozen=True, kw_only=True)
class CGOptions(Options):
    """The options of :func:`labkit.hessian_free.cg`."""

    maxiter: int = option(250, COUNT)
    tolerance: float = option(5e-4, NOT_NEGATIVE)


@dataclass(frozen=True, kw_only=True)
class MartensOptions(CGOptions):
    """The options of :class:`labkit.hessian_free.MartensHF`."""

    damping: float = option(45.0, DAMPING)
    damping_decay: float = option(2 / 3, INSIDE)
    alpha: float = option(0.01, INSIDE)
