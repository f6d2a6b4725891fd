"""Broad learning on a curve: columns are functions that join, and a fit of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labkit.broad import BroadLearningRegressor, NotPositiveDefinite
from labkit.lab.broad.growth import EXACT, GREVILLE
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.planes import GHOST, dots, path, planes, put
from labkit.lab.panels.figures.theme import COLOURS, INK, colour_of

POINTS, UPDATES, START = 60, 20, 8
X, COARSE = np.linspace(-1, 1, 161)[:, None], 4
MOST = 60  # old columns that are drawn, the newest
RIDGE, OTHER = colour_of("ridge solver"), colour_of("Greville solver")


@dataclass(frozen=True)
class FunctionKnobs:
    """What can be turned; the ridge and the data are inside the factor."""

    # fmt: off
    ridge: float = knob(
        1e-3, low=1e-8, high=100.0, log=True, help="lambda of the fit", about="apart",
        look_for="Do the two curves part as the ridge grows, and does the fit calm?")
    noise: float = knob(
        0.2, low=0.0, high=1.0, step=0.1, unit="sd", help="on the points",
        about="error ridge",
        look_for="Which ridge does the fit want once the points are noisy?")
    added: int = knob(
        4, low=1, high=16, unit="columns", label="per update", restart=False,
        help="of the updates to come", about="apart",
        look_for="Does the Greville fit leave sooner with many small updates?")
    exact: str = knob(
        "chol-1", choices=EXACT, label="ridge solver", help="stays on the solution",
        about="error ridge",
        look_for="Is there any difference between them?")
    greville: str = knob(
        "orig", choices=GREVILLE, label="Greville solver", help="forgets the ridge",
        about="apart",
        look_for="Does exg-e go the same way as orig?")
    seed: int = knob(0, low=0, high=99, help="of nodes and points",
                     look_for="Other functions: is the fit another?")
    # fmt: on


class Functions(NamedTuple):
    """The columns over a grid, the points, and the two fits of the same columns."""

    points: np.ndarray  # (n, 2)
    columns: np.ndarray  # (161, k)
    old: int  # columns before this update
    places: int  # that the columns will need, as things stand
    fits: dict[str, np.ndarray]  # by solver, (161,)
    factor: np.ndarray | None  # (k, k) F of the ridge solver, if it keeps it


def curve(x: np.ndarray) -> np.ndarray:
    """What the points are noisy values of."""
    return np.sin(5 * x) + 0.5 * np.cos(9 * x)


def model(solver: str, knobs) -> BroadLearningRegressor:
    """One of two models that draw the very same nodes."""
    how = {"scaling": "feature", "shrink": 4.0, "orthonormal": False}
    how |= {"ridge": knobs.ridge, "solver": solver, "random_state": knobs.seed}
    return BroadLearningRegressor(1, 3, START - 3, **how)


def function_rows(knobs) -> Iterator[dict]:
    """One row for the start and one for every update."""
    draw = np.random.default_rng(knobs.seed)
    x = draw.uniform(-1, 1, (POINTS, 1))
    y = curve(x[:, 0]) + knobs.noise * draw.standard_normal(POINTS)
    models = {name: model(name, knobs) for name in (knobs.exact, knobs.greville)}
    old, lost = 0, {}
    for step in range(1, UPDATES + 2):
        fits, row = {}, {"step": step}
        for kind, (name, each) in zip(
            ("ridge", "greville"), models.items(), strict=True
        ):
            try:
                if name not in lost:
                    each.add_nodes(knobs.added) if old else each.fit(x, y)
            except NotPositiveDefinite as error:
                lost[name] = str(error)
            if not (name in lost and not old):
                fits[name] = each.predict(X)
                row[f"error {kind}"] = rms(fits[name] - curve(X[:, 0]))
        if not fits:
            yield row | {"note": "; ".join(lost.values())}
            return
        columns = models[next(iter(fits))].expand(X)
        if len(fits) == 2:
            row["apart"] = rms(np.subtract(*fits.values()))
        row |= {"columns": columns.shape[1]} | ({"note": str(lost)} if lost else {})
        points = np.stack([x[:, 0], y], 1)
        places = columns.shape[1] + (UPDATES + 1 - step) * knobs.added
        seen = points, columns, old, places, fits, factor_of(models[knobs.exact])
        yield row | {"pictures": Functions(*seen)}
        old = columns.shape[1]


def factor_of(model: BroadLearningRegressor) -> np.ndarray | None:
    """The inverse Cholesky factor, or None where the solver has none."""
    try:
        return model.factor().numpy().copy()
    except ValueError:
        return None


def rms(values: np.ndarray) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


CAPTION = (
    "Every column is a thin function of the input, drawn at random; the fit is a sum "
    "of them. An update adds columns (orange) and touches no old one, nor what is "
    "filled of F, by which chol-1 and chol-2 stay on the ridge solution; Greville's "
    "recursion leaves it where the ridge matters."
)


def picture(now: Functions | None, before: Functions | None) -> dict:
    """Draw the columns on the left, points and fits, and how F fills."""
    count = f": {now.columns.shape[1]}" if now else ""
    places = now.places if now else START + UPDATES * 4
    figure = planes(
        [f"Columns{count}", "Points, and the fits", "Size of F"],
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
        put(figure, 0, [_all(old, "columns so far", GHOST, width=1)])
        new = now.columns[:, now.old :]
        put(figure, 0, [_all(new, "columns that join now", COLOURS[1], width=1.5)])
        shown = [dots(now.points, COLOURS[5], "noisy points")]
        shown.append(
            path(np.c_[X, curve(X)], INK, "without noise", dash="dot", width=1)
        )
        looks = {"width": 4}, {"width": 2, "dash": "dash"}
        tints = zip(now.fits.items(), (RIDGE, OTHER), looks, strict=False)
        shown += [path(np.c_[X, f], c, name, **look) for (name, f), c, look in tints]
        put(figure, 1, [trace | {"showlegend": True} for trace in shown])
    if now and now.factor is not None:
        heat = {"type": "heatmap", "colorscale": "Viridis", "showscale": False}
        heat |= {"zmin": -2, "zmax": 2}
        at = np.arange(len(now.factor)) + 1
        size = np.ma.log10(np.ma.masked_equal(np.abs(now.factor), 0)).filled(np.nan)
        put(figure, 2, [heat | {"x": at, "y": at, "z": size, "hoverinfo": "skip"}])
    if before:
        fit = next(iter(before.fits.values()))
        ghost = path(np.c_[X, fit], GHOST, "an earlier run")
        put(figure, 1, [ghost | {"showlegend": True}])
    return figure


def _all(columns: np.ndarray, name: str, colour: str, **line) -> dict:
    """Many functions as one line with gaps, coarser than the fits."""
    gap = np.full((1, columns.shape[1]), np.nan)
    x = np.tile(np.append(X[::COARSE], np.nan), columns.shape[1])
    y = np.concatenate([columns[::COARSE], gap]).T.ravel()
    return path(np.c_[x, y], colour, name, **line)


def _status(row) -> str:
    if "columns" not in row:
        return row["note"]
    said = {"ridge": "ridge solver", "greville": "Greville"}
    errors = [
        f"{v} {row[f'error {k}']:.3f}" for k, v in said.items() if f"error {k}" in row
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
)
