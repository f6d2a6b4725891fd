"""The live training of notebook 03, and the knobs of its frozen subproblem."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from labkit import hessian_free as hf
from labkit.errors import DivergedError
from labkit.lab.hessian_free.settings import PaperSetting
from labkit.lab.hessian_free.training import Images, Training
from labkit.lab.panels import Experiment, Lines, image_rows, knob
from labkit.lab.panels.figures.captions import Figure

IMAGES = 16  # test images whose reconstructions are shown

_live = partial(knob, restart=False)


@dataclass(frozen=True)
class TrainingKnobs:
    """The knobs of SHF while it trains; ``look_for`` describes the digits."""

    # fmt: off
    theta: float = _live(
        0.5, low=0.05, high=0.95, step=0.05, unit="relative", about="the batch: n",
        help="noise tolerated in the gradient",
        look_for="The bound of the variance test: a low one soon fills the batch.")
    input_noise: float = _live(
        0.0, low=0.0, high=0.5, step=0.02, unit="sd",
        about="the gradient's noise: noise",
        help="on the next batches; targets stay clean",
        look_for="At 0.3 the gradient's noise is seven times as high; the batch grows.")
    damping_decay: float = _live(
        0.8, low=0.5, high=0.99, step=0.01, unit="factor", about="the damping: damping",
        help="of lambda, at steps that the model predicted well",
        look_for="How fast the damping falls; at 0.99 f is 2.5 after 30 steps.")
    max_batch_size: int = _live(
        650, low=2, high=6000, label="largest batch", unit="rows",
        help="at most all training rows",
        look_for="The batch stops growing there; if that is small, so does the error.")
    batch_size: int = knob(
        60, low=2, high=2500, label="first batch", unit="rows",
        help="what a run begins with",
        look_for="Begun with 10 or with 300 rows, it has some hundreds at step 11.")
    damping: float = knob(
        1.0, low=0.01, high=30.0, log=True, label="damping lambda_1",
        help="what a run begins with",
        look_for="At 30 the error falls slowly; at 0.01 it is lower only at first.")
    seed: int = knob(
        0, low=0, high=99, help="of weights, batches and noise",
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
    net, g = training.net, torch.Generator().manual_seed(settings.seed)
    noise = torch.randn(images.shape, generator=g, dtype=images.dtype).to(images)
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
    "step seconds rows n grew noise noise_bound damping iterations best status"
).split()
_HALVED = "batch_error batch_error_after validation_error test_error".split()


def _as_row(r: hf.Record) -> dict:
    """Return a record's numbers."""
    row = {name: getattr(r, name) for name in _FIELDS}
    row |= {name: getattr(r, name) / 2 for name in _HALVED}
    row["rho"] = r.rho if math.isfinite(r.rho) else math.nan
    for reason in ("variance", "stalled"):
        row[f"next, {reason}"] = r.n_next if r.grew == reason else math.nan
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
