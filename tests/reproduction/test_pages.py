"""The pages say what the results say, and nothing of them is older."""

import math
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from labkit.lab.claims import (
    NO,
    RACE,
    UNDECIDED,
    YES,
    recorded,
    show_race,
)
from labkit.lab.race import View
from reproduction import (
    coverage,
    drawing,
    pages,
    results,
    units,
)
from reproduction.command import CLAIMS, DOCS, RESULTS
from reproduction.criteria import NOT_AT_END, NOT_CONTRADICTED, of_runs
from reproduction.drawing import Chart
from reproduction.studies import find_study

FEW = of_runs(YES, 1)
ROOT = Path(__file__).resolve().parents[2]
MNIST, PIXELS = find_study("rls/fig2a-3a"), find_study("rls/standardised")


@pytest.fixture(scope="module")
def made():
    """All pages of the committed results."""
    return pages.pages(RESULTS)


def test_pages_and_results_agree(made):
    """If not: `labkit reproduce pages`."""
    there = {
        path.relative_to(DOCS).as_posix(): path.read_text("utf-8")
        for path in DOCS.rglob("*")
        if path.is_file()
    }
    assert there == made
    table = CLAIMS.read_text("utf-8")
    assert table == pages.claims(RESULTS)
    assert max(len(text.encode()) for text in [*made.values(), table]) <= 300_000
    figures = [text for name, text in made.items() if name.endswith(".svg")]
    assert all(re.search(r'(points|cx)="\d', figure) for figure in figures)


def test_a_notebook_has_the_table_that_its_page_begins_with(made):
    """Each row is on the page of all claims too; those about the race are ours."""
    for paper in pages.PAPERS:
        for row in recorded(paper).to_dict("records") if paper != "compare" else ():
            begins = f"| {row['verdict']} | {row['claim']} | {row['number']} | "
            assert all(begins in made[name] for name in (f"{paper}.md", "coverage.md"))
        notebook = next(ROOT.glob(f"notebooks/0?_{paper}.ipynb")).read_text("utf-8")
        assert f'folded(recorded(\\"{paper}\\")' in notebook


def test_every_claim_has_its_evidence_or_what_it_would_cost(tmp_path):
    items = coverage.table(RESULTS)
    items = items[items["paper"] != "compare"]
    run = items["size"].isin(["full", "reduced", "exact", "reading"])
    assert (items.loc[run, "kind"] != "").all()
    assert (items.loc[items["size"] == "missing", "to decide"] != "").all()
    open_ones = items["kind"].isin([coverage.OPEN, NOT_CONTRADICTED])
    assert items.loc[open_ones, "to decide"].str.contains("of a (?:core|GPU)").all()
    left = set(coverage.table(tmp_path)["size"])
    assert left == {"missing", "exact", "notebook"}


def test_a_cost_is_that_of_as_many_runs_again_or_of_those_that_lack():
    runs = [{"cpu_seconds": 1800.0, "device": "cpu"}] * 3
    assert coverage.cost_of(runs, {3}) == "1.5 h of a core"
    assert coverage.cost_of(runs[:1], {1}) == "60 min of a core"
    cut = runs[0] | {"device": "cuda", "processes": []}
    assert coverage.cost_of([cut], {3}) == "at least 30 min of a GPU"


def test_how_units_were_run_names_all_processes_and_those_cut_off():
    last = units.here() | {"seconds": 1.0, "cpu_seconds": 0.5, "load": [1, 2]}
    last |= {"commit": "b", "processes": [{"commit": "a"}, {"commit": "b"}]}
    told = pages.run_how({"x": last, "y": last | {"commit": "c"}})
    assert told.startswith("- commits: a, b, c\n") and told.endswith("start: 2")


def test_claims_of_a_paper_that_there_is_not_are_refused():
    with pytest.raises(ValueError, match=r"no claims of 'adam' are .* broad"):
        recorded("adam")


def test_the_race_that_is_shown_is_that_of_the_page(made, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    show_race()
    (data,) = (each._repr_mimebundle_()["text/html"] for each in shown)
    charts = [text for name, text in made.items() if re.match(r"compare/\D*svg", name)]
    assert data.count("<svg") == len(charts) and all(c in data for c in charts)


@pytest.mark.parametrize(
    ("verdicts", "found"),
    [
        ([YES, YES], ("yes", "yes")),
        ([NO, NO], ("no", "no")),
        ([NO, UNDECIDED], ("open", "no 1, open 1")),
        ([NO, NO, UNDECIDED], ("mixed", "no 2, open 1")),
        ([YES, NO], ("mixed", "yes 1, no 1")),
        ([YES, UNDECIDED], ("mixed", "yes 1, open 1")),
        ([FEW, FEW], (NOT_CONTRADICTED, NOT_CONTRADICTED)),
        ([YES, FEW], ("mixed", "yes 1, not contradicted 1")),
        ([UNDECIDED, NOT_AT_END], ("open", "open")),
        ([], ("", "")),
    ],
)
def test_an_item_comes_to_what_its_verdicts_say(verdicts, found):
    assert coverage.found_of(verdicts) == found


def test_a_figure_goes_with_its_results(tmp_path):
    figure = tmp_path / f"docs/{MNIST.name}-1.svg"
    table, folder = tmp_path / "claims.csv", tmp_path / "results"
    for study in (MNIST, find_study("compare/rivals")):
        path = results.path_of(study, folder)
        path.parent.mkdir(parents=True)
        shutil.copy(results.path_of(study, RESULTS), path)
    pages.write(folder, tmp_path / "docs", table)
    assert figure.is_file() and table.read_text("utf-8") == pages.claims(folder)
    race = table.with_name("race.html").read_text("utf-8")
    assert race == RACE.read_text("utf-8")
    pages.write(tmp_path, tmp_path / "docs", table)
    assert not [*tmp_path.rglob("*.svg")]


def test_numbers_of_a_column_have_the_same_decimals():
    frame = pd.DataFrame({"ours": [98.3, 98.25, None], "runs": [1, 2, 3]}, list("abc"))
    assert pages.table_of(frame).splitlines()[2:] == [
        "| a | 98.30 | 1 |",
        "| b | 98.25 | 2 |",
        "| c |  | 3 |",
    ]


def points(line):
    return [tuple(map(float, p.split(","))) for p in line.get("points").split()]


def elements(svg, kind):
    return [e for e in ElementTree.fromstring(svg).iter() if e.tag.endswith(kind)]


@pytest.mark.parametrize("log", [False, True])
def test_a_figure_draws_means_over_the_seeds_that_are_all_there(log):
    """The second seed of b is cut off after its first look."""
    rows = [("a", s, k, 10.0 ** (k + s)) for s in (0, 1) for k in (1, 2, 3)]
    rows += [("b", 0, 1, 5.0), ("b", 0, 2, 6.0), ("b", 1, 1, 7.0)]
    frame = pd.DataFrame(rows, columns=["label", "seed", "look", "value"])
    view = View("look", "value", "Title <1>", "look", "value", log_y=log)
    b = drawing.curve_of(frame[frame.label == "b"], Chart(view=view))
    assert (b.x, b.y, b.sd) == ([1], [6.0], [pytest.approx(2**0.5)])
    (svg,) = drawing.figures(frame, [view]).values()
    lines = [points(line) for line in elements(svg, "polyline")]
    assert [*map(len, lines)] == [3, 1] and len(elements(svg, "circle")) == 1
    heights = [y for _, y in lines[0]]
    steps = heights[0] - heights[1], heights[1] - heights[2]
    assert (abs(steps[0] - steps[1]) < 0.2) == log
    assert min(steps) > 0


def test_runs_that_failed_are_left_out_of_a_curve_and_named_in_the_legend():
    nan, view = math.nan, View("look", "value", "t", "look", "value")
    rows = [("a", s, k, 4.0 * s + k, nan) for s in (0, 1) for k in (1, 2)]
    rows += [("a", 2, 1, nan, "diverged"), ("b", 0, 1, 9.0, nan)]
    rows += [("b", 0, 2, nan, "diverged"), ("b", 1, 1, nan, "diverged")]
    frame = pd.DataFrame(rows, columns=["label", "seed", "look", "value", "failed"])
    (svg,) = drawing.figures(frame, [view]).values()
    (line,) = elements(svg, "polyline")
    assert len(points(line)) == 2
    texts = [e.text for e in elements(svg, "text")]
    assert texts[-2:] == ["a (1 of 3 runs failed)", "b (2 of 2 runs failed)"]
    assert drawing.figures(frame[frame["label"] == "b"], [view]) == {}


@pytest.mark.parametrize("log", [False, True])
def test_a_band_whose_curve_begins_below_the_axis_does_not_cross_itself(log):
    rows = [("a", s, k, 10.0 * k + s) for s in (0, 1, 2) for k in (1, 2, 3)]
    frame = pd.DataFrame(rows, columns=["label", "seed", "look", "value"])
    view = View("look", "value", "t", "x", "value", log_y=log)
    (svg,) = drawing.figures(frame, [Chart(view=view, y_range=(15, None))]).values()
    (band,) = elements(svg, "polygon")
    high, low = points(band)[:3], points(band)[3:][::-1]
    assert all(top[1] <= under[1] for top, under in zip(high, low, strict=True))


def test_panels_have_their_curves_the_papers_numbers_and_one_colour_a_rule():
    labels = ["sgd, mnist", "adam, mnist", "adam, fashion"]
    rows = [(label, 0, k, 80.0 + k) for label in labels for k in (1, 2)]
    frame = pd.DataFrame(rows, columns=["label", "seed", "look", "value"])
    view = View("look", "value", "t", "x", "value")
    named = dict(view=view, lines={"adam": 83.0, "BPLS": 90.0}, y_range=(80, 95))
    named["points"] = {"adam": [(1, 82.0), (2, 83.5)]}
    panels = [
        Chart(only=("mnist",), **named),
        Chart(only=("none",), view=view),
        Chart(only=("fashion",), **named),
    ]
    made = drawing.figures(frame, panels)
    assert [*made] == [1, 3]  # a panel without curves is left out
    texts = [[e.text for e in elements(svg, "text")] for svg in made.values()]
    assert {"sgd (1 run)", "BPLS: 90", "dashed: the paper's number"} <= {*texts[0]}
    assert "sgd (1 run)" not in texts[1] and "adam (1 run)" in texts[1]
    assert {"x", "value", "circles: the paper's numbers"} <= {*texts[1]}
    assert [len(elements(svg, "circle")) for svg in made.values()] == [2, 2]
    colours = [
        [e.get("stroke") for e in elements(s, "polyline")] for s in made.values()
    ]
    assert colours[0][1:] == colours[1] and len({*colours[0]}) == 2
    dashed = [e for e in elements(made[3], "line") if e.get("stroke-dasharray")]
    assert {e.get("stroke") for e in dashed} == {colours[1][0], "#000000"}


def test_seeds_that_look_at_other_times_are_drawn_at_the_mean_time():
    """A step of Hessian-free takes as many passes as its search does."""
    rows = [
        (0, 1, 50.1, 8.0),
        (0, 2, 103.0, 4.0),
        (1, 1, 54.1, 6.0),
        (1, 2, 101.0, 3.0),
    ]
    frame = pd.DataFrame(rows, columns=["seed", "look", "passes", "test"])
    panel = Chart(view=View("passes", "test", "", "", ""))
    curve = drawing.curve_of(frame, panel)
    assert curve.x == pytest.approx([52.1, 102.0])
    assert curve.y == [7.0, 3.5]


@pytest.mark.parametrize(
    ("ends", "log", "expected"),
    [
        ((0.0, 1.0), False, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ((97.31, 98.9), False, [97.5, 98.0, 98.5]),
        ((3060, 25170), False, [5000, 10000, 15000, 20000, 25000]),
        ((2.0, 2.0), False, [2.0]),
        ((0.02, 30.0), True, [0.1, 1.0, 10.0]),
        ((0.019, 0.31), True, [0.02, 0.05, 0.1, 0.2]),
        ((1.0, 20.0), True, [1, 2, 5, 10, 20]),
        ((17.6, 27.1), True, [18, 20, 22, 24, 26]),
        ((2.0, 2.0), True, [2.0]),
    ],
)
def test_ticks_are_round(ends, log, expected):
    assert drawing._ticks(*ends, log) == pytest.approx(expected)
