"""The picture of notebook 03: Hessian-free on two weights, in the bowl of a batch."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from labkit import hessian_free as hf
from labkit.hessian_free.batch_size import (
    batch_gradient_variance,
    grow,
    next_batch_size,
)
from labkit.hessian_free.cg import cg_steps
from labkit.hessian_free.lsmr import lsmr_steps
from labkit.hessian_free.optimizer import KINDS
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.planes import (
    GHOST,
    arrow,
    contours,
    ellipse,
    path,
    planes,
    put,
)
from labkit.lab.panels.figures.theme import COLOURS, INK, colour_of
from labkit.lab.problem import seeded

ROWS, TRUE, START = 400, (1.2, -0.6), (-1.4, 1.6)
WIDE, GRID = 3.0, 31  # of the plane of the weights
MIX = ((1.2, 0.7), (0.0, 0.5))  # of the inputs, which makes a valley
STEP = colour_of("Hessian-free")
OTHERS = 8  # batches besides the one of the step
LEVELS = 0.3, 1.0  # of the bowl, as shares of its depth


@dataclass(frozen=True)
class BowlKnobs:
    """The knobs; here a step does not change the damping."""

    # fmt: off
    n: int = knob(
        20, low=2, high=400, unit="rows", label="batch", restart=False, about="spread",
        help="of 400, drawn anew for each step",
        look_for="Do the faint bowls of other batches draw together?")
    damping: float = knob(
        0.1, low=0.01, high=3.0, log=True, label="damping lambda", restart=False,
        about="length of the step", help="of the step",
        look_for="Is the bowl rounder, and the step shorter?")
    noise: float = knob(
        0.3, low=0.0, high=1.0, step=0.05, unit="sd", help="on the targets",
        about="spread",
        look_for="At how many rows do the bowls agree under noise?")
    theta: float = knob(
        0.0, low=0.0, high=0.95, step=0.05, restart=False, about="batch",
        help="noise tolerated; at 0 the batch does not grow",
        look_for="At 0.3: how far does the batch grow from step six on?")
    preconditioner: str = knob(
        "none", choices=KINDS, help="of LSMR; CG has none", restart=False,
        look_for="Is the first iterate of LSMR elsewhere? Is the last?")
    seed: int = knob(0, low=0, high=99, help="of data and batches",
                     look_for="Other batches: do the steps point elsewhere?")
    # fmt: on


class Bowl(NamedTuple):
    """One step from the weights, on one batch; directions are from the weights."""

    weights: np.ndarray  # (2,)
    loss: np.ndarray  # (GRID, GRID), of all rows
    curvature: np.ndarray  # (2, 2) of the damped quadratic
    lowest: np.ndarray  # (2,) where it is least
    depth: float  # by which the quadratic falls from the weights to there
    lsmr: np.ndarray  # (k, 2), from 0
    cg: np.ndarray  # (k, 2), from 0
    step: np.ndarray  # (2,), the change of the weights
    others: tuple[tuple[np.ndarray, np.ndarray, float], ...]  # curvature, lowest, depth
    path: np.ndarray  # (steps, 2)


def unit(weights: tuple[float, float]) -> nn.Sequential:
    """Return a network of two inputs and one tanh unit."""
    layer = nn.utils.skip_init(nn.Linear, 2, 1, bias=False)  # draws no numbers
    made = nn.Sequential(layer, nn.Tanh()).double()
    with torch.no_grad():
        made[0].weight.copy_(torch.tensor([weights]))
    return made


def bowl_of(problem: hf.Subproblem) -> tuple[np.ndarray, np.ndarray, float]:
    """Return curvature, lowest point and depth of a subproblem with two unknowns.

    The columns of the curvature are its map of the two unit vectors.
    """
    columns = torch.eye(2, dtype=torch.float64)[:, None]
    B = torch.cat([problem.normal_map((e,))[0] for e in columns])
    lowest = torch.linalg.solve(B, problem.normal_rhs()[0][0])
    return B.numpy(), lowest.numpy(), -problem.model_value((lowest[None],))


def iterates(problem: hf.Subproblem, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return the iterates of LSMR and of CG on a problem, (k, 2), the start first."""
    lsmr = [s.x[0][0].clone() for s in lsmr_steps(problem.system(), maxiter=count)]
    start = tuple(torch.zeros_like(x) for x in problem.x0)
    maps = problem.normal_map, problem.normal_rhs(), start
    cg = [s.x[0][0] for s in cg_steps(*maps, maxiter=count)]
    return torch.stack(lsmr).numpy(), torch.stack(cg).numpy()


def data(knobs: BowlKnobs) -> tuple[Tensor, Tensor]:
    """Return rows (n, 2), and targets (n, 1) of the true weights with noise."""
    g, f64 = seeded(knobs.seed), torch.float64
    X = torch.randn(ROWS, 2, generator=g, dtype=f64) @ torch.tensor(MIX, dtype=f64)
    noise = torch.randn(ROWS, 1, generator=g, dtype=f64)
    return X, unit(TRUE)(X).detach() + knobs.noise * noise


def surface(model: nn.Module, X: Tensor, Y: Tensor) -> np.ndarray:
    """Return the squared error of all rows over the plane of the weights."""
    ticks = torch.linspace(-WIDE, WIDE, GRID, dtype=torch.float64)
    points = torch.cartesian_prod(ticks, ticks)[:, None]
    errors = [hf.squared_error(model, X, Y, weights=(w,)) for w in points]
    return torch.stack(errors).view(GRID, GRID).T.numpy()


def bowl_rows(knobs: BowlKnobs) -> Iterator[dict]:
    """Yield a row for each step: its bowl, those of other batches, and the step."""
    X, Y = data(knobs)
    model, g = unit(START), seeded(knobs.seed)
    newton = hf.HessianFree(
        model,
        damping=knobs.damping,
        gamma=0.0,
        maxiter=20,
        generator=seeded(knobs.seed),
    )
    group, loss = newton.param_groups[0], surface(model, X, Y)
    points, estimates, errors, grown = [np.array(START)], [], [], 0
    for step in count(1):
        group["damping"] = knobs.damping
        group["preconditioner"] = knobs.preconditioner
        n = max(knobs.n, grown if knobs.theta else 0)
        batches = [torch.randperm(ROWS, generator=g)[:n] for _ in range(OTHERS + 1)]
        mine, *others = [(X[rows], Y[rows]) for rows in batches]
        signs = newton.generator.get_state()
        beside = tuple(bowl_of(newton.subproblem(*each)) for each in others)
        newton.generator.set_state(signs)
        problem = newton.subproblem(*mine)
        newton.generator.set_state(signs)
        paths = iterates(problem)
        record = newton.step(*mine)
        points.append(model[0].weight.detach()[0].numpy().copy())
        taken = points[-1] - points[-2]
        error = float(hf.squared_error(model, X, Y))
        if knobs.theta:  # Algorithm 1, with the error of all rows as validation
            noise = batch_gradient_variance(record.point)
            estimates.append(next_batch_size(*noise, ROWS, knobs.theta))
            errors.append(error)
            grown = grow(n, group["maxiter"], estimates, errors, ROWS).n
        lowest = np.stack([low for _, low, _ in beside])
        drawn = points[-2], loss, *bowl_of(problem), *paths, taken, beside
        yield {
            "step": step,
            "batch": n,
            "rho": record.rho,
            "length of the step": float(np.linalg.norm(taken)),
            "error": error,
            "spread": float(np.sqrt(np.trace(np.cov(lowest.T)))),
            "pictures": Bowl(*drawn, np.stack(points)),
        }


CAPTION = (
    "Grey lines are the loss of all rows. The damped bowl of this batch lies round its "
    "lowest point; faint bowls are those of other batches of the same size: they draw "
    "together as the batch grows. With two weights both methods arrive in two iterates."
)


def picture(now: Bowl | None, before: Bowl | None) -> dict:
    """Draw the plane of the two weights, as a whole and near the present weights."""
    near = whole = ((-WIDE, WIDE),) * 2
    if now:
        reach = 1.5 * max(*np.abs(now.lsmr).ravel(), *np.abs(now.cg).ravel(), 0.1)
        near = [(max(w - reach, -WIDE), min(w + reach, WIDE)) for w in now.weights]
    figure = planes(
        ["Loss of all rows, and the way so far", "The bowl of this batch"],
        ["first weight", "first weight"],
        ["second weight", "second weight"],
        [whole, near],
        caption=CAPTION,
    )
    if now:
        put(figure, 0, [path(now.path, INK, "steps so far", marks=True)])
        for column in (0, 1):
            put(figure, column, _traces(now))
    if before:
        put(figure, 0, [path(before.path, GHOST, "an earlier run", marks=True)])
    return figure


def _traces(now: Bowl) -> list[dict]:
    ticks = np.linspace(-WIDE, WIDE, GRID)
    drawn = [contours(ticks, ticks, now.loss, "loss of all rows")]
    for i, (curvature, lowest, depth) in enumerate(now.others):
        name, tint = "" if i else "bowls of other batches", COLOURS[5]
        spread = 2 * LEVELS[0] * depth * np.linalg.inv(curvature)
        edge = ellipse(now.weights + lowest, spread, 1.0, tint, name, width=1)
        drawn.append(edge | {"opacity": 0.6})
    for level in LEVELS:
        spread = 2 * level * now.depth * np.linalg.inv(now.curvature)
        name = "" if level < 1 else "bowl of this batch"
        at = now.weights + now.lowest
        drawn.append(ellipse(at, spread, 1.0, COLOURS[0], name))
    for name, way, dash in (("CG", now.cg, "dash"), ("LSMR", now.lsmr, "solid")):
        colour = colour_of(name)
        drawn.append(path(now.weights + way, colour, name, marks=True, dash=dash))
    drawn.append(arrow(now.weights, now.weights + now.step, STEP, "step taken"))
    return drawn


def _status(row) -> str:
    return (
        "error {error:.4f}, batch of {batch} rows; other batches' lowest points lie "
        "{spread:.2g} apart; rho {rho:.2g}"
    ).format_map(row)


BOWL = Experiment(
    "bowl",
    BowlKnobs,
    bowl_rows,
    (),
    CAPTION,
    _status,
    front=("n", "theta", "damping"),
    playable={"n": (20, 100)},
    picture=picture,
)
