"""The number of threads of torch and BLAS in the notebooks of labkit."""

import os

import torch
from threadpoolctl import threadpool_limits

from labkit.check import check_options, integer

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
    if given not in {str(number) for number in range(1, MOST + 1)}:
        raise ValueError(
            f"{VARIABLE} must be an integer above 0 and up to {MOST}, got {given!r}"
        )
    check_options({"threads": count}, {"threads": integer(0, MOST)})
    from joblib import cpu_count

    count = min(count or int(given), cpu_count())
    os.environ.update(dict.fromkeys(READ_LATER, str(count)))
    threadpool_limits(count)
    torch.set_num_threads(count)
