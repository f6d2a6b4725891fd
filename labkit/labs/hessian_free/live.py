"""SHF while it trains: its batch and why it grows, its damping, its Krylov runs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from labkit.hessian_free import (
    DivergedError,
    HessianFree,
    Record,
    squared_error,
    train,
)
from labkit.hessian_free.precondition import KINDS
from labkit.hessian_free.system import CENTRES, DAMPINGS
from labkit.labs.hessian_free.problems import Problem
from labkit.panels import Bars, Lines, LiveLab, knob
from labkit.panels.pictures import Pictures

IMAGES = 16  # test images whose reconstructions are shown
# Where the merit function is looked at, see labkit.hessian_free.lsmr; at most these.
CHECKS = (5, 7, 9, 12, 15, 19, 24, 30, 38, 48, 60, 75, 94, 118, 148, 185, 232, 290)


@dataclass(frozen=True)
class TrainingKnobs:
    """What can be turned in the live experiment."""

    theta: float = knob(
        0.5, low=0.05, high=0.95, step=0.05, help="noise tolerated in the gradient"
    )
    n1: int = knob(60, low=2, high=2500, label="first batch n1", unit="rows")
    nmax: int = knob(650, low=2, high=6000, label="largest batch nmax", unit="rows")
    lam1: float = knob(1.0, low=0.01, high=30.0, log=True, label="damping lambda_1")
    drop: float = knob(0.8, low=0.5, high=0.99, step=0.01, help="factor of lambda")
    preconditioner: str = knob("random_signs", choices=KINDS)
    damping: str = knob("identity", choices=DAMPINGS, help="identity: the stated one")
    centre: str = knob("zero", choices=CENTRES, help="zero: the stated problem")
    budget: int = knob(
        150, low=1, high=300, label="Krylov budget", unit="iterations", help="first"
    )
    recover: int = knob(
        20, low=0, high=100, unit="iterations", help="patience; paper: 100"
    )
    published: bool = knob(False, label="return the last iterate, as published")
    noise: float = knob(
        0.0, low=0.0, high=0.5, step=0.02, label="noise on the inputs", help="std"
    )
    seed: int = knob(0, low=0, high=99)


def knobs_of(problem: Problem, **changes) -> TrainingKnobs:
    """The knobs at a problem's setting."""
    s = problem.setting
    names = {"theta": s.theta, "n1": s.n1, "nmax": s.nmax, "lam1": s.damp}
    names |= {"drop": s.drop, "budget": s.maxiter}
    return TrainingKnobs(**names | changes)


def make_optimizer(net, setting, *, knobs: TrainingKnobs) -> HessianFree:
    """SHF by the knobs; what they leave out comes from the problem's setting."""
    device = next(net.parameters()).device
    return HessianFree(
        net,
        damp=knobs.lam1,
        drop=knobs.drop,
        gamma=setting.gamma,
        atol=setting.atol,
        ftol=setting.ftol,
        maxiter=knobs.budget,
        recover=knobs.recover,
        preconditioner=knobs.preconditioner,
        damping=knobs.damping,
        centre=knobs.centre,
        as_published=knobs.published,
        generator=torch.Generator(device).manual_seed(1000 + knobs.seed),
    )


def start(problem: Problem, knobs: TrainingKnobs, *, steps=None):
    """A net, its optimiser, and the records of its training to come.

    A first batch above the largest, and a largest above the data, are cut.
    """
    net, g = problem.network(knobs.seed)
    optimizer = make_optimizer(net, problem.setting, knobs=knobs)
    largest = min(knobs.nmax, len(problem.train))
    records = train(
        *(net, optimizer, problem.train),
        validation=problem.valid,
        test=problem.test,
        batch_size=min(knobs.n1, largest),
        max_batch_size=largest,
        theta=knobs.theta,
        input_noise=knobs.noise,
        steps=steps,
        generator=g,
    )
    return net, optimizer, records


def training_lab(
    problem: Problem,
    knobs: TrainingKnobs | None = None,
    *,
    interactive=True,
    folder="",
    device="cpu",
    **look,
) -> LiveLab:
    """Knobs, stepper, live figure, and reconstructions of test images below it.

    ``look`` are keywords of :class:`~labkit.panels.LiveLab` in place of this lab's own,
    such as ``panels``, ``only``, ``height``.
    """
    pictures = Pictures(
        ("image", "noisy input", "reconstruction"),
        count=IMAGES,
        side=problem.side,
        interactive=interactive,
    )
    return LiveLab(
        knobs or knobs_of(problem),
        lambda now: train_rows(problem, now()),
        name="training",
        tell=_tell,
        pictures=pictures,
        interactive=interactive,
        folder=folder,
        device=device,
        **{"panels": TRAINING_PANELS, "height": 1280} | look,
    )


def train_rows(problem: Problem, knobs: TrainingKnobs) -> Iterator[dict]:
    """One row per outer step, with images under ``pictures``.

    A run that stops being finite ends with a ``note``.
    """
    net, _, records = start(problem, knobs)
    images = problem.test[:IMAGES]
    g = torch.Generator().manual_seed(knobs.seed)
    noise = torch.randn(images.shape, generator=g, dtype=images.dtype)
    noisy = images + knobs.noise * noise.to(images.device)
    step, before = 0, float(squared_error(net, problem.valid))
    try:
        for record in records:
            yield as_row(record, before) | {"pictures": _shown(net, images, noisy)}
            step, before = record.step, record.validation_error
    except (DivergedError, FloatingPointError) as error:
        yield {"step": step + 1, "note": str(error)}


@torch.no_grad()
def _shown(net, images: Tensor, noisy: Tensor):
    return torch.stack((images, noisy, net(noisy))).cpu().numpy()


def as_row(record: Record, before: float) -> dict:
    """The numbers of a record under the names that the panels draw.

    ``before`` is the validation error before the step; the merit at iteration 0 is
    another, that of the warm start.
    """
    r = record
    gains = {f"k={k}": 100 * (1 - value / before) for k, value in r.merit[1:]}
    row = {
        "step": r.step,
        "seconds": r.seconds,
        "rows": r.rows,
        "n": r.n,
        "n hat": r.n_hat,
        "next, by variance": r.n_next if r.grew == "variance" else math.nan,
        "next, stalled": r.n_next if r.grew == "stalled" else math.nan,
        "noise": r.noise,
        "noise bound": r.noise_bound,
        "batch before": r.batch_error,
        "batch after": r.batch_error_after,
        "validation": r.validation_error,
        "test": r.test_error,
        "lambda": r.damp,
        "rho": r.rho if math.isfinite(r.rho) else math.nan,
        "step length": r.step_length,
        "iterations": r.iterations,
        "taken": r.best,
        "budget": r.maxiter,
        "status": r.status,
        "grew": r.grew,
        "gain taken": gains.get(f"k={r.best}", math.nan),
    }
    if r.n_average is not None:
        row["n average"] = r.n_average
    return row | gains


def _tell(row) -> str:
    if "note" in row:
        return row["note"]
    grew = f", grows ({row['grew']})" if row["grew"] else ""
    return (
        f"n = {row['n']}{grew}; LSMR: {row['iterations']} iterations, took "
        f"{row['taken']}, stopped by {row['status']}; "
        f"validation {row['validation']:.3f}"
    )


TRAINING_PANELS = (
    Lines(
        {
            "n": "n",
            "n average": "mean estimate",
            "next, by variance": "by variance",
            "next, stalled": "by a stall",
        },
        "Batch size, and what makes it grow",
        "rows",
        marks=("next, by variance", "next, stalled"),
    ),
    Lines(
        {"noise": "expected", "noise bound": "theta² |gradient|²"},
        "Variance test: noise of the gradient",
        "squared norm",
        log=True,
    ),
    Lines(
        {
            "batch before": "batch, before",
            "batch after": "batch, after",
            "validation": "validation",
            "test": "test",
        },
        "Squared error per image",
        "error",
        log=True,
    ),
    Lines(
        {"iterations": "done", "taken": "taken", "budget": "allowed"},
        "Krylov iterations",
        "iterations",
        log=True,
    ),
    Lines({"lambda": "lambda"}, "Damping", "lambda", log=True),
    Lines({"rho": "rho", "step length": "step length"}, "Actual to predicted", "ratio"),
    Bars(
        tuple(f"k={k}" for k in CHECKS),
        "Merit inside LSMR, this step",
        "validation error falls [%]",
        level="gain taken",
        level_label="taken",
        kept_label="no less",
        mixed_label="less",
        x_title="iteration",
    ),
    Lines({"rows": "rows"}, "Rows drawn so far", "rows", log=True),
)
