"""The pages say what the results say, and nothing of them is older."""

import math
import re
import shutil
from xml.etree import ElementTree

import pandas as pd
import pytest

from labkit.lab.claims import (
    NO,
    RACE,
    UNDECIDED,
    YES,
    recorded,
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
from tests import ROOT

FEW, NAN = of_runs(YES, 1), math.nan
MNIST = find_study("rls/fig2a-3a")


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
    assert RACE.read_text("utf-8") == pages.race_page(RESULTS)
    assert max(len(text.encode()) for text in [*made.values(), table]) <= 300_000
    assert all(
        re.search(r'(points|cx)="\d', text)
        for name, text in made.items()
        if name.endswith(".svg")
    )


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
    text = pages.run_how({"x": last, "y": last | {"commit": "c"}})
    assert text.startswith("- commits: a, b, c\n") and text.endswith("start: 2")


def test_claims_of_a_paper_that_there_is_not_are_refused():
    with pytest.raises(ValueError, match=r"no claims of 'adam' are .* broad"):
        recorded("adam")


@pytest.mark.parametrize(
    ("verdicts", "found"),
    [
        ([YES, YES], ("yes", "yes")),
        ([NO, NO], ("no", "no")),
        ([NO, UNDECIDED], ("open", "no 1, open 1")),
        ([NO, NO, UNDECIDED], ("in part", "no 2, open 1")),
        ([YES, NO], ("in part", "yes 1, no 1")),
        ([YES, UNDECIDED], ("in part", "yes 1, open 1")),
        ([FEW, FEW], (NOT_CONTRADICTED, NOT_CONTRADICTED)),
        ([YES, FEW], ("in part", "yes 1, not contradicted 1")),
        ([UNDECIDED, NOT_AT_END], ("open", "open")),
        ([FEW, UNDECIDED], ("open", "not contradicted 1, open 1")),
        ([], ("", "")),
    ],
)
def test_an_item_comes_to_what_its_verdicts_say(verdicts, found):
    assert coverage.found_of(verdicts) == found


def test_what_lies_below_a_logarithmic_axis_is_not_drawn_on_its_edge():
    pixel, _ = drawing._axis(1.0, 10.0, True, 100, 0)
    assert pixel(1.0) == 100 < pixel(0.5) < pixel(0.0)


def test_a_figure_goes_with_its_results(tmp_path):
    figure = tmp_path / f"docs/{MNIST.name}-1.svg"
    table, folder = tmp_path / "claims.csv", tmp_path / "results"
    path = results.path_of(MNIST, folder)
    path.parent.mkdir(parents=True)
    shutil.copy(results.path_of(MNIST, RESULTS), path)
    pages.write(folder, tmp_path / "docs", table)
    assert figure.is_file() and table.read_text("utf-8") == pages.claims(folder)
    pages.write(tmp_path, tmp_path / "docs", table)
    assert not [*tmp_path.rglob("*.svg")]


def elements(svg, kind):
    return [e for e in ElementTree.fromstring(svg).iter() if e.tag.endswith(kind)]


def points(element):
    return [tuple(map(float, p.split(","))) for p in element.get("points").split()]


def curves(svg):
    """Return the lines of a figure's curves and, below them, of its legend."""
    return [e for e in elements(svg, "polyline") if e.get("stroke-width") == "1.8"]


def texts(svg):
    return [e.text for e in elements(svg, "text")]


def frame(rows):
    return pd.DataFrame(rows, columns=["label", "seed", "look", "x", "value", "failed"])


def view(**logs):
    return View("x", "value", "Title <1>", "step", "loss", **logs)


@pytest.mark.parametrize(
    ("runs", "curve", "note"),
    [
        ({0: [(1, 5), (2, 6)], 1: [(1, 7)]}, [(1, 6, 2**0.5)], ""),  # 1 was cut off
        ({0: [(50, 8)], 1: [(54, 6)]}, [(52, 7, 2**0.5)], ""),  # a step of passes
        ({0: [(1, 5)]}, [(1, 5, 0)], " (1 run)"),
        ({0: [(1, 5)], 1: [(1, NAN)]}, [(1, 5, 0)], " (1 of 2 runs failed)"),
        ({0: [(1, NAN)], 1: [(1, NAN)]}, [], " (2 of 2 runs failed)"),
    ],
)
def test_a_curve_is_the_mean_of_the_runs_that_did_not_fail(runs, curve, note):
    rows = [
        ("a", seed, look, *pair, "diverged" if math.isnan(pair[1]) else NAN)
        for seed, pairs in runs.items()
        for look, pair in enumerate(pairs)
    ]
    *found, words = drawing.curve_of(frame(rows), view())
    assert words == note
    assert [*zip(*found, strict=True)] == [pytest.approx(each) for each in curve]


@pytest.mark.parametrize("log", [False, True])
def test_a_band_lies_about_its_curve_and_does_not_cross_itself_below_the_axis(log):
    rows = [
        ("a", seed, look, look, 10.0 ** (look + seed / 9), NAN)
        for seed in (0, 1)
        for look in (1, 2, 3)
    ]
    chart = Chart(view=view(log_y=log), y_range=(15, 2000))
    (svg,) = drawing.figures(frame(rows), [chart]).values()
    heights = [y for _, y in points(curves(svg)[0])]
    if log:
        heights[0] = 2 * heights[1] - heights[2]  # it begins below the axis
    steps = -pd.Series(heights).diff().dropna()
    assert (steps > 0).all() and (steps.std() < 0.2) == log
    band = points(elements(svg, "polygon")[0])
    for (_, high), (_, low) in zip(band[:3], band[:2:-1], strict=True):
        assert high <= low


def test_panels_have_their_curves_the_papers_numbers_and_one_colour_a_rule():
    labels = ["sgd, mnist", "adam, mnist", "adam, fashion"]
    rows = [(label, 0, k, k, 80.0 + k, NAN) for label in labels for k in (1, 2)]
    rows.append(("lost, mnist", 0, 0, 1, NAN, "diverged"))
    panels = [Chart(view=view(), only=(x,)) for x in ("mnist", "none", "lost")]
    printed = Chart(
        view=view(),
        only=("fashion",),
        lines={"adam": 83.0, "BPLS": 90.0},
        points={"adam": [(1, 82.0), (2, 83.5)]},
        y_range=(80, 95),
    )
    made = drawing.figures(frame(rows), [*panels, printed])
    assert [*made] == [1, 4]  # a panel without curves is left out
    first, last = texts(made[1]), texts(made[4])
    assert first[-3:] == ["sgd (1 run)", "adam (1 run)", "lost (1 of 1 runs failed)"]
    papers = ["adam (1 run); dashed: the paper's 83", "BPLS; dashed: the paper's 90"]
    assert last[-3:] == [*papers, drawing.CIRCLES]
    assert {"Title <1>", "step", "loss"} <= {*last}
    sgd, adam, *_ = (e.get("stroke") for e in curves(made[1]))
    assert sgd != adam == curves(made[4])[0].get("stroke")
    assert {e.get("stroke") for e in elements(made[4], "circle")} == {adam}
    dashed = [e for e in elements(made[4], "polyline") if e.get("stroke-dasharray")]
    assert {e.get("stroke") for e in dashed} == {adam, "#000000"}


@pytest.mark.parametrize(
    ("ends", "log", "expected"),
    [
        ((97.31, 98.9), False, [97.5, 98.0, 98.5]),
        ((3060, 25170), False, [5000, 10000, 15000, 20000, 25000]),
        ((2.0, 2.0), False, [2.0]),
        ((0.02, 30.0), True, [0.1, 1.0, 10.0]),
        ((0.019, 0.31), True, [0.02, 0.05, 0.1, 0.2]),
        ((17.6, 27.1), True, [18, 20, 22, 24, 26]),
    ],
)
def test_ticks_are_round(ends, log, expected):
    assert drawing._ticks(*ends, log) == pytest.approx(expected)
