"""The strict device finds faults that no CPU shows; here they are planted."""

import pytest
import torch

from labkit.clock import Clock
from labkit.rtrl.learner import Learner
from tests.device import rtrl, test_clocks
from tests.device.rows import counted
from tests.device.strict_device import NAME, strict
from tests.device.test_clocks import tally  # noqa: F401  (a fixture)

ROW = next(row for row in rtrl.ROWS if row.step == "UORO, RHN")
signs = Learner._signs


def test_an_operand_left_on_the_cpu(monkeypatch):
    monkeypatch.setattr(Learner, "_signs", lambda *how: signs(*how).cpu())
    with pytest.raises(RuntimeError, match="tensors on two devices"):
        counted(ROW.make)


def test_a_generator_of_another_device(monkeypatch):
    monkeypatch.setattr(
        "labkit.rtrl.learner.on_device",
        lambda *_, **__: torch.Generator().manual_seed(0),
    )
    with pytest.raises(RuntimeError, match="a CPU generator for an acc tensor"):
        counted(ROW.make)


def test_a_number_read_in_a_step(monkeypatch):
    def reading(learner, *shape):
        drawn = signs(learner, *shape)
        assert drawn.sum().item() < 1e9
        return drawn

    monkeypatch.setattr(Learner, "_signs", reading)
    assert counted(ROW.make).tally.waits.total() == ROW.waits + 1


def test_a_clock_that_does_not_drain(tally, monkeypatch):  # noqa: F811
    monkeypatch.setattr(Clock, "_drain", lambda clock: None)
    for name in ("descend", "rls.train", "rule OK"):
        with pytest.raises(AssertionError):
            test_clocks.test_a_record_has_the_seconds_of_its_own_kernels(tally, name)


def test_a_copy_to_the_host_that_nobody_waits_for():
    with strict(), pytest.raises(RuntimeError, match="before the copy is there"):
        torch.ones(3, device=NAME).to("cpu", non_blocking=True)
