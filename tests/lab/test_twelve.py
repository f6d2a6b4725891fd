"""Data sets of one's own: each is raced by every rule, or refused in a sentence.

The door is that of ``labkit run``: what it refuses, it refuses before a run begins.
"""

import re

import numpy as np
import pandas as pd
import pytest

from labkit.lab.books import rtrl_training as rtrl
from labkit.lab.books.compare import wrong
from labkit.lab.books.rules import CLASSIFIERS
from labkit.lab.problem import load_problem, squared_error
from labkit.lab.race import run_race
from labkit.lab.runs import RunRefused
from labkit.lab.runs.execute import prepare
from labkit.lab.tuning import Comparison, Sizes, halton

RNG = np.random.default_rng(0)
KINDS = ["u", "v"] * 60
COLOURS = ["red", "green", "blue"] * 40


def numbers(n=120, columns=3, **more):
    draw = RNG.normal(size=(n, columns))
    return pd.DataFrame(draw, columns=[f"x{i}" for i in range(columns)]).assign(**more)


LACKING = numbers(kind=KINDS)
LACKING.loc[[3, 5, 9], "x1"] = None
UNICODE = {"färbung": ["blau", "grün"] * 60, "größe ✓": ["été", "hiver", "夏"] * 40}
# What is written, and how many outputs it needs.
RACED = {
    "numeric.csv": (numbers(y=RNG.normal(size=120)), 1),
    "categorical.csv": (pd.DataFrame({"colour": COLOURS, "kind": KINDS}), 2),
    "WIDE.CSV": (numbers(120, 200, kind=KINDS), 2),
    "300 classes.csv": (numbers(1500, 6, kind=np.arange(1500) % 300), 300),
    "unicode ✓.csv": (numbers(columns=1, **UNICODE), 3),
    "images.npz": (RNG.integers(0, 256, (120, 6, 6), dtype=np.uint8), 2),
}


def write(path, made):
    if path.suffix == ".npz":
        np.savez(path, images=made, labels=made[:, :3].mean((1, 2)) > 127)
    else:
        made.to_csv(path, index=False, encoding="utf-8-sig")
    return str(path)


def door(folder, notebook="compare", **parameters):
    """Go through the door of ``labkit run``; the parameters of that run."""
    return prepare(notebook, parameters, "quick", folder / "runs").values


@pytest.mark.parametrize("name", RACED)
def test_it_is_raced_by_every_rule(name, tmp_path):
    made, outputs = RACED[name]
    values = door(tmp_path, data=write(tmp_path / name, made))
    problem = load_problem(values["data"], samples=values["samples"], tune=1 / 6)
    assert problem.fit.outputs == outputs
    error = wrong if problem.fit.classes else squared_error
    job = Comparison(problem, CLASSIFIERS, Sizes(passes=2, batch=32, hidden=4), error)
    middle = {label: halton(rule.ranges, 1)[0] for label, rule in job.rules.items()}
    ends = run_race(job.runners(middle), seeds=1).last().set_index("label")
    assert list(ends.index) == list(CLASSIFIERS)
    assert np.isfinite(ends.error).all() and not ends.failed.any(), ends.failed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, r"column 'x1' of \S*mine\.csv lacks 3 of 120 values; fill them first"),
        ({"data": "none.csv"}, "data=none.csv: there is no file /.*none.csv"),
        ({"target": "z"}, r"has no column 'z'; it has: x0, x1, x2, kind"),
    ],
)
def test_what_cannot_be_raced_is_refused_before_the_run(arguments, sentence, tmp_path):
    data = {"data": write(tmp_path / "mine.csv", LACKING)}
    with pytest.raises(RunRefused, match=sentence) as refusal:
        door(tmp_path, **data | arguments)
    assert not re.search(r"\n|\. [A-Z]\w* \w* \w*\. ", str(refusal.value))
    assert not (tmp_path / "runs").exists()


def test_a_text_is_read_by_notebook_05_and_has_no_rows(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Wer reitet so spät durch Nacht und Wind? " * 100, "utf-8")
    own = rtrl.read_text(door(tmp_path, "rtrl", corpus=str(path))["corpus"])
    assert own.name == "mine" and "ä" in own.symbols
    bits = [network.bits for _, network in rtrl.train_network(own, 8, updates=20)]
    assert bits[-1] < bits[0]
    with pytest.raises(RunRefused, match=r"data takes str, digits.*npz"):
        door(tmp_path, data=str(path))
    with pytest.raises(ValueError, match="is a text, but rows with targets are needed"):
        load_problem(str(path))
    with pytest.raises(ValueError, match="iris has rows, but a text is needed"):
        rtrl.read_text("iris")
