"""The paper's claims beside what a run measured, each with its verdict."""

import pandas as pd

from labkit.labs.bpls.race import (
    ADAM_1,
    ADAM_128,
    BPLS,
    GAUSS_NEWTON,
    PAPER_ADAM,
    Race,
    race_table,
)
from labkit.labs.bpls.readings import kept_walk
from labkit.labs.bpls.toy import BASELINES, PLAIN, THEORY_LINE

COLUMNS = ["paper's claim", "measured here", "setting", "verdict"]
NEAR = 0.7  # points of accuracy within which a value of Table I counts as met

# Table I: accuracy in %, training and test; epochs of BPLS in the text
TABLE = {
    "mnist": {"BPLS": (90.04, 87.73), "Adam": (92.23, 90.19), "epochs": 9},
    "fashion-mnist": {"BPLS": (83.99, 82.57), "Adam": (85.97, 83.77), "epochs": 4},
}
SECONDS = {"BPLS": 2.87, "Adam": 3578}  # Table II, per epoch, batch 1, Fashion-MNIST
RATIO = SECONDS["Adam"] / SECONDS["BPLS"]


def claims_table(
    linear: pd.DataFrame,
    nonlinear: pd.DataFrame,
    result: Race,
    paths: pd.DataFrame,
    *,
    epochs,
) -> pd.DataFrame:
    """The claims, decided by these runs alone.

    Parameters
    ----------
    linear, nonlinear : of :func:`toy_table`.
    result : with the runners of :func:`runners`.
    paths : of :func:`collapse`.
    epochs : of the baselines on the toys.
    """
    table = race_table(result)
    place = f"{result.problem}, {result.setting}"
    rows = [
        _theory(linear),
        _toy("linear", linear, epochs),
        _toy("non-linear", nonlinear, epochs),
        *_published(result.problem, table, place),
        _below_adam(table, place),
        _epochs(result.problem, table, place),
        *_clock(table, place),
        _stop(result.problem, paths),
        _ours(table, place),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _theory(table):
    ours, exact = table.loc[PLAIN], table.loc[THEORY_LINE]
    worst = max(
        (ours[part] / exact[part] - 1).abs()[exact[part] > 0].max()
        for part in ("train", "test")
    )
    return (
        "ours: linear toy is least squares, RMSE 2 sigma and sqrt(4.25) sigma",
        f"off by at most {100 * worst:.1f} %",
        "linear toy",
        "yes" if worst < 0.05 else "no",
    )


def _toy(kind, table, epochs):
    """Compare the test RMSE at the largest sigma with the best of the four."""
    sigma = table.index.get_level_values("sigma").max()
    at = table.xs(sigma, level="sigma").test
    best = at[list(BASELINES)].idxmin()
    ratio = at[PLAIN] / at[best]
    return (
        f"{kind} toy: test error slightly below gradient training",
        f"{at[PLAIN]:.3f}, best of the four {at[best]:.3f} ({best})",
        f"sigma {sigma:g}, {epochs} epochs",
        "yes" if ratio < 1 else "equal to 5 %" if ratio <= 1.05 else "no",
    )


def _published(dataset, table, place):
    if dataset not in TABLE:
        row = table.loc[BPLS]
        here = f"{row['train [%]']:.2f} / {row['test [%]']:.2f}"
        claim = "Table I, BPLS: 90.04 / 87.73 MNIST, 83.99 / 82.57 Fashion-MNIST"
        yield (claim, here, place, "other data: no verdict")
        return
    paper = TABLE[dataset]["BPLS"]
    for label in (BPLS, "BPLS, identity", "BPLS, softmax"):
        here = tuple(table.loc[label, ["train [%]", "test [%]"]])
        off = max(abs(a - b) for a, b in zip(here, paper, strict=True))
        yield (
            f"Table I, BPLS: {paper[0]:.2f} / {paper[1]:.2f}",
            f"{label}: {here[0]:.2f} / {here[1]:.2f}",
            place,
            f"within {NEAR}" if off <= NEAR else f"off by {off:.1f} points",
        )


def _below_adam(table, place):
    a, b = table.loc[BPLS], table.loc[PAPER_ADAM]
    here = f"{a['test [%]']:.2f} against {b['test [%]']:.2f} %"
    here += f" after {b['passes']:.0f} epochs"
    return (
        "Table I: test accuracy below Adam's, by 1.2 and 2.5 points",
        here,
        place,
        _verdict(b, a),
    )


def _epochs(dataset, table, place):
    passes = table.loc[BPLS, "passes"]
    claim = "few epochs are enough: 9 (MNIST), 4 (Fashion-MNIST)"
    return (claim, f"{passes:.1f} walks, the last rejected", place, _few(passes))


def _few(passes):
    return "yes" if passes <= 12 else "no"


def _clock(table, place):
    """Both ratios of Table II: a pass, and the time to the same accuracy."""
    walk, total = table.loc[BPLS, ["s per pass", "s to goal"]]
    one = table.loc[PAPER_ADAM, "s per pass"] / walk
    yield (
        f"Table II: {RATIO:.0f} times faster than Adam, batch 1",
        f"{one:.0f} times a walk",
        f"{place}, a pass each",
        "yes" if one > 1000 else "no",
    )
    many = table.loc[ADAM_128, "s per pass"] / walk
    yield ("(batch 128: not in the paper)", f"{many:.2f} times a walk", place, "-")
    for label in (ADAM_128, ADAM_1, PAPER_ADAM):
        ratio = table.loc[label, "s to goal"] / total
        here = "not reached" if pd.isna(ratio) else f"{ratio:.2f} times BPLS's"
        yield (f"({label}: time to BPLS's test accuracy)", here, place, "-")


def _stop(dataset, paths):
    path = paths.iloc[:, -1].dropna()
    kept = kept_walk(path)
    here = f"{path[kept]:.1f} % kept, {path.iloc[-1]:.1f} % after the last walk"
    falls = path.iloc[-1] < path[kept] - 1
    return (
        "line 18: walks go on while misses fall or walks remain",
        here,
        f"{dataset}, {path.name}",
        "no: later walks undo it" if falls else "harmless here",
    )


def _ours(table, place):
    a, b = table.loc[GAUSS_NEWTON], table.loc[PAPER_ADAM]
    return (
        "ours: Gauss-Newton ends above the paper's Adam network",
        f"{a['test [%]']:.2f} against {b['test [%]']:.2f} % after "
        f"{b['passes']:.0f} epochs",
        place,
        _verdict(a, b),
    )


def _verdict(a, b) -> str:
    """Yes or no only where the means differ by more than both spreads together."""
    gap = a["test [%]"] - b["test [%]"]
    if not abs(gap) > a["sd [%]"] + b["sd [%]"]:  # also nan: one seed
        return "not decided by this run"
    return "yes" if gap > 0 else "no"
