"""Growth while it happens: an exact ridge solver and a Greville solver, side by side.

Both grow over the same columns, so that all that differs is the algebra.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import torch

from labkit.broad import SOLVERS, race
from labkit.broad.state import squared_norm
from labkit.labs.broad.columns import make_columns, make_problem, paper_updates
from labkit.panels import Lines, LiveLab, knob

EXACT = tuple(name for name, solver in SOLVERS.items() if solver.exact)
GREVILLE = tuple(name for name, solver in SOLVERS.items() if not solver.exact)
# |F^T R F - I| over eps |A|^2 / ridge, as measured for models of this kind; float64.
LAW = 0.04


@dataclass(frozen=True)
class GrowthKnobs:
    """What can be turned in the live experiment."""

    ridge: float = knob(1e-4, low=1e-12, high=100.0, log=True, help="lambda")
    budget: int = knob(
        50, low=10, high=80, step=5, unit="nodes", label="nodes in an update"
    )
    features: int = knob(
        4, low=0, high=9, unit="nodes", help="feature nodes among them"
    )
    exact: str = knob("chol-1", choices=EXACT, label="ridge solver")
    greville: str = knob("orig", choices=GREVILLE, label="Greville solver")
    input_noise: float = knob(
        0.0, low=0.0, high=1.0, step=0.05, unit="sd", help="added to training pixels"
    )
    label_noise: float = knob(
        0.0, low=0.0, high=0.8, step=0.05, help="share of labels drawn at random"
    )
    seed: int = knob(0, low=0, high=99, help="of the nodes and the noise")


def growth_lab(
    knobs: GrowthKnobs | None = None,
    *,
    dataset="digits",
    samples=None,
    updates=12,
    interactive=True,
    folder="",
    device="cpu",
    **look,
) -> LiveLab:
    """Knobs, stepper and live figure of one growth; see :func:`growth_rows`.

    ``look`` are keywords of :class:`~labkit.panels.LiveLab` in place of this lab's own,
    such as ``panels``, ``only``, ``height``.
    """

    def rows(now):
        return growth_rows(
            now(), dataset=dataset, samples=samples, updates=updates, device=device
        )

    return LiveLab(
        knobs or GrowthKnobs(),
        rows,
        name="growth",
        tell=_tell,
        interactive=interactive,
        folder=folder,
        device=device,
        **{"panels": GROWTH_PANELS, "height": 720} | look,
    )


def growth_rows(
    knobs: GrowthKnobs, *, dataset="digits", samples=None, updates=12, device=None
) -> Iterator[dict]:
    """One row for the start and for every update; ``step`` counts columns.

    Yields
    ------
    dict with, for KIND ``exact`` and ``greville``: ``accuracy KIND`` [%], ``residual
    KIND`` of the ridge gradient, ``pivot KIND``, the smallest of this step; ``factor
    error`` of the exact solver where it keeps F, and its ``law``; ``ridge``. A solver
    that has lost a pivot is left out from there, and ``note`` says why.
    """
    problem = make_problem(
        dataset,
        samples=samples,
        input_noise=knobs.input_noise,
        label_noise=knobs.label_noise,
        seed=knobs.seed,
        device=device,
    )
    growth = paper_updates(updates, knobs.budget, knobs.features)
    columns = make_columns(problem, growth, seed=knobs.seed)
    kinds = {knobs.exact: "exact", knobs.greville: "greville"}
    records = race(
        columns.A,
        columns.widths,
        columns.Y,
        knobs.ridge,
        kinds,
        score=columns.score,
        factor_error=True,
    )
    notes = []
    for k, group in groupby(records, key=lambda record: record.columns):
        eps = torch.finfo(columns.A.dtype).eps
        law = LAW * eps * float(squared_norm(columns.A[:, :k])) / knobs.ridge
        row = {"step": k, "ridge": knobs.ridge, "law": law}
        for record in group:
            if record.lost is None:
                row |= _values(record, kinds[record.solver])
            else:
                notes.append(f"{record.solver} ended at {k} columns: {record.lost}")
        yield row | ({"note": "; ".join(notes)} if notes else {})


def _values(record, kind) -> dict[str, float]:
    row = {
        f"accuracy {kind}": record.score,
        f"residual {kind}": record.residual,
        f"pivot {kind}": record.smallest_pivot,
    }
    if kind == "exact" and record.factor_error is not None:
        row["factor error"] = record.factor_error
    return row


def _tell(row) -> str:
    kinds = {"exact": "ridge", "greville": "Greville"}
    there = [k for k in kinds if f"accuracy {k}" in row]
    parts = [f"{kinds[k]} {row[f'accuracy {k}']:.1f} %" for k in there]
    note = [row["note"]] if "note" in row else []
    return "; ".join([f"{row['step']} columns", *parts, *note])


_BOTH = {"exact": "ridge solver", "greville": "Greville solver"}


def _pair(quantity):
    return {f"{quantity} {key}": label for key, label in _BOTH.items()}


GROWTH_PANELS = (
    Lines(_pair("accuracy"), "Test accuracy", "%", x_title="columns of A"),
    Lines(
        _pair("residual"),
        "Distance from the ridge solution",
        "|A'(AW - Y) + ridge W| / |A'Y|",
        x_title="columns of A",
        log=True,
    ),
    Lines(
        _pair("pivot") | {"ridge": "ridge, its bound"},
        "Smallest pivot of the update",
        "pivot",
        x_title="columns of A",
        log=True,
    ),
    Lines(
        {"factor error": "measured", "law": "0.04 eps |A|² / ridge"},
        "Error of the factor F",
        "largest |F'RF - I|",
        x_title="columns of A",
        log=True,
    ),
)
