"""Tables and sentences made of the verdicts, so that none can go stale."""

import math
from collections.abc import Sequence

import pandas as pd

from labkit.labs.compare.race import Noise, Race
from labkit.labs.compare.verdicts import (
    BASELINE,
    BEHIND,
    KINDS,
    ends,
    fastest,
    goal,
    leaders,
    pays_table,
    to_goal,
    under_noise,
)

Results = Sequence[tuple[Race, Noise | None]]


def ends_table(result: Race) -> pd.DataFrame:
    """How every rule ended, and when it came to the goal."""
    last, times, unit = ends(result), to_goal(result), result.job.unit
    aim = _aim(result)
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


def summary_table(results: Results) -> pd.DataFrame:
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


def _value(result: Race, row) -> str:
    if result.job.unit == "%":
        return f"{row.score:.1f} ± {row.sd:.1f} %"
    return f"{row.score:.2f} ± {row.sd:.2f}"


def _aim(result: Race) -> str:
    return f"{goal(result):.1f} %" if result.job.unit == "%" else f"{goal(result):.2f}"


def findings(result: Race, noise: Noise | None = None) -> str:
    """Where each rule wins and where it does not pay, in sentences, as Markdown."""
    job, last, times = result.job, ends(result), to_goal(result)
    best = leaders(result, last)
    named = ", ".join(f"{label} ({_value(result, last.loc[label])})" for label in best)
    lines = [
        f"At the end of the budget, not told apart over {result.seeds} seeds: {named}."
        if len(best) > 1
        else f"At the end of the budget {named} is ahead of all others."
    ]
    aim = _aim(result)
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
            f"{label} ({_value(result, table.loc[label])})"
            for label in leaders(result, table)
        )
        worst = table.score.idxmin() if job.higher else table.score.idxmax()
        lines.append(
            f"Noise on {kind}, mean over its levels: best, or not told apart from the "
            f"best: {names}. Lowest: {worst} ({_value(result, table.loc[worst])})."
        )
    never = list(times.index[times.seconds.isna()])
    if never:
        lines.append(f"Not at {aim} in every seed: {', '.join(never)}.")
    return "\n".join(f"* {line}" for line in lines)


def idle(results: Results) -> str:
    """What does not pay: rules ahead of tuned Adam on no count, as Markdown."""
    lines = []
    for result, noise in results:
        last, pays = ends(result), pays_table(result, noise)
        adam = last.loc[BASELINE]
        for label, row in pays[pays["pays here"] == "no"].iterrows():
            mine = last.loc[label]
            counts = [name for name, what in row.items() if what == BEHIND]
            behind = f"behind in: {', '.join(counts)}" if counts else "level throughout"
            lines.append(
                f"**{label}**, {result.job.name}: {_value(result, mine)} at the end, "
                f"Adam {_value(result, adam)}, at {mine.seconds / adam.seconds:.1f} "
                f"times its seconds; {behind}."
            )
    return "\n".join(f"* {line}" for line in lines or ["Every rule, somewhere."])
