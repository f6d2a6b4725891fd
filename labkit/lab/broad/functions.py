"""Broad learning on a curve, where the columns are functions that updates add."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from labkit.lab.broad.training import (
    EXACT,
    FIRST,
    GREVILLE,
    JOINS,
    Functions,
    X,
    curve,
    function_rows,
)
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.planes import GHOST, dots, path, planes, put
from labkit.lab.panels.figures.theme import COLOURS, INK, colour_of

COARSE = 4  # the many functions are drawn at every fourth point of the grid
MOST = 60  # old columns that are drawn at most, the newest of them
SOLVERS = "ridge solver", "Greville solver"
NEW = COLOURS[4]  # of the columns that join
NAMED = *SOLVERS, "columns that join now", "without noise"  # in the legend


@dataclass(frozen=True)
class FunctionKnobs:
    """The knobs; the ridge and the data cannot change without a new factor."""

    # fmt: off
    ridge: float = knob(
        1.0, low=1e-8, high=100.0, log=True, help="lambda of the fit",
        about="the gap between the fits: apart",
        look_for="Small: do the two curves stay together for longer?")
    noise: float = knob(
        0.2, low=0.0, high=1.0, step=0.1, unit="sd", help="on the points",
        about="the ridge fit's error: error ridge",
        look_for="Which ridge does the fit want once the points are noisy?")
    added: int = knob(
        4, low=1, high=16, unit="columns", label="per update", restart=False,
        help="of the updates to come", about="the gap between the fits: apart",
        look_for="Does the Greville fit leave sooner with many small updates?")
    exact: str = knob(
        "chol-1", choices=EXACT, label="ridge solver", help="stays on the solution",
        about="the ridge fit's error: error ridge",
        look_for="Is there any difference between them?")
    greville: str = knob(
        "orig", choices=GREVILLE, label="Greville solver", help="forgets the ridge",
        about="the gap between the fits: apart",
        look_for="Does exg-e go the same way as orig?")
    seed: int = knob(0, low=0, high=99, help="of nodes and points",
                     look_for="Other functions: is the fit another?")
    # fmt: on


CAPTION = (
    "Every column is a thin function of the input, drawn at random; the fit is a sum "
    "of them. An update adds columns (purple) and touches no old one, nor what is "
    "filled of F, by which the ridge solver stays on the solution; Greville's "
    "recursion begins there too, and leaves it where the ridge matters."
)


def picture(now: Functions | None, before: Functions | None) -> dict:
    """Draw the columns on the left, the points and fits, and the entries of F."""
    count = f": {now.columns.shape[1]}" if now else ""
    places = now.places if now else FIRST + JOINS * 4
    figure = planes(
        [f"Columns{count}", "Noisy points, and the fits", "Size of F"],
        ["input", "input", "column of F"],
        ["value of a column", "output", "row of F"],
        [
            ((-1, 1), (-1.1, 1.1)),
            ((-1, 1), (-2.5, 2.5)),
            ((0.5, places + 0.5), (places + 0.5, 0.5)),
        ],
        caption=CAPTION,
        widths=[0.32, 0.42, 0.26],
    )
    if now:
        old = now.columns[:, : now.old][:, -MOST:]
        new = now.columns[:, now.old :]
        drawn = [_all(old, "columns so far", GHOST, width=1)]
        drawn.append(_all(new, "columns that join now", NEW, width=1.5))
        put(figure, 0, [t | {"showlegend": t["name"] in NAMED} for t in drawn])
        shown = [dots(now.points, COLOURS[5], "noisy points")]
        shown.append(
            path(np.c_[X, curve(X)], INK, "without noise", dash="dot", width=1)
        )
        styles = {"width": 4}, {"width": 2, "dash": "dash"}
        for name, f, style in zip(SOLVERS, now.fits.values(), styles, strict=False):
            shown.append(path(np.c_[X, f], colour_of(name), name, **style))
        put(figure, 1, [t | {"showlegend": t["name"] in NAMED} for t in shown])
    if now and now.factor is not None:
        at = np.arange(len(now.factor)) + 1
        size = np.ma.log10(np.ma.masked_equal(np.abs(now.factor), 0)).filled(np.nan)
        heat = {
            "type": "heatmap",
            "x": at,
            "y": at,
            "z": size,
            "zmin": -2,
            "zmax": 2,
            "colorscale": "Viridis",
            "showscale": False,
            "hoverinfo": "skip",
        }
        put(figure, 2, [heat])
    if before and before.fits:
        fit = next(iter(before.fits.values()))
        ghost = path(np.c_[X, fit], GHOST, "an earlier run")
        put(figure, 1, [ghost | {"showlegend": True}])
    return figure


def opening(knobs: FunctionKnobs) -> Functions:
    """Return the points and the first columns, before any fit is shown."""
    return next(function_rows(knobs))["pictures"]._replace(fits={})


def _all(columns: np.ndarray, name: str, colour: str, **line: float) -> dict:
    """Return many functions as one line with gaps, coarser than the fits."""
    gap = np.full((1, columns.shape[1]), np.nan)
    x = np.tile(np.append(X[::COARSE], np.nan), columns.shape[1])
    y = np.concatenate([columns[::COARSE], gap]).T.ravel()
    return path(np.c_[x, y], colour, name, **line)


def _status(row: Mapping) -> str:
    if "columns" not in row:
        return row["note"]
    labels = {"ridge": "ridge solver", "greville": "Greville"}
    errors = [
        f"{v} {row[f'error {k}']:.3f}" for k, v in labels.items() if f"error {k}" in row
    ]
    return f"{row['columns']} columns; error: {', '.join(errors)} {row.get('note', '')}"


FUNCTIONS = Experiment(
    "functions",
    FunctionKnobs,
    function_rows,
    (),
    CAPTION,
    _status,
    front=("ridge", "noise", "added"),
    playable={"ridge": (1e-8, 1e-3, 1.0)},
    picture=picture,
    opening=opening,
    at_once=True,
)
