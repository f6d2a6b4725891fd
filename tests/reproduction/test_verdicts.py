"""The criteria of the studies: planted results on either side of each one."""

import re

import numpy as np
import pandas as pd

from labkit.lab.claims import NO, UNDECIDED, YES
from reproduction import hessian_free
from reproduction.criteria import NOT_AT_END, of_runs
from reproduction.studies import find_study


def held(name, rows):
    """Return the verdicts of a study by claim."""
    return {claim: verdict for claim, _, verdict in find_study(name).claims(rows)}


def few(runs):
    return of_runs(YES, runs)


def frame(columns, rows):
    return pd.DataFrame(rows, columns=columns.split())


# Hessian-free


def autoencoder(label, seed, errors, *, unit=""):
    """A run whose errors in f are the same in all parts."""
    looks = np.arange(1, len(errors) + 1)
    sizes = np.linspace(200, 2000, len(errors))
    run = {"unit": unit or f"{label}-{seed}", "label": label, "seed": seed}
    run |= {"look": looks, "step": looks, "passes": 50.0 * looks, "n": sizes}
    return pd.DataFrame(run | dict.fromkeys(hessian_free.PARTS, 2 * np.array(errors)))


def usps(gap, *, seeds=3, falling=False):
    """Runs of both methods that end that far above the printed test error of SHF."""
    fall = [1.947 + gap + 0.1 * k for k in range(40, -1, -1)]
    settled = [*fall, *40 * [1.947 + gap + 0.2]]
    return pd.concat(
        autoencoder(label, seed, np.array(end) + 0.004 * seed)
        for seed in range(seeds)
        for label, end in (("shf", fall if falling else settled), ("martens", settled))
    )


USPS = "hessian_free/table2-usps"
TEST = "6, Table 2, USPS, shf, test: f is 1.947"


def test_table_2_is_judged_in_f():
    assert held(USPS, usps(0.0))[TEST] == YES
    assert held(USPS, usps(0.3))[TEST] == NO
    assert held(USPS, usps(0.3, falling=True))[TEST] == NOT_AT_END
    assert held(USPS, usps(0.3, seeds=2))[TEST] == UNDECIDED
    assert held(USPS, usps(1.947))[TEST] == NO  # 2 f


def test_of_two_runs_with_a_seed_the_longer_one_counts():
    short = autoencoder("shf", 0, [5.0, 4.0], unit="short")
    long = autoencoder("shf", 0, [5.0, 4.0, 3.0], unit="long")
    kept = hessian_free.in_f(pd.concat([short, long]))
    assert kept["unit"].unique() == ["long"] and kept["test"].tolist() == [5, 4, 3]


def test_test_errors_are_compared_at_the_training_error_that_all_reach():
    def run(label, seed, train, test):
        looks = {"label": label, "seed": seed, "train": train, "test": test}
        return pd.DataFrame(looks | {"valid": test, "n": 100, "look": range(3)})

    fast = run("fast", 0, [8.0, 4.0, 2.0], [8.0, 6.0, 5.0])
    slow = run("slow", 0, [9.0, 7.0, 5.0], [9.0, 7.1, 5.2])
    rows = pd.concat([fast, slow], ignore_index=True)
    _, equal = hessian_free.advised(rows, claim="{how}", a="fast", b="slow")
    numbers = re.findall(r"\d\.\d+", equal[1])
    # at 5, which the slow one reaches
    assert numbers[0] == "6.500" and "5.200" in numbers


# RLS


def swept(ends, seeds=3):
    """Runs of RLS with one constant changed."""
    return pd.DataFrame(
        {"label": f"RLS, {label}", "seed": seed, "look": look, "loss": 1.0}
        | {"accuracy": end if end is None else end + 0.01 * seed}
        for label, end in ends.items()
        for seed in range(seeds)
        for look in (1, 20)
    )


def test_a_constant_with_which_every_run_fails_ends_below():
    claim = "VI-B, Fig. 5: eta = 1 ends above 10"
    ends = {"lr 1": 98.0, "lr 10": None}
    assert held("rls/fig4a-5a", swept(ends))[claim] == YES
    assert held("rls/fig4a-5a", swept(ends, seeds=2))[claim] == UNDECIDED


# RTRL


def test_lengths_of_two_methods_are_compared_where_both_have_been():
    """TBPTT, with many rates, by the one that came farthest."""
    ends = [("50-TBPTT", r, level) for r, level in ((1, (18, 22)), (2, (17, 31)))]
    ends += ("16-OK", 1, (18,)), ("16-KF-AVG", 1, (12,)), ("16-B-OK", 1, (17,))
    rows = [
        (f"{method}, rate {rate}, batch 16", 0, look, level)
        for method, rate, levels in ends
        for look, level in zip((100_000, 2_000_000), levels, strict=False)
    ]
    found = held("rtrl/fig1-copy", frame("label seed look level", rows))
    assert found == {
        "authors' logs, 16-OK, 100,000 steps: at least 15, 15 to 17": few(1),
        "Fig. 1, TBPTT-50: reaches 33": UNDECIDED,  # one rate is missing
        "4.1, Fig. 1: 16-OK longer than TBPTT-50": UNDECIDED,
        "4.1, Fig. 1: 16-OK longer than 16-KF-AVG": few(1),
        "Fig. 12: 16-B-OK almost as good as 16-OK": few(1),
    }
    third = ("50-TBPTT, rate 3, batch 16", 0, 2_000_000, 4)
    found = held("rtrl/fig1-copy", frame("label seed look level", [*rows, third]))
    assert found["Fig. 1, TBPTT-50: reaches 33"] == few(1)
    rows = [row if row[0][:5] != "16-OK" else (*row[:3], 9) for row in rows]
    found = held("rtrl/fig1-copy", frame("label seed look level", rows))
    assert found["authors' logs, 16-OK, 100,000 steps: at least 15, 15 to 17"] == (
        UNDECIDED
    )
