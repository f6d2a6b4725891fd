"""The rivals of BPLS: planted results on either side of the criterion, and resuming."""

import pandas as pd
import pytest

from labkit.lab.claims import NO, UNDECIDED, YES
from labkit.lab.runs.jobs import Checkpoint
from reproduction import bpls
from reproduction.criteria import of_runs

NUMBER = bpls.PAPER["mnist"]["sgd"][1]


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ((0.1, 0.2, -0.1), YES),
        ((0.7, 0.71, 0.7), YES),
        ((1.2, 1.3, 1.25), NO),
        ((-1.5, -1.6, -1.4), NO),
        ((0.9, 1.0, 1.1), UNDECIDED),  # around the margin
        ((-2.0, 0.0, 2.0), UNDECIDED),  # too wide
        ((0.1, 0.1), of_runs(YES, 2)),
        ((5.0, 5.0), UNDECIDED),
    ],
)
def test_a_planted_result_is_judged(gaps, verdict):
    rows = [
        {"label": "sgd, mnist", "seed": seed, "look": look, "train": 50.0, "test": test}
        for seed, gap in enumerate(gaps)
        for look, test in ((1, 10.0), (2, NUMBER + gap), (3, 20.0))
    ]
    told = {claim: held for claim, _, held in bpls.claims(pd.DataFrame(rows))}
    assert told[f"III-B, sgd, mnist, test: {NUMBER:.2f} %"] == verdict


def test_only_the_papers_own_hidden_layer_is_the_papers_claim():
    rows = [
        {"label": f"{hidden}, mnist", "seed": seed, "look": 0, "train": 90, "test": 87}
        for hidden in ("softmax", "identity")
        for seed in range(3)
    ]
    first = [claim for claim, *_ in bpls.claims(pd.DataFrame(rows))][:2]
    assert first[0].startswith("III-B, softmax") and first[1].startswith("ours: III-B")


def test_a_run_beside_others_is_that_run_alone(tmp_path):
    unit = {"data": "digits", "method": "sgd", "hidden": "identity", "epochs": 2}
    alone = bpls.competitor(Checkpoint(tmp_path / "a"), **unit, seed=1)
    both = bpls.competitor(Checkpoint(tmp_path / "b"), **unit, seed=1, more=[2])
    assert [(row["seed"], row["look"]) for row in both] == [
        (1, 1),
        (2, 1),
        (1, 2),
        (2, 2),
    ]
    for here, there in zip(both[::2], alone, strict=True):
        same = {"label", "seed", "look"}
        assert all(here[name] == there[name] for name in same)
        for part in bpls.PARTS:  # one image of 200 or 100 may fall on the other side
            assert here[part] == pytest.approx(there[part], abs=1.01)
    assert both[1]["train"] != both[0]["train"]


@pytest.mark.parametrize("more", [(), (1,)])
@pytest.mark.parametrize("method", ["adam", "nag", "sgd", "adagrad"])
def test_a_run_that_is_cut_off_goes_on_to_the_same_bits(method, more, tmp_path):
    unit = {"data": "digits", "method": method, "seed": 0, "hidden": "identity"}
    unit |= {"more": more}
    whole = bpls.competitor(Checkpoint(tmp_path / "a"), **unit, epochs=3)
    begun = Checkpoint(tmp_path / "b", every=0)
    bpls.competitor(begun, **unit, epochs=2)
    rows = bpls.competitor(Checkpoint(tmp_path / "b"), **unit, epochs=3)
    same = ["label", "seed", "look", "train", "test"]
    assert [[r[k] for k in same] for r in rows] == [[r[k] for k in same] for r in whole]
    seconds = [row["seconds"] for row in rows]
    assert seconds == sorted(seconds)
    (state,) = (tmp_path / "b").glob("state-*.pt")
    # 64 inputs here, 784 there; a step's state grows with the weights alone
    most = 1_500_000 * (1 + len(more))
    assert state.stat().st_size * 784 / 64 < most


@pytest.mark.parametrize(("gap", "verdict"), [(0.1, YES), (3.0, NO)])
def test_another_momentum_is_ours_and_judged_by_the_printed_number(gap, verdict):
    number = bpls.PAPER["mnist"]["nag"][1]
    rows = [
        {"label": "nag 0.95, mnist", "seed": seed, "look": look, "train": 50.0}
        | {"test": number + gap - abs(look - 20) / 100}
        for seed in range(3)
        for look in range(1, 41)
    ]
    told = bpls.faster_claims(pd.DataFrame(rows))
    told = {claim: held for claim, _, held in told}
    assert all(claim.startswith("ours: ") for claim in told)
    assert told[f"ours: III-B, nag 0.95, mnist, test: {number:.2f} %"] == verdict


def test_a_momentum_is_used_and_named(tmp_path):
    unit = {"data": "digits", "method": "nag", "seed": 0, "hidden": "identity"}
    usual, other = (
        bpls.competitor(Checkpoint(tmp_path / str(m)), **unit, momentum=m, epochs=1)
        for m in (bpls.MOMENTUM, 0.5)
    )
    labels = usual[0]["label"], other[0]["label"]
    assert labels == ("nag, digits", "nag 0.5, digits")
    assert usual[0]["train"] != other[0]["train"]
