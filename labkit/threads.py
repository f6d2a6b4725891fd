"""The number of threads of torch and BLAS in the notebooks of labkit."""

import os

import torch
from threadpoolctl import threadpool_limits

VARIABLE = "LABKIT_THREADS"
MOST = 1024  # beyond it libraries of BLAS fail or end the process
# read by libraries that are loaded later, and by processes that this one starts
READ_LATER = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def set_threads(count: int = 0) -> None:
    """Set the number of threads of torch and BLAS for this whole process.

    Most of the notebooks' work is on small tensors, which many threads slow down: a
    step of 8-OK took ten times as long on two threads as on one. Every notebook calls
    this in its first cell; importing labkit does not. Large matrices profit: broad
    learning and BPLS on thousands of columns. More threads than this machine has
    processors are not taken: they only wait for one another.

    Parameters
    ----------
    count : int
        0 for ``$LABKIT_THREADS``, or one thread where that is not set.

    Raises
    ------
    ValueError
        If `count` or ``$LABKIT_THREADS`` is no number of threads, at most 1024.
    """
    given = os.environ.get(VARIABLE) or "1"
    plain = given.isascii() and given.isdecimal() and len(given) <= len(str(MOST))
    if not plain or int(given) < 1 or int(given) > MOST:
        raise ValueError(
            f"{VARIABLE} must be an integer above 0 and up to {MOST}, got {given!r}"
        )
    whole = isinstance(count, int) and not isinstance(count, bool)
    if not whole or not 0 <= count <= MOST:
        raise ValueError(f"threads must be 0 to {MOST}, got {count!r}")
    from joblib import cpu_count

    count = min(count or int(given), cpu_count())
    os.environ.update(dict.fromkeys(READ_LATER, str(count)))
    threadpool_limits(count)
    torch.set_num_threads(count)
