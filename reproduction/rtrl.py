"""Online recurrent learning at the paper's size: text and Copy."""

from collections.abc import Mapping

import pandas as pd

from labkit.lab.claims import NO, UNDECIDED, YES
from labkit.lab.race import Race
from reproduction.criteria import ahead, meets, of_runs, unless_improving
from reproduction.judges import Judged, by_label, words


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose labels are the paper's: TBPTT-25, KF-RTRL for 1-KF-AVG.

    Rows without a seed are of the first one, those without units of 256.
    """
    names = {r"^(\d+)-TBPTT": r"TBPTT-\1", "^1-KF-AVG": "KF-RTRL"}
    rows = rows.assign(label=rows["label"].replace(names, regex=True))
    return rows.fillna({"seed": 0, "units": 256})


def in_words(values: pd.Series, digits: int = 1) -> str:
    """Return in words the mean and the standard deviation of runs."""
    return words(values, "", digits) if len(values) > 1 else f"{values.iloc[0]:.4g}"


# Text


def bits(
    rows: pd.DataFrame,
    printed: Mapping[str, tuple[float, float]],
    *,
    claim: str,
    steps: int,
    margin: float,
) -> Judged:
    """Judge each printed number by our runs at the rate with the best validation.

    Runs that end before so many steps decide nothing.
    """
    last = Race(rows).last()
    methods = last["label"].str.replace(r", rate [^,]*", "", regex=True)
    for method, runs in last.groupby(methods, sort=False):
        if method not in printed:
            continue
        valid, test = printed[method]
        longest = runs["look"].max()
        by_rate = runs[runs["look"] == longest].groupby("label")
        label = by_rate["valid"].mean().idxmin()
        best = by_rate.get_group(label).set_index("seed")
        here = f"{in_words(best['valid'], 3)} and {in_words(best['test'], 3)}"
        here += f", {label.split(', ')[1]}"
        held = meets(best["test"], test, margin=margin)
        if longest < steps:
            here, held = f"{here}, after {longest:,} steps", UNDECIDED
        yield claim.format(method=method, valid=valid, test=test), here, held


def on_the_way(
    rows: pd.DataFrame,
    printed: Mapping[str, float],
    *,
    claim: str,
    label: str,
    margin: float,
) -> Judged:
    """Judge whether our bits after so many steps are those of the authors' logs."""
    for steps, number in printed.items():
        here = at(rows, label, int(steps), "valid")
        if len(here):
            named = claim.format(steps=int(steps), number=number)
            yield named, in_words(here, 3), meets(here, number, margin=margin)


def at(rows: pd.DataFrame, label: str | None, steps: int, column: str) -> pd.Series:
    """Return a column of the runs of a label after so many steps, by seed."""
    chosen = (rows["label"] == label) & (rows["look"] == steps)
    return rows[chosen].set_index("seed")[column]


def common(
    rows: pd.DataFrame, labels: tuple[str | None, str | None], column: str
) -> tuple[int, list[pd.Series]]:
    """Return the last step that two labels have, 0 if there is none, and their runs."""
    one, two = (rows[rows["label"] == label]["look"] for label in labels)
    steps = max({*one} & {*two}, default=0)
    return steps, [at(rows, label, steps, column) for label in labels]


def below(
    rows: pd.DataFrame,
    *,
    claim: str,
    a: str,
    b: str,
    rates: list[str],
    margin: float,
) -> Judged:
    """Judge whether the bits of a lie below those of b at the last step of both."""
    for rate in rates:
        labels = tuple(f"{method}, {rate}, batch 32" for method in (a, b))
        steps, (one, two) = common(rows, labels, "valid")
        if steps:
            here = f"{in_words(one, 3)} and {in_words(two, 3)} after {steps:,} steps, "
            here += f"{len(one)} and {len(two)} runs"
            held = ahead(one, two, margin=margin, higher=False)
            yield claim.format(rate=rate), here, held


# Copy

# The five logs of 16-OK end at 38 to 45, with a standard deviation of 7 % of their
# mean, and at 100,000 steps at 15 to 17. Two runs differ by less than 20 %, twice that
# of a difference, or by one symbol, 19 times in 20.
APART = 0.2


def best_rate(rows: pd.DataFrame, method: str) -> str | None:
    """Return the label of a method's run at the rate that came farthest."""
    of_method = rows[rows["label"].str.startswith(f"{method},")]
    ends = {label: runs.mean() for label, runs in by_label(of_method, "level").items()}
    return max(ends, key=ends.get, default=None)


def as_logged(
    rows: pd.DataFrame,
    *,
    claim: str,
    method: str,
    steps: int,
    least: int,
    most: int,
) -> Judged:
    """Judge whether a method comes as far as the shortest of the authors' runs."""
    here = at(rows, best_rate(rows, method), steps, "level")
    if len(here):
        words = in_words(here) + (", above all five" if here.min() > most else "")
        yield claim, words, of_runs(YES if here.mean() >= least else NO, len(here))


def reaches(
    rows: pd.DataFrame,
    printed: Mapping[str, float],
    *,
    claim: str,
    steps: int,
    rates: int,
) -> Judged:
    """Judge whether each method ends near its length in the figure, at all rates."""
    ended = rows.loc[rows["look"] == steps, "label"].unique()
    for method, number in printed.items():
        here = at(rows, best_rate(rows, method), steps, "level")
        if len(here):
            near = abs(here.mean() - number) <= APART * number
            held = of_runs(YES if near else NO, len(here))
            if sum(label.startswith(f"{method},") for label in ended) < rates:
                held = UNDECIDED
            yield claim.format(method=method, number=number), in_words(here), held


def longer(
    rows: pd.DataFrame,
    *,
    claim: str,
    a: str,
    b: str,
    almost: bool = False,
    ends: bool = False,
) -> Judged:
    """Judge whether the lengths of a are above those of b at the last step of both.

    With ``almost`` it asks whether a is not behind by that; with ``ends`` a no of runs
    that still grow is not at its end.
    """
    steps, (one, two) = common(rows, (best_rate(rows, a), best_rate(rows, b)), "level")
    if steps:
        margin = max(1.0, APART * max(one.mean(), two.mean()))
        held = ahead(one, two, margin=-margin - 1e-9 if almost else margin)
        if ends:
            held = unless_improving(held, rows, "level", least=0.0, higher=True)
        yield claim, f"{in_words(one)} and {in_words(two)} after {steps:,} steps", held
