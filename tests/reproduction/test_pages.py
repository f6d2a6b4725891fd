"""The pages say what the results say, and nothing of them is older."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from labkit.lab.claims import NO, UNDECIDED, YES, recorded
from labkit.lab.race import View
from reproduction import (
    bpls,
    drawing,
    hessian_free,
    pages,
    rls,
    rtrl,
    rtrl_noise,
    units,
)
from reproduction.command import CLAIMS, DOCS, RESULTS
from reproduction.studies import PAPERS

ROOT = Path(__file__).resolve().parents[2]


def test_pages_and_results_agree():
    """If not: `labkit reproduce pages`."""
    made = pages.pages(RESULTS)
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
    assert all(re.search(r'points="\d', figure) for figure in figures)


@pytest.mark.parametrize("paper", PAPERS)
def test_a_notebook_shows_what_its_page_says(paper):
    page = pages.pages(RESULTS)[f"{paper}.md"]
    for row in recorded(paper).to_dict("records"):
        words = row["paper's claim"], row["recorded"], row["data and scale"]
        assert all(part in page for each in words for part in each.split("; "))
        judged = f"| {words[0]} | {words[1]} | {row['whose']} | {row['verdict']} |"
        judged = judged in page
        assert judged or "Not run" in words[1] or "units are done" in words[1]
        assert f"`{row['command']}`" in page
    notebook = next(ROOT.glob(f"notebooks/0?_{paper}.ipynb")).read_text("utf-8")
    assert f'recorded(\\"{paper}\\").style' in notebook


def test_claims_of_a_paper_that_there_is_not_are_refused():
    with pytest.raises(ValueError, match=r"no claims of 'adam' are .* broad"):
        recorded("adam")


def test_what_was_not_run_stands_there_with_its_command(tmp_path):
    for name, text in pages.pages(tmp_path).items():
        if name != "README.md":
            assert text.count("**Not run.**") == text.count("\n## ")
            assert text.count("- Command: `labkit reproduce run ") == text.count(
                "\n## "
            )


def test_units_that_were_not_run_are_named():
    each = rls.CONV_SWEEP
    whole = pages.section(
        each, RESULTS, pages.results.frame(RESULTS / f"{each.name}.csv")
    )
    _, done = pages.show.state_of(each, RESULTS)
    (told,) = [part for part in whole if "units are done" in part]
    left = [unit for unit in each.units if unit not in done]
    assert told.endswith(f"not run: {', '.join(left)}." if left else "are done.")


def test_a_figure_goes_with_its_results(tmp_path):
    figure = tmp_path / f"docs/{rls.MNIST.name}.svg"
    table = tmp_path / "claims.csv"
    pages.write(RESULTS, tmp_path / "docs", table)
    assert figure.is_file() and table.read_text("utf-8") == pages.claims(RESULTS)
    pages.write(tmp_path, tmp_path / "docs", table)
    assert not [*tmp_path.rglob("*.svg")]


def test_seconds_of_units_that_were_cut_off_are_told_as_such():
    whole = units.here() | {"seconds": 1.0, "cpu_seconds": 0.5, "load": [1, 2]}
    cut = whole | {"begun": ["2026-11-23T22:48:19+00:00"]}
    assert "cut off" not in pages.run_how({"a": whole})
    told = pages.run_how({"a": whole, "b": cut, "c": cut})
    assert told.endswith("units that were cut off count from their last start: 2")


def test_the_commits_of_all_processes_are_told():
    last = units.here() | {"seconds": 1.0, "cpu_seconds": 0.5, "load": [1, 2]}
    last |= {"commit": "b", "processes": [{"commit": "a"}, {"commit": "b"}]}
    told = pages.run_how({"x": last, "y": last | {"commit": "c"}})
    assert told.startswith("- commits: a, b, c\n") and "cut off" in told


def test_numbers_of_a_column_have_the_same_decimals():
    frame = pd.DataFrame({"ours": [98.3, 98.25, None], "runs": [1, 2, 3]}, list("abc"))
    assert pages.table_of(frame).splitlines()[2:] == [
        "| a | 98.30 | 1 |",
        "| b | 98.25 | 2 |",
        "| c |  | 3 |",
    ]


def test_a_constant_with_which_every_run_fails_ends_below():
    ends = {"lr 1": (98.2, 98.4), "lr 0.1": (97.2, 97.0), "lr 10": (None, None)}
    ends |= {"mean_weight 0.1": (98.3, 98.2), "mean_weight 10": (97.1, None)}
    rows = [
        {"label": f"RLS, {label}", "seed": seed, "look": 20, "accuracy": value}
        for label, both in ends.items()
        for seed, value in enumerate(both)
    ]
    assert [told[1:] for told in rls.sweep_claims(pd.DataFrame(rows))] == [
        ("98.25 ± 0.07 % and failed, 1 of 2 runs", UNDECIDED),
        ("98.30 ± 0.14 % and 97.10 ± 0.14 %", YES),
        ("98.30 ± 0.14 % and failed, 2 of 2 runs", YES),
    ]


def test_lengths_of_two_methods_are_compared_where_both_have_been():
    """TBPTT, with many rates, by the one that came farthest."""
    ends = [("50-TBPTT", r, level) for r, level in ((1, (18, 22)), (2, (17, 31)))]
    ends += ("16-OK", 1, (16,)), ("16-KF-AVG", 1, (12,)), ("16-B-OK", 1, (17,))
    rows = [
        {"label": f"{method}, rate {rate}, batch 16", "look": look, "level": level}
        for method, rate, levels in ends
        for look, level in zip((100_000, 2_000_000), levels, strict=False)
    ]
    there, ends = "after 100,000 steps", "Fig. 1, 50-TBPTT: reaches 33"
    found = list(rtrl.copy_claims(pd.DataFrame(rows)))
    assert found[:2] == [
        ("authors' logs, 16-OK, 100,000 steps: 15 to 17", "16", YES),
        (ends, "31", UNDECIDED),
    ]
    assert sorted(found[2:]) == [
        ("4.1, Fig. 1: 16-OK longer than 16-KF-AVG", f"16 and 12 {there}", YES),
        ("4.1, Fig. 1: 16-OK longer than 50-TBPTT", f"16 and 17 {there}", UNDECIDED),
        ("Fig. 12: 16-B-OK almost as good as 16-OK", f"16 and 17 {there}", YES),
    ]
    third = {"label": "50-TBPTT, rate 3, batch 16", "look": 2_000_000, "level": 4}
    found = list(rtrl.copy_claims(pd.DataFrame([*rows, third])))
    assert found[1] == (ends, "31", YES)


def test_bits_of_two_methods_are_compared_where_both_have_been():
    ends = {"8-OK": (2.98, 2.77), "8-KF-AVG": (3.04,)}
    rows = [
        {"label": f"{method}, rate 0.1, batch 32", "look": look, "valid": bits}
        for method, found in ends.items()
        for look, bits in zip((10_000, 20_000), found, strict=False)
    ]
    assert list(rtrl.course_claims(pd.DataFrame(rows))) == [
        ("authors' logs, 8-OK, 10,000 steps: 2.97 bits", "2.980", YES),
        ("authors' logs, 8-OK, 20,000 steps: 2.7 bits", "2.770", NO),
        (
            "4.1, Table 2: 8-OK below 8-KF-AVG",
            "2.980 and 3.040 after 10,000 steps",
            YES,
        ),
    ]


def test_ktp_is_compared_with_kf_rtrl_and_that_with_its_stand_in():
    ends = {"1-KF-AVG": 9, "16-KTP": 5, "16-KF-APPROX": 6}
    rows = [
        {"label": f"{method}, rate 0.1, batch 64", "look": 30_000, "level": level}
        for method, level in ends.items()
    ]
    told = [row[1:] for row in rtrl.ktp_claims(pd.DataFrame(rows))]
    there = "after 30,000 steps"
    assert told == [(f"9 and 5 {there}", YES), (f"9 and 6 {there}", YES)]
    rows[2]["level"] = 5
    assert [*rtrl.ktp_claims(pd.DataFrame(rows))][1][2] == NO


def noises(found, look=100):
    """Rows of cosines, by learner, units and weights."""
    return pd.DataFrame(
        {"label": label, "units": n, "seed": seed, "look": look, "cosine": cosine}
        | {"cosine_sd": 0.01, "relative_variance": 1.0}
        for (label, n, seed), cosine in found.items()
    )


def test_cosines_of_two_sizes_are_alike_within_their_spread():
    """2-OK falls by 0.06 with a spread of 0.01, KF-RTRL by 0.1 with one of 0.28."""
    found = {("2-OK", 8, 0): 0.99, ("2-OK", 8, 1): 1.0, ("2-OK", 512, 0): 0.93}
    found |= {("2-OK", 512, 1): 0.94, ("1-KF-AVG", 8, 0): 0.6}
    found |= {("1-KF-AVG", 8, 1): 1.0, ("1-KF-AVG", 512, 0): 0.5}
    found |= {("1-KF-AVG", 512, 1): 0.9}
    rows = pd.concat([noises(found), noises({k: 0.1 for k in found}, look=75)])
    told = list(rtrl_noise.untrained_claims(rows))
    claim = "7.2, Fig. 9: {}'s cosine alike from 8 to 512 units"
    assert told == [
        (claim.format("2-OK"), "0.935 to 0.995, sd at most 0.007", NO),
        (claim.format("1-KF-AVG"), "0.700 to 0.800, sd at most 0.283", YES),
    ]
    long = {("2-OK", 256, rtrl_noise.LONG_SEED): 0.9}
    long |= {("1-KF-AVG", 256, rtrl_noise.LONG_SEED): 0.5}
    first, second, *same = rtrl_noise.untrained_claims(pd.concat([rows, noises(long)]))
    assert (first[2], second[2], same) == (NO, YES, told)


def test_networks_that_copy_are_compared_with_the_first():
    both = {128: (0.9, 0.7), 512: (0.88, 0.5)}
    found = {("16-OK", n, 0): ok for n, (ok, _) in both.items()}
    found |= {("16-KF-AVG", n, 0): kf for n, (_, kf) in both.items()}
    told = [row[::2] for row in rtrl_noise.copy_claims(noises(found))]
    assert told == [
        ("7.2, Fig. 7: 16-OK's cosine above 16-KF-AVG's, 128 units, weights 0", YES),
        ("7.2, Fig. 10: 16-OK's cosine above 16-KF-AVG's, 512 units, weights 0", YES),
        ("7.2, Fig. 10: 16-OK's cosine alike with 512 units", YES),
        ("7.2, Fig. 10: 16-KF-AVG's cosine alike with 512 units", NO),
    ]


def test_what_more_units_cost_is_measured_behind_the_first_steps():
    found = {("8-OK", 256, 0): 0.9, ("8-OK", 512, 0): 0.7}
    found |= {("8-KF-AVG", 256, 0): 0.65, ("8-KF-AVG", 512, 0): 0.6}
    rows = pd.concat([noises(found), noises({k: 1.0 for k in found}, look=50)])
    told = [row[1:] for row in rtrl_noise.larger_claims(rows)]
    assert told[0] == ("0.200 ± 0.020 and 0.050 ± 0.020", YES)
    assert told[1] == ("0.700 ± 0.010 and 0.600 ± 0.010", YES)


@pytest.mark.parametrize("log", [False, True])
def test_a_figure_draws_means_over_the_seeds_that_are_all_there(log):
    """The second seed of b is cut off after its first look."""
    rows = [("a", s, k, 10.0 ** (k + s)) for s in (0, 1) for k in (1, 2, 3)]
    rows += [("b", 0, 1, 5.0), ("b", 0, 2, 6.0), ("b", 1, 1, 7.0)]
    frame = pd.DataFrame(rows, columns=["label", "seed", "look", "value"])
    view = View("look", "value", "Title <1>", "look", "value", log_y=log)
    assert drawing.curve_of(frame[frame.label == "b"], view) == ([1], [6.0])
    drawn = ElementTree.fromstring(drawing.figure(frame, [view]))
    lines = [e for e in drawn.iter() if e.tag.endswith("polyline")]
    assert [len(line.get("points").split()) for line in lines] == [3, 1]
    heights = [float(p.split(",")[1]) for p in lines[0].get("points").split()]
    steps = heights[0] - heights[1], heights[1] - heights[2]
    assert (abs(steps[0] - steps[1]) < 0.2) == log
    assert min(steps) > 0


def test_a_run_of_bpls_that_ended_stays_where_it_is():
    """Of runs after the first ten the last walk alone is there, and not drawn."""
    rows = [("a", 0, 0, 80.0), ("a", 0, 1, 84.0), ("a", 1, 0, 82.0), ("a", 50, 1, 0.0)]
    frame = pd.DataFrame(rows, columns=["label", "seed", "look", "test"])
    view = View("look", "test", "", "", "")
    assert drawing.curve_of(bpls.followed(frame), view) == ([0, 1], [81.0, 83.0])


def test_test_errors_are_compared_at_the_training_error_that_all_reach():
    def run(label, seed, train, test):
        looks = {"label": label, "seed": seed, "train": train, "test": test}
        return pd.DataFrame(looks)

    fast = run("fast", 0, [8.0, 4.0, 2.0], [8.0, 6.0, 5.0])
    slow = run("slow", 0, [9.0, 7.0, 5.0], [9.0, 7.1, 5.2])
    found = hessian_free.levelled(pd.concat([fast, slow]))
    assert found["label"].tolist() == ["fast", "slow"]
    assert found["test"].tolist() == [6.5, 5.2]  # at 5, which the slow one reaches


def test_a_theta_is_judged_by_the_batches_that_it_takes():
    """Means over the looks of a run, then over the seeds."""
    sizes = {hessian_free.SHORT: [(100, 300), (100, 320)]}
    sizes[f"{hessian_free.SHORT}, theta 0.2"] = [(100, 900), (100, 800)]
    rows = [
        {"label": label, "seed": seed, "n": n, "valid": 1.0, "train": 1.0, "test": 1.0}
        for label, runs in sizes.items()
        for seed, looks in enumerate(runs)
        for n in looks
    ]
    [(claim, told, held)] = hessian_free.advice_claims(pd.DataFrame(rows))
    assert (told, held) == ("205 ± 7 rows and 475 ± 35 rows", YES)
    assert "theta 0.5 against 0.2" in claim


def test_seeds_that_look_at_other_times_are_drawn_at_the_mean_time():
    """A step of Hessian-free takes as many passes as its search does."""
    rows = [
        (0, 1, 50.1, 8.0),
        (0, 2, 103.0, 4.0),
        (1, 1, 54.1, 6.0),
        (1, 2, 101.0, 3.0),
    ]
    frame = pd.DataFrame(rows, columns=["seed", "look", "passes", "test"])
    x, y = drawing.curve_of(frame, View("passes", "test", "", "", ""))
    assert x == pytest.approx([52.1, 102.0])
    assert y == [7.0, 3.5]


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
