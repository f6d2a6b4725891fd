"""The live training of notebook 03, and LSMR beside CG on a subproblem frozen in it."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import pandas as pd
import torch

from labkit import hessian_free as hf
from labkit.errors import DivergedError
from labkit.hessian_free.train import draw
from labkit.hessian_free.vectors import Blocks, add, dot
from labkit.lab.books.hessian_free_training import (
    Images,
    PaperSetting,
    Training,
    load_images,
)
from labkit.lab.books.shared import judged, live_knob, noise_knob, seed_knob
from labkit.lab.panels import Experiment, Lines, curves, image_rows, knob
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.measured import Finding, Measurement
from labkit.lab.problem import seeded
from labkit.theorems.hessian_free import normal_map, normal_rhs

IMAGES = 16  # test images whose reconstructions are shown


@dataclass(frozen=True)
class TrainingKnobs:
    """The knobs of SHF while it trains; ``look_for`` describes the digits."""

    # fmt: off
    theta: float = live_knob(
        0.5, low=0.05, high=0.95, step=0.05, unit="relative", about="the batch: n",
        help="noise tolerated in the gradient",
        look_for="The bound of the variance test: a low one soon fills the batch.")
    input_noise: float = noise_knob(
        0.0, restart=False, about="the gradient's noise: noise",
        help="on the next batches; targets stay clean",
        look_for="0.3 at step 20: the noise is six times as high; the batch grows.")
    damping_decay: float = live_knob(
        0.8, low=0.5, high=0.99, step=0.01, unit="factor", about="the damping: damping",
        help="of lambda, at steps that the model predicted well",
        look_for="How fast the damping falls; at 0.99 f is 2.6 after 30 steps.")
    max_batch_size: int = live_knob(
        650, low=2, high=6000, label="largest batch", unit="rows",
        help="at most all training rows",
        look_for="The batch stops growing there; if small, the error stops falling.")
    batch_size: int = knob(
        60, low=2, high=2500, label="first batch", unit="rows",
        help="what a run begins with",
        look_for="Begun with 10 or with 300 rows, it has some hundreds at step 11.")
    damping: float = knob(
        1.0, low=0.01, high=30.0, log=True, label="damping lambda_1",
        help="what a run begins with",
        look_for="At 30 the error falls slowly; at 0.01 it is lower only at first.")
    seed: int = seed_knob(
        help="of weights, batches and noise",
        look_for="How much is chance: seeds 0, 1 and 2 end apart.")
    # fmt: on


def knobs_of(setting: PaperSetting, **changes) -> TrainingKnobs:
    """Return the knobs with the values of a setting, and some changes."""
    knobs = TrainingKnobs(
        theta=setting.theta,
        batch_size=setting.batch_size,
        max_batch_size=setting.max_batch_size,
        damping=setting.damping,
        damping_decay=setting.damping_decay,
    )
    return replace(knobs, **changes)


def training_rows(settings: object, load: Callable[[], Images]) -> Iterator[dict]:
    """Yield a row for each step; a run that is not finite ends with a ``note``.

    ``load()`` returns the problem when a run begins. Errors are f, half the squared
    error of an image.
    """
    problem = load()
    training, images = Training(problem, settings), problem.test.inputs[:IMAGES]
    net, generator = training.net, torch.Generator().manual_seed(settings.seed)
    noise = torch.randn(images.shape, generator=generator, dtype=images.dtype).to(
        images
    )
    step = 0
    while True:
        training.turn(settings)
        try:
            record = next(training.records)
        except (DivergedError, FloatingPointError) as error:
            yield {"step": step + 1, "note": str(error)}
            return
        noisy = images + settings.input_noise * noise
        shown = torch.stack((images, noisy, net(noisy).detach())).cpu().numpy()
        yield _as_row(record) | {"pictures": shown}
        step = record.step


# The fields of a record that a row takes over unchanged, and those that it halves.
_FIELDS = (
    "step",
    "seconds",
    "rows",
    "n",
    "grew",
    "noise",
    "noise_bound",
    "damping",
    "iterations",
    "best",
    "status",
)
_HALVED = ("batch_error", "batch_error_after", "validation_error", "test_error")


def _as_row(record: hf.Record) -> dict:
    """Return a record's numbers."""
    row = {name: getattr(record, name) for name in _FIELDS}
    row |= {name: getattr(record, name) / 2 for name in _HALVED}
    row["rho"] = record.rho if math.isfinite(record.rho) else math.nan
    for reason in ("variance", "stalled"):
        row[f"next, {reason}"] = record.n_next if record.grew == reason else math.nan
    return row


def _training_status(row) -> str:
    if "note" in row:
        return row["note"]
    text = "n = {n}, grows ({grew}); " if row["grew"] else "n = {n}; "
    text += "LSMR did {iterations} iterations and took {best}, stopped by {status}; "
    return (text + "validation {validation_error:.3f}").format_map(row)


_BATCH = {"n": "n", "next, variance": "by variance", "next, stalled": "by a stall"}
_MARKS = ("next, variance", "next, stalled")
_NOISE = {"noise": "expected", "noise_bound": "theta² |gradient|²"}
_ERRORS = {
    "batch_error": "batch, before",
    "batch_error_after": "batch, after",
    "validation_error": "validation",
    "test_error": "test",
}
_KRYLOV = {"iterations": "done", "best": "taken"}
_PANELS = (
    Lines(_BATCH, "Batch size, and what makes it grow", "rows", marks=_MARKS),
    Lines(_NOISE, "Variance test: noise of the gradient", "squared norm", log=True),
    Lines(_ERRORS, "f, half the squared error", "f", log=True),
    Lines(_KRYLOV, "Krylov iterations", "iterations", log=True),
    Lines({"damping": "lambda", "rho": "rho"}, "Damping, actual to predicted", "ratio"),
)
_CAPTION = (
    "The batch grows when the expected noise of the gradient rises above its bound, or "
    "when the validation error stalls; fewer Krylov iterations are taken than done, "
    "since LSMR goes back to where that error was least."
)
_IMAGES = (
    "Test images, what the network is given, and what it makes of it: strokes sharpen "
    "as the error falls."
)


def reconstructions(now: np.ndarray | None, _before: np.ndarray | None) -> Figure:
    """Draw test images (3, count, pixels), noisy inputs and reconstructions."""
    names = ("image", "noisy input", "reconstruction")
    return image_rows(now, names, IMAGES, caption=_IMAGES)


TRAINING = Experiment(
    "training",
    TrainingKnobs,
    training_rows,
    _PANELS,
    _CAPTION,
    _training_status,
    front=("input_noise", "theta", "damping_decay"),
    picture=reconstructions,
)


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
    weights = tuple(weight.detach().clone() for weight in training.net.parameters())
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


def merit(problem: hf.Subproblem, training: Training, d: Blocks) -> float:
    """Return f of the validation rows at w + d."""
    weights, held = add(problem.point.weights, 1.0, d), training.problem.tune.inputs
    return float(hf.squared_error(training.net, held, weights=weights)) / 2


def side_by_side(problem: hf.Subproblem) -> Iterator[dict[str, Blocks]]:
    """Yield the iterate d of each method after each iteration, by its name.

    CG works on the stated problem with the preconditioner M = c^-2, which spans the
    same spaces as LSMR's d = c o y.
    """
    M = None if problem.scale is None else tuple(c**-2 for c in problem.scale)
    B, b = partial(normal_map, problem), normal_rhs(problem)
    cg = hf.cg_steps(B, b, problem.x0, M)
    for of_lsmr, of_cg in zip(hf.lsmr_steps(problem.system()), cg, strict=False):
        yield {"LSMR": of_lsmr.x, "CG": of_cg.x}
        if of_lsmr.exhausted:
            return


def krylov_rows(problem: hf.Subproblem, training: Training) -> Iterator[dict]:
    """Yield a row for each iteration: three measures of each method's iterate."""
    least = model_value(problem, problem.solve(atol=1e-10, maxiter=EXACT).x)
    for k, pair in enumerate(side_by_side(problem)):
        row = {"k": k}
        for name, d in pair.items():
            row[f"value {name}"] = 1 - model_value(problem, d) / least
            row[f"gradient {name}"] = gradient_norm(problem, d)
            row[f"merit {name}"] = merit(problem, training, d)
        yield row


STEPS = 20  # of the training
ROWS = 256  # of the frozen problem
DAMPING = 0.03  # of the frozen problem
FALL = 0.01  # of the model's fall is left
MEASURES = {
    "value": "Model value above its least",
    "gradient": "Gradient of the model",
    "merit": "Validation error of w + d",
}


def krylov(
    *,
    data: str,
    published: bool,
    samples: int,
    device: str,
    seeds: int,
    iterations: int,
) -> Iterator[Mapping | float]:
    """Train for twenty steps, freeze the next problem, and solve it by both methods."""
    problem = load_images(
        data,
        published=published,
        samples=samples,
        device=device,
        dtype=torch.float64,
    )
    for seed in range(seeds):
        knobs = knobs_of(problem.setting, seed=seed, max_batch_size=300)
        training = Training(problem, knobs, steps=STEPS)
        for record in training.records:
            yield (seed + record.step / STEPS / 2) / seeds
        rows = krylov_rows(freeze(training, ROWS, DAMPING), training)
        for row in islice(rows, iterations + 1):
            yield {"seed": seed} | row


def needed(rows: pd.DataFrame, name: str) -> pd.Series:
    """Return the iterations by seed until 1 % of the model's fall is left."""
    there = rows[rows[f"value {name}"] <= FALL]
    return there.groupby("seed")["k"].min().reindex(rows["seed"].unique())


def cg_is_first(rows: pd.DataFrame) -> Finding:
    """Judge whether CG gets down the model in fewer iterations than LSMR."""
    lsmr, cg = needed(rows, "LSMR"), needed(rows, "CG")
    words = f"LSMR needs {lsmr.mean():.0f} iterations and CG {cg.mean():.0f}"
    return judged(words + ", {} times as many", lsmr / cg, 1.0)


def methods(rows: pd.DataFrame) -> Figure:
    """Draw three measures of the iterates of both methods, of seed 0."""
    first = rows[rows["seed"] == 0]
    panels = {
        title: {name: (first["k"], first[f"{each} {name}"]) for name in ("LSMR", "CG")}
        for each, title in MEASURES.items()
    }
    caption = (
        "CG is ahead in the model's value, which it makes least, and LSMR in the "
        "gradient, at every iteration. In the validation error LSMR leads at first; "
        "who leads later differs between seeds, of which one is drawn."
    )
    titles, log = ["share of the fall", "norm", "f"], [True, True, False]
    return curves(
        panels, "iteration", titles, log_y=log, lines=("LSMR", "CG"), caption=caption
    )


KRYLOV = Measurement(
    name="hessian_free-krylov",
    claim="On a frozen subproblem LSMR needs more iterations than CG until the model "
    "has fallen by 99 % of what is possible.",
    seconds=20,
    measure=krylov,
    judge=cg_is_first,
    figure=methods,
)
