"""Steps of RTRL and its kin as graphs: recorded, they are the steps."""

from functools import partial

import pytest
import torch

from labkit import rtrl
from labkit.scale import graphed
from tests.device.rows import seeded
from tests.device.strict_device import NAME, strict

B, N = 3, 4
CAPTURED = [name for name in rtrl.LEARNERS if name != "TBPTT"]
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def run(name, *, record, device=NAME, steps=6):
    """Losses of a run on the strict device, and what it leaves."""
    options = {"dtype": torch.float64}
    cell = rtrl.RHNCell(4, N, generator=seeded(), **options).to(device)
    given = {"batch_size": B, "generator": seeded(device)}
    learner = rtrl.LEARNERS[name].make(cell, **given)
    readout = rtrl.Readout(N, 4, generator=seeded(), **options).to(device)
    task = rtrl.CopyTask(B, level=1, generator=seeded(device), device=device, **options)
    optimizer = SGD([cell.weight, *readout.parameters()])
    train = rtrl.train(learner, readout, task, optimizer=optimizer, record=record)
    losses = []
    for row in train:
        losses.append(row.loss)
        assert row.updated
        if row.step == steps:
            break
    left = [*learner.state_dict().values(), cell.weight, *readout.parameters()]
    left += [v for k, v in vars(learner).items() if k in ("spectrum", "mixing")]
    return losses, [x.cpu() for x in left if isinstance(x, torch.Tensor)]


def same(one, two):
    assert one[0] == two[0] and len(one[1]) == len(two[1])
    assert all(map(torch.equal, one[1], two[1]))


@pytest.mark.parametrize("name", CAPTURED)
def test_a_recorded_run_is_the_run(taped, name):
    """To the bit, with resets and signs; what a learner carries lies where it lay."""
    with strict() as tally:
        plain = run(name, record=None)
        same(run(name, record=graphed), plain)
        assert tally.waits.total() < 60


def test_a_task_whose_resets_come_from_the_cpu(taped):
    ends = []
    with strict():
        for record in (None, graphed):
            cell = rtrl.RNNCell(3, N, generator=seeded()).to(NAME)
            text = torch.arange(30) % 3
            stream = rtrl.CharStream(text, 3, B, reset_every=4, device=NAME)
            learner = rtrl.UORO(cell, batch_size=B, generator=seeded(NAME))
            readout = rtrl.Readout(N, 3, generator=seeded(NAME), device=NAME)
            options = {"steps": 6, "record": record}
            records = rtrl.train(learner, readout, stream, **options)
            losses = [row.loss for row in records]
            ends.append((losses, [learner.state.cpu(), learner.v.cpu()]))
    same(*ends)
