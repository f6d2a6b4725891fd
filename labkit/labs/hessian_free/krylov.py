"""LSMR beside CG on one subproblem, frozen out of a training."""

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from labkit.hessian_free import (
    Autoencoder,
    HessianFree,
    Subproblem,
    cg_steps,
    lsmr_steps,
    squared_error,
)
from labkit.hessian_free.precondition import KINDS
from labkit.hessian_free.system import CENTRES, DAMPINGS
from labkit.hessian_free.train import draw
from labkit.hessian_free.tuples import add, copied, dot, norm
from labkit.labs.hessian_free.knobs import TrainingKnobs
from labkit.labs.hessian_free.live import start
from labkit.labs.hessian_free.problems import Problem
from labkit.panels import Lines, LiveLab, knob

AFTER = (1, 5, 10, 15, 20)  # steps of training after which a problem is kept
ROWS = 256  # of a frozen batch
ROUNDING = 1e-12  # of an excess: below it there is nothing to see
SETTINGS = tuple((damping, centre) for damping in DAMPINGS for centre in CENTRES)


@dataclass(frozen=True, eq=False)
class Moment:
    """A training stopped after some steps, with the batch it would take next."""

    step: int
    net: Autoencoder
    optimizer: dict  # its state
    batch: Tensor
    valid: Tensor

    def subproblem(self, lam=None, **settings) -> Subproblem:
        """The problem of this moment, with another lambda or settings if given."""
        optimizer = HessianFree(
            self.net, generator=torch.Generator(self.batch.device).manual_seed(0)
        )
        optimizer.load_state_dict(self.optimizer)
        group = optimizer.param_groups[0]
        group.update(settings)
        group["damp"] = lam or group["damp"]
        return optimizer.subproblem(self.batch)

    def error(self, d, rows=None) -> float:
        """Squared error per image at w + d; on the batch unless rows are given."""
        w = tuple(p.detach() for p in self.net.parameters())
        rows = self.batch if rows is None else rows
        return float(squared_error(self.net, rows, weights=add(w, 1.0, d)))


def moments(problem: Problem, *, seed=0, after=AFTER, rows=ROWS) -> dict[int, Moment]:
    """Train with short-run settings; keep what is needed to solve again, by step."""
    knobs = TrainingKnobs(n1=60, nmax=300, seed=seed)
    net, optimizer, records = start(problem, lambda: knobs, steps=max(after))
    g = torch.Generator().manual_seed(500 + seed)
    kept = {}
    for record in records:
        if record.step in after:
            batch, _ = draw(problem.train, None, rows, generator=g)
            state = deepcopy(optimizer.state_dict())
            here = Moment(record.step, deepcopy(net), state, batch, problem.valid)
            kept[record.step] = here
    return kept


def exact(problem: Subproblem, *, maxiter=700):
    """The solution, as far as LSMR gets in so many iterations."""
    return problem.solve(atol=1e-10, maxiter=maxiter).x


def model_value(problem: Subproblem, d) -> float:
    """|A d - b|^2 / 2 - |b|^2 / 2 + lam^2 |d|^2 / 2, what CG minimises."""
    b = problem.normal_rhs()
    return float(0.5 * dot(d, add(problem.normal_map(d), -2.0, b)))


def gradient_norm(problem: Subproblem, d) -> float:
    """|(A'A + lam^2 I) d - A'b|, of the stated problem."""
    return float(norm(add(problem.normal_map(d), -1.0, problem.normal_rhs())))


def iterates(problem: Subproblem) -> Iterator[dict[str, tuple]]:
    """LSMR's and CG's iterate of each iteration, from the same start, for ever.

    CG works on the stated problem whatever ``damping`` and ``centre`` are, with the
    preconditioner M = c^-2, which spans the same spaces.
    """
    M = None if problem.scale is None else tuple(c**-2 for c in problem.scale)
    cg = cg_steps(problem.normal_map, problem.normal_rhs(), copied(problem.x0), M)
    for ours, theirs in zip(lsmr_steps(problem.system()), cg, strict=False):
        yield {"LSMR": ours.x, "CG": theirs.x}
        if ours.exhausted:
            return


@dataclass(frozen=True)
class KrylovKnobs:
    """What can be turned on the frozen subproblem; each makes another problem."""

    after: int = knob(
        20,
        choices=AFTER,
        label="after step",
        unit="steps",
        help="of the training",
        look_for="The later, the slower: after 40 iterations the model is 0.2 % above "
        "its least at step 1 and 7 % at step 20.",
    )
    lam: float = knob(
        0.03,
        low=1e-3,
        high=10.0,
        log=True,
        label="damping lambda",
        help="of the frozen problem",
        look_for="At 1 both methods arrive within 40 iterations, at 0.001 neither in "
        "120.",
    )
    preconditioner: str = knob(
        "random_signs",
        choices=KINDS,
        help="of both methods",
        look_for="The model value: jacobi is ahead for some 40 iterations and far "
        "behind at 120.",
    )
    damping: str = knob(
        "identity",
        choices=DAMPINGS,
        help="of LSMR; CG: identity",
        look_for="The distance: with scaled LSMR settles 16 % from the stated step.",
    )
    centre: str = knob(
        "zero",
        choices=CENTRES,
        help="of LSMR; CG: zero",
        look_for="The distance: with start LSMR settles 23 % from the stated step.",
    )
    recover: int = knob(
        20,
        low=0,
        high=100,
        unit="iterations",
        help="LSMR's patience",
        look_for="The mark of the stop moves to the right, the one of what is taken "
        "stays.",
    )


def krylov_lab(
    kept: dict[int, Moment],
    knobs: KrylovKnobs | None = None,
    *,
    interactive=True,
    folder="",
    device="cpu",
) -> LiveLab:
    """Knobs, stepper and live figure; a step is one iteration of both methods."""
    answers = {}
    return LiveLab(
        knobs or KrylovKnobs(),
        lambda now: krylov_rows(kept[now().after], now(), answers),
        KRYLOV_PANELS,
        name="krylov",
        tell=_tell,
        interactive=interactive,
        folder=folder,
        device=device,
        reading="LSMR makes the gradient of the model fall at every iteration and CG "
        "its value; the merit stops falling long before either has solved the system.",
    )


def krylov_rows(
    moment: Moment, knobs: KrylovKnobs, answers: dict | None = None
) -> Iterator[dict]:
    """One row per iteration of LSMR and CG; where LSMR would stop is marked.

    ``answers`` keeps the solutions by moment and lambda, the slow part of a start.
    """
    problem = moment.subproblem(
        knobs.lam,
        preconditioner=knobs.preconditioner,
        damping=knobs.damping,
        centre=knobs.centre,
    )
    stop = problem.solve(
        merit=lambda d: moment.error(d, moment.valid),
        **{"atol": 1e-6, "ftol": 1e-5, "maxiter": 600, "recover": knobs.recover},
    )
    answers = {} if answers is None else answers
    key = moment.step, knobs.lam
    if key not in answers:
        answers[key] = exact(moment.subproblem(knobs.lam))
    answer = answers[key]
    low = model_value(problem, answer)
    size = float(norm(answer))
    for k, each in enumerate(iterates(problem)):
        row = {"step": k, "status": stop.status}
        for name, d in each.items():
            value = moment.error(d, moment.valid)
            excess = 1 - model_value(problem, d) / low
            row |= {
                f"excess {name}": excess if excess > ROUNDING else math.nan,
                f"gradient {name}": gradient_norm(problem, d),
                f"distance {name}": float(norm(add(d, -1.0, answer))) / size,
                f"merit {name}": value,
            }
            if name == "LSMR":
                row["taken"] = value if k == stop.stats.best else math.nan
                row["stopped"] = value if k == stop.stats.iterations else math.nan
        yield row


def _tell(row) -> str:
    return (
        f"iteration {row['step']}: LSMR is {100 * row['distance LSMR']:.2f} % and CG "
        f"{100 * row['distance CG']:.2f} % away from the exact step"
    )


def _both(quantity):
    return {f"{quantity} LSMR": "LSMR", f"{quantity} CG": "CG"}


_AXIS = {"x_title": "iteration", "log": True}
KRYLOV_PANELS = (
    Lines(_both("excess"), "Model value above its least", "share of the fall", **_AXIS),
    Lines(_both("gradient"), "Gradient of the model", "norm", **_AXIS),
    Lines(_both("distance"), "Distance from the exact step", "relative", **_AXIS),
    Lines(
        _both("merit") | {"taken": "taken", "stopped": "stopped"},
        "Merit: validation error of w + d",
        "error",
        x_title="iteration",
        marks=("taken", "stopped"),
    ),
)


def settings_table(moment: Moment, lam: float) -> pd.DataFrame:
    """Where LSMR ends, solved out, in the four settings of damping and centre."""
    stated = moment.subproblem(lam, damping="identity", centre="zero")
    answer = exact(stated)
    rows = {}
    for damping, centre in SETTINGS:
        problem = stated._replace(damping=damping, centre=centre)
        d = exact(problem)
        rows[damping, centre] = {
            "from the stated answer [%]": 100
            * float(norm(add(d, -1.0, answer)) / norm(answer)),
            "batch error before": 2 * float(problem.point.loss()),
            "batch error, full step": moment.error(d),
            "validation error, full step": moment.error(d, moment.valid),
        }
    return pd.DataFrame(rows).T.rename_axis(["damping", "centre"])


def iterations_table(
    kept: dict[int, Moment], lams, kinds=KINDS, *, share=0.01, limit=700
) -> pd.DataFrame:
    """Iterations from a cold start until the model has fallen to within ``share``.

    Rows: moment and lambda; columns: preconditioner and method; more than ``limit``:
    nan.
    """
    rows = {}
    for step, moment in kept.items():
        for lam in lams:
            cells, low = {}, None
            for kind in kinds:
                problem = moment.subproblem(
                    lam, preconditioner=kind, damping="identity", centre="zero"
                )
                cold = problem._replace(x0=tuple(0 * t for t in problem.x0))
                if low is None:
                    low = model_value(cold, exact(cold))
                cells |= _needed(cold, (1 - share) * low, kind, limit)
            rows[step, lam] = cells
    return pd.DataFrame(rows).T.rename_axis(["after step", "lambda"])


def _needed(problem, level, kind, limit):
    found = {}
    for k, each in enumerate(iterates(problem)):
        for name, d in each.items():
            if (kind, name) not in found and model_value(problem, d) <= level:
                found[kind, name] = k
        if len(found) == 2 or k == limit:
            break
    return {(kind, name): found.get((kind, name), math.nan) for name in ("LSMR", "CG")}
