"""LSMR beside CG, iteration by iteration, on subproblems frozen in a training."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import isnan, nan

import torch
from torch import Tensor

from labkit import hessian_free as hf
from labkit.hessian_free.train import draw
from labkit.hessian_free.vectors import Blocks, add, dot
from labkit.lab.hessian_free.live import KrylovKnobs
from labkit.lab.hessian_free.training import Images, Training
from labkit.lab.panels import Experiment, Lines
from labkit.theorems.hessian_free import normal_map, normal_rhs

ROUNDING = 1e-12  # of a share of the model's fall
EXACT = 700  # iterations of LSMR that count as a solution


@dataclass(frozen=True, eq=False)
class Frozen:
    """What the next step of a training would solve on a batch; it does not train on.

    Attributes
    ----------
    problem : Subproblem, without preconditioner
    net : Autoencoder, whose error judges a step
    batch, held : (n, pixels) tensors, the rows of the problem, and validation rows
    """

    problem: hf.Subproblem
    net: hf.Autoencoder
    batch: Tensor
    held: Tensor

    def posed(
        self, damping: float, preconditioner: str = "none", **form: str
    ) -> hf.Subproblem:
        """Return it with another lambda, preconditioner, damping norm or target."""
        problem = self.problem
        g = torch.Generator(problem.b.device).manual_seed(0)
        scale = hf.diagonal_preconditioner(
            problem.point, preconditioner, damping=damping, generator=g
        )
        options = replace(problem.options, damping=damping, **form)
        return problem._replace(scale=scale, options=options)

    def error_after(self, d: tuple[Tensor, ...], rows: Tensor) -> float:
        """Return the squared error per image of some rows at w + d."""
        weights = add(self.problem.point.weights, 1.0, d)
        return float(hf.squared_error(self.net, rows, weights=weights))


def freeze(
    training: Training, problem: Images, after: Sequence[int], size: int = 256
) -> dict[int, Frozen]:
    """Run a training, and freeze what comes after some of its steps.

    Parameters
    ----------
    training : Training of this problem; its records are used up
    problem : Images
    after : sequence of int, numbers of steps
    size : int, rows of each batch, drawn anew
    """
    rows, held, _ = problem.parts.values()
    g, kept = torch.Generator().manual_seed(500), {}
    for record in training.records:
        if record.step in after:
            batch, _ = draw(rows, None, size, generator=g)
            weights = tuple(p.detach().clone() for p in training.net.parameters())
            point = hf.linearise(training.net, batch, weights=weights)
            optimizer = training.optimizer
            options = hf.LSMROptions(damping=optimizer.param_groups[0]["damping"])
            stated = hf.Subproblem(point, None, optimizer.warm_start(), options)
            kept[record.step] = Frozen(stated, training.net, batch, held)
    return kept


def norm(x: Blocks) -> Tensor:
    """Return |x|_2 of blocks, ()."""
    return dot(x, x).sqrt()


def model_value(problem: hf.Subproblem, d: Blocks) -> float:
    """Return CG's model |A d - b|^2 / 2 - |b|^2 / 2 + lambda^2 |d|^2 / 2."""
    gradient = add(normal_map(problem, d), -2.0, normal_rhs(problem))
    return float(0.5 * dot(d, gradient))


def gradient_norm(problem: hf.Subproblem, d: Blocks) -> float:
    """Return |(A'A + lambda^2 I) d - A'b|, which LSMR minimises."""
    return float(norm(add(normal_map(problem, d), -1.0, normal_rhs(problem))))


def side_by_side(problem: hf.Subproblem) -> Iterator[dict[str, tuple[Tensor, ...]]]:
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


@lru_cache(maxsize=32)
def solution(frozen: Frozen, damping: float) -> tuple[Tensor, ...]:
    """Return the exact step, as far as LSMR gets in 700 iterations."""
    return frozen.posed(damping, "random_signs").solve(atol=1e-10, maxiter=EXACT).x


def needed(
    problem: hf.Subproblem, level: float, limit: int = EXACT
) -> dict[str, float]:
    """Return each method's iterations until the model's value is down to a level.

    It is nan for a method that is not there after ``limit`` iterations.
    """
    needed_by = {"LSMR": nan, "CG": nan}
    for k, pair in zip(range(limit + 1), side_by_side(problem), strict=False):
        for name, d in pair.items():
            if isnan(needed_by[name]) and model_value(problem, d) <= level:
                needed_by[name] = k
        if not any(map(isnan, needed_by.values())):
            break
    return needed_by


def krylov_rows(settings: object, kept: Mapping[int, Frozen]) -> Iterator[dict]:
    """Yield a row for each iteration of both; where LSMR would stop is marked."""
    forms = ("preconditioner", "damping_norm", "damp_towards")
    forms = {name: getattr(settings, name) for name in forms}
    frozen = kept[settings.after]
    problem = frozen.posed(settings.damping, **forms)
    exact = solution(frozen, settings.damping)
    least, size = model_value(problem, exact), float(norm(exact))

    def merit(d):
        return frozen.error_after(d, frozen.held)

    stop = problem.solve(merit=merit, maxiter=600, patience=settings.patience)
    for k, pair in enumerate(side_by_side(problem)):
        row = {"step": k, "status": stop.status}
        for name, d in pair.items():
            excess = 1 - model_value(problem, d) / least
            row[f"excess {name}"] = excess if excess > ROUNDING else nan
            row[f"gradient {name}"] = gradient_norm(problem, d)
            row[f"distance {name}"] = float(norm(add(d, -1.0, exact))) / size
            row[f"merit {name}"] = merit(d)
        row["taken"] = row["merit LSMR"] if k == stop.stats.best else nan
        row["stopped"] = row["merit LSMR"] if k == stop.stats.iterations else nan
        yield row


def _panel(what, title, y_title, marks=(), log=True):
    names = {f"{what} LSMR": "LSMR", f"{what} CG": "CG"} | {m: m for m in marks}
    return Lines(names, title, y_title, x_title="iteration", marks=marks, log=log)


_STOPS = ("taken", "stopped")
_CAPTION = (
    "LSMR makes the gradient of the model fall at every iteration and CG its value; "
    "the merit stops falling long before either has solved the system."
)
_STATUS = (
    "iteration {step}: LSMR is {distance LSMR:.2%} and CG {distance CG:.2%} "
    "away from the exact step"
)
KRYLOV = Experiment(
    "krylov",
    KrylovKnobs,
    krylov_rows,
    (
        _panel("excess", "Model value above its least", "share of the fall"),
        _panel("gradient", "Gradient of the model", "norm"),
        _panel("distance", "Distance from the exact step", "relative"),
        _panel("merit", "Merit: validation error of w + d", "error", _STOPS, log=False),
    ),
    _CAPTION,
    _STATUS.format_map,
)
