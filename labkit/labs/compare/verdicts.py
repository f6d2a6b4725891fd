"""Who wins what, and what does not pay: decided by the runs alone."""

import math

import pandas as pd

from labkit.labs.compare.race import Noise, Race, last_looks

BASELINE = "Adam"
KINDS = ("inputs", "labels")  # of noise
POINTS = 3.0  # of accuracy, see goal
FACTOR = 1.25  # of an error, see goal; and two times closer than this are level
AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"


def ends(result: Race) -> pd.DataFrame:
    """Mean and sample sd of the last score, seconds and passes there, by rule."""
    grouped = last_looks(result.runs).groupby("label", sort=False)
    table = grouped.agg(
        score=("score", lambda s: s.mean(skipna=False)),
        sd=("score", "std"),
        seconds=("seconds", "mean"),
        passes=("passes", "mean"),
    )
    return table.rename_axis("rule")


def goal(result: Race) -> float:
    """The score that is asked for on the clocks; the best rule gets there in all seeds.

    Three points of accuracy below its mean last score, or a quarter above its error;
    less where one of its own seeds ends worse.
    """
    job, last = result.job, ends(result)
    best = leaders(result, last)[0]
    mine = last_looks(result.runs[result.runs.label == best]).score
    if job.higher:
        return min(last.score[best] - POINTS, mine.min())
    return max(last.score[best] * FACTOR, mine.max())


def to_goal(result: Race) -> pd.DataFrame:
    """Seconds and passes until a run is first at the goal.

    Nan for a rule that is not there in every seed, or fails in one.
    """
    aim, higher = goal(result), result.job.higher
    there = result.runs[
        result.runs.score >= aim if higher else result.runs.score <= aim
    ]
    first = there.groupby(["label", "seed"], sort=False).head(1)
    grouped = first.groupby("label")
    found = grouped[["seconds", "passes"]].mean()
    failed = set(result.runs[result.runs.score.isna()].label)
    found = found[(grouped.size() == result.seeds) & ~found.index.isin(failed)]
    return found.reindex(result.labels).rename_axis("rule")


def sampling_error(result: Race, score: float) -> float:
    """Standard error of a score for the number of test rows; 0 where it is no share.

    The spread over the seeds does not hold it: all seeds have the same test rows.
    """
    if result.job.unit != "%" or math.isnan(score):
        return 0.0
    p = score / 100
    return 100 * math.sqrt(p * (1 - p) / len(result.job.data.test.targets))


def compared(result: Race, a, b) -> str:
    """Of two rows with score and sd: whether a is ahead of b.

    Level unless the means differ by more than both spreads together, and by more than
    the standard error that the number of test rows leaves.
    """
    gap = a.score - b.score if result.job.higher else b.score - a.score
    if math.isnan(gap):
        return BEHIND if math.isnan(a.score) else AHEAD
    spreads = [sd for sd in (a.sd, b.sd) if not math.isnan(sd)]
    if len(spreads) < 2:  # one seed decides nothing
        return LEVEL
    if abs(gap) <= max(sum(spreads), sampling_error(result, b.score)):
        return LEVEL
    return AHEAD if gap > 0 else BEHIND


def on_the_clock(result: Race, label: str, column: str) -> str:
    """Whether a rule is ahead of the baseline in seconds or passes to the goal.

    Where only one of the two gets there in every seed, the last scores decide: a seed
    that just misses the goal is no reason to call a rule slow.
    """
    last, times = ends(result), to_goal(result)[column]
    a, b = times[label], times[BASELINE]
    if math.isnan(a) != math.isnan(b):
        return compared(result, last.loc[label], last.loc[BASELINE])
    if a > FACTOR * b:
        return BEHIND
    return AHEAD if a * FACTOR < b else LEVEL


def under_noise(result: Noise, kind: str) -> pd.DataFrame:
    """Mean and sd over the seeds of each run's mean over the levels above zero."""
    runs = result.runs[(result.runs.kind == kind) & (result.runs.level > 0)]
    grouped = runs.groupby(["label", "seed"], sort=False).score
    means = grouped.apply(lambda s: s.mean(skipna=False)).groupby("label", sort=False)
    table = {"score": means.apply(lambda s: s.mean(skipna=False)), "sd": means.std()}
    return pd.DataFrame(table).rename_axis("rule")


def leaders(result: Race, table: pd.DataFrame) -> list[str]:
    """The rule with the best mean, and those that it is not ahead of."""
    best = table.score.idxmax() if result.job.higher else table.score.idxmin()
    rest = [
        label
        for label in table.index
        if label != best
        and compared(result, table.loc[best], table.loc[label]) != AHEAD
    ]
    return [best, *rest]


def fastest(times: pd.Series) -> list[str]:
    """The rule with the least time, and those within a quarter of it."""
    times = times.dropna().sort_values()
    return list(times[times <= FACTOR * times.min()].index)


def pays_table(result: Race, noise: Noise | None = None) -> pd.DataFrame:
    """Each rule beside tuned Adam, and in what it is ahead."""
    last = ends(result)
    noises = {} if noise is None else {k: under_noise(noise, k) for k in KINDS}
    rows = {}
    for label in result.labels:
        if label == BASELINE:
            continue
        row = {
            "at the end": compared(result, last.loc[label], last.loc[BASELINE]),
            "seconds to goal": on_the_clock(result, label, "seconds"),
            "rows to goal": on_the_clock(result, label, "passes"),
        }
        for kind, table in noises.items():
            row[f"noisy {kind}"] = compared(
                result, table.loc[label], table.loc[BASELINE]
            )
        wins = [name for name, verdict in row.items() if verdict == AHEAD]
        row["pays here"] = ", ".join(wins) if wins else "no"
        rows[label] = row
    return pd.DataFrame(rows).T.rename_axis("beside Adam")
