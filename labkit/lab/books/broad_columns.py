"""Two columns of two samples: what the second adds, and what Greville leaves out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.broad import SOLVERS
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.images import EARLIER
from labkit.lab.panels.figures.planes import (
    GHOST,
    arrow,
    dots,
    ellipse,
    handles,
    path,
    planes,
    put,
)
from labkit.lab.panels.figures.theme import COLOURS, INK, colour_of

RULES = {"ridge solver": "r-inv", "Greville solver": "orig"}  # differ by one term
OLD, TARGET = (
    torch.tensor([values], dtype=torch.float64).T for values in ([1, 0], [1, 0.5])
)
NEW = COLOURS[4]  # of columns that join
UPDATES = 6
LOW = -0.4  # ends of the plane
HIGH = 3.2
NEAR = 0.2  # radius of the circle round the target
LEAST = 0.5  # length of the new column
MOST = 3.0


@dataclass(frozen=True)
class ColumnKnobs:
    """Knobs of the picture, in which nothing is drawn by chance."""

    # fmt: off
    angle: int = knob(
        30, low=1, high=90, unit="degrees", help="between the two columns",
        look_for="From which angle on does Greville's fit stay with the other?")
    ridge: float = knob(
        0.1, low=1e-3, high=10.0, log=True, help="lambda of both solvers",
        look_for="Large, it keeps Greville from going past: what does it cost?")
    length: float = knob(
        2.0, low=LEAST, high=MOST, step=0.1, help="of the new column; the old has 1",
        look_for="Is a column shorter than the old one ever answered too loudly?")
    # fmt: on


class Added(NamedTuple):
    """One update by one solver; C is what the new column adds to the old ones."""

    cross: float  # C' y, of which the new weight is a multiple
    adds: float  # C' C
    known: float  # D' D, of the new column's coefficients in the old ones
    weight: float
    fit: np.ndarray  # (2,) after the update


class Columns(NamedTuple):
    """What is drawn of an update."""

    column: np.ndarray  # (2,) the one that joins
    runs: dict[str, list[Added]]  # by solver, the start and its updates so far


def column(angle: float, length: float) -> Tensor:
    """Return the new column (2, 1), at an angle to the old one, in degrees."""
    turn = torch.deg2rad(torch.tensor([angle], dtype=torch.float64))
    return length * torch.stack([turn.cos(), turn.sin()])


def added(name: str, H: Tensor, ridge: float) -> list[Added]:
    """Let a column join a solver again and again; return the start and all updates."""
    A, solver = OLD, SOLVERS[RULES[name]]
    state = solver.start(A, TARGET, ridge)
    rows = [Added(0.0, 0.0, 0.0, float(state.W), (A @ state.W).numpy()[:, 0])]
    for _ in range(UPDATES):
        D = state.A_dagger @ H
        C = H - A @ D
        state, A = solver.update(state, A, H, TARGET), torch.cat([A, H], 1)
        sizes = (float((x * y).sum()) for x, y in ((C, TARGET), (C, C), (D, D)))
        rows.append(Added(*sizes, float(state.W[-1]), (A @ state.W).numpy()[:, 0]))
    return rows


def column_rows(knobs: Any) -> Iterator[dict]:
    """Yield one row for each update with the same column."""
    H = column(knobs.angle, knobs.length)
    runs = {name: added(name, H, knobs.ridge) for name in RULES}
    for step in range(1, UPDATES + 1):
        now = {name: run[: step + 1] for name, run in runs.items()}
        shown = Columns(H.numpy()[:, 0], now)
        weights = {name: run[-1].weight for name, run in now.items()}
        yield {"step": step, "ridge": knobs.ridge, "pictures": shown} | weights


def dragged(
    _now: Columns, _knobs: ColumnKnobs, _name: str, _index: int, point: Sequence[float]
) -> dict[str, float]:
    """Return the knobs of the new column that a hand dragged."""
    angle = np.clip(np.degrees(np.arctan2(point[1], point[0])), 1, 90)
    length = np.clip(np.hypot(point[0], point[1]), LEAST, MOST)
    return {"angle": round(angle), "length": round(float(length), 1)}


CAPTION = (
    "The purple column joins six times. The ridge fit comes as near the target as its "
    "ridge allows. Greville's recursion leaves out the ridge times D'D, which matters "
    "where the new column adds little. Once D'D is above 1 its fit goes past the "
    "target along one direction, and further updates soon carry it away."
)


def picture(now: Columns | None, before: Columns | None) -> dict:
    """Draw the columns and fits in the plane of the two samples."""
    figure = planes(
        ["Columns and fits"],
        ["first sample"],
        ["second sample"],
        [((LOW, HIGH),) * 2],
        caption=CAPTION,
        height=412,  # what stands below it is high, too
        square=True,
    )
    if before:
        gap = (np.nan, np.nan)
        pale = [(*(update.fit for update in run), gap) for run in before.runs.values()]
        put(figure, 0, [path(np.vstack(pale), GHOST, EARLIER)])
    if now:
        near = ellipse(TARGET[:, 0], np.eye(2), NEAR, INK, "within 0.2 of the target")
        old = arrow((0, 0), OLD.numpy()[:, 0], INK, "old column")
        new = arrow((0, 0), now.column, NEW, "column that joins")
        put(figure, 0, [near, old, new, handles(now.column, "column")])
        for name, run in now.runs.items():
            colour, fits = colour_of(name), [update.fit for update in run]
            last = dots(fits[-1], colour, size=10)
            put(figure, 0, [path(fits, colour, name, marks=True), last])
    return figure


def _status(row: Mapping) -> str:
    ridge, runs = f"{row['ridge']:.3g}", row["pictures"].runs
    exact, greville = (run[-1] for run in runs.values())
    return (
        r"The new weight by the ridge solver is "
        r"$\frac{C^\top y}{C^\top C + \lambda(1 + D^\top D)} = "
        rf"\frac{{{exact.cross:.3g}}}{{{exact.adds:.3g} + {ridge}\,"
        rf"(1 + {exact.known:.3g})}} = {exact.weight:.3g}$, by Greville's recursion "
        r"$\frac{C^\top y}{C^\top C + \lambda} = "
        rf"\frac{{{greville.cross:.3g}}}{{{greville.adds:.3g} + {ridge}}} = "
        rf"{greville.weight:.3g}$, where $D^\top D = {greville.known:.4g}$"
    )


COLUMNS = Experiment(
    "columns",
    ColumnKnobs,
    column_rows,
    (),
    CAPTION,
    _status,
    front=("angle", "ridge", "length"),
    playable={"angle": (10, 30, 45, 60, 90), "ridge": (0.01, 0.1, 0.3, 0.9, 3.0)},
    picture=picture,
    drag=dragged,
)
