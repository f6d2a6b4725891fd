"""Calls of the lab's public functions, for odd inputs; see :mod:`tests.odd`."""

import contextlib
import io
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from labkit import lab
from labkit.lab import datasets
from labkit.lab.datasets import fetch
from labkit.lab.runs.execute import prepare
from labkit.lab.runs.sweep_plan import prepare_sweep
from labkit.rls import gain
from labkit.threads import set_threads

G = torch.Generator().manual_seed(0)
IRIS = lab.load_problem("iris")
TABLE = (
    "a,b,c\n1,2,x\n3,4,y\n5,6,x\n7,8,y\n9,9,x\n1,5,y\n2,2,x\n3,1,y\n"
    + "1,2,x\n4,4,y\n" * 9
)


def alone(call):
    """Call in a folder of its own, where no data are and none can be downloaded."""

    def within(**given):
        here, before = os.getcwd(), dict(fetch.FILES)
        kept = {k: os.environ.get(k) for k in ("LABKIT_DATA", "LABKIT_THREADS")}
        for path, file in before.items():
            fetch.FILES[path] = replace(file, urls=())  # nothing is downloaded
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "own.csv").write_text(TABLE)
            os.environ["LABKIT_DATA"] = folder
            os.chdir(folder)
            try:
                return call(**given)
            finally:
                os.chdir(here)
                fetch.FILES.update(before)
                for name, value in kept.items():
                    os.environ.pop(name, None)
                    if value is not None:
                        os.environ[name] = value

    return within


def counted(count):
    threads = torch.get_num_threads()
    try:
        set_threads(count)
    finally:
        torch.set_num_threads(threads)


def noisy(problem, **given):
    return lab.with_noise(IRIS if isinstance(problem, str) else problem, **given)


def looks_of(seed):
    yield {"score": float(seed)}


def raced(**given):
    """Race in a folder of its own, as the path may be any word."""
    return alone(lab.run_race)(**given).last()


def counted_off(things, **given):
    bar = lab.with_bar(things, **given)
    return [*bar] if things is not None else bar


def quiet(call):
    """Call without a word on the terminal."""

    def silent(**given):
        with contextlib.redirect_stdout(io.StringIO()):
            return call(**given)

    return silent


@dataclass(frozen=True)
class Knobs:
    rank: int = lab.knob(1, low=1, high=16)


def learned(fit, sizes, values, seed):
    yield 1, 0.0, lambda X: values["lr"] * X[:, :3]


def tuned(comparison, **given):
    """Tune a rule that learns nothing, in no time."""
    if isinstance(comparison, str) and comparison == "made":
        rules = {"it": lab.Rule(learned, {"lr": (0.01, 1.0)}, "it")}
        problem = lab.load_problem("iris", tune=0.2)
        comparison = lab.Comparison("made up", problem, rules, SIZES, lab.percent)
    return lab.tune(comparison, **given)[0]


SIZES = lab.Sizes(1, 5, 4)
PLAIN = lab.Experiment("plain", Knobs, lambda settings: iter(()), ())
RACED = lab.run_race({"a": looks_of}, seeds=2)
ROWS = {"a": {"mean": 2.0, "sd": 0.5}, "b": {"mean": 1.0, "sd": 0.1}}
ROWS |= {"higher": True, "least": 0.0}
RUN = {"name": "rls", "parameters": {"seeds": 2}, "profile": "quick", "device": "cpu"}
RUN |= {"out": "runs", "notebook_dir": None}
SWEEP = {"name": "rls", "values": {"seeds": [1, 2]}, "profile": "quick", "out": "runs"}
SWEEP |= {"device": "cpu", "cluster": "local", "workers": 2, "resume": False}
SWEEP |= {"notebook_dir": None}
LOAD = {"name": "digits", "split": "train", "device": None, "dtype": None}
OWN = {"name": "own.csv", "split": "train", "dtype": torch.float32, "target": "c"}
PROBLEM = {"dataset": "iris", "samples": 50, "tune": 0.2, "dtype": torch.float32}
CURVES = {"one": {"a": ([1, 2], [3.0, 4.0])}, "two": {"b": ([1, 2], [3, 4], [0, 1])}}
DUEL = {"names": ("a", "b"), "setting": "here", "unit": "points", "digits": 1}
CLAIMS = [lab.duel("a is better", **ROWS, **DUEL)]
VIEWS = [lab.View("look", "score", "score", "look", "score")]
CALLS = {
    "curves": (
        lab.curves,
        {"panels": CURVES, "x_titles": "x", "y_titles": ["y", ""], "log_x": False}
        | {"log_y": [False, True], "lines": ("a",), "caption": "", "width": 960}
        | {"height": 420},
    ),
    "heat_maps": (
        lab.heat_maps,
        {"maps": {"A": np.ones((2, 3))}, "x_title": "x", "y_title": "y"}
        | {"caption": ""},
    ),
    "race_figure": (
        lab.race_figure,
        {"result": RACED, "views": VIEWS, "bands": True, "caption": ""},
    ),
    "claim_figure": (lab.claim_figure, {"claims": CLAIMS, "caption": ""}),
    "show_claims": (quiet(lab.show_claims), {"claims": CLAIMS, "caption": ""}),
    "folded": (lab.folded, {"table": pd.DataFrame({"a": [1]}), "summary": "all"}),
    "load": (alone(lab.load), LOAD),
    "load_own": (alone(datasets.load_own), OWN | {"seed": 0, "missing": "refuse"}),
    "load_imdb": (
        alone(datasets.load_imdb),
        {"split": "train", "words": 100, "length": 16},
    ),
    "load_ptb": (alone(datasets.load_ptb), {"split": "train", "blanks": False}),
    "encode": (datasets.encode, {"text": "abba", "symbols": "ab", "other": None}),
    "copy_sequences": (
        datasets.copy_sequences,
        {"n": 3, "length": 2, "generator": G},
    ),
    "curve_images": (
        datasets.curve_images,
        {"n": 2, "generator": G, "dtype": torch.float32},
    ),
    "load_problem": (alone(lab.load_problem), PROBLEM | {"device": None}),
    "with_noise": (
        noisy,
        {"problem": "iris", "input_noise": 0.5, "label_noise": 0.5, "seed": 0},
    ),
    "in_classes": (
        lambda **given: lab.in_classes(lab.load_problem("diabetes"), **given),
        {"parts": 5},
    ),
    "percent": (
        lab.percent,
        {"outputs": torch.eye(3), "labels": torch.tensor([0, 1, 1])},
    ),
    "squared_error": (
        lab.squared_error,
        {"outputs": torch.eye(3), "targets": torch.zeros(3, 3)},
    ),
    "seeded": (lab.seeded, {"seed": 1, "device": "cpu"}),
    "halton": (lab.halton, {"ranges": {"rate": (0.1, 1.0)}, "count": 3}),
    "rows": (
        lambda **given: lab.rows(**given).inputs,
        {"data": IRIS.fit, "chosen": [0, 2, 1]},
    ),
    "noisy_labels": (
        lab.noisy_labels,
        {"labels": torch.arange(6) % 3, "label_noise": 0.5, "generator": G}
        | {"classes": 3},
    ),
    "compared": (lab.compared, ROWS),
    "verdict": (lab.verdict, ROWS),
    "duel": (
        lab.duel,
        {"claim": "a is better", **ROWS, "names": ("a", "b"), "setting": "here"}
        | {"unit": "points", "digits": 1},
    ),
    "plus_minus": (lab.plus_minus, {"row": ROWS["a"], "unit": "%", "digits": 1}),
    "claim_table": (lab.claim_table, {"rows": [["a", "b", "c", "yes"]]}),
    "recorded": (lab.recorded, {"paper": "rls"}),
    "show_summary": (quiet(lab.show_summary), {"paper": "rls"}),
    "run_race": (
        raced,
        {"runners": {"a": looks_of, "b": looks_of}, "seeds": 2, "setting": "here"}
        | {"path": None, "progress": False},
    ),
    "spread": (lab.spread, {"looks": RACED.last(), "column": "score"}),
    "check": (
        lab.check,
        {"name": "rls-gain", "answer": gain, "solve": False, "seed": 1},
    ),
    "hint": (lab.hint, {"name": "rls-gain"}),
    "solution": (lab.solution, {"name": "rls-gain"}),
    "knob": (
        lab.knob,
        {"default": 2, "low": 1, "high": 9, "step": 1, "unit": "s", "help": "How long."}
        | {"choices": None, "offers": (), "label": None, "log": False, "look_for": ""}
        | {"restart": True, "about": ""},
    ),
    "within": (lab.within, {"knobs": Knobs, "rank": 100}),
    "with_bar": (
        counted_off,
        {"things": [1, 2], "progress": False, "unit": "step", "total": 2},
    ),
    "predictions": (lab.predictions, {"interactive": False}),
    "tune": (tuned, {"comparison": "made", "count": 2, "seeds": 1, "progress": False}),
    "trying": (
        lab.trying,
        {"experiment": PLAIN, "name": "rls-gain", "hers": gain},
    ),
    "run": (alone(prepare), RUN),
    "sweep": (alone(prepare_sweep), SWEEP),
    "report": (alone(lab.report), {"out": "."}),
    "set_threads": (alone(counted), {"count": 1}),
}
