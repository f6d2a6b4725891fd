"""Who wins what, and what does not pay: decided by the runs alone."""

import math

import pandas as pd

from labkit.labs.compare.race import Noise, Race, last_looks

BASELINE = "Adam"
POINTS = 3.0  # the goal lies so many points of accuracy below the best rule's end
FACTOR = 1.25  # an error's goal is this factor above; so much is level on a clock
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
    """The score that is asked for on the clocks, from the best rule's last score."""
    scores = ends(result).score
    if result.job.higher:
        return scores.max() - POINTS
    return scores.min() * FACTOR


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


def on_the_clock(a: float, b: float) -> str:
    """Of two times, the lower is better, nan for never: whether a is ahead."""
    if math.isnan(a) and math.isnan(b):
        return LEVEL
    if math.isnan(a) or a > FACTOR * b:
        return BEHIND
    return AHEAD if math.isnan(b) or a * FACTOR < b else LEVEL


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
    last, times = ends(result), to_goal(result)
    noises = {} if noise is None else {k: under_noise(noise, k) for k in KINDS}
    rows = {}
    for label in result.labels:
        if label == BASELINE:
            continue
        row = {
            "at the end": compared(result, last.loc[label], last.loc[BASELINE]),
            "seconds to goal": on_the_clock(
                times.seconds[label], times.seconds[BASELINE]
            ),
            "rows to goal": on_the_clock(times.passes[label], times.passes[BASELINE]),
        }
        for kind, table in noises.items():
            row[f"noisy {kind}"] = compared(
                result, table.loc[label], table.loc[BASELINE]
            )
        wins = [name for name, verdict in row.items() if verdict == AHEAD]
        row["pays here"] = ", ".join(wins) if wins else "no"
        rows[label] = row
    return pd.DataFrame(rows).T.rename_axis("beside Adam")


KINDS = ("inputs", "labels")


def ends_table(result: Race) -> pd.DataFrame:
    """How every rule ended, and when it came to the goal."""
    last, times, unit = ends(result), to_goal(result), result.job.unit
    aim = f"{goal(result):.1f} %" if unit == "%" else f"{goal(result):.2f}"
    return pd.DataFrame(
        {
            f"test [{unit}]": last.score,
            "sd": last.sd,
            "passes": last.passes,
            "seconds": last.seconds,
            f"passes to {aim}": times.passes,
            f"seconds to {aim}": times.seconds,
        }
    )


def noise_table(result: Noise) -> pd.DataFrame:
    """Mean and spread of the last score at every level."""
    grouped = result.runs.groupby(["kind", "level", "label"], sort=False).score
    cells = {key: f"{s.mean(skipna=False):.1f} ± {s.std():.1f}" for key, s in grouped}
    table = {}
    for (kind, level, label), cell in cells.items():
        table.setdefault((kind, f"{level:g}"), {})[label] = cell
    return pd.DataFrame(table).sort_index(axis=1).rename_axis("rule")


def summary_table(results: list[tuple[Race, Noise | None]]) -> pd.DataFrame:
    """One row a job: who is best on which count, and what follows."""
    rows = {}
    for result, noise in results:
        times, names = to_goal(result), ", ".join
        worst = "not measured"
        if noise is not None:
            worst = "; ".join(
                f"{kind}: {names(leaders(result, under_noise(noise, kind)))}"
                for kind in KINDS
            )
        rows[result.job.name] = {
            "best by seconds": names(fastest(times.seconds)),
            "best by samples": names(fastest(times.passes)),
            "best at the end": names(leaders(result, ends(result))),
            "best under noise": worst,
            "verdict": verdict(result, noise),
        }
    return pd.DataFrame(rows).T.rename_axis("job")


def verdict(result: Race, noise: Noise | None = None) -> str:
    """What to take: the rules that are ahead of Adam anywhere, those that are not."""
    pays = pays_table(result, noise)["pays here"]
    ahead = [f"{label} ({what})" for label, what in pays.items() if what != "no"]
    idle = list(pays[pays == "no"].index)
    said = []
    if ahead:
        said.append("ahead of Adam: " + "; ".join(ahead))
    if idle:
        said.append("nowhere ahead of Adam: " + ", ".join(idle))
    return ". ".join(said)


def findings(result: Race, noise: Noise | None = None) -> str:
    """Where each rule wins and where it does not pay, in sentences, as Markdown."""
    job, last, times = result.job, ends(result), to_goal(result)
    places = 1 if job.unit == "%" else 2
    unit = " %" if job.unit == "%" else ""

    def value(row):
        return f"{row.score:.{places}f} ± {row.sd:.{places}f}{unit}"

    best = leaders(result, last)
    named = ", ".join(f"{label} ({value(last.loc[label])})" for label in best)
    lines = [
        f"At the end of the budget, not told apart over {result.seeds} seeds: {named}."
        if len(best) > 1
        else f"At the end of the budget {named} is ahead of all others."
    ]
    aim = f"{goal(result):.{places}f}{unit}"
    for column, what, text in (
        ("seconds", "s", "of its own work"),
        ("passes", "passes", "over the rows"),
    ):
        names = fastest(times[column])
        got = ", ".join(f"{n} ({times[column][n]:.2g} {what})" for n in names)
        adam = times[column][BASELINE]
        there = f"gets there after {adam:.2g} {what}"
        if math.isnan(adam):
            there = "does not get there in every seed"
        lines.append(f"First at {aim}, by {what} {text}: {got}; Adam {there}.")
    for kind in KINDS if noise is not None else ():
        table = under_noise(noise, kind)
        names = ", ".join(
            f"{label} ({value(table.loc[label])})" for label in leaders(result, table)
        )
        worst = table.score.idxmin() if job.higher else table.score.idxmax()
        lines.append(
            f"Noise on {kind}, mean over its levels: best, or not told apart from the "
            f"best: {names}. Lowest: {worst} ({value(table.loc[worst])})."
        )
    never = list(times.index[times.seconds.isna()])
    if never:
        lines.append(f"Not at {aim} in every seed: {', '.join(never)}.")
    idle = pays_table(result, noise)["pays here"]
    idle = list(idle[idle == "no"].index)
    if idle:
        lines.append(f"Ahead of tuned Adam on no count: {', '.join(idle)}.")
    return "\n".join(f"* {line}" for line in lines)
