"""The live training of notebook 03, and the knobs of its frozen subproblem."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from labkit import hessian_free as hf
from labkit.errors import DivergedError
from labkit.hessian_free.options import DAMP_TOWARDS, DAMPING_NORMS, KINDS
from labkit.hessian_free.stopping import schedule
from labkit.lab.hessian_free.training import Images, Training
from labkit.lab.panels import Bars, Experiment, Lines, Pictures, knob

IMAGES = 16  # test images whose reconstructions are shown
BUDGET = 300  # Krylov iterations that the knob allows
CHECKS = schedule(BUDGET)[:-1]  # iterations at which a merit is evaluated

_live = partial(knob, restart=False)


@dataclass(frozen=True)
class TrainingKnobs:
    """The knobs of SHF while it trains; ``look_for`` describes the digits."""

    # fmt: off
    theta: float = _live(
        0.5, low=0.05, high=0.95, step=0.05, unit="relative", about="the batch: n",
        help="noise tolerated in the gradient",
        look_for="The bound of the variance test: a low one soon fills the batch.")
    max_batch_size: int = _live(
        650, low=2, high=6000, label="largest batch", unit="rows",
        help="at most all training rows",
        look_for="The batch stops growing there; if that is small, so does the error.")
    damping_decay: float = _live(
        0.8, low=0.5, high=0.99, step=0.01, unit="factor", about="the damping: damping",
        help="of lambda, at steps that the model predicted well",
        look_for="How fast the damping falls; at 0.99 the error is 5 after 30 steps.")
    preconditioner: str = _live(
        "random_signs", choices=KINDS, help="c of d = c o y",
        look_for="Late, LSMR needs more iterations with none, fewer with jacobi.")
    maxiter: int = _live(
        150, low=1, high=BUDGET, label="budget", unit="iterations",
        about="the number of iterations: iterations",
        help="of the next LSMR run; it grows with the batch",
        look_for="At 5 all that are allowed are done, and the error hardly falls.")
    patience: int = _live(
        20, low=0, high=100, unit="iterations",
        help="how long LSMR waits for a lower merit; paper: 100",
        look_for="The gap between done and taken grows, and the step is the same.")
    as_published: bool = _live(
        False, label="last iterate, as published",
        help="off: the iterate of least merit",
        look_for="Taken rises to done, rho falls: the step fits the batch too well.")
    input_noise: float = _live(
        0.0, low=0.0, high=0.5, step=0.02, unit="sd",
        about="the gradient's noise: noise",
        help="on the next batches; targets stay clean",
        look_for="At 0.3 the gradient's noise is seven times as high; the batch grows.")
    damping_norm: str = _live(
        "identity", choices=DAMPING_NORMS, help="identity: the stated problem",
        look_for="Late it changes nothing; a run begun with scaled ends higher.")
    damp_towards: str = _live(
        "zero", choices=DAMP_TOWARDS, help="zero: the stated problem",
        look_for="Late it changes nothing; a run begun with start leads, then trails.")
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


def knobs_of(problem: Images, **changes) -> TrainingKnobs:
    """Return the knobs with the values of a problem's setting, and some changes."""
    setting = problem.setting
    knobs = TrainingKnobs(
        theta=setting.theta,
        batch_size=setting.batch_size,
        max_batch_size=setting.max_batch_size,
        damping=setting.damping,
        damping_decay=setting.damping_decay,
        maxiter=setting.maxiter,
    )
    return replace(knobs, **changes)


def training_rows(settings: object, problem: Images) -> Iterator[dict]:
    """Yield a row for each step; a run that is not finite ends with a ``note``."""
    training, images = Training(problem, settings), problem.test.inputs[:IMAGES]
    net, g = training.net, torch.Generator().manual_seed(settings.seed)
    noise = torch.randn(images.shape, generator=g, dtype=images.dtype).to(images)
    step, before = 0, float(hf.squared_error(net, problem.tune.inputs))
    while True:
        training.turn(settings)
        try:
            record = next(training.records)
        except (DivergedError, FloatingPointError) as error:
            yield {"step": step + 1, "note": str(error)}
            return
        noisy = images + settings.input_noise * noise
        shown = torch.stack((images, noisy, net(noisy).detach())).cpu().numpy()
        yield _as_row(record, before) | {"pictures": shown}
        step, before = record.step, record.validation_error


# The fields of a record that a row takes over unchanged.
_FIELDS = (
    "step seconds rows n n_hat grew noise noise_bound batch_error batch_error_after "
    "validation_error test_error damping step_length iterations best maxiter status"
).split()


def _as_row(r: hf.Record, before: float) -> dict:
    """Return a record's numbers and the decreases of the merits from ``before``."""
    gains = {f"k={k}": 100 * (1 - value / before) for k, value in r.merit[1:]}
    row = {name: getattr(r, name) for name in _FIELDS} | gains
    row["rho"] = r.rho if math.isfinite(r.rho) else math.nan
    row["gain taken"] = gains.get(f"k={r.best}", math.nan)
    for reason in ("variance", "stalled"):
        row[f"next, {reason}"] = r.n_next if r.grew == reason else math.nan
    return row if r.n_average is None else row | {"n_average": r.n_average}


def _training_status(row) -> str:
    if "note" in row:
        return row["note"]
    text = "n = {n}, grows ({grew}); " if row["grew"] else "n = {n}; "
    text += "LSMR did {iterations} iterations and took {best}, stopped by {status}; "
    return (text + "validation {validation_error:.3f}").format_map(row)


_BATCH = {
    "n": "n",
    "n_average": "mean estimate",
    "next, variance": "by variance",
    "next, stalled": "by a stall",
}
_MARKS = ("next, variance", "next, stalled")
_NOISE = {"noise": "expected", "noise_bound": "theta² |gradient|²"}
_ERRORS = {
    "batch_error": "batch, before",
    "batch_error_after": "batch, after",
    "validation_error": "validation",
    "test_error": "test",
}
_KRYLOV = {"iterations": "done", "best": "taken", "maxiter": "allowed"}
_PANELS = (
    Lines(_BATCH, "Batch size, and what makes it grow", "rows", marks=_MARKS),
    Lines(_NOISE, "Variance test: noise of the gradient", "squared norm", log=True),
    Lines(_ERRORS, "Squared error per image", "error", log=True),
    Lines(_KRYLOV, "Krylov iterations", "iterations", log=True),
    Lines({"damping": "lambda"}, "Damping", "lambda", log=True),
    Lines({"rho": "rho", "step_length": "step length"}, "Actual to predicted", "ratio"),
    Bars(
        tuple(f"k={k}" for k in CHECKS),
        title="Merit inside LSMR, this step",
        x_title="iteration",
        y_title="validation error falls [%]",
        level="gain taken",
        level_label="taken",
        kept_label="no less",
        mixed_label="less",
    ),
    Lines({"rows": "rows"}, "Rows drawn so far", "rows", log=True),
)
_CAPTION = (
    "The batch grows when the expected noise of the gradient rises above its bound, or "
    "when the validation error stalls; fewer Krylov iterations are taken than done, "
    "since LSMR goes back to where that error was least."
)
TRAINING = Experiment(
    "training",
    TrainingKnobs,
    training_rows,
    _PANELS,
    _CAPTION,
    _training_status,
    front=("input_noise", "theta", "damping_decay"),
    playable={"input_noise": (0.0, 0.1, 0.3)},
)


def reconstructions(problem: Images, *, interactive: bool = True) -> Pictures:
    """Return the panel in which the live training shows test images."""
    side = math.isqrt(problem.fit.inputs.shape[1])
    caption = "Test images, what the network is given, and what it makes of it: "
    caption += "strokes sharpen as the error falls."
    return Pictures(
        ("image", "noisy input", "reconstruction"),
        count=IMAGES,
        side=(side, side),
        caption=caption,
        interactive=interactive,
    )


@dataclass(frozen=True)
class KrylovKnobs:
    """The knobs of the frozen subproblem; each value makes another problem."""

    # fmt: off
    after: int = knob(
        20, choices=(1, 5, 10, 15, 20), label="after step", unit="steps",
        help="of the training",
        look_for="Both methods are slower on a later problem.")
    damping: float = knob(
        0.03, low=1e-3, high=10.0, log=True, label="damping lambda",
        help="of the frozen problem",
        look_for="At 1 both arrive within 40 iterations, at 0.001 neither in 120.")
    preconditioner: str = knob(
        "random_signs", choices=KINDS, help="of both methods",
        look_for="In value jacobi is ahead for some 40 iterations, then far behind.")
    damping_norm: str = knob(
        "identity", choices=DAMPING_NORMS, help="of LSMR; CG: identity",
        look_for="With scaled, LSMR's distance settles away from the stated step.")
    damp_towards: str = knob(
        "zero", choices=DAMP_TOWARDS, help="of LSMR; CG: zero",
        look_for="With start, LSMR's distance settles away from the stated step.")
    patience: int = knob(
        20, low=0, high=100, unit="iterations", help="LSMR's with the merit",
        look_for="The mark of the stop moves right; that of the iterate taken stays.")
    # fmt: on
