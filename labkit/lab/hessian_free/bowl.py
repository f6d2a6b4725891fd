"""The picture of notebook 03: Hessian-free on two weights, in the bowl of a batch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
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
from labkit.hessian_free.preconditioner import KINDS
from labkit.lab.hessian_free.krylov import model_value, normal_map, normal_rhs
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.planes import (
    GHOST,
    arrow,
    contours,
    dots,
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
OTHERS = 60  # batches besides the one of the step
SIZES = 5, 10, 20, 40, 80, 160, 320  # of batches whose lowest points are compared
LEVELS = 0.3, 1.0  # of the bowl, as shares of its depth
OTHER = COLOURS[5]  # of other batches
NAMED = "bowl of this batch", "CG", "LSMR", "other batches"  # in the legend
NEAR = 1.5  # half-width of the plane of the lowest points
RADIUS = 2.4477  # of the ellipse that holds 95 % of a normal law in the plane


@dataclass(frozen=True)
class BowlKnobs:
    """The knobs; here a step does not change the damping."""

    # fmt: off
    n: int = knob(
        20, low=2, high=400, unit="rows", label="batch", restart=False,
        about="the spread of the lowest points: spread",
        log=True, help="of 400, drawn anew for each step",
        look_for="Four times the rows: is the ellipse half as large?")
    damping: float = knob(
        0.1, low=0.01, high=3.0, log=True, label="damping lambda", restart=False,
        about="the length of the step: length of the step", help="of the step",
        look_for="Is the bowl rounder, and the step shorter?")
    noise: float = knob(
        0.3, low=0.0, high=1.0, step=0.05, unit="sd", help="on the targets",
        about="the spread of the lowest points: spread",
        look_for="How many rows make the ellipse as small as it was?")
    theta: float = knob(
        0.0, low=0.0, high=0.95, step=0.05, restart=False, about="the batch: batch",
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
    others: np.ndarray  # (OTHERS, 2) where the quadratics of other batches are least
    sizes: np.ndarray  # (sizes, 2) rows of a batch, and the spread; the last is this
    path: np.ndarray  # (steps, 2)


def unit(weights: tuple[float, float]) -> nn.Sequential:
    """Return a network of two inputs and one tanh unit."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):  # skip_init imports sympy
        made = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Tanh()).double()
        made[0].weight.copy_(torch.tensor([weights]))
    return made


def bowl_of(problem: hf.Subproblem) -> tuple[np.ndarray, np.ndarray, float]:
    """Return curvature, lowest point and depth of a subproblem with two unknowns.

    The columns of the curvature are its map of the two unit vectors.
    """
    columns = torch.eye(2, dtype=torch.float64)[:, None]
    B = torch.cat([normal_map(problem, (e,))[0] for e in columns])
    lowest = torch.linalg.solve(B, normal_rhs(problem)[0][0])
    return B.numpy(), lowest.numpy(), -model_value(problem, (lowest[None],))


def iterates(problem: hf.Subproblem, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return the iterates of LSMR and of CG on a problem, (k, 2), the start first."""
    steps = islice(lsmr_steps(problem.system()), count + 1)
    lsmr = [step.x[0][0].clone() for step in steps]
    start = tuple(torch.zeros_like(x) for x in problem.x0)
    cg = cg_steps(partial(normal_map, problem), normal_rhs(problem), start)
    cg = [step.x[0][0] for step in islice(cg, count + 1)]
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
    W = torch.cartesian_prod(ticks, ticks)
    errors = (model[1](X @ W.T) - Y).square().mean(0)  # of many units at once
    return errors.view(GRID, GRID).T.numpy()


def quadratics(
    model: nn.Module, X: Tensor, Y: Tensor, batches: Tensor, damping: float
) -> tuple[Tensor, Tensor]:
    """Return curvature (k, 2, 2) and lowest points (k, 2) of batches (k, n) of rows.

    They are those of :func:`bowl_of`, for all batches at once, with the derivative of
    the one unit written out.
    """
    with torch.no_grad():
        y = model(X)
    J, r = ((1 - y.square()) * X)[batches], (y - Y)[batches]
    n, damped = batches.shape[1], damping**2 * torch.eye(2, dtype=torch.float64)
    B = J.mT @ J / n + damped
    return B, torch.linalg.solve(B, -J.mT @ r / n)[..., 0]


def spread_of(lowest: Tensor) -> float:
    """Return the root of the mean squared distance of points (k, 2) from their mean."""
    return float(lowest.var(0).sum().sqrt())


def draw(generator: torch.Generator) -> Tensor:
    """Draw orders of all rows; the first n of each are a batch."""
    return torch.rand(OTHERS + 1, ROWS, generator=generator).argsort(1)


def beside_of(
    model: nn.Module, X: Tensor, Y: Tensor, orders: Tensor, n: int, damping: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``others`` and ``sizes`` of a `Bowl`, for batches of n rows."""
    sizes = [size for size in SIZES if size != n] + [n]
    there = [quadratics(model, X, Y, orders[:, :k], damping)[1] for k in sizes]
    return there[-1].numpy(), np.array(
        [*zip(sizes, map(spread_of, there), strict=True)]
    )


def bowl_rows(knobs: BowlKnobs) -> Iterator[dict]:
    """Yield a row for each step: its bowl, other batches' lowest points, the step."""
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
        orders = draw(g)
        mine = X[orders[0, :n]], Y[orders[0, :n]]
        beside = beside_of(model, X, Y, orders[1:], n, knobs.damping)
        signs = newton.generator.get_state()
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
        drawn = points[-2], loss, *bowl_of(problem), *paths, taken, *beside
        yield {
            "step": step,
            "batch": n,
            "rho": record.rho,
            "length of the step": float(np.linalg.norm(taken)),
            "error": error,
            "spread": beside[1][-1, 1],
            "pictures": Bowl(*drawn, np.stack(points)),
        }


def opening(knobs: BowlKnobs) -> Bowl:
    """Return the bowls before the first step, and no way into them."""
    X, Y = data(knobs)
    model, orders = unit(START), draw(seeded(knobs.seed))
    B, lowest = quadratics(model, X, Y, orders[:1, : knobs.n], knobs.damping)
    bowl = B[0].numpy(), lowest[0].numpy(), float(lowest[0] @ B[0] @ lowest[0]) / 2
    beside = beside_of(model, X, Y, orders[1:], knobs.n, knobs.damping)
    at, none = np.array(START), np.zeros((0, 2))
    ways = none, none, np.zeros(2)
    return Bowl(at, surface(model, X, Y), *bowl, *ways, *beside, at[None])


CAPTION = (
    "Loss: that of all rows, with the damped bowl of this batch and the step. Lowest "
    "points, from near: dots are those of other batches of this size, and the ellipse "
    "holds 95 % of them. Their spread falls as 1/sqrt(n), dotted, and faster where "
    "batches share most rows. Both methods arrive in two iterates."
)


def picture(now: Bowl | None, before: Bowl | None) -> dict:
    """Draw the plane of the two weights, the lowest points, and their spread."""
    figure = planes(
        ["Loss, and the way so far", "Lowest points", "Spread by batch"],
        ["first weight", "first weight, off their middle", "rows n of a batch"],
        ["second weight", "second weight", "spread"],
        [((-WIDE, WIDE),) * 2, ((-NEAR, NEAR),) * 2, ((0, 1), (0, 1))],
        caption=CAPTION,
        widths=[0.37, 0.37, 0.26],
    )
    for name, ends in {"xaxis3": (2, ROWS), "yaxis3": (0.01, 10)}.items():
        look = {"type": "log", "range": np.log10(ends).tolist(), "tickformat": "~g"}
        figure["layout"][name] |= look | {"dtick": 1}
    if now:
        ticks = np.linspace(-WIDE, WIDE, GRID)
        drawn = [contours(ticks, ticks, now.loss, "loss of all rows")]
        drawn.append(path(now.path, INK, "steps so far", marks=True))
        drawn += _bowl(now, now.weights)
        put(figure, 0, [trace | {"showlegend": False} for trace in drawn])
        drawn = _bowl(now, -now.others.mean(0)) + _others(now)
        put(
            figure,
            1,
            [trace | {"showlegend": trace["name"] in NAMED} for trace in drawn],
        )
        put(figure, 2, [t | {"showlegend": False} for t in _sizes(now)])
    if before:
        ghost = path(before.path, GHOST, "an earlier run", marks=True)
        put(figure, 0, [ghost])
    return figure


def _bowl(now: Bowl, origin: np.ndarray) -> list[dict]:
    """Draw the bowl of this batch, both methods' ways into it, and the step."""
    drawn = []
    for level in LEVELS:
        spread = 2 * level * now.depth * np.linalg.inv(now.curvature)
        name = "" if level < 1 else "bowl of this batch"
        drawn.append(ellipse(origin + now.lowest, spread, 1.0, COLOURS[0], name))
    for name, way, dash in (("CG", now.cg, "dash"), ("LSMR", now.lsmr, "solid")):
        drawn.append(path(origin + way, colour_of(name), name, marks=True, dash=dash))
    if now.step.any():
        drawn.append(arrow(origin, origin + now.step, STEP, "step taken"))
    return drawn


def _others(now: Bowl) -> list[dict]:
    """Draw the lowest points of other batches, and the ellipse that holds most."""
    off = now.others - now.others.mean(0)
    cloud = dots(off, OTHER, "other batches", size=5)
    edge = ellipse((0, 0), np.cov(off.T), RADIUS, OTHER, "95 % of other batches")
    return [cloud, edge]


def _sizes(now: Bowl) -> list[dict]:
    """Draw the spread by the size of a batch, and the law of the root."""
    sizes, mine = now.sizes[now.sizes[:, 0].argsort()], now.sizes[-1]
    n, first = np.array([2.0, ROWS]), sizes[sizes[:, 0] >= SIZES[1]][0]
    law = path(np.c_[n, first[1] * np.sqrt(first[0] / n)], INK, "1/sqrt(n)", dash="dot")
    shown = sizes[sizes[:, 1] > 1e-9]  # of all rows there is one batch
    return [law, path(shown, OTHER, "spread"), dots(mine, OTHER, "this size", size=10)]


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
    opening=opening,
)
