"""What a pass of each rule costs beside one of Adam, on one thread of a processor."""

import time
from collections.abc import Iterator

import pandas as pd

from labkit.lab.claims import NO, UNDECIDED, YES
from labkit.lab.runs.jobs import Checkpoint
from labkit.lab.tuning import halton
from reproduction.compare import ADAM, JOBS, OF_PAPERS, Job, job_of
from reproduction.studies import Study

TWICE = 2.0  # at equal seconds a rule that takes longer has less than half the passes


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
            if label == "SOAP":  # needs a package that labkit does not ask for
                continue
            (values,) = halton(rule.ranges, 1)
            began = time.process_time()
            for _ in job.looks(data, rule, values, 0, "tune", **sizes):
                pass
            spent = time.process_time() - began
            row = {"label": label, "data": data, "seed": number, "look": 1}
            rows.append(row | {"seconds_cpu": spent})
    return rows


def ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """Return each rule's seconds over Adam's, round by round, without the first."""
    spent = rows[rows["seed"] > 0].pivot(
        index="label", columns="seed", values="seconds_cpu"
    )
    return spent / spent.loc[ADAM]


def jobs(rows: pd.DataFrame) -> Iterator[tuple[Job, pd.DataFrame]]:
    """Yield each job that was timed, and its rows."""
    for data in rows["data"].unique():
        yield job_of(data), rows[rows["data"] == data]


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the median seconds and how many times Adam's they are."""
    columns = {}
    for job, timed in jobs(rows):
        medians = timed[timed["seed"] > 0].groupby("label")["seconds_cpu"].median()
        columns[f"{job.title}, s"] = medians.map("{:.3g}".format)
        times = ratios(timed).median(axis=1).round(1)
        columns[f"{job.title}, times Adam's"] = times
    return pd.DataFrame(columns).rename_axis("rule")


def claims(rows: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Judge whether a pass of each paper's rule takes at most twice one of Adam's."""
    for job, timed in jobs(rows):
        for rule, times in ratios(timed).iterrows():
            if rule in OF_PAPERS:
                cheap = times <= TWICE
                held = YES if cheap.all() else UNDECIDED if cheap.any() else NO
                claim = f"ours, {job.title}: {rule} takes at most twice Adam's seconds"
                yield claim, f"{times.median():.2g} times", held


ONE_PASS = {"passes": 1}
SECONDS = Study(
    name="compare/seconds",
    shows="no table of the papers: the seconds of their rules beside today's",
    claim="none of the papers says so: each compares its rule with one baseline",
    data="MNIST (Fashion-MNIST has the same shapes), USPS, Penn Treebank",
    setting="the networks of compare/rivals; one pass over the images and 500 steps of "
    "text, at the first trial's values, without the scores; three rounds after a first "
    "one that is not counted, in each of which all rules follow each other, in seconds "
    "of one thread of the processor",
    differs="nothing of this is in the papers; a pass of Hessian-free and of the "
    "closed forms has as many solves as it asks for; that of broad learning is its "
    "first fit, most of its training, whose seconds as a whole are in compare/rivals; "
    "torch's Muon multiplies in bfloat16, which a processor without such instructions "
    "emulates",
    work=seconds_of,
    units={
        data: {"data": data} | dict(job.sizes) | size
        for data, job, size in (
            ("mnist", JOBS["mnist"], ONE_PASS),
            ("usps", JOBS["usps"], ONE_PASS),
            ("ptb", JOBS["ptb"], {"steps": 500}),
        )
    },
    small={"data": "digits", "rounds": 2, "passes": 1, "batch": 256, "hidden": 4},
    minutes=8,
    memory=2,
    old=table,
    judges=claims,
    criterion="yes or no where all counted rounds are on one side of twice Adam's "
    "seconds, and undecided otherwise; twice, since at equal seconds such a rule has "
    "half the passes",
)
STUDIES = (SECONDS,)
