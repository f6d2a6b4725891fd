"""Compute the cost of a step of an online learner by formula."""

from collections.abc import Callable
from dataclasses import dataclass

from labkit.check import COUNT, check_kind, check_options


@dataclass(frozen=True)
class Cost:
    """The cost of one step of a learner, with its gradient, and of its memory."""

    flops: int  # per step of the whole batch; a multiplication and an addition are 2
    bytes: int  # the estimator that is carried from step to step, whole batch


def cost(
    count: Callable[[int, int, int, int, int], tuple[int, int]],
    *,
    hidden: int,
    inputs: int,
    blocks: int = 2,
    parts: int = 1,
    batch: int = 1,
    rank: int = 1,
    dtype_bytes: int = 4,
) -> Cost:
    """Compute the operations per step and bytes of storage of an online learner.

    ValueError if a size is not a positive integer.

    Parameters
    ----------
    count : callable
        The learner's formula, such as ``labkit.rtrl.LEARNERS["OK"].count``: from n, m,
        K, P, r to operations and to numbers carried, both per sequence. m is
        n + ``inputs`` + 1.
    hidden, inputs : int, n and d_x
    blocks, parts : int, K and P of the cell: RNN 1, 1; RHN 2, 1; LSTM 4, 2
    batch : int, sequences
    rank : int, r: terms, copies, or steps of a window
    dtype_bytes : int, of one number

    Notes
    -----
    The formulas' source: Benzing et al. 2019, Table 1, for K = 1 and m = n: memory n^3,
    r n^2, n^2, r n, T n and time n^4, r n^3, n^2, r n^2, n^2 per step (T n^2 per update
    of truncated back-propagation) of RTRL, OK and KF-RTRL-AVG, UORO, KTP, TBPTT. The
    constants are counted from the step functions.

    Examples
    --------
    >>> def terms(n, m, K, P, r):
    ...     return 2 * m * K * n, r * (m + K * n)
    >>> cost(terms, hidden=10, inputs=5, rank=3)
    Cost(flops=640, bytes=432)
    """
    sizes = {
        "hidden": hidden,
        "inputs": inputs,
        "blocks": blocks,
        "parts": parts,
        "batch": batch,
        "rank": rank,
        "dtype_bytes": dtype_bytes,
    }
    check_options(sizes, dict.fromkeys(sizes, COUNT))
    check_kind("count", count, Callable, "a function of n, m, K, P and r")
    flops, numbers = count(hidden, hidden + inputs + 1, blocks, parts, rank)
    return Cost(batch * flops, batch * numbers * dtype_bytes)
