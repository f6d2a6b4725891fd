"""Broad learning on a curve, where the columns are functions that updates add."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from labkit.broad import SOLVERS, NotPositiveDefinite
from labkit.lab.books.shared import noise_knob, seed_knob
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.images import EARLIER
from labkit.lab.panels.figures.planes import GHOST, dots, path, planes, put
from labkit.lab.panels.figures.theme import COLOURS, INK, colour_of

POINTS = 60  # of the curve
JOINS = 20  # updates
FIRST = 8  # columns of the start
MOST = 16  # columns of an update at most
STEEP = 4.0  # sd of the functions' slopes
X = np.linspace(-1, 1, 161)  # where the functions and the fits are drawn
COARSE = 4  # the many functions are drawn at every fourth point of the grid
EXACT = "ridge solver"
GREVILLE = "Greville solver"
NEW = COLOURS[4]  # of the columns that join
JOIN = "columns that join now"


@dataclass(frozen=True)
class FunctionKnobs:
    """The knobs; the ridge and the data cannot change without a new factor."""

    # fmt: off
    ridge: float = knob(
        0.01, low=1e-6, high=100.0, log=True, help="lambda of the fit",
        about="the gap between the fits: apart",
        look_for="Large: from where on do the two curves stay together?")
    noise: float = noise_knob(
        0.2, help="on the points",
        about="the ridge fit's error: error ridge",
        look_for="Which ridge does the fit want once the points are noisy?")
    added: int = knob(
        4, low=1, high=MOST, unit="columns", label="per update", restart=False,
        help="of the updates to come", about="the gap between the fits: apart",
        look_for="Does the Greville fit leave sooner with many small updates?")
    seed: int = seed_knob(
        help="of functions and points",
        look_for="Other functions: is the fit another?")
    # fmt: on


class Functions(NamedTuple):
    """The columns on a grid, the points, and the two fits by the same columns."""

    points: np.ndarray  # (n, 2)
    columns: np.ndarray  # (161, k)
    old: int  # columns before this update
    fits: dict[str, np.ndarray]  # by solver, (161,)


def curve(x: np.ndarray) -> np.ndarray:
    """Return the true function, of which the points are noisy values."""
    return np.sin(5 * x) + 0.5 * np.cos(9 * x)


def drawn(knobs: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the points (n, 2), and all columns at the points and on the grid."""
    draw = np.random.default_rng(knobs.seed)
    x = draw.uniform(-1, 1, POINTS)
    y = curve(x) + knobs.noise * draw.standard_normal(POINTS)
    count = FIRST + JOINS * MOST
    slope, centre = STEEP * draw.standard_normal(count), draw.uniform(-1, 1, count)
    A, B = (np.tanh(slope * (at[:, None] - centre)) for at in (x, X))
    return np.stack([x, y], 1), A, B


def function_rows(knobs: Any) -> Iterator[dict]:
    """Yield one row for the start and one for every update."""
    points, A, B = drawn(knobs)
    A, Y = torch.tensor(A), torch.tensor(points[:, 1:])
    solvers, old, k = {name: SOLVERS[name] for name in ("chol-1", "orig")}, 0, FIRST
    states = {
        name: solver.start(A[:, :k], Y, knobs.ridge) for name, solver in solvers.items()
    }
    note = ""
    for step in range(1, JOINS + 2):
        for name in list(solvers) if old else ():
            now = states[name], A[:, :old], A[:, old:k], Y
            try:
                states[name] = solvers[name].update(*now)
            except NotPositiveDefinite as error:  # its fit stays where it is
                note += f"; {name} ended: {error}"
                del solvers[name]
        fits = {
            name: B[:, : len(state.W)] @ state.W.numpy()[:, 0]
            for name, state in states.items()
        }
        ridge, greville = (rms(fit - curve(X)) for fit in fits.values())
        row = {"step": step, "columns": k, "error ridge": ridge}
        row |= {"error greville": greville, "apart": rms(np.subtract(*fits.values()))}
        yield row | {"note": note, "pictures": Functions(points, B[:, :k], old, fits)}
        old, k = k, k + knobs.added


def rms(values: np.ndarray) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


CAPTION = (
    "Every column is a thin function of the input, drawn at random, and the fit is a "
    "sum of them. An update adds some (purple). The ridge solver stays with the "
    "points; Greville's fit leaves them once the columns that join are nearly sums of "
    "old ones."
)


def picture(now: Functions | None, before: Functions | None) -> dict:
    """Draw the columns on the left, and the points and fits on the right."""
    figure = planes(
        ["Columns", "Noisy points, and the fits"],
        ["input", "input"],
        ["value of a column", "output"],
        [((-1, 1), (-1.1, 1.1)), ((-1, 1), (-2.5, 2.5))],
        caption=CAPTION,
        widths=[0.4, 0.6],
    )
    if now:
        old, new = now.columns[:, : now.old], now.columns[:, now.old :]
        put(figure, 0, [_all(old, "", GHOST), _all(new, JOIN, NEW)])
        exact, greville = (np.c_[X, fit] for fit in now.fits.values())
        shown = [
            dots(now.points, COLOURS[5]),
            path(np.c_[X, curve(X)], INK, "without noise", dash="dot", width=1),
            path(exact, colour_of(EXACT), EXACT, width=4),
            path(greville, colour_of(GREVILLE), GREVILLE, dash="dash"),
        ]
        put(figure, 1, shown)
    if before:
        put(figure, 1, [path(np.c_[X, before.fits["chol-1"]], GHOST, EARLIER)])
    return figure


def _all(columns: np.ndarray, name: str, colour: str) -> dict:
    """Return many functions as one line with gaps, coarser than the fits."""
    gap = np.full((1, columns.shape[1]), np.nan)
    x = np.tile(np.append(X[::COARSE], np.nan), columns.shape[1])
    y = np.concatenate([columns[::COARSE], gap]).T.ravel()
    return path(np.c_[x, y], colour, name, width=1)


def _status(row: Mapping) -> str:
    return (
        f"{row['columns']} columns; error of the ridge solver "
        f"{row['error ridge']:.3g}, of Greville's recursion "
        f"{row['error greville']:.3g}{row['note']}"
    )


FUNCTIONS = Experiment(
    "functions",
    FunctionKnobs,
    function_rows,
    (),
    CAPTION,
    _status,
    front=("ridge", "noise", "added"),
    playable={"ridge": (1e-6, 1e-4, 1.0, 100.0)},
    picture=picture,
)
