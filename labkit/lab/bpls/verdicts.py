"""The tables and the verdicts of the notebook on BPLS."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from labkit import bpls
from labkit.bpls.train import WalkEnd
from labkit.lab.bpls.monte_carlo import DESCENTS
from labkit.lab.claims import NO, YES, Claim, duel
from labkit.lab.problem import Problem, percent
from labkit.lab.race import Race, spread

if TYPE_CHECKING:
    from labkit.lab.panels.figures.captions import Figure

# Table I: best accuracy in %, training and test.
TABLE_1 = {"mnist": (90.04, 87.73), "fashion-mnist": (83.99, 82.57)}
POINTS = "points of accuracy"
SINGLE = ("mean", "cyclic", "label", "one output")  # readings of (5) by one weight
JOINT = ("min_norm", "gauss_seidel")
OTHER = "other data: no verdict"
SHORT = 6  # letters of a tick's label that stands upright
STILL = "open: Adam still improved when its epochs were over"


def _yes(holds: bool) -> str:
    return YES if holds else NO


# Walks with and without the stop rule


def stopped(ends: Sequence[WalkEnd]) -> WalkEnd:
    """Return what the stop rule keeps: the walk before the first that is no better."""
    worse = [end.walk for end in ends if not end.kept]
    return ends[worse[0] - 1] if worse else ends[-1]


def outcome(ends: Sequence[WalkEnd], layer: str, problem: Problem) -> dict[str, float]:
    """Return overshoot and accuracies [%] of a run without the stop rule.

    Parameters
    ----------
    ends : sequence of WalkEnd, of all walks
    layer : str, activation of the hidden layer
    problem : Problem, whose test rows are read
    """
    kept = stopped(ends)
    S = bpls.scores(problem.test.inputs, kept.weights, [bpls.activation(layer)])
    return {
        "overshoot": ends[0].overshoot,
        "clamped [%]": 100 * ends[0].clamped,
        "first walk [%]": 100 * ends[0].accuracy,
        "kept [%]": 100 * kept.accuracy,
        "test [%]": percent(S, problem.test.targets),
        "walks kept": 1 + kept.walk,
        "after 8 more [%]": 100 * ends[-1].accuracy,
    }


def outcome_figure(table: pd.DataFrame, x_title: str, caption: str) -> "Figure":
    """Draw what a walk reaches, keeps and comes to, a panel for each hidden layer.

    ``table`` has rows (hidden layer, setting) of :func:`outcome`.
    """
    names = ["first walk [%]", "kept [%]", "after 8 more [%]"]
    named = {
        f"Behind a hidden layer of {layer}": layer for layer in table.index.unique(0)
    }
    panels = {
        title: table[names]
        .rename(columns=lambda name: name.removesuffix(" [%]"))
        .loc[layer]
        for title, layer in named.items()
    }
    return settings_figure(panels, x_title, "training accuracy, %", caption)


def settings_figure(
    panels: Mapping[str, pd.DataFrame],
    x_title: str,
    y_title: str,
    caption: str,
    *,
    log: bool = False,
    joined: bool = True,
) -> "Figure":
    """Draw the columns of tables over their rows, which have names and no numbers.

    Parameters
    ----------
    panels : mapping of title to DataFrame, a curve for each column
        All have the same rows, in the same order.
    x_title, y_title : str, of the axes
    caption : str
    log : bool, logarithmic vertical axis
    joined : bool, whether lines join the points, since the rows have an order
    """
    from labkit.lab.panels import curves

    drawn = {
        title: {name: (range(len(table)), table[name]) for name in table}
        for title, table in panels.items()
    }
    ticks = [str(each) for each in next(iter(panels.values())).index]
    angle, below = (40, 70) if max(map(len, ticks)) > SHORT else (0, 0)
    figure = curves(
        *(drawn, x_title, y_title), log_y=log, caption=caption, height=420 + below
    )
    for axis in (name for name in figure["layout"] if name.startswith("xaxis")):
        labels = {"tickvals": list(range(len(ticks))), "ticktext": ticks}
        figure["layout"][axis] |= labels | {"tickangle": angle}
    figure["layout"]["margin"]["b"] += below
    for trace in (t for t in figure["data"] if t["mode"] == "lines+markers"):
        trace["mode"] = "lines+markers" if joined else "markers"
    return figure


def walks_figure(walks: Mapping[str, Sequence[WalkEnd]]) -> "Figure":
    """Draw the accuracy walk by walk without the stop rule, and stars where it stops.

    ``walks`` has the ends of all walks by a label.
    """
    from labkit.lab.panels import curves

    paths = {
        label: (range(len(ends)), [100 * end.accuracy for end in ends])
        for label, ends in walks.items()
    }
    figure = curves(
        {"Training accuracy without the stop rule": paths},
        "walk on misses",
        "%",
        width=720,
        caption="Walking on past the star, which the stop rule keeps, costs accuracy "
        "where the pixels are noisy.",
    )
    kept = [stopped(ends) for ends in walks.values()]
    stars = {
        "type": "scatter",
        "x": [end.walk for end in kept],
        "y": [100 * end.accuracy for end in kept],
        "mode": "markers",
        "marker": {"symbol": "star", "size": 16, "color": "#000000"},
        "name": "stop rule keeps this",
        "showlegend": False,
    }
    figure["data"].append(stars)
    return figure


def race_table(raced: Race, label: str) -> pd.DataFrame:
    """Return best accuracies, seconds, and the time to what one of them keeps.

    Parameters
    ----------
    raced : Race
    label : str, whose test accuracy is the goal, in each seed its own
    """
    best, last = raced.best("train"), raced.last()
    goal = best[best.label == label].set_index("seed").test
    there = raced.runs[raced.runs.test >= raced.runs.seed.map(goal)]
    reached = there.groupby(["label", "seed"]).seconds.first().unstack()
    per_pass = last.assign(seconds=last.seconds / last.passes.clip(lower=1))
    table = spread(best, "test", "train").rename(
        columns={"mean": "test [%]", "sd": "sd [%]", "train": "train [%]"}
    )
    table["passes"] = spread(last, "passes")["mean"]
    table["s per pass"] = spread(per_pass, "seconds")["mean"]
    table["s in all"] = spread(last, "seconds")["mean"]
    table["s to goal"] = reached.mean(axis=1, skipna=False)
    return table


def still_rising(raced: Race, label: str) -> bool:
    """Return whether a seed's test accuracy was best in its last tenth of looks."""
    runs = raced.runs[raced.runs.label == label].groupby("seed").test
    return any(test.argmax() >= 0.9 * (len(test) - 1) for _, test in runs)


# Claims


def toy_claims(
    linear: pd.DataFrame,
    nonlinear: pd.DataFrame,
    off: pd.DataFrame,
    *,
    runs: int,
    epochs: int,
) -> Iterator[Claim]:
    """Judge what is said of the toy.

    Parameters
    ----------
    linear, nonlinear : DataFrames of :func:`~labkit.lab.bpls.toy_table`
    off : DataFrame, share by which BPLS is off the theory of the linear toy
    runs, epochs : int, of the toy
    """
    exact_by = 100 * off.max(axis=None)
    yield Claim(
        "ours: linear toy is least squares, RMSE 2 sigma and sqrt(4.25) sigma",
        f"off by at most {exact_by:.1f} %, where 5 % are allowed",
        f"linear toy, {runs:,} runs",
        _yes(exact_by < 5),
        5 - exact_by,
        unit="% of the RMSE",
    )
    for kind, table in (("linear", linear), ("non-linear", nonlinear)):
        sigma = table.index.get_level_values("sigma").max()
        at = table.xs(sigma, level="sigma").test
        four = at[list(DESCENTS)]
        ratio = at["BPLS"] / four.min()
        yield Claim(
            f"{kind} toy: test error slightly below gradient training",
            f"{at['BPLS']:.3f}, best of the four {four.min():.3f} ({four.idxmin()})",
            f"sigma {sigma:g}, {epochs} epochs",
            YES if ratio < 1 else "equal to 5 %" if ratio <= 1.05 else NO,
            100 * (1 - ratio),
            unit="% of the RMSE",
        )


def tail_claims(tail: pd.DataFrame, runs: int) -> Iterator[Claim]:
    """Judge what we say of single bad runs, by `tail_table`."""
    part = tail["squared error in the worst 5% [%]"]["BPLS"]
    gain = tail.RMSE["BPLS"] / tail.RMSE["output solved again"]
    at = f"non-linear toy, sigma 0.05, {runs:,} runs"
    heavy = "ours: the worst 5 % of runs hold over half of plain BPLS's squared error"
    again = "ours: its RMSE is over 1.4 times that with the output solved again"
    yield Claim(
        heavy, f"{part:.0f} %", at, _yes(part > 50), part - 50, unit="% of the error"
    )
    yield Claim(
        again, f"{gain:.2f} times", at, _yes(gain > 1.4), gain - 1.4, unit="times"
    )


def reading_claim(interpretations: pd.DataFrame, setting: str) -> Claim:
    """Judge that (5) with one weight at a time ruins a linear layer."""
    later = interpretations["after 8 more [%]"].xs("identity")
    joint, single = later[list(JOINT)].min(), later[list(SINGLE)].max()
    return Claim(
        "ours: (5) with one weight at a time ruins a linear layer in the walks on "
        "misses: below 60 %, where (5') and gauss_seidel stay above 70 %",
        f"{single:.0f} % at most after eight more, {joint:.0f} % with those two",
        setting,
        _yes(joint > 70 and single < 60),
        min(joint - 70, 60 - single),
        unit=POINTS,
    )


def table_1_claims(
    accuracy: pd.DataFrame, labels: Sequence[str], data: str, setting: str
) -> Iterator[Claim]:
    """Put training and test accuracy of BPLS beside Table I, if it has these data.

    Parameters
    ----------
    accuracy : DataFrame with ``train``, ``mean`` and ``sd``
    labels : sequence of str, the rows that are BPLS
    data, setting : str
    """
    for label in labels:
        here = accuracy.loc[label, ["train", "mean"]]
        found = f"{label}: {here['train']:.2f} / {here['mean']:.2f}"
        if data not in TABLE_1:
            both = "90.04 / 87.73 MNIST, 83.99 / 82.57 Fashion-MNIST"
            claim = f"Table I, BPLS: {both}"
            yield Claim(claim, found, setting, OTHER)
            continue
        gap = float(abs(here.to_numpy() - TABLE_1[data]).max())
        claim = "Table I, {}: {:.2f} / {:.2f}, to 0.7 points"
        claim = claim.format(label, *TABLE_1[data])
        yield Claim(claim, found, setting, _yes(gap <= 0.7), 0.7 - gap, unit=POINTS)


def adam_claim(raced: Race, adam: str, label: str, data: str, place: str) -> Claim:
    """Judge that Adam ends above BPLS, on the paper's data and when it is done."""
    accuracy = spread(raced.best("train"), "test")
    claim = "Table I: Adam above BPLS, by 2.5 points (MNIST) and 1.2 (Fashion-MNIST)"
    rows = accuracy.loc[adam], accuracy.loc[label]
    said = duel(claim, *rows, (adam, label), place, unit=POINTS)
    if data not in TABLE_1:
        return said._replace(verdict=OTHER)
    if said.verdict != YES and still_rising(raced, adam):
        return said._replace(verdict=STILL)
    return said


def few_walks_claim(walks: float, setting: str) -> Claim:
    """Judge that few walks are enough; the last one was rejected."""
    return Claim(
        "few epochs are enough: 9 (MNIST), 4 (Fashion-MNIST); up to 12 count as few",
        f"{walks:.1f} walks, the last rejected",
        setting,
        _yes(walks <= 12),
        12 - walks,
        unit="walks",
    )


def speed_claims(
    table: pd.DataFrame, bpls_label: str, adams: Sequence[str], setting: str
) -> Iterator[Claim]:
    """Judge Table II in two meanings: a pass each, and the time to one accuracy.

    Parameters
    ----------
    table : DataFrame of :func:`race_table`
    bpls_label : str, the row that is BPLS
    adams : sequence of str, the paper's Adam first, the one with large batches second
    setting : str
    """
    per_walk = table["s per pass"] / table["s per pass"][bpls_label]
    one, many = per_walk[list(adams[:2])]
    place = f"{setting}, a pass each"
    yield Claim(
        "Table II: a pass is 1247 times faster than Adam's, batch 1; over 1000 count",
        f"{one:.0f} times a walk",
        place,
        _yes(one > 1000),
        one - 1000,
        unit="times a walk",
    )
    yield Claim("(batch 128: not in the paper)", f"{many:.2f} times a walk", place, "-")
    for label in adams:
        ratio = table["s to goal"][label] / table["s in all"][bpls_label]
        found = "not reached" if math.isnan(ratio) else f"{ratio:.2f} times BPLS's"
        claim = f"({label}: time to BPLS's test accuracy)"
        yield Claim(claim, found, setting, "-")


def line_18_claim(ends: Sequence[WalkEnd], setting: str) -> Claim:
    """Judge the printed condition, by which walks go on after the best one."""
    best, last = 100 * stopped(ends).accuracy, 100 * ends[-1].accuracy
    return Claim(
        "line 18: walks may go on while misses fall or walks remain",
        f"{best:.1f} % kept by our rule, {last:.1f} % after the last walk",
        setting,
        "no: later walks undo it" if last < best - 1 else "harmless here",
        last - best,
        unit=POINTS,
    )
