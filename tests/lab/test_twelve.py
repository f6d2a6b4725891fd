"""Twelve data sets of one's own: each is raced by every rule, or refused in a sentence.

The door is that of ``labkit run``: what it refuses, it refuses before a run begins.
"""

import re
from functools import partial
from pathlib import Path

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


def numbers(n=120, columns=3, **more):
    draw = RNG.normal(size=(n, columns))
    return pd.DataFrame(draw, columns=[f"x{i}" for i in range(columns)]).assign(**more)


def table(path, make):
    make().to_csv(path, index=False, encoding="utf-8-sig")


def missing():
    lacking = numbers(kind=KINDS)
    lacking.loc[[3, 5, 9], "x1"] = None
    return lacking


def unicode():
    columns = {"färbung": ["blau", "grün"] * 60, "größe ✓": ["été", "hiver", "夏"] * 40}
    return numbers(columns=1).rename(columns={"x0": "höhe [µm]"}).assign(**columns)


def images(path):
    drawn = RNG.integers(0, 256, (120, 6, 6), dtype=np.uint8)
    np.savez(path, images=drawn, labels=drawn[:, :3].mean((1, 2)) > 127)


def text(path):
    path.write_text("Wer reitet so spät durch Nacht und Wind? " * 100, "utf-8")


def broken(path):
    path.write_bytes(b'a,b\n1,2\n3,4,5,6\n"')


# What is written, the other parameters, and the sentence of a refusal.
TWELVE = {
    "numeric.csv": (
        partial(table, make=lambda: numbers(y=RNG.normal(size=120))),
        {},
        "",
    ),
    "categorical.csv": (
        partial(
            table,
            make=lambda: pd.DataFrame(
                {"colour": ["red", "green", "blue"] * 40, "kind": KINDS}
            ),
        ),
        {},
        "",
    ),
    "missing.csv": (
        partial(table, make=missing),
        {},
        r"column 'x1' of \S*missing\.csv lacks 3 of 120 values; fill them first",
    ),
    "wide.csv": (partial(table, make=lambda: numbers(120, 200, kind=KINDS)), {}, ""),
    "one class.csv": (
        partial(table, make=lambda: numbers(kind="u")),
        {},
        "the target 'kind' of .*one class.csv has one value, u; there is nothing",
    ),
    "two rows.csv": (
        partial(table, make=lambda: numbers(2, kind=["u", "v"])),
        {},
        "two rows.csv has 2 rows; it needs 10 or more",
    ),
    "300 classes.csv": (
        partial(table, make=lambda: numbers(1500, 6, kind=np.arange(1500) % 300)),
        {},
        "",
    ),
    "unicode ✓.csv": (partial(table, make=unicode), {"target": "größe ✓"}, ""),
    "text.txt": (text, {}, "data takes str, digits.*npz"),
    "images.npz": (images, {}, ""),
    "broken.csv": (broken, {}, "broken.csv cannot be read as a table: .* line 3"),
}


def door(path, **parameters):
    """Go through the door of ``labkit run compare``; the parameters of that run."""
    values = {"data": str(path), **parameters}
    return prepare("compare", values, "quick", path.parent / "runs").values


def raced(path, **parameters):
    """Race every classifier once, for two passes; how each ended."""
    values = door(path, **parameters)
    own = {"target": values["target"]}
    problem = load_problem(values["data"], samples=values["samples"], tune=1 / 6, **own)
    error = wrong if problem.fit.classes else squared_error
    sizes = Sizes(passes=2, batch=32, hidden=4)
    job = Comparison(problem, CLASSIFIERS, sizes, error)
    middle = {label: halton(rule.ranges, 1)[0] for label, rule in job.rules.items()}
    return problem, run_race(job.runners(middle), seeds=1).last().set_index("label")


@pytest.mark.parametrize("name", TWELVE)
def test_it_is_raced_by_every_rule_or_refused_in_a_sentence(name, tmp_path):
    write, parameters, sentence = TWELVE[name]
    write(path := tmp_path / name)
    if sentence:
        with pytest.raises(RunRefused, match=sentence) as refusal:
            door(path, **parameters)
        assert not re.search(r"\n|\. [A-Z]\w* \w* \w*\. ", str(refusal.value))
        assert not (tmp_path / "runs").exists()
        return
    problem, ends = raced(path, **parameters)
    assert list(ends.index) == list(CLASSIFIERS)
    assert np.isfinite(ends.error).all() and not ends.failed.any(), ends.failed
    assert problem.fit.outputs == {"300 classes.csv": 300, "unicode ✓.csv": 3}.get(
        name, 1 if name == "numeric.csv" else 2
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"data": "none.csv"}, "data=none.csv: there is no file /.*none.csv"),
        ({"data": "mnits"}, "data=mnits is not allowed; data takes str, digits"),
        ({"target": "z"}, r"has no column 'z'; it has: x0, x1, x2, kind"),
    ],
)
def test_a_name_that_is_not_there_is_refused_before_the_run(
    arguments, sentence, tmp_path
):
    table(path := tmp_path / "mine.csv", lambda: numbers(kind=KINDS))
    with pytest.raises(RunRefused, match=sentence):
        door(path, **arguments)


def test_a_path_is_that_of_the_folder_in_which_the_command_is_given(
    tmp_path, monkeypatch
):
    table(path := tmp_path / "MINE.CSV", lambda: numbers(kind=KINDS))
    monkeypatch.chdir(tmp_path)
    assert door(Path(path.name))["data"] == str(path)


def test_a_text_of_ones_own_is_read_by_notebook_05(tmp_path):
    text(path := tmp_path / "mine.txt")
    options = "quick", tmp_path / "runs"
    corpus = prepare("rtrl", {"corpus": str(path)}, *options).values["corpus"]
    mine = rtrl.read_text(corpus)
    assert mine.name == "mine" and "ä" in mine.symbols
    trained = rtrl.train_network(mine, 8, updates=20)
    bits = [network.bits for _, network in trained]
    assert bits[-1] < bits[0]
    for name, content, sentence in (
        ("short.txt", b"too short", "has 9 characters; a text needs 1,000"),
        ("latin.txt", "ä".encode("latin-1") * 2000, "is not a text in UTF-8"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RunRefused, match=sentence):
            prepare("rtrl", {"corpus": str(tmp_path / name)}, *options)


def test_rows_are_no_text_and_a_text_has_no_rows(tmp_path):
    text(path := tmp_path / "mine.txt")
    with pytest.raises(ValueError, match="is a text, but rows with targets are needed"):
        load_problem(str(path))
    with pytest.raises(ValueError, match="iris has rows, but a text is needed"):
        rtrl.read_text("iris")
