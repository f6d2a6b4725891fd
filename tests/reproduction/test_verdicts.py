"""The criteria of the studies: planted results on either side of each one."""

import numpy as np
import pandas as pd
import pytest

from labkit.lab.claims import NO, UNDECIDED, YES
from reproduction import (
    bpls,
    bpls_toy,
    hessian_free,
    rls,
    rls_constants,
    rls_cost,
    rtrl,
    rtrl_noise,
)
from reproduction.criteria import NOT_AT_END, of_runs
from reproduction.hessian_free import SHORT


def held(claims):
    """Return the verdicts by claim."""
    return {claim: verdict for claim, _, verdict in claims}


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


TEST = "6, Table 2, USPS, shf, test: f is 1.947"
TIE = "6, Table 2: shf and martens end at the same test error"
GROWS = "6, Fig. 3: the batch of shf grows to at least twice its size"


def test_table_2_is_judged_in_f():
    assert held(hessian_free.claims(usps(0.0)))[TEST] == YES
    assert held(hessian_free.claims(usps(0.3)))[TEST] == NO
    assert held(hessian_free.claims(usps(0.3, falling=True)))[TEST] == NOT_AT_END
    assert held(hessian_free.claims(usps(0.3, seeds=2)))[TEST] == UNDECIDED
    assert held(hessian_free.claims(usps(1.947)))[TEST] == NO  # 2 f


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
    assert held(hessian_free.claims(rows)).get(claim, UNDECIDED) == verdict


def test_two_methods_tie_within_the_margin():
    rows = usps(0.0)
    assert held(hessian_free.claims(rows))[TIE] == YES
    parts = list(hessian_free.PARTS)
    worse = rows.copy()
    worse.loc[worse["label"] == "shf", parts] += 1.0
    assert held(hessian_free.claims(worse))[TIE] == NO
    assert held(hessian_free.claims(rows[rows["seed"] < 2]))[TIE] == few(2)
    assert held(hessian_free.claims(worse[worse["seed"] < 2]))[TIE] == UNDECIDED


def test_a_batch_grows_to_twice_its_size_or_does_not():
    assert held(hessian_free.claims(usps(0.0)))[GROWS] == YES
    assert held(hessian_free.claims(usps(0.0, batches=(200, 250))))[GROWS] == NO
    few = usps(0.0, seeds=2, batches=(200, 250))
    assert held(hessian_free.claims(few))[GROWS] == UNDECIDED


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
    assert found["label"].tolist() == ["fast", "slow"]
    assert found["test"].tolist() == [6.5, 5.2]  # at 5, which the slow one reaches


@pytest.mark.parametrize(("strict", "verdict"), [(900, YES), (100, NO)])
def test_a_theta_is_judged_by_the_batches_that_it_takes(strict, verdict):
    rows = pd.concat(
        autoencoder(label, seed, [5.0, 5.0], batches=(n + seed, n + seed))
        for seed in range(3)
        for label, n in ((SHORT, 300), (f"{SHORT}, theta 0.2", strict))
    )
    [(claim, told, found)] = hessian_free.advice_claims(rows)
    assert found == verdict and "theta 0.5 against 0.2" in claim and "rows" in told


def test_advice_is_judged_by_test_errors_with_paired_seeds():
    def both(turned, falling):
        tail = [6.0, 5.0, 4.0] if falling else 10 * [4.0]
        return pd.concat(
            autoencoder(label, seed, np.array([7.0, *tail]) + add + 0.01 * seed)
            for seed in range(3)
            for label, add in ((SHORT, 0.0), (f"{SHORT}, damping_decay 0.99", turned))
        )

    claim = "6: a higher drop generalises better (damping_decay 0.99)"
    assert held(hessian_free.advice_claims(both(-1.0, False)))[claim] == YES
    assert held(hessian_free.advice_claims(both(1.0, False)))[claim] == NO
    assert held(hessian_free.advice_claims(both(1.0, True)))[claim] == NOT_AT_END


# RLS


def epochs(label, accuracies, seeds=3):
    return pd.DataFrame(
        {"label": label, "seed": seed, "look": look, "accuracy": value + 0.01 * seed}
        | {"loss": 1 / value, "seconds": 2.0 * look}
        for seed in range(seeds)
        for look, value in enumerate(accuracies, 1)
    )


GOALS = {"accuracy": 90.0, "loss": 0.0112}


def test_rls_is_faster_or_slower_than_adam():
    quick, slow = (80.0, 91.0, 93.0, 93.0), (70.0, 80.0, 91.0, 92.0)
    rows = pd.concat([epochs("RLS", quick), epochs("Adam", slow)])
    claims = held(rls.claims(rows, GOALS))
    assert set(claims.values()) == {YES} and len(claims) == 5
    rows = pd.concat([epochs("RLS", slow), epochs("Adam", quick)])
    assert set(held(rls.claims(rows, GOALS)).values()) == {NO}
    assert (
        "ours: VI-B: RLS converges faster than Adam, seconds to accuracy 90" in claims
    )
    few = rows[rows["seed"] < 2]
    assert set(held(rls.claims(few, GOALS)).values()) == {UNDECIDED}


def test_momentum_improves_or_does_not():
    better, worse = epochs("HRLS+M", (80, 92, 93)), epochs("HRLS", (80, 91, 92))
    told = held(rls.claims(pd.concat([better, worse]), GOALS))
    assert set(told.values()) == {YES} and len(told) == 2
    better, worse = epochs("HRLS", (80, 92, 93)), epochs("HRLS+M", (80, 91, 92))
    assert set(held(rls.claims(pd.concat([better, worse]), GOALS)).values()) == {NO}


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
    assert held(rls_constants.sweep_claims(swept(good)))[claim] == YES
    assert held(rls_constants.sweep_claims(swept(bad)))[claim] == NO
    assert held(rls_constants.sweep_claims(swept(bad, fall=0.1)))[claim] == NOT_AT_END
    assert held(rls_constants.sweep_claims(swept(bad, seeds=2)))[claim] == UNDECIDED


def test_a_constant_with_which_every_run_fails_ends_below():
    claim = "VI-B, Fig. 5: eta = 1 ends above 10"
    ends = {"lr 1": 98.0, "lr 10": None}
    assert held(rls_constants.sweep_claims(swept(ends)))[claim] == YES
    assert held(rls_constants.sweep_claims(swept(ends, seeds=2)))[claim] == UNDECIDED


@pytest.mark.parametrize(("worst", "verdict"), [(90.0, YES), (97.9, NO)])
def test_eta_matters_more_than_k_or_does_not(worst, verdict):
    ends = {"mean_weight 0.1": 98.0, "mean_weight 10": 97.0, "lr 1": 98.0}
    told = held(rls_constants.sweep_claims(swept(ends | {"lr 0.1": worst})))
    assert told[next(claim for claim in told if "difference" in claim)] == verdict


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
    assert held(rls_cost.seconds_claims(rows)) == {claim: verdict}


@pytest.mark.parametrize(("here", "verdict"), [(5.05, YES), (6.0, NO)])
def test_a_count_agrees_with_the_formula_or_not(here, verdict):
    row = {"label": "FC", "time": here, "paper, time": 5.0}
    rows = pd.DataFrame([row | {"space": 2.0, "paper, space": 2.0}])
    assert list(held(rls_cost.count_claims(rows)).values()) == [verdict, YES]


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
    assert list(held(rtrl.ktp_claims(rows)).values()) == expected


def test_the_biased_rule_with_one_term_is_far_worse_or_not():
    def growing(ok, biased):
        early = lengths({"1-OK": 3, "1-B-OK": 3}, look=5_000, seeds=3)
        return pd.concat([early, lengths({"1-OK": ok, "1-B-OK": biased}, seeds=3)])

    assert list(held(rtrl.rank_claims(growing(9, 4))).values()) == [YES]
    assert list(held(rtrl.rank_claims(growing(3, 3))).values()) == [NO]
    assert list(held(rtrl.rank_claims(growing(9, 9))).values()) == [NOT_AT_END]


def test_lengths_of_two_methods_are_compared_where_both_have_been():
    """TBPTT, with many rates, by the one that came farthest."""
    ends = [("50-TBPTT", r, level) for r, level in ((1, (18, 22)), (2, (17, 31)))]
    ends += ("16-OK", 1, (18,)), ("16-KF-AVG", 1, (12,)), ("16-B-OK", 1, (17,))
    rows = [
        (f"{method}, rate {rate}, batch 16", 0, look, level)
        for method, rate, levels in ends
        for look, level in zip((100_000, 2_000_000), levels, strict=False)
    ]
    found = held(rtrl.copy_claims(frame("label seed look level", rows)))
    assert found == {
        "authors' logs, 16-OK, 100,000 steps: at least 15, 15 to 17": few(1),
        "Fig. 1, TBPTT-50: reaches 33": UNDECIDED,  # one rate is missing
        "4.1, Fig. 1: 16-OK longer than TBPTT-50": UNDECIDED,
        "4.1, Fig. 1: 16-OK longer than 16-KF-AVG": few(1),
        "Fig. 12: 16-B-OK almost as good as 16-OK": few(1),
    }
    third = ("50-TBPTT, rate 3, batch 16", 0, 2_000_000, 4)
    found = held(rtrl.copy_claims(frame("label seed look level", [*rows, third])))
    assert found["Fig. 1, TBPTT-50: reaches 33"] == few(1)
    rows = [row if row[0][:5] != "16-OK" else (*row[:3], 9) for row in rows]
    found = held(rtrl.copy_claims(frame("label seed look level", rows)))
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
        rtrl.course_claims(bits({"8-OK": 2.98, "8-KF-AVG": 3.1, "25-TBPTT": 3.5}))
    )
    assert good == {log: few(1), kf: few(1), faster: few(1)}
    ends = {"8-OK": 3.2, "8-KF-AVG": 3.1, "25-TBPTT": 3.0}
    assert set(held(rtrl.course_claims(bits(ends))).values()) == {UNDECIDED}
    assert set(held(rtrl.course_claims(bits(ends, seeds=3))).values()) == {NO}


def test_printed_bits_are_met_or_not_decided():
    def runs(test):
        return frame(
            "label seed look valid test",
            [
                (f"25-TBPTT, rate {rate}, batch 32", 0, 1_000_000, test + 0.04, test)
                for rate in (1, 2)
            ],
        )

    assert list(held(rtrl.bits_claims(runs(1.70))).values()) == [few(1)]
    assert list(held(rtrl.bits_claims(runs(1.80))).values()) == [UNDECIDED]


def noises(found, look=100, sd=0.01):
    """Rows of cosines, by learner, units and weights."""
    return pd.DataFrame(
        {"label": label, "units": n, "seed": seed, "look": look, "cosine": cosine}
        | {"cosine_sd": sd, "relative_variance": 1.0}
        for (label, n, seed), cosine in found.items()
    )


@pytest.mark.parametrize(
    ("other", "sd", "verdict"),
    [(0.9, 0.01, few(1)), (0.9, 0.5, UNDECIDED), (0.99, 0.01, UNDECIDED)],
)
def test_a_cosine_is_above_another_by_the_error_of_its_mean(other, sd, verdict):
    """One network never decides against the paper."""
    rows = noises({("8-OK", 256, 0): 0.95, ("8-KF-AVG", 256, 0): other}, sd=sd)
    assert list(held(rtrl_noise.noise_claims(rows)).values()) == [verdict]


@pytest.mark.parametrize(
    ("large", "sd", "verdict"),
    [(0.98, 0.01, YES), (0.90, 0.01, NO), (0.98, 0.5, UNDECIDED)],
)
def test_cosines_of_two_sizes_are_alike_within_a_margin(large, sd, verdict):
    found = {("2-OK", 8, seed): 0.99 for seed in range(3)}
    found |= {("2-OK", 512, seed): large for seed in range(3)}
    rows = pd.concat([noises(found, sd=sd), noises({k: 0.1 for k in found}, look=75)])
    told = held(rtrl_noise.untrained_claims(rows))
    assert told == {"7.2, Fig. 9: 2-OK's cosine alike from 8 to 512 units": verdict}


@pytest.mark.parametrize(("two", "verdict"), [(0.999, YES), (0.9, NO)])
def test_two_terms_are_nearly_all_or_not(two, verdict):
    long = {("2-OK", 256, rtrl_noise.LONG_SEED): two}
    long |= {("1-KF-AVG", 256, rtrl_noise.LONG_SEED): 0.5}
    told = list(held(rtrl_noise.untrained_claims(noises(long))).values())
    assert told == [verdict, YES]


def test_networks_that_copy_are_compared_with_the_first():
    both = {128: (0.9, 0.7), 512: (0.88, 0.5)}
    found = {("16-OK", n, 0): ok for n, (ok, _) in both.items()}
    found |= {("16-KF-AVG", n, 0): kf for n, (_, kf) in both.items()}
    assert held(rtrl_noise.copy_claims(noises(found))) == {
        "7.2, Fig. 7: 16-OK's cosine above 16-KF-AVG's, 128 units, weights 0": YES,
        "7.2, Fig. 10: 16-OK's cosine above 16-KF-AVG's, 512 units, weights 0": YES,
        "7.2, Fig. 10: 16-OK's cosine alike with 512 units": YES,
        "7.2, Fig. 10: 16-KF-AVG's cosine alike with 512 units": NO,
    }


@pytest.mark.parametrize(
    ("kf", "networks", "expected"),
    [
        (0.69, 1, [few(1), few(1)]),
        (0.60, 1, [few(1), UNDECIDED]),
        (0.60, 3, [YES, NO]),
    ],
)
def test_what_more_units_cost_is_measured_behind_the_first_steps(
    kf, networks, expected
):
    found = {}
    for seed in range(networks):
        found |= {("8-OK", 256, seed): 0.9, ("8-OK", 512, seed): 0.7}
        found |= {("8-KF-AVG", 256, seed): 0.65, ("8-KF-AVG", 512, seed): kf}
    rows = pd.concat([noises(found), noises({k: 1.0 for k in found}, look=50)])
    assert list(held(rtrl_noise.larger_claims(rows)).values()) == expected


# BPLS


def accuracies(label, looks, seeds=3):
    rows = [
        (label, seed, look, value + 0.01 * seed, value + 0.01 * seed)
        for seed in range(seeds)
        for look, value in looks.items()
    ]
    return frame("label seed look train test", rows)


@pytest.mark.parametrize(
    ("method", "end", "verdict"),
    [
        ("sgd", 90.2, YES),
        ("sgd", 95.0, NO),
        ("adagrad", 95.0, YES),
        ("adagrad", 90, NO),
    ],
)
def test_a_rival_saturates_after_ten_epochs_or_does_not(method, end, verdict):
    rows = accuracies(f"{method}, mnist", {1: 80.0, 10: 90.0, 40: end})
    assert list(held(bpls.saturation_claims(rows)).values()) == [verdict]


@pytest.mark.parametrize(("walks", "verdict"), [(8, YES), (4, NO)])
def test_the_number_of_epochs_is_that_of_the_paper_or_not(walks, verdict):
    rows = accuracies("softmax, mnist", {0: 80.0, walks: 90.0})
    claim = "III-B, softmax, mnist: 9 epochs in all, the first walk included"
    assert held(bpls.epoch_claims(rows))[claim] == verdict


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
    told = held(bpls_toy.toy_claims(toys(2.0, rival)))
    assert told["III-A, Fig. 4: BPLS equals adam in training (linear)"] == train
    assert told["III-A, Fig. 4: BPLS has a lower test error than adam (linear)"] == test
    assert told["identity: train error of the linear toy is 2.000 sigma"] == YES
    found = toys(2.0, rival)
    found["train, nine tenths"] *= 1.02  # it fell by two percent, then came the end
    improving = [each for claim, each in held(bpls_toy.toy_claims(found)).items()]
    assert improving[:8] == 8 * ["not at its end"]
    wrong = held(bpls_toy.toy_claims(toys(3.0, rival)))
    assert wrong["identity: train error of the linear toy is 2.000 sigma"] == NO


@pytest.mark.parametrize(("seconds", "verdict"), [(2000.0, YES), (20.0, NO)])
def test_an_epoch_is_a_thousand_times_faster_or_not(seconds, verdict):
    rows = [("BPLS", seed, 1.0) for seed in range(3)]
    rows += [("adam", seed, seconds) for seed in range(3)]
    told = held(bpls_toy.seconds_claims(frame("label seed seconds_cpu", rows)))
    assert list(told.values()) == [verdict]
    few = frame("label seed seconds_cpu", [row for row in rows if row[1] < 2])
    assert list(held(bpls_toy.seconds_claims(few)).values()) == [UNDECIDED]
