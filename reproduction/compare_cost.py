"""What a pass of each rule costs beside one of Adam, on one thread of a processor."""

import time
from collections.abc import Iterator

import pandas as pd

from labkit.lab.runs.jobs import Checkpoint
from labkit.lab.tuning import halton
from reproduction.compare import ADAM, OF_PAPERS, Job, job_of
from reproduction.judges import Judged, every


def seconds_of(
    checkpoint: Checkpoint, *, data: str, rounds: int = 4, **sizes: int
) -> list[dict]:
    """Take the processor's seconds of a run of all rules in turn, without the scores.

    Their ratios hardly depend on what else runs on the machine, since all rules of a
    round follow each other.
    """
    job, rows = job_of(data), []
    for number in range(rounds):
        for label, rule in job.rules.items():
            (values,) = halton(rule.ranges, 1)
            began = time.process_time()
            for _ in job.looks(data, rule, values, 0, "tune", **sizes):
                pass
            spent = time.process_time() - began
            row = {"label": label, "data": data, "seed": number, "look": 1}
            rows.append(row | {"seconds_cpu": spent})
    return rows


def warm(rows: pd.DataFrame) -> pd.DataFrame:
    """Return all rounds but the first."""
    return rows[rows["seed"] > 0]


def timed(rows: pd.DataFrame) -> Iterator[tuple[Job, pd.DataFrame]]:
    """Yield each job and its rules' seconds, round by round."""
    for data, runs in rows.groupby("data", sort=False):
        spent = runs.pivot(index="label", columns="seed", values="seconds_cpu")
        yield job_of(data), spent


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the median seconds and how many times Adam's they are."""
    columns = {}
    for job, spent in timed(rows):
        columns[f"{job.title}, s"] = spent.median(axis=1).map("{:.3g}".format)
        times = (spent / spent.loc[ADAM]).median(axis=1)
        columns[f"{job.title}, times Adam's"] = times.round(1)
    return pd.DataFrame(columns).rename_axis("rule")


def cheap(rows: pd.DataFrame, *, claim: str, times: float) -> Judged:
    """Judge whether a pass of each paper's rule takes at most so many of Adam's."""
    for job, spent in timed(rows):
        for rule, ratio in (spent / spent.loc[ADAM]).iterrows():
            if rule in OF_PAPERS:
                measured = f"{ratio.median():.2g} times"
                named = claim.format(title=job.title, rule=rule)
                yield named, measured, every(ratio <= times)
