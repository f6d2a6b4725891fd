"""The strict device finds faults that no CPU shows; here they are planted."""

import pytest
import torch

from labkit.clock import Clock
from labkit.rtrl.learner import Learner
from tests.device import rtrl
from tests.device.rows import counted
from tests.device.strict_device import NAME, strict

ROW = next(row for row in rtrl.ROWS if row.step == "UORO, RHN")
signs = Learner._signs


def test_an_operand_left_on_the_cpu(monkeypatch):
    monkeypatch.setattr(Learner, "_signs", lambda *how: signs(*how).cpu())
    with pytest.raises(RuntimeError, match="tensors on two devices"):
        counted(ROW.make)


def test_a_number_read_in_a_step(monkeypatch):
    def reading(learner, *shape):
        drawn = signs(learner, *shape)
        assert drawn.sum().item() < 1e9
        return drawn

    monkeypatch.setattr(Learner, "_signs", reading)
    waits, _ = counted(ROW.make)
    assert waits.total() == ROW.waits + 1


def test_a_copy_to_the_host_that_nobody_waits_for():
    with strict(), pytest.raises(RuntimeError, match="before the copy is there"):
        torch.ones(3, device=NAME).to("cpu", non_blocking=True)


def test_a_clock_waits_for_its_device_when_it_starts_and_when_it_stops():
    with strict() as tally:
        with Clock(NAME):
            assert tally.drains == 1
        assert tally.drains == 2
        with Clock("cpu"):
            pass
        assert tally.drains == 2
