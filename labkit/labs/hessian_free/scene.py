"""Mini-batch overfitting: a batch solved too well, and a loop that does so by turns."""

import pandas as pd

from labkit.hessian_free import (
    DivergedError,
    HessianFree,
    MartensHF,
    squared_error,
    train_martens,
)
from labkit.labs.hessian_free.problems import Problem


def same_batch(problem: Problem, *, rows=30, steps=30, seed=0):
    """Gauss-Newton steps on one small batch, over and over.

    No merit function, no fresh rows: the Krylov method stops by its budget alone.

    Returns
    -------
    DataFrame by step: squared error per image on the batch and on all training rows.
    """
    net, _ = problem.network(seed)
    optimizer = HessianFree(net, damp=1.0, drop=0.8, maxiter=60)
    batch = problem.train[:rows]
    found = []
    for step in range(1, steps + 1):
        done = optimizer.step(batch)
        found.append(
            {
                "step": step,
                "the batch": 2 * done.loss_after,
                "all training rows": float(squared_error(net, problem.train)),
            }
        )
    return pd.DataFrame(found).set_index("step")


def chunk_by_chunk(problem: Problem, *, steps=60, chunks=None, seed=0):
    """Martens' method with everything taken on the chunk.

    Returns
    -------
    DataFrame by step: error on the chunk before and after its step, and on all rows;
    lambda; it ends where training diverges.
    """
    net, g = problem.network(seed)
    records = train_martens(
        *(net, MartensHF(net, damp=problem.martens_damp), problem.train),
        validation=problem.valid,
        chunks=chunks or problem.chunks,
        gradient="batch",
        steps=steps,
        generator=g,
    )
    found = []
    try:
        for r in records:
            found.append(
                {
                    "step": r.step,
                    "its chunk, before": r.batch_error,
                    "its chunk, after": r.batch_error_after,
                    "all training rows": float(squared_error(net, problem.train)),
                    "lambda": r.damp,
                }
            )
    except (DivergedError, FloatingPointError):
        pass
    return pd.DataFrame(found).set_index("step")
