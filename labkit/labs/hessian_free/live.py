"""SHF while it trains: its batch and why it grows, its damping, its Krylov runs."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from labkit.hessian_free import (
    DivergedError,
    HessianFree,
    Record,
    squared_error,
    train,
)
from labkit.labs.hessian_free.knobs import TrainingKnobs, knobs_of
from labkit.labs.hessian_free.problems import Problem
from labkit.panels import Bars, Lines, LiveLab
from labkit.panels.pictures import Pictures

IMAGES = 16  # test images whose reconstructions are shown
# Where the merit function is looked at, see labkit.hessian_free.lsmr; at most these.
CHECKS = (5, 7, 9, 12, 15, 19, 24, 30, 38, 48, 60, 75, 94, 118, 148, 185, 232, 290)


def make_optimizer(net, setting, *, knobs: TrainingKnobs) -> HessianFree:
    """SHF by the knobs; what they leave out comes from the problem's setting."""
    device = next(net.parameters()).device
    return HessianFree(
        net,
        damp=knobs.lam1,
        gamma=setting.gamma,
        atol=setting.atol,
        ftol=setting.ftol,
        maxiter=knobs.budget,
        generator=torch.Generator(device).manual_seed(1000 + knobs.seed),
        **_options(knobs),
    )


def start(problem: Problem, now: Callable[[], TrainingKnobs], *, steps=None):
    """A net, its optimiser, and the records of its training to come.

    Parameters
    ----------
    now : the knobs as they stand; those that need no restart are asked for before every
        step. A first batch above the largest, and a largest above the data, are cut.
    """
    knobs = now()
    net, g = problem.network(knobs.seed)
    optimizer = make_optimizer(net, problem.setting, knobs=knobs)
    settings = _settings(problem, knobs)
    records = train(
        *(net, optimizer, problem.train),
        validation=problem.valid,
        test=problem.test,
        batch_size=min(knobs.n1, settings["max_batch_size"]),
        turned=_turning(problem, optimizer, now),
        steps=steps,
        generator=g,
        **settings,
    )
    return net, optimizer, records


def _settings(problem, knobs) -> dict:
    """What the training loop takes over between steps."""
    return {
        "theta": knobs.theta,
        "max_batch_size": min(knobs.nmax, len(problem.train)),
        "input_noise": knobs.noise,
    }


def _options(knobs) -> dict:
    """What the optimiser keeps in its group, and may be changed between steps."""
    return {
        "drop": knobs.drop,
        "recover": knobs.recover,
        "preconditioner": knobs.preconditioner,
        "damping": knobs.damping,
        "centre": knobs.centre,
        "as_published": knobs.published,
    }


def _turning(problem, optimizer, now):
    """What `train` asks before every step; it hands the optimiser its part."""
    group, budget = optimizer.param_groups[0], now().budget

    def turned():
        nonlocal budget
        knobs = now()
        group.update(_options(knobs))
        if knobs.budget != budget:  # else it grows along with the batch
            group["maxiter"] = budget = knobs.budget
        return _settings(problem, knobs)

    return turned


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
        reading="Test images, what the network is given, and what it makes of it: "
        "strokes sharpen as the error falls.",
    )
    return LiveLab(
        knobs or knobs_of(problem),
        lambda now: train_rows(problem, now),
        tell=_tell,
        pictures=pictures,
        interactive=interactive,
        folder=folder,
        device=device,
        **{"name": "training", "panels": TRAINING_PANELS, "reading": READING} | look,
    )


def train_rows(problem: Problem, now: Callable[[], TrainingKnobs]) -> Iterator[dict]:
    """One row per outer step, with images under ``pictures``; ``now`` as in `start`.

    A run that stops being finite ends with a ``note``.
    """
    net, _, records = start(problem, now)
    images = problem.test[:IMAGES]
    g = torch.Generator().manual_seed(now().seed)
    noise = torch.randn(images.shape, generator=g, dtype=images.dtype)
    noise = noise.to(images.device)
    step, before = 0, float(squared_error(net, problem.valid))
    try:
        for record in records:
            noisy = images + now().noise * noise
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


READING = (
    "The batch grows when the expected noise of the gradient rises above its bound, or "
    "when the validation error stalls; fewer Krylov iterations are taken than done, "
    "since LSMR goes back to where that error was least."
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
