"""What the races of notebook 06 say: goals, times, ranks and verdicts, in words."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pandas as pd

from labkit.lab.claims import AHEAD, BEHIND, LEVEL, Claim, compared, verdict
from labkit.lab.compare.rules import ENTROPY
from labkit.lab.race import Race, View, race_figure, spread
from labkit.lab.tuning import Comparison

if TYPE_CHECKING:
    from labkit.lab.panels.figures.captions import Figure

ADAM = "Adam"  # the tuned one, beside which all others are judged
POINTS, FACTOR = 3.0, 1.25  # of accuracy; of an error, and of a time
AXES = {
    "Against time": ("seconds", "seconds of its own work"),
    "Against data": ("passes", "rows handed over / training rows"),
}
CAPTION = (
    "Lower and further left is better; bands are one standard deviation. A rule that "
    "is further left among the others in the left panel than in the right one takes "
    "little time for a row."
)


@dataclass(frozen=True, eq=False)
class Judged:
    """A comparison, its race at tuned values, and its races under noise.

    Attributes
    ----------
    comparison : Comparison
    race : Race, without noise
    noise : mapping of kind to mapping of level to Race, of the first seeds alone
        Under gradient noise the rules race that step by a gradient.
    """

    comparison: Comparison
    race: Race
    noise: Mapping[str, Mapping[float, Race]] = field(default_factory=dict)

    def ends(self) -> pd.DataFrame:
        """Return the score at the end of the budget, with passes and seconds."""
        return spread(self.race.last(), "score", "passes", "seconds")

    def in_time(self) -> pd.DataFrame:
        """Return the score within the seconds that tuned Adam takes for its budget.

        Raises
        ------
        ValueError
            If no rule of the race is called Adam.
        """
        if ADAM not in self.race.labels:
            raise ValueError(
                f"the rules are judged beside {ADAM!r}, but the race has: "
                f"{', '.join(self.race.labels)}"
            )
        limit = self.ends().seconds[ADAM]
        return spread(self.race.within("seconds", limit), "score")

    def under_noise(self, kind: str) -> pd.DataFrame:
        """Return mean and sd over the seeds of each run's mean over the levels."""
        last = pd.concat([race.last() for race in self.noise[kind].values()])
        runs = last.groupby(["label", "seed"], sort=False).score
        means = runs.agg(lambda scores: scores.mean(skipna=False))
        return spread(means.reset_index(), "score")

    def goal(self) -> float:
        """Return a score that the best rule reaches in every seed.

        It is a little worse than that rule's mean end, and than all of its ends.
        """
        last, shares = self.race.last(), self.comparison.shares
        mean = spread(last, "score")["mean"]
        best = last.score[last.label == self.comparison.best(mean)]
        if shares:
            return min(mean.max() - POINTS, best.min())
        return max(mean.min() * FACTOR, best.max())

    def to_goal(self) -> pd.DataFrame:
        """Return seconds and passes until the goal; nan unless in every seed."""
        runs, goal = self.race.runs, self.goal()
        there = runs[
            runs.score >= goal if self.comparison.shares else runs.score <= goal
        ]
        grouped = there.groupby(["label", "seed"]).head(1).groupby("label")
        times = grouped[["seconds", "passes"]].mean()
        times = times[grouped.size() == self.race.seeds]
        failed = runs.label[runs.score.isna()]
        return times.drop(failed, errors="ignore").reindex(self.race.labels)

    def counts(self) -> pd.DataFrame:
        """Say of each rule and each count whether it is ahead of tuned Adam."""
        beside = self.comparison.compared
        tables = {"at the end": self.ends(), "in Adam's seconds": self.in_time()}
        for kind in self.noise:
            tables[kind.replace("_", " ")] = self.under_noise(kind)
        counts = {
            name: {k: beside(row, table.loc[ADAM]) for k, row in table.iterrows()}
            for name, table in tables.items()
        }
        for name, times in self.to_goal().rename(columns={"passes": "rows"}).items():
            ends, adam = counts["at the end"], times[ADAM]
            counts[f"{name} to goal"] = {
                label: sooner(time, adam, ends[label]) for label, time in times.items()
            }
        return pd.DataFrame(counts).reindex(self.race.labels).drop(ADAM).fillna("-")


def sooner(mine: float, other: float, ends: str) -> str:
    """Say whether one time to the goal is ahead of another.

    Where only one rule gets there in every seed, the ends decide: a seed that just
    misses the goal is no reason to call a rule slow.
    """
    if pd.isna(mine) != pd.isna(other):
        return ends
    if mine > FACTOR * other:
        return BEHIND
    return AHEAD if mine * FACTOR < other else LEVEL


def leaders(comparison: Comparison, table: pd.DataFrame) -> list[str]:
    """Return the rule with the best mean, and those that it is not ahead of."""
    best = comparison.best(table["mean"])
    rest = table.drop(best).iterrows()
    level = [k for k, row in rest if comparison.compared(table.loc[best], row) != AHEAD]
    return [best, *level]


def fastest(times: pd.Series) -> list[str]:
    """Return the rule with the least time, and those within a quarter of it."""
    times = times.dropna().sort_values()
    return list(times[times <= FACTOR * times.min()].index)


# Tables and figures


def spelled(values: Mapping[str, float | tuple[float, float]]) -> str:
    """Write names with values, or with the ends of a range, in one line."""
    return ", ".join(
        f"{k} {v[0]:g}..{v[1]:g}" if isinstance(v, tuple) else f"{k} {v:.2g}"
        for k, v in values.items()
    )


def unit(comparison: Comparison) -> str:
    """Return what a comparison's score is in."""
    return "%" if comparison.shares else "squared error"


def tuning_table(
    comparison: Comparison, chosen: Mapping[str, Mapping], tried: pd.DataFrame
) -> pd.DataFrame:
    """Return ranges, the values chosen, and how far apart the trials ended."""
    scores = tried.groupby("label", sort=False)["mean"]
    best, worst = ("max", "min") if comparison.shares else ("min", "max")
    rules, of, fit = comparison.rules, unit(comparison), comparison.problem.fit
    # as `descend` does
    squares = {ENTROPY: "squares"} if fit.targets.is_floating_point() else {}
    columns = {
        "minimises": {k: squares.get(r.loss, r.loss) for k, r in rules.items()},
        "tuned, from..to": {k: spelled(rule.ranges) for k, rule in rules.items()},
        "trials": scores.size(),
        "failed": scores.size() - scores.count(),
        "chosen": {label: spelled(values) for label, values in chosen.items()},
        f"best trial [{of}]": scores.agg(best),
        f"worst trial [{of}]": scores.agg(worst),
        "seconds for all": tried.groupby("label").seconds.sum(),
    }
    return pd.DataFrame(columns).reindex(rules).rename_axis("rule")


def error_figure(judged: Judged) -> "Figure":
    """Draw the test error against own seconds and against rows."""
    race, shares = judged.race, judged.comparison.shares
    score = race.runs.score
    error, title = score, "squared error per test row"
    if shares:
        error, title = 100 - score, "test error [%]"
    views = [
        View(x, "error", panel, x_title, title, log_x=True, log_y=True)
        for panel, (x, x_title) in AXES.items()
    ]
    drawn = replace(race, runs=race.runs.assign(error=error))
    return race_figure(drawn, views, bands=True, caption=CAPTION, height=480)


def goal_in_words(judged: Judged) -> str:
    """Write the goal with its unit, if it has one."""
    goal = judged.goal()
    return f"{goal:.1f} %" if judged.comparison.shares else f"{goal:.2f}"


def ends_table(judged: Judged) -> pd.DataFrame:
    """Return how every rule ended, and when it came to the goal."""
    times = judged.to_goal()[["passes", "seconds"]]
    times = times.add_suffix(f" to {goal_in_words(judged)}")
    named = {"mean": f"test [{unit(judged.comparison)}]"}
    return judged.ends().rename(columns=named).join(times).rename_axis("rule")


# Verdicts in words


def _scored(judged: Judged, table: pd.DataFrame, labels: Iterable[str]) -> str:
    words = judged.comparison.words
    return ", ".join(f"{label} ({words(table.loc[label])})" for label in labels)


def _at_the_end(judged: Judged, table: pd.DataFrame) -> str:
    best = leaders(judged.comparison, table)
    scored = _scored(judged, table, best)
    if len(best) == 1:
        return f"{scored} is ahead of all others"
    return f"not told apart over {judged.race.seeds} seeds: {scored}"


def _first_there(times: pd.Series, of: str) -> str:
    """Name the fastest with their times, and Adam's if it is not among them."""
    names, adam = fastest(times), times[ADAM]
    words = ", ".join(f"{name} ({_counted(times[name], of)})" for name in names)
    if ADAM in names:
        return words
    if pd.isna(adam):
        return f"{words}; Adam does not get there in every seed"
    return f"{words}; Adam gets there after {_counted(adam, of)}"


def _counted(number: float, of: str) -> str:
    """Write a number with its unit, which is one of many but for the number 1."""
    text = f"{number:.2g}"
    return f"{text} {of.removesuffix('es') if text == '1' else of}"


def _best_under(judged: Judged, kind: str) -> str:
    """Name the rules that lead under one kind of noise, and the one that comes last."""
    table, shares = judged.under_noise(kind), judged.comparison.shares
    worst = table["mean"].idxmin() if shares else table["mean"].idxmax()
    words = kind.replace("_", " ").capitalize()
    best = _scored(judged, table, leaders(judged.comparison, table))
    last = _scored(judged, table, [worst])
    return (
        f"{words}, mean over its levels: best, or not told apart from the best: "
        f"{best}. Last: {last}."
    )


def findings(judged: Judged) -> str:
    """Write, as Markdown, where each rule wins and where it does not."""
    times, goal = judged.to_goal(), goal_in_words(judged)
    ends, in_time = judged.ends(), judged.in_time()
    lines = [
        f"At the end of the budget, {_at_the_end(judged, ends)}.",
        f"Within the {ends.seconds[ADAM]:.2g} s of tuned Adam, "
        f"{_at_the_end(judged, in_time)}.",
        f"First at {goal}, by seconds of its own work: "
        f"{_first_there(times.seconds, 's')}.",
        f"First at {goal}, by passes over the rows: "
        f"{_first_there(times.passes, 'passes')}.",
        *(_best_under(judged, kind) for kind in judged.noise),
    ]
    if never := list(times.index[times.seconds.isna()]):
        lines += [f"Not at {goal} in every seed: {', '.join(never)}."]
    return "\n".join(f"* {line}" for line in lines)


def pays_table(judged: Judged) -> pd.DataFrame:
    """Return each rule beside tuned Adam, count by count, and in what it is ahead."""
    counts = judged.counts()
    ahead = [", ".join(row.index[row == AHEAD]) or "no" for _, row in counts.iterrows()]
    return counts.assign(**{"pays here": ahead}).rename_axis("beside tuned Adam")


def beside(judged: Judged, claim: str, label: str, other: str, setting: str) -> Claim:
    """Return the claim that a rule ends better than another one, judged."""
    a, b = (judged.ends().loc[name] for name in (label, other))
    comparison = judged.comparison
    found = f"{label} {comparison.words(a)}, {other} {comparison.words(b)}"
    said = comparison.compared(a, b, verdict)
    gap = (a["mean"] - b["mean"]) * (1 if comparison.shares else -1)
    named = "points of accuracy" if comparison.shares else unit(comparison)
    return Claim(claim, found, setting, said, gap, a["sd"] + b["sd"], named)


def _take(judged: Judged) -> str:
    """Name the rules that are ahead of tuned Adam anywhere, and those that are not."""
    pays = pays_table(judged)["pays here"]
    ahead = [f"{label} ({what})" for label, what in pays.items() if what != "no"]
    nowhere = list(pays.index[pays == "no"])
    parts = ["ahead of tuned Adam: " + "; ".join(ahead)] if ahead else []
    parts += ["nowhere ahead of it: " + ", ".join(nowhere)] if nowhere else []
    return ". ".join(parts)


def summary(judged: Judged) -> dict[str, str]:
    """Name the best rules on every count."""
    times, comparison = judged.to_goal(), judged.comparison
    noise = {k: leaders(comparison, judged.under_noise(k)) for k in judged.noise}
    noise = [f"{kind.replace('_', ' ')}: {', '.join(k)}" for kind, k in noise.items()]
    return {
        "best by seconds": ", ".join(fastest(times.seconds)),
        "best by rows": ", ".join(fastest(times.passes)),
        "best at the end": ", ".join(leaders(comparison, judged.ends())),
        "best under noise": "; ".join(noise) or "not measured",
        "verdict": _take(judged),
    }


# Ranks over comparisons, and what does not pay


def ranks(judged: Judged, looks: pd.DataFrame) -> pd.DataFrame:
    """Rank the rules seed by seed: 1 is the best, and equal scores share their ranks.

    Returns
    -------
    DataFrame, a row for each label and seed: ``rank``, and ``place`` in [0, 1], which
    is 0 of the best rule and 1 of the last one, however many there are
    """
    shares = judged.comparison.shares
    looks = looks[["label", "seed"]].assign(
        score=looks.score.fillna(-float("inf") if shares else float("inf"))
    )
    grouped = looks.groupby("seed").score
    rank = grouped.rank(ascending=not shares)
    return looks.assign(rank=rank, place=(rank - 1) / (grouped.transform("size") - 1))


def rank_table(all_judged: Iterable[Judged]) -> pd.DataFrame:
    """Return ranks at the end, mean and sd over the seeds, comparison by comparison.

    The last column is the place, mean and sd over the comparisons that a rule is in.
    """
    columns, places = {}, {}
    for judged in all_judged:
        table = ranks(judged, judged.race.last())
        rank = spread(table, "rank")
        title = f"{judged.comparison.name}: rank of {len(rank)}"
        columns[title] = {
            k: f"{r['mean']:.1f} ± {r.sd:.1f}" for k, r in rank.iterrows()
        }
        for label, place in spread(table, "place")["mean"].items():
            places.setdefault(label, []).append(place)
    mean = {label: pd.Series(each).mean() for label, each in places.items()}
    sd = {label: pd.Series(each).std() for label, each in places.items()}
    columns["place over all, 0 is best"] = {
        k: f"{mean[k]:.2f}" + ("" if pd.isna(sd[k]) else f" ± {sd[k]:.2f}")
        for k in mean
    }
    table = pd.DataFrame(columns).reindex(sorted(mean, key=mean.get))
    return table.fillna("not in it").rename_axis("rule")


def might_pay(judged: Judged, tried: pd.DataFrame) -> dict[str, list[str]]:
    """Say of each rule where this run shows that it might pay.

    *With more passes*: in the second half of the budget it gained more than tuned Adam,
    by more than both spreads. *With more noise*: at the largest level it is ahead of
    tuned Adam. *Where nothing can be tuned*: its worst trial was better than Adam's
    worst, by 3 points or a quarter of the error.
    """
    comparison, race = judged.comparison, judged.race
    half = race.within("passes", comparison.sizes.passes / 2)
    won = _gain(comparison, half, race.last())
    noisy = {
        f"with more {kind.replace('_', ' ')}": spread(
            levels[max(levels)].last(), "score"
        )
        for kind, levels in judged.noise.items()
    }
    scores = tried.groupby("label")["mean"]
    worst = scores.min() if comparison.shares else scores.max()
    found = {label: [] for label in race.labels if label != ADAM}
    for label, where in found.items():
        if compared(won.loc[label], won.loc[ADAM]) == AHEAD:
            where.append("with more passes")
        for name, table in noisy.items():
            rows = (table.loc[k] for k in (label, ADAM))
            if label in table.index and comparison.compared(*rows) == AHEAD:
                where.append(name)
        gap = worst[label] - worst[ADAM] - POINTS
        if not comparison.shares:
            gap = worst[ADAM] - worst[label] * FACTOR
        if gap > 0:
            where.append("where nothing can be tuned")
    return found


def _gain(
    comparison: Comparison, first: pd.DataFrame, last: pd.DataFrame
) -> pd.DataFrame:
    """Return mean and sd of what each run won from one look to another."""
    keys = ["label", "seed"]
    won = last.set_index(keys).score - first.set_index(keys).score
    won = won if comparison.shares else -won
    return spread(won.reset_index(), "score")


def idle_table(judged: Judged, tried: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Yield a row for each rule that is ahead of tuned Adam on no count."""
    ends, pays = judged.ends(), pays_table(judged)
    words, adam = judged.comparison.words, ends.loc[ADAM]
    where = might_pay(judged, tried)
    for label, counts in pays[pays["pays here"] == "no"].iterrows():
        mine = ends.loc[label]
        yield {
            "rule": label,
            "comparison": judged.comparison.name,
            "at the end": words(mine),
            "tuned Adam": words(adam),
            "its seconds / Adam's": f"{mine.seconds / adam.seconds:.1f}",
            "behind in": ", ".join(counts.index[counts == BEHIND]) or "nothing",
            "where it might pay": "; ".join(where[label])
            or "nowhere that this run shows",
        }
