"""RTRL on the strict device: what stands in no row of the table."""

from itertools import islice

import pytest
import torch

from labkit import rtrl
from labkit.scale import graphed
from tests.device.rows import in_dtype, on, seeded
from tests.device.rtrl import made
from tests.device.strict_device import NAME, strict

B = 3


def copy_task(device, **options):
    return rtrl.CopyTask(B, generator=seeded(device), device=device, **options)


def test_the_curriculum_is_decided_on_the_device():
    """Same bits, same levels, no wait."""
    with strict() as tally:
        here, there = copy_task("cpu", level=1), copy_task(NAME, level=1)
        here.error = there.error = 0.15
        for step in range(1500):
            bits = 0.01 if step % 3 else 0.0
            here.observe(bits)
            tally.clear()
            level = there.observe(bits)
            assert not tally.waits
        assert int(level) == there.level == here.level > 2
        assert there.error == here.error
        there.error, again = 0.9, copy_task(NAME)
        again.load_state_dict(there.state_dict())
        assert again.error == there.error
        for _ in range(30):  # it draws as many bits as there are in doubt
            assert torch.equal(next(again).x.cpu(), next(there).x.cpu())


def test_training_on_the_device_waits_for_no_loss():
    with strict() as tally:
        cell = rtrl.RNNCell(4, 3, generator=seeded()).to(NAME)
        learner = rtrl.UORO(cell, batch_size=B, generator=seeded(NAME))
        readout = rtrl.Readout(3, 4, generator=seeded(NAME), device=NAME)
        weights = [cell.weight, readout.weight]
        sgd = torch.optim.SGD(weights, lr=0.1)
        records = rtrl.train(learner, readout, copy_task(NAME), optimizer=sgd)
        tally.clear()
        kept = [next(records) for _ in range(90)]
        assert not tally.waits
        assert kept[0].loss == pytest.approx(1.386, abs=0.01)
        assert tally.waits.total() == 1 and kept[0].loss and kept[0].level == 1
        before = readout.weight.detach().clone()
        learner.state.fill_(float("nan"))  # until the sequences begin anew
        kept = []
        with pytest.raises(rtrl.DivergedError, match="loss is nan at step 100"):
            kept += (next(records) for _ in range(20))
        assert before.isfinite().all() and readout.weight.isfinite().all()


def test_a_checkpoint_moves_to_the_device_and_back():
    with strict():
        cell = rtrl.RNNCell(4, 3, generator=seeded(), dtype=torch.float64)
        here = rtrl.OK(cell, batch_size=B, rank=2, generator=seeded())
        here.step(torch.ones(B, 4, dtype=torch.float64))
        for device in (NAME, "cpu"):
            there = rtrl.OK(cell.to(device), batch_size=B, rank=2)
            there.load_state_dict(here.state_dict())
            one, two = here.influence().cpu(), there.influence().cpu()
            assert torch.equal(one, two) and there.u.device.type == device
            here = there


def run(name, record):
    """Losses of a run on the strict device, and what it leaves."""
    cell, learner = made(NAME, name, 1, "RHN", 4)
    readout = rtrl.Readout(12, 4, generator=seeded(NAME), **on(NAME))
    task = rtrl.CopyTask(2, level=1, generator=seeded(NAME), **on(NAME))
    weights = [cell.weight, readout.weight]
    sgd = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    rows = rtrl.train(learner, readout, task, optimizer=sgd, record=record)
    losses = [row.loss for row in islice(rows, 6)]
    left = [*learner.state_dict().values(), *weights]
    return losses, [x.cpu() for x in left if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize("name", sorted(rtrl.LEARNERS.keys() - {"TBPTT"}))
def test_a_recorded_run_is_the_run(taped, name):
    """To the bit, with resets and signs; what a learner carries lies where it lay."""
    with in_dtype(), strict() as tally:
        (plain, left), (replayed, other) = (run(name, how) for how in (None, graphed))
        assert tally.waits.total() < 60
    assert plain == replayed and all(map(torch.equal, left, other))
