"""The criteria of the studies: planted results on either side of each one."""

import numpy as np
import pandas as pd
import pytest

from labkit.lab.claims import NO, UNDECIDED, YES
from reproduction import bpls_toy, hessian_free
from reproduction.criteria import NOT_AT_END, of_runs
from reproduction.hessian_free import SHORT
from reproduction.studies import find_study


def held(name, rows):
    """Return the verdicts of a study by claim."""
    return {claim: verdict for claim, _, verdict in find_study(name).claims(rows)}


def few(runs):
    return of_runs(YES, runs)


def frame(columns, rows):
    return pd.DataFrame(rows, columns=columns.split())


# Hessian-free


def autoencoder(label, seed, errors, *, unit="", batches=(200, 2000)):
    """A run whose errors in f are the same in all parts."""
    looks = np.arange(1, len(errors) + 1)
    sizes = np.linspace(*batches, len(errors))
    run = {"unit": unit or f"{label}-{seed}", "label": label, "seed": seed}
    run |= {"look": looks, "step": looks, "passes": 50.0 * looks, "n": sizes}
    return pd.DataFrame(run | dict.fromkeys(hessian_free.PARTS, 2 * np.array(errors)))


def usps(gap, *, seeds=3, falling=False, batches=(200, 2000), level=1.947):
    """Runs of both methods that end that far above the printed test error of SHF."""
    fall = [level + gap + 0.1 * k for k in range(40, -1, -1)]
    settled = [*fall, *40 * [level + gap + 0.2]]
    return pd.concat(
        autoencoder(label, seed, np.array(end) + 0.004 * seed, batches=batches)
        for seed in range(seeds)
        for label, end in (("shf", fall if falling else settled), ("martens", settled))
    )


USPS = "hessian_free/table2-usps"
TEST = "6, Table 2, USPS, shf, test: f is 1.947"
TIE = "6, Table 2: shf and martens end at the same test error"


def test_table_2_is_judged_in_f():
    assert held(USPS, usps(0.0))[TEST] == YES
    assert held(USPS, usps(0.3))[TEST] == NO
    assert held(USPS, usps(0.3, falling=True))[TEST] == NOT_AT_END
    assert held(USPS, usps(0.3, seeds=2))[TEST] == UNDECIDED
    assert held(USPS, usps(1.947))[TEST] == NO  # 2 f


@pytest.mark.parametrize(
    ("train", "test", "verdict"),
    [(1.0, 1.961, YES), (1.0, 2.2, NO), (1.5, 1.961, UNDECIDED)],
)
def test_the_printed_pair_lies_on_the_way_of_martens_or_not(train, test, verdict):
    """The last run does not come so far in training."""
    rows = usps(0.0)
    rows["train"], rows["test"] = 2 * train, 2 * test
    claim = (
        "6, Table 2, USPS, martens, test: f is 1.961 where that of training is 1.007"
    )
    assert held(USPS, rows).get(claim, UNDECIDED) == verdict


def test_two_methods_tie_within_the_margin():
    rows = usps(0.0)
    assert held(USPS, rows)[TIE] == YES
    parts = list(hessian_free.PARTS)
    worse = rows.copy()
    worse.loc[worse["label"] == "shf", parts] += 1.0
    assert held(USPS, worse)[TIE] == NO
    assert held(USPS, rows[rows["seed"] < 2])[TIE] == few(2)
    assert held(USPS, worse[worse["seed"] < 2])[TIE] == UNDECIDED


def test_of_two_runs_with_a_seed_the_longer_one_counts():
    short = autoencoder("shf", 0, [5.0, 4.0], unit="short")
    long = autoencoder("shf", 0, [5.0, 4.0, 3.0], unit="long")
    kept = hessian_free.in_f(pd.concat([short, long]))
    assert kept["unit"].unique() == ["long"] and kept["test"].tolist() == [5, 4, 3]


def test_a_run_ends_when_its_lowest_validation_error_is_old():
    rows = [{"passes": 50.0 * k, "valid": abs(k - 3)} for k in range(1, 9)]
    assert hessian_free.age(rows) == 250.0
    assert hessian_free.age([]) == 0.0


def test_test_errors_are_compared_at_the_training_error_that_all_reach():
    def run(label, seed, train, test):
        looks = {"label": label, "seed": seed, "train": train, "test": test}
        return pd.DataFrame(looks)

    fast = run("fast", 0, [8.0, 4.0, 2.0], [8.0, 6.0, 5.0])
    slow = run("slow", 0, [9.0, 7.0, 5.0], [9.0, 7.1, 5.2])
    found = hessian_free.levelled(pd.concat([fast, slow]))
    assert {label: each[0] for label, each in found.items()} == {
        "fast": 6.5,
        "slow": 5.2,  # at 5, which the slow one reaches
    }


def test_advice_is_judged_by_test_errors_with_paired_seeds():
    def both(turned, falling):
        tail = [6.0, 5.0, 4.0] if falling else 10 * [4.0]
        return pd.concat(
            autoencoder(label, seed, np.array([7.0, *tail]) + add + 0.01 * seed)
            for seed in range(3)
            for label, add in ((SHORT, 0.0), (f"{SHORT}, damping_decay 0.99", turned))
        )

    claim = "6: a higher drop generalises better (damping_decay 0.99)"
    assert held("hessian_free/advice", both(-1.0, False))[claim] == YES
    assert held("hessian_free/advice", both(1.0, False))[claim] == NO
    assert held("hessian_free/advice", both(1.0, True))[claim] == NOT_AT_END


# RLS


def epochs(label, accuracies, seeds=3):
    return pd.DataFrame(
        {"label": label, "seed": seed, "look": look, "accuracy": value + 0.01 * seed}
        | {"loss": 1 / value, "seconds": 2.0 * look}
        for seed in range(seeds)
        for look, value in enumerate(accuracies, 1)
    )


@pytest.mark.parametrize("better", ["RLS", "Adam"])
def test_rls_is_faster_or_slower_than_adam(better):
    other = {"RLS": "Adam", "Adam": "RLS"}[better]
    quick, slow = (80.0, 98.1, 98.6, 98.6), (70.0, 80.0, 98.1, 98.3)
    rows = pd.concat([epochs(better, quick), epochs(other, slow)])
    claims = held("rls/fig2a-3a", rows)
    assert set(claims.values()) == {YES if better == "RLS" else NO} and len(claims) == 5
    claim = "ours: VI-B: RLS converges faster than Adam, seconds to accuracy 98"
    assert claim in claims
    few = held("rls/fig2a-3a", rows[rows["seed"] < 2])
    assert set(few.values()) == {UNDECIDED}


def swept(ends, seeds=3, fall=0.0):
    """Runs of RLS with one constant changed; a fall of the loss in the last look."""
    return pd.DataFrame(
        {"label": f"RLS, {label}", "seed": seed, "look": look, "loss": loss}
        | {"accuracy": end if end is None else end + 0.01 * seed}
        for label, end in ends.items()
        for seed in range(seeds)
        for look, loss in ((1, 1.0), (20, 1.0 - fall))
    )


def test_a_constant_is_best_or_not():
    claim = "VI-B, Fig. 4: k = 0.1 ends above 10"
    good = {"mean_weight 0.1": 98.0, "mean_weight 10": 97.0}
    bad = {"mean_weight 0.1": 97.0, "mean_weight 10": 98.0}
    assert held("rls/fig4a-5a", swept(good))[claim] == YES
    assert held("rls/fig4a-5a", swept(bad))[claim] == NO
    assert held("rls/fig4a-5a", swept(bad, fall=0.1))[claim] == NOT_AT_END
    assert held("rls/fig4a-5a", swept(bad, seeds=2))[claim] == UNDECIDED


def test_a_constant_with_which_every_run_fails_ends_below():
    claim = "VI-B, Fig. 5: eta = 1 ends above 10"
    ends = {"lr 1": 98.0, "lr 10": None}
    assert held("rls/fig4a-5a", swept(ends))[claim] == YES
    assert held("rls/fig4a-5a", swept(ends, seeds=2))[claim] == UNDECIDED


@pytest.mark.parametrize(
    ("ratio", "takes", "verdict"),
    [(1.15, 1, few(1)), (1.9, 1, UNDECIDED), (1.15, 3, YES), (1.9, 3, NO)],
)
def test_seconds_of_one_take_decide_nothing(ratio, takes, verdict):
    rows = frame(
        "label unit seed seconds_cpu",
        [
            (name, f"FC-{take}", k, s)
            for take in range(takes)
            for k in range(9)
            for name, s in (("Adam, FC", 1.0), ("RLS, FC", ratio))
        ],
    )
    claim = "VI-B: RLS, FC: about 1.1 times Adam's running time"
    assert held("rls/seconds", rows) == {claim: verdict}


# RTRL


def lengths(ends, look=30_000, seeds=1):
    rows = [
        (f"{method}, rate 0.1, batch 64", seed, look, level)
        for method, level in ends.items()
        for seed in range(seeds)
    ]
    return frame("label seed look level", rows)


@pytest.mark.parametrize(
    ("ends", "seeds", "expected"),
    [
        ({"16-KTP": 5, "16-KF-APPROX": 9}, 1, [few(1), few(1)]),
        ({"16-KTP": 9, "16-KF-APPROX": 6}, 1, [UNDECIDED, UNDECIDED]),
        ({"16-KTP": 9, "16-KF-APPROX": 6}, 3, [NO, NO]),
        ({"16-KTP": 5, "16-KF-APPROX": 9}, 3, [YES, YES]),
    ],
)
def test_ktp_is_compared_with_kf_rtrl_and_that_with_its_stand_in(ends, seeds, expected):
    rows = lengths({"1-KF-AVG": 9} | ends, seeds=seeds)
    assert list(held("rtrl/fig4-ktp", rows).values()) == expected


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


def bits(ends, seeds=1, look=10_000):
    rows = [
        (f"{method}, rate 0.00032, batch 32", seed, look, value + 0.001 * seed)
        for method, value in ends.items()
        for seed in range(seeds)
    ]
    return frame("label seed look valid", rows)


def test_bits_are_compared_with_the_logs_and_with_other_methods():
    log = "authors' logs, 8-OK, 10,000 steps: 2.97 bits"
    kf = "4.1, Table 2: 8-OK below 8-KF-AVG (rate 0.00032)"
    faster = "4.1, Fig. 2: 8-OK converges faster than TBPTT-25 (rate 0.00032)"
    good = held(
        "rtrl/table2-online", bits({"8-OK": 2.98, "8-KF-AVG": 3.1, "25-TBPTT": 3.5})
    )
    assert good == {log: few(1), kf: few(1), faster: few(1)}
    ends = {"8-OK": 3.2, "8-KF-AVG": 3.1, "25-TBPTT": 3.0}
    assert set(held("rtrl/table2-online", bits(ends)).values()) == {UNDECIDED}
    assert set(held("rtrl/table2-online", bits(ends, seeds=3)).values()) == {NO}


# BPLS


def toys(bpls_error, rival_error):
    rows = [
        (f"{method}, linear", seed, sigma, *2 * (sigma * scale * (1 + 0.001 * seed),))
        for seed in range(3)
        for sigma in (0.0, 0.1, 0.3)
        for method, scale in [
            ("BPLS", bpls_error),
            *((m, rival_error) for m in bpls_toy.OPTIMIZERS),
        ]
    ]
    made = frame("label seed look train test", rows)
    return made.assign(**{"train, nine tenths": made["train"]})


@pytest.mark.parametrize(
    ("rival", "train", "test"), [(2.05, YES, YES), (1.5, NO, NO), (4.0, NO, YES)]
)
def test_bpls_equals_its_rivals_on_the_toy_or_does_not(rival, train, test):
    told = held("bpls/toy", toys(2.0, rival))
    assert told["III-A, Fig. 4: BPLS equals adam in training (linear)"] == train
    assert told["III-A, Fig. 4: BPLS has a lower test error than adam (linear)"] == test
    assert told["identity: train error of the linear toy is 2.000 sigma"] == YES
    found = toys(2.0, rival)
    found["train, nine tenths"] *= 1.02  # it fell by two percent, then came the end
    improving = [each for claim, each in held("bpls/toy", found).items()]
    assert improving[:8] == 8 * ["not at its end"]
    wrong = held("bpls/toy", toys(3.0, rival))
    assert wrong["identity: train error of the linear toy is 2.000 sigma"] == NO
