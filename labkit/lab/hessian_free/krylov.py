"""LSMR beside CG, iteration by iteration, on a subproblem frozen in a training."""

from collections.abc import Iterator
from functools import partial

import torch

from labkit import hessian_free as hf
from labkit.hessian_free.train import draw
from labkit.hessian_free.vectors import Blocks, add, dot
from labkit.lab.hessian_free.training import Training
from labkit.lab.problem import seeded
from labkit.theorems.hessian_free import normal_map, normal_rhs

EXACT = 700  # iterations of LSMR that count as a solution


def freeze(training: Training, size: int, damping: float) -> hf.Subproblem:
    """Return what a training would solve next on a batch drawn anew, from zero.

    Parameters
    ----------
    training : Training of an image problem
    size : int, rows of the batch
    damping : float, lambda
    """
    batch, _ = draw(training.problem.fit.inputs, None, size, generator=seeded(500))
    weights = tuple(p.detach().clone() for p in training.net.parameters())
    point = hf.linearise(training.net, batch, weights=weights)
    scale = hf.diagonal_preconditioner(
        point, "random_signs", damping=damping, generator=seeded(0, batch.device)
    )
    start = tuple(map(torch.zeros_like, weights))
    return hf.Subproblem(point, scale, start, hf.LSMROptions(damping=damping))


def model_value(problem: hf.Subproblem, d: Blocks) -> float:
    """Return CG's model |A d - b|^2 / 2 - |b|^2 / 2 + lambda^2 |d|^2 / 2."""
    gradient = add(normal_map(problem, d), -2.0, normal_rhs(problem))
    return float(0.5 * dot(d, gradient))


def gradient_norm(problem: hf.Subproblem, d: Blocks) -> float:
    """Return |(A'A + lambda^2 I) d - A'b|, which LSMR minimises."""
    gradient = add(normal_map(problem, d), -1.0, normal_rhs(problem))
    return float(dot(gradient, gradient).sqrt())


def side_by_side(problem: hf.Subproblem) -> Iterator[dict[str, Blocks]]:
    """Yield the iterate d of each method after each iteration, by its name.

    CG works on the stated problem with the preconditioner M = c^-2, which spans the
    same spaces as LSMR's d = c o y.
    """
    M = None if problem.scale is None else tuple(c**-2 for c in problem.scale)
    B, b = partial(normal_map, problem), normal_rhs(problem)
    cg = hf.cg_steps(B, b, problem.x0, M)
    for ours, theirs in zip(hf.lsmr_steps(problem.system()), cg, strict=False):
        yield {"LSMR": ours.x, "CG": theirs.x}
        if ours.exhausted:
            return


def krylov_rows(problem: hf.Subproblem, training: Training) -> Iterator[dict]:
    """Yield a row for each iteration: three measures of each method's iterate.

    The merit is f of the validation rows at w + d.
    """
    exact = problem.solve(atol=1e-10, maxiter=EXACT).x
    least, held = model_value(problem, exact), training.problem.tune.inputs
    for k, pair in enumerate(side_by_side(problem)):
        row = {"k": k}
        for name, d in pair.items():
            row[f"value {name}"] = 1 - model_value(problem, d) / least
            row[f"gradient {name}"] = gradient_norm(problem, d)
            weights = add(problem.point.weights, 1.0, d)
            error = hf.squared_error(training.net, held, weights=weights)
            row[f"merit {name}"] = float(error) / 2
        yield row
