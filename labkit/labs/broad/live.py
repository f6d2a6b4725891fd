"""Growth while it happens: an exact ridge solver and a Greville solver, side by side.

Both grow over the same columns, so that all that differs is the algebra.
"""

from collections.abc import Callable, Iterator
from itertools import chain

import torch

from labkit.broad import race
from labkit.broad.state import squared_norm
from labkit.labs.broad.columns import grow_columns, make_problem, paper_updates
from labkit.labs.broad.knobs import LARGEST, PRECISIONS, GrowthKnobs
from labkit.panels import Lines, LiveLab

START = 110  # nodes
# |F^T R F - I| over eps |A|^2 / ridge, as measured for models of this kind; float64.
LAW = 0.04


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
            now, dataset=dataset, samples=samples, updates=updates, device=device
        )

    return LiveLab(
        knobs or GrowthKnobs(),
        rows,
        name="growth",
        tell=_tell,
        interactive=interactive,
        folder=folder,
        device=device,
        **{"panels": GROWTH_PANELS, "reading": READING} | look,
    )


def growth_rows(
    now: Callable[[], GrowthKnobs],
    *,
    dataset="digits",
    samples=None,
    updates=12,
    device=None,
) -> Iterator[dict]:
    """One row for the start and for every update; ``step`` counts columns.

    Parameters
    ----------
    now : the knobs as they stand; what an update brings is asked for when its columns
        are made, the rest once.

    Yields
    ------
    dict with, for KIND ``exact`` and ``greville``: ``accuracy KIND`` [%], ``residual
    KIND`` of the ridge gradient, ``pivot KIND``, the smallest of this step; ``factor
    error`` of the exact solver where it keeps F, and its ``law``; ``ridge``. A solver
    that has lost a pivot is left out from there, and ``note`` says why.
    """
    knobs = now()
    problem = make_problem(
        dataset,
        samples=samples,
        input_noise=knobs.input_noise,
        label_noise=knobs.label_noise,
        seed=knobs.seed,
        dtype=PRECISIONS[knobs.precision],
        device=device,
    )
    following = (_update(now()) for _ in range(updates))
    room = START + updates * LARGEST
    growing = grow_columns(problem, following, room=room, seed=knobs.seed)
    columns = next(growing)
    kinds = {knobs.exact: "exact", knobs.greville: "greville"}
    records = race(
        columns.A,
        (each.widths[-1] for each in chain([columns], growing)),
        columns.Y,
        knobs.ridge,
        kinds,
        score=columns.score,
        factor_error=True,
    )
    notes, racing, group = [], set(kinds), []
    for record in records:
        group.append(record)
        if len(group) < len(racing):  # not itertools.groupby, which reads one ahead
            continue
        k = record.columns
        eps = torch.finfo(columns.A.dtype).eps
        law = LAW * eps * float(squared_norm(columns.A[:, :k])) / knobs.ridge
        row = {"step": k, "ridge": knobs.ridge, "law": law}
        for record in group:
            if record.lost is None:
                row |= _values(record, kinds[record.solver])
            else:
                racing.remove(record.solver)
                notes.append(f"{record.solver} ended at {k} columns: {record.lost}")
        group = []
        yield row | ({"note": "; ".join(notes)} if notes else {})


def _update(knobs):
    """The update that the knobs ask for."""
    return paper_updates(1, knobs.budget, knobs.features)[0]


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


READING = (
    "The ridge solver stays at rounding error from the solution for all its columns; "
    "Greville's recursion leaves it, and as columns come that shows in the accuracy."
)
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
