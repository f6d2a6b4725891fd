"""The table of learners: all that labkit knows of a learner stands in its row.

Tests, walks, knobs, tables and costs go over all rows of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from labkit.rtrl.cells import Cell
from labkit.rtrl.exact import RTRL, rtrl_count, rtrl_step
from labkit.rtrl.kronecker import (
    KFRTRL,
    OK,
    kf_approx_count,
    kf_count,
    kf_step,
    ok_count,
    ok_step,
)
from labkit.rtrl.ktp import KTP, ktp_count, ktp_shared_count, ktp_shared_step, ktp_step
from labkit.rtrl.learner import Learner
from labkit.rtrl.rflo import RFLO, rflo_count, rflo_step
from labkit.rtrl.snap import SnAp1, snap1_count, snap1_step
from labkit.rtrl.tbptt import TBPTT, tbptt_count
from labkit.rtrl.uoro import UORO, uoro_count, uoro_step


@dataclass(frozen=True)
class Method:
    """One row: how a learner is made, what it promises, what it costs.

    Attributes
    ----------
    learner : type, subclass of Learner; exported by :mod:`labkit.rtrl`
    step : callable, with the tagged lines; its ``step`` (or ``backward``) runs it
    count : callable
        From n, m, K, P of the cell and the rank r, as defined in
        :mod:`labkit.rtrl.cells`, to two numbers per sequence: the operations of one
        step with its gradient and the forward pass 2 m K n (a multiplication and an
        addition are two), and the numbers carried from step to step. What is of size
        r by r, nonlinearities, and buffers held in order not to allocate are left out.
    rank_argument : str, optional
        Name of the learner's argument that the rank goes to: terms, copies, or the
        steps of a window.
    options : mapping, further arguments
    unbiased : bool, whether the mean of G' over the signs is G, for frozen weights
    exact : bool, whether G' is G
    """

    learner: type[Learner]
    step: Callable
    count: Callable[[int, int, int, int, int], tuple[int, int]]
    rank_argument: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    unbiased: bool = True
    exact: bool = False

    def make(
        self,
        cell: Cell,
        rank: int = 1,
        *,
        batch_size: int,
        generator: torch.Generator | None = None,
    ) -> Learner:
        """Make the learner; a method without a rank takes no notice of it."""
        options = dict(self.options)
        if self.rank_argument:
            options[self.rank_argument] = rank
        return self.learner(cell, batch_size=batch_size, generator=generator, **options)


def label(name: str, rank: int) -> str:
    """What a method of a rank is called in figures and tables: ``8-OK``, ``UORO``."""
    return f"{rank}-{name}" if LEARNERS[name].rank_argument else name


LEARNERS = {
    "OK": Method(OK, ok_step, ok_count, "rank"),
    "B-OK": Method(OK, ok_step, ok_count, "rank", {"biased": True}, unbiased=False),
    "KF-AVG": Method(KFRTRL, kf_step, kf_count, "copies"),
    "KF-APPROX": Method(KFRTRL, kf_step, kf_approx_count, "diagonal_rank"),
    "KTP": Method(KTP, ktp_step, ktp_count, "rank"),
    "KTP-SHARED": Method(
        KTP, ktp_shared_step, ktp_shared_count, "rank", {"shared": True}
    ),
    "UORO": Method(UORO, uoro_step, uoro_count),
    "SNAP-1": Method(SnAp1, snap1_step, snap1_count, unbiased=False),
    "RFLO": Method(RFLO, rflo_step, rflo_count, unbiased=False),
    "RTRL": Method(RTRL, rtrl_step, rtrl_count, exact=True),
    "TBPTT": Method(TBPTT, Cell.vjp, tbptt_count, "horizon", unbiased=False),
}
__all__ = sorted({row.learner.__name__ for row in LEARNERS.values()})
