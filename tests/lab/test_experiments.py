"""What holds for every live panel of the lab, whatever it shows.

The experiments are found by themselves: a new one needs a row in ``PROBLEMS`` only
where it is handed a problem.
"""

import dataclasses
import math
import pkgutil
from functools import cache
from importlib import import_module

import numpy as np
import plotly.graph_objects as go
import pytest

from labkit.lab import books
from labkit.lab.datasets import load
from labkit.lab.panels import Experiment, LiveLab, Measured, Measurement
from labkit.lab.panels.figures.captions import as_json, jsonable
from labkit.lab.panels.live.experiment import knobs_of
from labkit.lab.problem import load_problem

BOOKS = ["rls", "bpls", "hessian_free", "broad", "rtrl", "compare"]
TEXTS = {
    "guess": ("0.5 0.5", "1 -1"),
    "sample": ("0.3 0.4", "1 0"),
    "start": ("1.9 0.9", "-1 1"),
    "character": ("a", " "),
}
PLACES = ("guess", "sample", "start")
NO_DRAWS = "broad columns", "bpls pair"  # and no seed: nothing is drawn
AT_ONCE = ("hessian_free bowl",)  # of one row
SECONDS = ("seconds", "time")  # what no two runs share
LATER = ("best k",)  # of wide layers alone


def names_of(book):
    """All that the modules of a notebook define, by name."""
    found = pkgutil.iter_modules(books.__path__, f"{books.__name__}.")
    below = [m.name for m in found if f".{book}" in m.name]
    modules = map(import_module, below)
    return {k: v for module in modules for k, v in vars(module).items()}


NAMES = {book: names_of(book) for book in BOOKS}
EXPERIMENTS = {
    f"{book} {each.name}": each
    for book, names in NAMES.items()
    for each in names.values()
    if isinstance(each, Experiment)
}
# Of the race two rules: `test_pictures.py` runs it with all.
EXPERIMENTS["compare race"] = NAMES["compare"]["race_of"]("RLS", "Adam")
PICTURES = [
    name
    for name, each in EXPERIMENTS.items()
    if each.picture and name != "hessian_free training"
]


MEASURED = {
    f"{book} {name}": each
    for book, names in NAMES.items()
    for name, each in names.items()
    if isinstance(each, Measurement)
}


@cache
def digits():
    return load_problem("digits", samples=150)


@cache
def rows_of_images():
    return NAMES["hessian_free"]["load_images"]("digits", samples=300)


def images():
    names, problem = NAMES["hessian_free"], rows_of_images()
    knobs = names["knobs_of"](problem.setting)
    return (lambda: problem,), {"knobs": knobs}


# By experiment: what it is handed, and keywords of its panel.
PROBLEMS = {
    "rls training": lambda: ((digits, 64), {}),
    "bpls walk": lambda: ((digits,), {}),
    "hessian_free training": images,
    "broad growth": lambda: ((digits, 12), {}),
    "rtrl noise": lambda: ((lambda: load("text"), {}, 2, 4), {}),
    "rtrl clouds": lambda: ((load("text"),), {}),
}


def live(name, **given):
    problem, keywords = PROBLEMS.get(name, lambda: ((), {}))()
    if given:
        knobs = keywords.get("knobs") or EXPERIMENTS[name].knobs()
        keywords = keywords | {"knobs": dataclasses.replace(knobs, **given)}
    return LiveLab(EXPERIMENTS[name], *problem, interactive=False, **keywords)


def numbers(lab):
    """All that was measured, but for seconds; what is trained before is kept."""
    frame = lab.trace.frame().drop(columns="turned", errors="ignore")
    if "measured" in frame:
        frame = frame[frame.measured].reset_index(drop=True).dropna(axis=1, how="all")
        frame = frame.convert_dtypes()
    return frame.drop(columns=[c for c in frame if c.split()[0] in SECONDS])


def ends_of(knob):
    """The values of a knob at which something may break."""
    if knob.kind is str and knob.choices is None:
        return TEXTS[knob.name]
    if knob.choices is not None:
        return knob.choices
    return (False, True) if knob.kind is bool else (knob.low, knob.high)


each = pytest.mark.parametrize("name", EXPERIMENTS)
KNOBS = [
    (name, field.name)
    for name, experiment in EXPERIMENTS.items()
    for field in dataclasses.fields(experiment.knobs)
]
# Every third of them is in `make test`, and all are in `make test-long`.
LONG = pytest.mark.long
each_knob = pytest.mark.parametrize(
    ("name", "knob"),
    [pytest.param(*k, marks=[LONG] * (i % 3 > 0)) for i, k in enumerate(KNOBS)],
)
quiet = pytest.mark.filterwarnings("ignore:with forgetting < 1")


def test_every_notebook_has_an_experiment_and_a_measured_one():
    for found in (EXPERIMENTS, MEASURED):
        assert {name.split()[0] for name in found} == set(BOOKS)
    assert PROBLEMS.keys() <= EXPERIMENTS.keys()


@pytest.mark.parametrize("name", MEASURED)
def test_each_record_holds_beyond_two_standard_errors(name):
    shown = Measured(MEASURED[name])
    assert shown.finding.holds, shown.finding
    table = shown.measurement.table
    assert shown.figure["data"] and (table is None or len(table(shown.rows)))


def test_a_rule_of_ones_own_is_not_shown_what_another_one_did():
    names = NAMES["compare"]
    shown = Measured(names["own_race"](names["CLASSIFIERS"]["SGD"]))
    assert shown.finding is None and shown.plot.layout.display == "none"


@each
def test_steps_are_drawn_written_and_said(name):
    lab = live(name)
    assert not lab.turned.value and len(lab.run(8)) >= (1 if name in AT_ONCE else 3)
    figures = [part.figure for part in (lab.plot, lab.scene) if part]
    assert any(figure["data"] for figure in figures)
    for figure in figures:
        go.Figure(jsonable(figure))  # plotly knows all that stands in it
        assert figure["layout"]["meta"]["alt"].endswith(".")
        panels = [v for k, v in figure["layout"].items() if k.startswith("xaxis")]
        # A panel without a place would lie on another where a narrow page stacks them.
        placed = "grid" in figure["layout"] or all("domain" in p for p in panels)
        assert len(panels) == 1 or placed
    captions = [figure["layout"]["meta"]["caption"] for figure in figures]
    assert EXPERIMENTS[name].caption in captions
    if EXPERIMENTS[name].status:
        assert lab.note.value
    rows, written = lab.trace.rows, set().union(*lab.trace.rows)
    for panel in EXPERIMENTS[name].panels:
        assert written & {*panel.columns, *LATER}, panel.title
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_begins_empty_and_shows_the_run_before(name):
    """In grey or in numbers."""
    lab, picture = live(name), EXPERIMENTS[name].picture
    assert picture(None, None)["data"] == []
    lab.run(4)
    now = lab.scene.now
    alone, compared = (picture(now, before) for before in (None, now))
    assert alone["data"] and as_json(alone) != as_json(compared)


@pytest.mark.parametrize(
    ("name", "handle", "index", "to", "turned"),
    [
        ("rls ellipse", "start", 0, (-1.0, 9.0), {"start": "-1.00 4.00"}),
        ("bpls pair", "sample", 0, (0.5, 7.0), {"sample": "0.50 1.00"}),
        ("bpls pair", "wanted", 0, (1.0, 1.0), {"wanted": 2.5}),
        ("bpls pair", "guess", 0, (0.5, 0.25), {"guess": "0.50 0.25"}),
        ("hessian_free bowl", "guess", 0, (0.5, -9.0), {"guess": "0.50 -3.00"}),
        ("broad columns", "column", 0, (1.0, 1.0), {"angle": 45, "length": 1.4}),
        ("broad columns", "column", 0, (9.0, -1.0), {"angle": 1, "length": 3.0}),
        ("rtrl water", "bars", 4, (1.0, 3.52), {"fifth": 3.5}),
    ],
)
def test_what_a_hand_drags_turns_a_knob_and_lies_where_it_was_put(
    name, handle, index, to, turned
):
    experiment = EXPERIMENTS[name]
    now, knobs = next(experiment.rows(experiment.knobs()))["pictures"], None
    assert experiment.drag(now, knobs, handle, index, to) == turned
    given = experiment.knobs(**turned)
    drawn = experiment.picture(next(experiment.rows(given))["pictures"], None)
    (held,) = (t for t in drawn["data"] if t.get("meta") == {"touch": handle})
    (at,) = np.c_[held["x"], held["y"]][[index]]
    again = experiment.drag(now, knobs, handle, index, at)
    assert again == turned


@pytest.mark.parametrize(
    ("name", "knob"), [(name, knob) for name, knob in KNOBS if knob in PLACES]
)
def test_a_place_is_two_numbers(name, knob):
    with pytest.raises(ValueError, match=f"{knob} must be two numbers .* got '1'"):
        EXPERIMENTS[name].knobs(**{knob: "1"})


@each
def test_the_same_seed_gives_the_same_rows_and_another_gives_others(name):
    """Also for the panel that was restarted."""
    one, two = live(name), live(name)
    one.run(4), two.run(4)
    assert numbers(one).equals(numbers(two))
    first, drawn = numbers(one), as_json(one.figure)
    if name not in NO_DRAWS:
        one.controls.set(seed=one.controls.value.seed + 1)
        one.stepper.reset()
        one.run(4)
        assert not numbers(one).equals(first) or as_json(one.figure) != drawn
    two.stepper.reset()
    assert len(two.trace) == 0 and two.stepper.position == 0
    two.run(4)
    assert numbers(two).equals(first)


@quiet
@each_knob
def test_a_knob_works_at_its_ends_and_holds_from_the_next_step_on(name, knob):
    """Or it restarts the run; turned before the first step, it is the value given.

    Rows come, or a row says why not.
    """
    declared = knobs_of(EXPERIMENTS[name].knobs())[knob]
    for end in ends_of(declared):
        given, early, turned = live(name, **{knob: end}), live(name), live(name)
        turned.run(2)
        before, count = numbers(turned), len(turned.trace)
        changes = getattr(turned.controls.value, knob) != end
        for lab in (early, turned):
            lab.controls.set(**{knob: end})
        if changes and declared.restart:
            assert len(turned.trace) == 0 and "restarts" in turned.turned.value
        for lab in (given, early, turned):
            assert len(lab.run(4)) and lab.stepper.error is None
            last = lab.trace.rows[-1]
            drawn = [x for k, x in last.items() if isinstance(x, float)]
            assert any(map(math.isfinite, drawn)) or "note" in last or not drawn
        assert numbers(early).equals(numbers(given))
        if changes and not declared.restart:
            kept = numbers(turned).iloc[: len(before)]
            assert kept[list(before)].equals(before)
            assert "turned" in turned.trace.rows[count]


@each
def test_what_is_declared_exists(name):
    experiment = EXPERIMENTS[name]
    knobs = knobs_of(experiment.knobs())
    assert set(experiment.front or ()) <= knobs.keys()
    assert "seed" in knobs or name in NO_DRAWS
    columns = {column for panel in experiment.panels for column in panel.columns}
    columns |= set(live(name).run(3))
    for knob in knobs.values():
        assert knob.look_for, knob.name
        words, _, column = knob.about.partition(": ")
        assert not words or column in columns, knob.name
        assert len(knob.title) <= 23 or knob.kind is bool, knob.name  # else it is cut
    for knob, values in experiment.playable.items():
        for value in values:
            knobs[knob].checked(value)


@quiet
@each
def test_a_twin_equals_its_run_turns_included(name):
    """Knobs are turned in mid-run, and the rows of both runs alternate."""
    lab = live(name)
    run, twin = lab.turns.run, lab.turns.run.again()
    for knob, end in turns_of(name):
        lab.run(2)
        twin.follow(run)
        lab.controls.set(**{knob: end})
    lab.run(3)
    while twin.follow(run):
        pass
    assert twin.count == run.count >= (1 if name in AT_ONCE else 3)
    rows = [list(map(sorted_row, each.measured)) for each in (run, twin)]
    assert rows[0] == rows[1]


def sorted_row(row):
    """A row as text, in which nan equals nan, but for its number and what is timed."""
    own = {name: value for name, value in row.items() if name != "step"}
    return sorted(str(i) for i in own.items() if i[0].split()[0] not in SECONDS)


def turns_of(name):
    """Knobs that hold from the next step on, and values to turn them to."""
    knobs = EXPERIMENTS[name].knobs()
    made = [k for k in knobs_of(knobs).values() if k.restart is False]
    ends = [(k.name, end) for k in made for end in ends_of(k)[-1:]]
    first = [(name, getattr(knobs, name)) for name, _ in ends[:1]]
    return ends[:2] + first
