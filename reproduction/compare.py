"""Which rule still pays: the papers' rules beside today's, tuned by equal trials.

Notebook 06 at full size. Nothing here is a claim of the papers: the claims are ours,
and each could come out either way.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import pandas as pd
import torch
from torch import nn

from labkit.hessian_free import Autoencoder, mirrored
from labkit.lab.books.hessian_free_training import as_sequential
from labkit.lab.books.rtrl_training import Network, make_learner, new_network
from labkit.lab.books.rules import (
    CLASSIFIERS,
    DECAY,
    ORTHOGONAL,
    RATE,
    Together,
    newton,
)
from labkit.lab.claims import NO, YES
from labkit.lab.datasets import Labelled
from labkit.lab.problem import Problem, load_problem, percent, seeded, squared_error
from labkit.lab.race import FAILURES, Race
from labkit.lab.runs.jobs import Checkpoint
from labkit.lab.tuning import TUNING_SEED, Rule, Sizes, halton
from labkit.rtrl import CharStream, train
from reproduction.criteria import NOT_AT_END, ahead, level
from reproduction.judges import Judged, by_label, words
from reproduction.rtrl_online import bits_on, text

TRIALS = 6  # of tuning
SEEDS = 5  # of the race
KEPT = 1 / 6  # share of the training rows that the trials are judged on
ADAM = "Adam"
DEFAULT = "Adam (default)"
NEWTON = "Hessian-free"

Values = Mapping[str, float]
Looks = Iterator[tuple[float, Callable[[], float]]]  # passes so far, how to score


# Images, row by row


@cache
def images(data: str) -> Problem:
    """Return the rows of a data set; those of ``usps`` are their own targets."""
    problem = load_problem(data, tune=KEPT)
    if data != "usps":
        return problem
    parts = {
        name: replace(part, targets=part.inputs) for name, part in vars(problem).items()
    }
    return Problem(**parts)


def image_looks(
    data: str, rule: Rule, values: Values, seed: int, part: str, **sizes: int
) -> Looks:
    """Train on the rows to learn from; the scores are those of another part."""
    problem = images(data)
    judged = getattr(problem, part)
    score = squared_error if data == "usps" else percent
    run = rule.run(problem.fit, Sizes(**sizes), values, seed)
    for passes, _, outputs in run:
        yield passes, lambda model=outputs: score(model(judged.inputs), judged.targets)


# Text, symbol by symbol


@dataclass(frozen=True)
class Reader:
    """A rule for text: a learner of the RTRL room, and the optimiser that it serves."""

    learner: str
    rank: int
    optimizer: Callable[..., torch.optim.Optimizer | Together]
    ranges: Mapping[str, tuple[float, float]]


adam = partial(Network.adam, lr=1e-3)  # torch's rate, unless a trial has another


def adamw(network: Network, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Return AdamW over all weights."""
    weights = [network.cell.weight, network.readout.weight]
    return torch.optim.AdamW(weights, lr=lr, weight_decay=weight_decay)


def muon(network: Network, lr: float, adam_lr: float) -> Together:
    """Return Muon for the cell's matrix, and AdamW for the readout's."""
    return Together(
        torch.optim.Muon([network.cell.weight], lr=lr),
        torch.optim.AdamW([network.readout.weight], lr=adam_lr),
    )


def text_looks(
    data: str,
    rule: Reader,
    values: Values,
    seed: int,
    part: str,
    *,
    hidden: int,
    batch: int,
    steps: int,
) -> Looks:
    """Train on a text, and look five times; the scores are bits of another split."""
    read, split = text(data, "train"), {"tune": "valid", "test": "test"}[part]
    network = new_network(len(read.symbols), hidden, seed=seed)
    learner = make_learner(
        rule.learner, rule.rank, network.cell, batch_size=batch, seed=seed
    )
    stream = CharStream(read.tokens, len(read.symbols), batch)
    optimizer, every = rule.optimizer(network, **values), steps // 5
    records = train(learner, network.readout, stream, steps=steps, optimizer=optimizer)
    for record in records:
        if record.step % every == 0:
            passes = record.step * batch / len(read.tokens)
            yield passes, lambda: bits_on(network, data, split)


WINDOW = 25  # steps that TBPTT looks back
TERMS = 8  # of OK
READERS = {
    ADAM: Reader("TBPTT", WINDOW, adam, {"lr": RATE}),
    DEFAULT: Reader("TBPTT", WINDOW, adam, {}),
    "AdamW": Reader("TBPTT", WINDOW, adamw, {"lr": RATE, "weight_decay": DECAY}),
    "Muon": Reader("TBPTT", WINDOW, muon, {"lr": ORTHOGONAL, "adam_lr": RATE}),
    "OK": Reader("OK", TERMS, adam, {"lr": RATE}),
    "KF-RTRL": Reader("KF-AVG", 1, adam, {"lr": RATE}),
    "UORO": Reader("UORO", 1, adam, {"lr": RATE}),
    "SnAp-1": Reader("SNAP-1", 1, adam, {"lr": RATE}),
    "RFLO": Reader("RFLO", 1, adam, {"lr": RATE}),
}


# Tuning and the race of one rule


def tuned_and_raced(
    checkpoint: Checkpoint,
    *,
    data: str,
    rule: str,
    trials: int = TRIALS,
    seeds: int = SEEDS,
    **sizes: int,
) -> list[dict]:
    """Tune a rule on rows of their own, and run the best trial with every seed.

    ``seconds`` are those of the processor that the rule itself took, without scores.
    """
    job = job_of(data)
    which = job.rules[rule]
    state = checkpoint.load() or {"rows": [], "done": 0}
    rows, plan = state["rows"], halton(which.ranges, trials)
    for number in range(state["done"], len(plan) + seeds):
        run = {"label": rule, "data": data, "part": "tune", "seed": TUNING_SEED}
        if number < len(plan):
            values, run = plan[number], run | {"trial": number}
        else:
            values = plan[best_trial(rows, data)]
            run |= {"part": "test", "seed": number - len(plan)}
        run["values"] = ", ".join(
            f"{name} {value:.4g}" for name, value in values.items()
        )
        looks = job.looks(data, which, values, run["seed"], run["part"], **sizes)
        measured = timed(looks, job.limit, last=run["part"] == "tune")
        rows += [run | {"look": i} | look for i, look in enumerate(measured)]
        checkpoint.save({"rows": rows, "done": number + 1})
    return rows


def timed(looks: Looks, limit: float, *, last: bool) -> Iterator[dict]:
    """Yield the looks with their scores and seconds; only the last one if ``last``.

    The first look after ``limit`` seconds is the last.
    """
    spent, passes, score = 0.0, 0.0, None
    while True:
        began = time.process_time()
        try:
            passes, score = next(looks)
        except StopIteration:
            if last:
                yield {"passes": passes, "score": score(), "seconds": spent}
            return
        except FAILURES as error:
            failed = str(error) or type(error).__name__
            yield {"passes": passes, "seconds": spent, "failed": failed}
            return
        spent += time.process_time() - began
        stopped = spent >= limit
        if stopped or not last:
            yield {"passes": passes, "score": score(), "seconds": spent}
        if stopped:
            return


def best_trial(rows: list[dict], data: str) -> int:
    """Return the number of the trial with the best score, the first if all failed."""
    sign = 1 if job_of(data).higher else -1
    scores = [sign * row.get("score", math.nan) for row in rows if "trial" in row]
    return int(pd.Series(scores).fillna(-math.inf).argmax())


# Images rebuilt by autoencoders, from the same sparse weights


def autoencoder(fit: Labelled, hidden: int, seed: int) -> Autoencoder:
    """Make a network pixels - h - h/2 - h/4 - h/2 - h - pixels of logistic units."""
    encoder = fit.inputs.shape[1], hidden, max(hidden // 2, 1), max(hidden // 4, 1)
    return Autoencoder(
        mirrored(encoder),
        incoming=min(10, fit.inputs.shape[1]),
        generator=seeded(seed),
        dtype=fit.inputs.dtype,
    ).to(fit.inputs.device)


def in_layers(fit: Labelled, hidden: int, seed: int) -> nn.Sequential:
    """Make the same network of torch's own layers."""
    return as_sequential(autoencoder(fit, hidden, seed))


LONGER = {"maxiter": 50, "miniter": 20, "patience": 5}
REBUILT = {
    label: replace(
        CLASSIFIERS[label], run=partial(CLASSIFIERS[label].run, make=in_layers)
    )
    for label in (ADAM, "AdamW", "Muon", "L-BFGS", "RLS", "RLS+M", DEFAULT)
}
REBUILT[NEWTON] = replace(
    CLASSIFIERS[NEWTON], run=partial(newton, make=autoencoder, krylov=LONGER)
)


@dataclass(frozen=True)
class Job:
    """A data set, the rules that can do it, and how their scores are compared.

    Attributes
    ----------
    title, score : str, the data set, and its score with the unit
    higher : bool, whether a higher score is better
    margin : float
        The difference that counts: half a percent of the images, five percent of an
        error near 2, and 0.03 bits, as far as neighbouring rates of the RTRL paper lie
        apart.
    rules : mapping of label to rule
    looks : callable, ``looks(data, rule, values, seed, part, **sizes)`` trains a rule
    limit : float, seconds of the processor after which a run is stopped
    """

    title: str
    score: str
    higher: bool
    margin: float
    rules: Mapping[str, Any]
    looks: Callable[..., Looks]
    limit: float = 120  # three times what the slowest of the other rules takes


RIGHT = ("right [%]", True, 0.5, CLASSIFIERS, image_looks)
JOBS = {
    "mnist": Job("MNIST", *RIGHT),
    "fashion-mnist": Job("Fashion-MNIST", *RIGHT),
    "usps": Job(
        title="USPS, rebuilt",
        score="squared error",
        higher=False,
        margin=0.1,
        rules=REBUILT,
        looks=image_looks,
    ),
    "ptb": Job(
        title="Penn Treebank",
        score="bits a character",
        higher=False,
        margin=0.03,
        rules=READERS,
        looks=text_looks,
        limit=600,  # more than what OK needs for all steps
    ),
}
EMBEDDED = {"digits": "mnist", "text": "ptb"}  # small data, for a job like another's


def job_of(data: str) -> Job:
    """Return the job on a data set."""
    return JOBS[EMBEDDED.get(data, data)]


# What stands on the page


def of_race(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the looks of the race, not of tuning."""
    return rows[rows["part"] == "test"]


def raced(rows: pd.DataFrame) -> Iterator[tuple[Job, pd.DataFrame]]:
    """Yield the job on each data set and the last looks of its race."""
    for data, looks in rows.groupby("data", sort=False):
        yield job_of(data), Race(looks).last()


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return where each rule stands, its score and its seconds on each data set.

    The rule with the best place, as a mean over the data sets that it takes part in,
    comes first.
    """
    columns, places = {}, {}
    for job, ends in raced(rows):
        found = by_label(ends, "score")
        digits = 1 if job.higher else 3
        columns[f"{job.title}, {job.score}"] = {
            label: standing(found, label, job)
            + words(runs, "", digits)
            + stopped(ends, label, job)
            for label, runs in found.items()
        }
        columns[f"{job.title}, s"] = ends.groupby("label")["seconds"].mean().round(1)
        means = pd.Series({label: runs.mean() for label, runs in found.items()})
        ranks = means.rank(ascending=not job.higher)
        places[job.title] = (ranks - 1) / max(len(ranks) - 1, 1)  # 0 is best, 1 worst
    order = pd.DataFrame(places).mean(axis=1).sort_values(kind="stable").index
    return pd.DataFrame(columns).reindex(order).rename_axis("rule")


def standing(found: Mapping[str, pd.Series], rule: str, job: Job) -> str:
    """Return the mark of where a rule stands beside tuned Adam; see `LEGEND`."""
    if rule == ADAM or ADAM not in found:
        return ""
    a, b = found[rule], found[ADAM]
    if ahead(a, b, margin=job.margin, higher=job.higher, paired=True) == YES:
        return "▲ "
    if ahead(b, a, margin=job.margin, higher=job.higher, paired=True) == YES:
        return "▼ "
    return "= " if level(a, b, margin=job.margin, paired=True) == YES else "○ "


LEGEND = (
    "Each of the five papers shows its rule ahead of something. Here every rule but "
    f"Adam (default) is tuned by {TRIALS} trials, and then run with {SEEDS} seeds: ▲ "
    "ends ahead of tuned Adam by more than a margin (0.5 % of the images, 0.1 of the "
    "squared error, 0.03 bits), ▼ behind it, = as good within the margin, ○ not "
    "decided by these runs. Scores are of test data; the seconds are those of one "
    "processor that the rule itself took, and a rule that the clock stopped had not "
    "made all of its passes."
)


def stopped(ends: pd.DataFrame, label: str, job: Job) -> str:
    """Say in how many passes a rule was stopped by the clock, or nothing."""
    own = ends[ends["label"] == label]
    late = own["seconds"] >= job.limit
    return f", stopped at {own['passes'].mean():.2g} passes" if late.any() else ""


# The papers' own rules, in a colour of their own.
OF_PAPERS = ("RLS", "RLS+M", "HRLS+M", "BPLS", NEWTON, "broad", "OK")


def ahead_of_adam(rows: pd.DataFrame, *, claim: str) -> Judged:
    """Judge each rule against tuned Adam, and tuned Adam against its default rate."""
    for job, ends in raced(rows):
        found = by_label(ends, "score")
        for rule in [rule for rule in found if rule != ADAM and ADAM in found]:
            a, b = (ADAM, DEFAULT) if rule == DEFAULT else (rule, ADAM)
            one, two = found[a], found[b]
            held = ahead(one, two, margin=job.margin, higher=job.higher, paired=True)
            measured = f"{one.mean():.4g} and {two.mean():.4g} {job.score}"
            if clock := stopped(ends, rule, job):
                measured, held = measured + clock, NOT_AT_END if held == NO else held
            names = ["tuned Adam" if label == ADAM else label for label in (a, b)]
            yield claim.format(title=job.title, a=names[0], b=names[1]), measured, held


def by_data(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the looks of the race with a column of scores for each data set."""
    scores = {data: rows["score"].where(rows["data"] == data) for data in JOBS}
    return rows.assign(**scores)
