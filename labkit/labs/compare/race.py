"""Tuning, the race on the test rows, and the race again under noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from labkit.instruments import Trace
from labkit.labs.compare.harness import Job, scored, trials, with_noise

TUNING_SEED = 1000  # from here on: their weights, batches and nodes serve no race


@dataclass(frozen=True, eq=False)
class Tuned:
    """What the trials gave, by rule."""

    values: dict[str, dict[str, float]]  # rule -> knobs
    trials: pd.DataFrame  # label, trial, values, score, seconds; nan: failed


def tune(job: Job, count: int, *, seeds: int = 1) -> Tuned:
    """Give every rule the same number of trials; the best on the tuning rows wins.

    A trial has the whole budget and is judged by its last look, mean over the seeds. Of
    equal trials the earlier one is taken.

    Parameters
    ----------
    seeds : runs of each trial.

    Raises
    ------
    ValueError
        If all trials of a rule fail.
    """
    rows, values = [], {}
    for label, rule in job.rules.items():
        tried = trials(rule, count)
        for number, each in enumerate(tried, start=1):
            lasts = []
            for seed in range(TUNING_SEED, TUNING_SEED + seeds):
                *_, last = scored(job, label, each, seed, on=job.data.tune)
                lasts.append(last)
            means = {
                key: float(np.mean([last[key] for last in lasts]))
                for key in ("score", "seconds")
            }
            row = {"label": label, "trial": number, "values": spelled(each)}
            rows.append(row | means)
        scores = np.array([row["score"] for row in rows[-count:]])
        if np.isnan(scores).all():
            raise ValueError(
                f"all {count} trials of {label} failed; widen its range or try more"
            )
        best = np.nanargmax(scores if job.higher else -scores)
        values[label] = tried[int(best)]
    return Tuned(values, pd.DataFrame(rows))


def spelled(values: Mapping[str, float]) -> str:
    """Knobs and their values in one line.

    >>> spelled({"rate": 0.0316, "k": 1.0})
    'rate 0.032, k 1'
    """
    return ", ".join(f"{name} {value:.2g}" for name, value in values.items())


def tuning_table(job: Job, tuned: Tuned) -> pd.DataFrame:
    """Ranges, the values chosen, and how far apart the trials ended."""
    table = {}
    for label, rule in job.rules.items():
        mine = tuned.trials[tuned.trials.label == label]
        ends = {k: f"{low:g}..{high:g}" for k, (low, high) in rule.knobs.items()}
        best, worst = mine.score.max(), mine.score.min()
        if not job.higher:
            best, worst = worst, best
        table[label] = {
            "minimises": rule.loss,
            "tuned, from..to": ", ".join(f"{k} {v}" for k, v in ends.items()),
            "trials": len(mine),
            "failed": int(mine.score.isna().sum()),
            "chosen": spelled(tuned.values[label]),
            f"best trial [{job.unit}]": best,
            f"worst trial [{job.unit}]": worst,
            "seconds for all": mine.seconds.sum(),
        }
    return pd.DataFrame(table).T.rename_axis("rule")


@dataclass(frozen=True, eq=False)
class Race:
    """Looks at every run on the test rows."""

    job: Job
    seeds: int
    runs: pd.DataFrame  # label, seed, look, passes, seconds, score; nan: failed

    @property
    def labels(self) -> list[str]:
        """Rules, in their order."""
        return list(dict.fromkeys(self.runs.label))


def race(job: Job, values: Mapping[str, Mapping], *, seeds: int, path=None) -> Race:
    """Run every rule at its tuned values, one after the other, from the same weights.

    Parameters
    ----------
    values : rule -> knobs, as of :func:`tune`.
    seeds : runs 0 .. seeds - 1, of weights, nodes and the order of rows.
    """
    parameters = {"job": job.name, **vars(job.setting), "seeds": seeds}
    rows = []
    with Trace(path, parameters=parameters) as trace:
        for seed in range(seeds):
            for label in values:
                looks = scored(job, label, values[label], seed, on=job.data.test)
                for number, look in enumerate(looks):
                    row = {"label": label, "seed": seed, "look": number} | look
                    trace.log(len(rows), **row)
                    rows.append(row)
    return Race(job, seeds, pd.DataFrame(rows))


def last_looks(runs: pd.DataFrame, *by: str) -> pd.DataFrame:
    """The last look at every run."""
    return runs.groupby([*by, "label", "seed"], sort=False).tail(1)


@dataclass(frozen=True, eq=False)
class Noise:
    """The last score of every run at every level of noise."""

    job: Job
    seeds: int
    runs: pd.DataFrame  # kind ("inputs", "labels"), level, label, seed, score


def noise_race(
    job: Job,
    values: Mapping[str, Mapping],
    *,
    inputs: Sequence[float],
    labels: Sequence[float],
    seeds: int,
    clean: Race,
    path=None,
) -> Noise:
    """The race with noise on the rows to learn from; the knobs are not tuned again.

    Parameters
    ----------
    inputs, labels : levels above zero, see :func:`with_noise`.
    clean : gives the scores without noise, for the same seeds.
    """
    if seeds > clean.seeds:
        raise ValueError(f"the clean race has {clean.seeds} seeds, got {seeds}")
    rows = []
    for row in last_looks(clean.runs[clean.runs.seed < seeds]).itertuples():
        for kind in ("inputs", "labels"):
            rows.append(_noise_row(kind, 0.0, row.label, row.seed, row.score))
    with Trace(path, parameters={"job": job.name, "seeds": seeds}) as trace:
        for kind, levels in (("inputs", inputs), ("labels", labels)):
            for level in levels:
                for seed in range(seeds):
                    noisy = with_noise(job.data, **{kind: level}, seed=seed)
                    for label in values:
                        options = {"on": job.data.test, "fit": noisy.fit}
                        runs = scored(job, label, values[label], seed, **options)
                        *_, last = runs
                        row = _noise_row(kind, level, label, seed, last["score"])
                        trace.log(len(rows), **row)
                        rows.append(row)
    return Noise(job, seeds, pd.DataFrame(rows))


def _noise_row(kind, level, label, seed, score):
    names = {"kind": kind, "level": float(level), "label": label}
    return names | {"seed": int(seed), "score": float(score)}
