"""Solvers side by side on the same columns: accuracies, breakdowns, operations."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots

from labkit.broad import SOLVERS, NotPositiveDefinite, Update, race
from labkit.broad.cost import TERMS, start_terms, update_terms
from labkit.labs.broad.columns import (
    Columns,
    make_columns,
    make_problem,
    paper_updates,
)
from labkit.panels.captions import Figure, describe
from labkit.panels.curves import legend_below, titles_left
from labkit.panels.theme import COLOURS, PAPER, axis, layout

# The ridges of Tables II and III; see the notebook on how they were found.
RIDGES = tuple(10.0**power for power in range(-8, 0))


def race_frame(
    columns: Columns,
    ridges: Sequence[float],
    solvers: Sequence[str],
    *,
    factor_error=False,
) -> pd.DataFrame:
    """Grow every solver at every ridge; a row for each at each width.

    Parameters
    ----------
    factor_error : measure it, where F is kept; costs more than the growth.

    Returns
    -------
    DataFrame with ``ridge``, ``solver``, ``step``, ``columns``, ``accuracy`` [%] (nan
    once a pivot is lost), ``residual`` of the ridge gradient, ``factor error``,
    ``seconds``, ``operations``, ``safe ridge`` (nan but where a pivot was lost).
    """
    rows = []
    for ridge in ridges:
        records = race(
            columns.A,
            columns.widths,
            columns.Y,
            ridge,
            solvers,
            score=columns.score,
            factor_error=factor_error,
        )
        rows += [
            {
                "ridge": ridge,
                "solver": record.solver,
                "step": record.step,
                "columns": record.columns,
                "accuracy": record.score,
                "residual": record.residual,
                "factor error": record.factor_error,
                "seconds": record.seconds,
                "operations": record.operations,
                "safe ridge": record.lost and record.lost.safe_ridge,
            }
            for record in records
        ]
    numbers = ["accuracy", "residual", "factor error", "safe ridge"]
    return pd.DataFrame(rows).astype(dict.fromkeys(numbers, float))


def ridge_label(ridge: float) -> str:
    """The ridge as short as it can be written.

    >>> ridge_label(1e-8), ridge_label(0.01)
    ('1e-8', '1e-2')
    """
    return np.format_float_scientific(ridge, trim="-", exp_digits=1)


def accuracy_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracies [%] by ridge and solver, one column a width; NA where one ended."""
    solvers = list(dict.fromkeys(frame.solver))
    frame = frame.assign(ridge=frame.ridge.map(ridge_label))
    order = pd.MultiIndex.from_product(
        [dict.fromkeys(frame.ridge), solvers], names=["ridge", "solver"]
    )
    table = frame.pivot(
        index=["ridge", "solver"], columns="columns", values="accuracy"
    ).reindex(order)
    return table.map(lambda value: "NA" if np.isnan(value) else f"{value:.2f}")


def error_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The last errors of each solver at each ridge: of its gradient, of its factor."""
    there = frame.dropna(subset="accuracy")
    there = there.assign(ridge=there.ridge.map(ridge_label))
    last = there.groupby(["ridge", "solver"], sort=False).last()
    return last[["columns", "residual", "factor error"]]


def demonstration(
    ridges: Sequence[float] = (1e-10, 1e-11), seed=0, solvers=tuple(SOLVERS)
) -> pd.DataFrame:
    """Columns that hardly differ, and ridges at the edge: who finishes.

    The digits, one group of 5 feature nodes, 100 + 6 x 100 enhancement nodes; all in
    float64. As :func:`race_frame`.
    """
    columns = make_columns(
        make_problem("digits"),
        paper_updates(6, 100),
        nodes_per_group=5,
        seed=seed,
    )
    return race_frame(columns, ridges, solvers, factor_error=True)


def initial_accuracies(columns: Columns, ridges: Sequence[float] = RIDGES) -> pd.Series:
    """Test accuracy [%] of the ridge solution at the start, by ridge; NA: pivot lost.

    ``bordered`` solves it: one Cholesky factorisation a ridge.
    """
    A, start = columns.A[:, : columns.widths[0]], SOLVERS["bordered"].start
    found = {}
    for ridge in ridges:
        try:
            found[ridge] = columns.score(start(A, columns.Y, ridge).W)
        except NotPositiveDefinite:
            found[ridge] = float("nan")
    return pd.Series(found, name="accuracy [%]").rename_axis("ridge")


def noise_table(
    dataset="digits",
    *,
    updates: Sequence[Update],
    ridges: Sequence[float],
    noises: Sequence[tuple[float, float]],
    samples=None,
    seed=0,
    device=None,
) -> pd.DataFrame:
    """Last accuracy [%] of the exact solver and of Orig under noise, by ridge.

    Parameters
    ----------
    noises : pairs of the deviation added to training pixels and the share of training
        labels drawn at random; the test part is clean.
    """
    rows = {}
    for pixels, labels in noises:
        problem = make_problem(
            dataset,
            samples=samples,
            input_noise=pixels,
            label_noise=labels,
            seed=seed,
            device=device,
        )
        columns = make_columns(problem, updates, seed=seed)
        frame = race_frame(columns, ridges, ["chol-1", "orig"])
        last = frame[frame.step == frame.step.max()]
        last = last.assign(ridge=last.ridge.map(ridge_label))
        row = last.set_index(["solver", "ridge"]).accuracy
        rows[f"pixels {pixels:g}, labels {labels:g}"] = row
    return pd.DataFrame(rows).T.rename_axis("noise")


# Operations and seconds


def cost_frame(
    *, samples, start, added, updates, solvers: Sequence[str], outputs=10, device=None
) -> pd.DataFrame:
    """Grow over random columns (start >= 2), measure seconds and count operations.

    Random columns cost what others cost. Solvers take turns at every size; before the
    first, a race to the width of the start warms the machine up.

    Returns
    -------
    DataFrame by solver: ``seconds`` of the whole growth, ``seconds STEP`` for every
    step, and the operations of the whole growth for each of
    :data:`~labkit.broad.cost.TERMS`.
    """
    g = torch.Generator().manual_seed(0)
    widths = [start + added * i for i in range(updates + 1)]
    A = torch.rand(samples, widths[-1], generator=g, dtype=torch.float64).to(device)
    Y = torch.rand(samples, outputs, generator=g, dtype=torch.float64).to(device)
    list(race(A, [start // 2, start], Y, 1.0, solvers))
    rows = {name: dict.fromkeys(TERMS, 0.0) for name in solvers}
    seconds = {name: {} for name in solvers}
    for record in race(A, widths, Y, 1.0, solvers):
        name = record.solver
        seconds[name][f"seconds {record.step}"] = record.seconds
        size = (samples, widths[record.step - 1], added, outputs)
        terms = (
            update_terms(name, *size)
            if record.step
            else start_terms(name, samples, start, outputs)
        )
        rows[name] = {term: rows[name][term] + terms[term] for term in TERMS}
    for name, each in seconds.items():
        rows[name] |= {"seconds": sum(each.values())} | each
    return pd.DataFrame(rows).T.rename_axis("solver")


def cost_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Operations and seconds of the whole growth, both also relative to chol-1's."""
    operations = frame[list(TERMS)].sum(axis=1)
    return pd.DataFrame(
        {
            "operations [1e9]": operations / 1e9,
            "operations / chol-1": operations / operations["chol-1"],
            "seconds": frame.seconds,
            "seconds / chol-1": frame.seconds / frame.seconds["chol-1"],
            "GFLOP/s": operations / frame.seconds / 1e9,
        }
    )


_TERM_LABELS = {
    "cross": "A'H or A†H",
    "residual": "C = H - AD",
    "square": "C'C or H'H, D'D or V'V",
    "factor": "with F or L, G, T",
    "dagger": "B, A† - DB",
    "weights": "W",
}
_PATTERNS = ("", "/", "x", ".", "\\", "-")


def cost_plot(frame: pd.DataFrame) -> go.Figure:
    """Stacked operations by formula, left, beside measured seconds, right."""
    steps = [name for name in frame.columns if name.startswith("seconds ")]
    figure = make_subplots(
        figure=Figure(),
        cols=2,
        shared_yaxes=True,
        horizontal_spacing=0.05,
        subplot_titles=["<b>Operations, by formula</b>", "<b>Seconds, measured</b>"],
    )
    for i, (term, label) in enumerate(_TERM_LABELS.items()):
        look = {"color": COLOURS[i], "pattern": {"shape": _PATTERNS[i]}}
        figure.add_bar(
            x=frame[term] / 1e9,
            y=frame.index,
            orientation="h",
            name=label,
            marker=look,
            col=1,
            row=1,
        )
    for i, step in enumerate(steps):
        edge = {"color": PAPER, "width": 2}
        stripes = {"shape": "/" if i == 0 else "", "fgcolor": PAPER}
        figure.add_bar(
            x=frame[step],
            y=frame.index,
            orientation="h",
            name="start" if i == 0 else f"update {i}",
            marker={"color": COLOURS[0], "line": edge, "pattern": stripes},
            showlegend=False,
            col=2,
            row=1,
        )
    look = layout(width=960, height=420, barmode="stack")
    look["margin"]["l"] = 90
    legend_below(look, list(_TERM_LABELS.values()))
    titles_left(figure)
    figure.update_layout(look)
    figure.update_layout(
        xaxis=axis("1e9 operations"),
        xaxis2=axis("seconds, start (striped) and updates"),
        yaxis={"autorange": "reversed"},
    )
    reading = (
        "Chol-1 needs neither C nor B: its bar on the left lacks what they cost, and "
        "on the right it is among the shortest."
    )
    words = ("Operations by formula; " + "; ".join(_TERM_LABELS.values()), "Seconds")
    return describe(figure, reading, [f"{text}, of each solver" for text in words])
