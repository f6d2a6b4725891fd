"""RTRL on the strict device: what stands in no row of the table."""

import pytest
import torch

from labkit import rtrl
from tests.device.rows import seeded
from tests.device.strict_device import NAME, strict

B = 3


def copy_task(device, **options):
    return rtrl.CopyTask(B, generator=seeded(device), device=device, **options)


def test_the_curriculum_is_decided_on_the_device():
    """Same bits, same levels, no wait; the strings are such as the level allows."""
    with strict() as tally:
        here, there = copy_task("cpu", level=1), copy_task(NAME, level=1)
        here.error = there.error = 0.15
        for step in range(1500):
            bits = 0.01 if step % 3 else 0.0
            here.observe(bits)
            tally.clear()
            level = there.observe(bits)
            if step % 50 == 0:
                x, target, _ = next(there)
            assert not tally.waits
        assert int(level) == there.level == here.level > 2
        assert there.error == here.error
        assert int(there._length.max()) <= there.level <= there._bits.shape[1]
        assert (x.cpu().sum(1) == 1).all() and int(target.max()) <= 3


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


@pytest.mark.parametrize("make", [copy_task, None])
def test_a_checkpoint_from_another_kind_of_device(make):
    """Its stream is of another size, as CUDA's is: a new one is seeded from it."""
    cell = rtrl.RNNCell(4, 3, generator=seeded())
    new = (lambda: copy_task("cpu")) if make else lambda: rtrl.UORO(cell, batch_size=B)
    saved = new().state_dict()
    ends = []
    for offset in (7, 7, 8):
        there = torch.zeros(16, dtype=torch.uint8)
        there[-1] = offset
        one = new()
        with pytest.warns(UserWarning, match="a new one was seeded from it"):
            one.load_state_dict(saved | {"generator": there})
        ends.append(one.generator.get_state())
    assert torch.equal(ends[0], ends[1]) and not torch.equal(ends[0], ends[2])


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


def test_a_generator_of_another_device_is_refused():
    with strict():
        with pytest.raises(ValueError, match=f"on {NAME}, .*, got one on cpu"):
            rtrl.CopyTask(B, generator=seeded(), device=NAME)
        cell = rtrl.RNNCell(4, 3, generator=seeded())
        with pytest.raises(ValueError, match=f"on cpu, .*, got one on {NAME}"):
            rtrl.UORO(cell, batch_size=B, generator=seeded(NAME))
