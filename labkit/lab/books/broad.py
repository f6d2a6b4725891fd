"""Growing networks, live, and what notebook 04 measures of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from labkit.broad import SOLVERS, SharedColumns, Update, side_by_side
from labkit.lab.books.shared import judged, labels_knob, noise_knob, seed_knob
from labkit.lab.panels import Experiment, Lines, curves, knob
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.measured import Finding, Measurement
from labkit.lab.problem import Problem, load_problem, with_noise

EXACT = tuple(name for name in SOLVERS if SOLVERS[name].exact)
START = 110  # nodes at the start
LARGEST = 80  # nodes of an update at most
FEATURES = 4  # new feature nodes in each update


@dataclass(frozen=True)
class GrowthKnobs:
    """The knobs; the values to look for were measured on the digits.

    A growing factor allows other updates at any time. The ridge, images, labels and
    precision from which it was made cannot be changed without a new start.
    """

    # fmt: off
    ridge: float = knob(
        1e-4, low=1e-12, high=100.0, log=True, help="lambda, inside the factor",
        about="Greville's distance from the solution: residual greville",
        look_for="The curves part between 1e-8 and 1; not at 1e-12, nor at 100.")
    precision: str = knob(
        "float64", choices=("float64", "float32"), help="of nodes and solvers",
        look_for="float32, ridge 1e-3: chol-1 falls and ends.")
    exact: str = knob(
        "chol-1", choices=EXACT, label="ridge solver",
        help="each keeps a state of its own",
        look_for="float32, ridge 1e-3: chol-2 and r-inv grow on, the others end.")
    budget: int = knob(
        50, low=10, high=LARGEST, step=5, unit="nodes", label="per update",
        restart=False, help="of the updates to come",
        about="Greville's accuracy: accuracy greville",
        look_for="Twelve updates of 80 cost the Greville solver 33 points, of 10 15.")
    input_noise: float = noise_knob(
        0.0, about="the ridge solver's accuracy: accuracy exact",
        help="on training pixels, under all columns",
        look_for="What the nodes still bring: at 0.5 it rises from 68 to 87 %.")
    label_noise: float = labels_knob(
        about="the ridge solver's accuracy: accuracy exact",
        help="labels drawn at random; solvers keep A'Y",
        look_for="From 0.5 on more nodes harm the ridge solver too: they fit noise.")
    seed: int = seed_knob(
        help="of nodes and noise",
        look_for="Chance: below two points.")
    # fmt: on


def update_of(enhancement: int) -> Update:
    """Return an update in the proportions of the paper's.

    In the paper, 750 of 2,000 enhancement nodes see only the new features.
    """
    own = enhancement * 3 // 8
    return Update(FEATURES, own, enhancement - own)


def shared(
    problem: Problem,
    most: int,
    *,
    seed: int,
    dtype: torch.dtype = torch.float64,
) -> SharedColumns:
    """Return the columns of a start and room for ``most`` more."""
    parts = [
        (part.inputs.to(dtype), part.targets) for part in (problem.fit, problem.test)
    ]
    columns = SharedColumns(*parts, START + most, seed=seed)
    columns.add(Update(10), Update(extra=START - 10))
    return columns


def growth_rows(
    settings: Any, load: Callable[[], Problem], updates: int = 12
) -> Iterator[dict]:
    """Yield one row for the start and for every update; ``step`` counts columns.

    ``load`` returns the problem when a run begins. The knobs of an update are read when
    its columns are made, the other knobs once. A solver that has lost a pivot is left
    out from then on, and ``note`` gives the error.
    """
    problem = with_noise(
        load(),
        input_noise=settings.input_noise,
        label_noise=settings.label_noise,
        seed=settings.seed,
    )
    dtype = getattr(torch, settings.precision)
    columns = shared(problem, updates * LARGEST, seed=settings.seed, dtype=dtype)

    def widths() -> Iterator[int]:
        yield START
        for _ in range(updates):
            yield columns.add(update_of(settings.budget - FEATURES))

    kinds, notes = {settings.exact: "exact", "orig": "greville"}, []
    for records in side_by_side(
        columns.A, widths(), columns.Y, settings.ridge, kinds, score=columns.score
    ):
        row = {"step": records[0].columns}
        for record in records:
            kind = kinds[record.solver]
            if record.lost is not None:
                width = record.columns
                notes.append(f"{record.solver} ended at {width} columns: {record.lost}")
                continue
            row[f"accuracy {kind}"] = record.score
            row[f"residual {kind}"] = record.residual
        yield row | ({"note": "; ".join(notes)} if notes else {})


_KINDS = {"exact": "ridge solver", "greville": "Greville solver"}


def _status(row: Mapping) -> str:
    scores = {label: row.get(f"accuracy {kind}") for kind, label in _KINDS.items()}
    parts = [
        f"{label} {score:.1f} %" for label, score in scores.items() if score is not None
    ]
    note = [row["note"]] if "note" in row else []
    return "; ".join([f"{row['step']} columns", *parts, *note])


def _panel(quantity: str, title: str, y_title: str, *, log: bool) -> Lines:
    drawn = {f"{quantity} {kind}": label for kind, label in _KINDS.items()}
    return Lines(drawn, title, y_title, x_title="columns of A", log=log)


GROWTH = Experiment(
    "growth",
    GrowthKnobs,
    growth_rows,
    (
        _panel("accuracy", "Test accuracy", "%", log=False),
        _panel(
            "residual", "Distance from the ridge solution", "gradient / |A'Y|", log=True
        ),
    ),
    "The ridge solver stays at rounding error from the solution for all its columns; "
    "Greville's recursion leaves it, and as columns come that shows in the accuracy.",
    _status,
    front=("ridge", "label_noise", "budget"),
)


PAIR = ("chol-1", "orig")
RIDGES = (1e-8, 1e-4, 1e-2)
BEHIND = 5.0  # points of accuracy


def grown(
    *,
    data: str,
    samples: int,
    added: int,
    updates: int,
    seeds: int,
    device: str,
) -> Iterator[Mapping | float]:
    """Grow Chol-1 and Orig over the same columns, at each ridge."""
    problem = load_problem(data, samples=samples, dtype=torch.float64, device=device)
    for seed in range(seeds):
        columns = shared(problem, updates * (added + FEATURES), seed=seed)
        for _ in range(updates):
            columns.add(update_of(added))
        for ridge in RIDGES:
            for records in side_by_side(
                columns.A, columns.widths, columns.Y, ridge, PAIR, score=columns.score
            ):
                yield (seed + RIDGES.index(ridge) / len(RIDGES)) / seeds
                for record in records:
                    if record.lost is None:
                        at = {"columns": record.columns, "accuracy": record.score}
                        row = {"seed": seed, "ridge": ridge, "solver": record.solver}
                        yield row | at


def ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last accuracies by ridge and seed, a column for each solver."""
    last = rows[rows["columns"] == rows["columns"].max()]
    return last.pivot(index=["ridge", "seed"], columns="solver", values="accuracy")


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last accuracies, means over the seeds."""
    return ends(rows).groupby(level="ridge").mean()


def leaves(rows: pd.DataFrame) -> Finding:
    """Judge by how many points Orig ends behind Chol-1."""
    last = ends(rows).loc[1e-4]
    return judged("it ends {} points behind", last["chol-1"] - last["orig"], BEHIND)


def accuracies(rows: pd.DataFrame) -> Figure:
    """Draw accuracy against columns, means over the seeds, a panel for each ridge."""
    panels = {}
    for ridge, own in rows.groupby("ridge"):
        means = own.pivot_table("accuracy", "columns", "solver", sort=False)
        lines = {name: (means.index, means[name]) for name in PAIR}
        panels[f"ridge {ridge:.0e}"] = lines
    caption = "Orig climbs with the nodes and then falls far; Chol-1 does not."
    return curves(panels, "columns of A", "test accuracy [%]", caption=caption)


LEAVING = Measurement(
    name="broad-leaving",
    claim="At a ridge of 1e-4 Greville's recursion ends more than five points of "
    "accuracy behind the ridge solver.",
    seconds=6,
    measure=grown,
    judge=leaves,
    figure=accuracies,
    table=table,
)
