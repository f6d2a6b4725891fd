"""How many threads torch and BLAS take where a notebook of labkit runs."""

import os

import torch
from threadpoolctl import threadpool_limits

VARIABLE = "LABKIT_THREADS"
# read by libraries that are loaded later, and by processes that this one starts
READ_LATER = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def set_threads(count: int = 0) -> None:
    """Have torch and BLAS take so many threads from now on, in this whole process.

    Most of what the notebooks do is small tensors, which many threads slow down: a
    step of 8-OK took ten times as long on two threads as on one. Every notebook calls
    this in its first cell; importing labkit does not. Large matrices profit: broad
    learning and BPLS on thousands of columns.

    Parameters
    ----------
    count : int
        0 for ``$LABKIT_THREADS``, or one thread where that is not set.

    Raises
    ------
    ValueError
        If `count` is negative, or ``$LABKIT_THREADS`` no integer above 0.
    """
    given = os.environ.get(VARIABLE) or "1"
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"{VARIABLE} must be an integer above 0, got {given!r}")
    if count < 0:
        raise ValueError(f"threads must be 0 or more, got {count}")
    count = count or int(given)
    os.environ.update(dict.fromkeys(READ_LATER, str(count)))
    threadpool_limits(count)
    torch.set_num_threads(count)
