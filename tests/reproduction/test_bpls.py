"""The rivals of BPLS: several runs at once, and runs that are cut off."""

import pytest

from labkit.lab.runs.jobs import Checkpoint
from reproduction import bpls

UNIT = {"data": "digits", "hidden": "identity"}


def test_a_run_beside_others_is_that_run_alone(tmp_path):
    unit = UNIT | {"method": "sgd", "epochs": 2}
    alone = bpls.competitor(Checkpoint(tmp_path / "a"), **unit, seed=1)
    both = bpls.competitor(Checkpoint(tmp_path / "b"), **unit, seed=1, more=[2])
    for here, there in zip(both[::2], alone, strict=True):
        for name in ("label", "seed", "look"):
            assert here[name] == there[name]
        for part in ("train", "test"):  # one image of 200 or 100 may be on another side
            assert here[part] == pytest.approx(there[part], abs=1.01)
    assert [row["seed"] for row in both] == [1, 2, 1, 2]
    assert both[1]["train"] != both[0]["train"]


@pytest.mark.parametrize("more", [(), (1,)])
@pytest.mark.parametrize("method", ["adam", "nag", "sgd", "adagrad"])
def test_a_run_that_is_cut_off_goes_on_to_the_same_bits(method, more, tmp_path):
    unit = UNIT | {"method": method, "seed": 0, "more": more}
    whole = bpls.competitor(Checkpoint(tmp_path / "a"), **unit, epochs=3)
    bpls.competitor(Checkpoint(tmp_path / "b", every=0), **unit, epochs=2)
    rows = bpls.competitor(Checkpoint(tmp_path / "b"), **unit, epochs=3)
    assert rows == whole
    # 64 inputs here, 784 there; a step's state grows with the weights alone
    size = (tmp_path / "b/state.pt").stat().st_size * 784 / 64
    assert size < 1_500_000 * (1 + len(more))


def test_bpls_is_done_like_a_rival(tmp_path):
    rows = bpls.competitor(Checkpoint(tmp_path), **UNIT, method="bpls", seed=1)
    assert rows[0]["label"] == "BPLS, digits"
