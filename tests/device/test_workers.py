"""Several workers on the strict device: what is exchanged stays there, and waits not.

The group is torch's fake one, whose calls change nothing: what is seen is where the
tensors are, what waits, and what is sent. (DistributedDataParallel takes no fake.)
"""

import pytest
import torch
import torch.distributed as dist

from labkit import rtrl
from labkit.collectives import mean_over
from labkit.instruments import Traffic
from tests.device.rows import in_dtype, random, seeded
from tests.device.strict_device import NAME, strict

fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")


@pytest.fixture(autouse=True)
def group():
    dist.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=2)
    yield dist.group.WORLD
    dist.destroy_process_group()


def means(device, group):
    given = random(device, (3,), (2, 2))
    yield
    with Traffic() as traffic:
        found = mean_over(given, group, weight=2)
    assert traffic.totals().loc["all_reduce"].tolist() == [1, 8, 64, 64]
    yield found


def online(device, group):
    cell = rtrl.RHNCell(4, 3, generator=seeded(), dtype=torch.float64).to(device)
    made = rtrl.RTRL(cell, batch_size=2)  # without signs, which may not be alike
    place = {"device": device, "dtype": torch.float64}
    task = rtrl.CopyTask(2, level=4, generator=seeded(device), **place)
    readout = rtrl.Readout(3, 4, generator=seeded(device), **place)
    weights = [cell.weight, readout.weight]
    sgd = torch.optim.SGD(weights, lr=0.1)
    records = rtrl.train(made, readout, task, optimizer=sgd, group=group)
    next(records), next(records)
    yield
    record = next(records)
    yield [*weights, record.mean]


@pytest.mark.parametrize("work", [means, online])
def test_work_of_several_on_the_strict_device(work, group):
    found = []
    for device in ("cpu", NAME):
        with in_dtype(), strict() as tally:
            steps = work(device, group)
            next(steps)
            tally.clear()
            result = next(steps)
            assert not tally.waits
            found.append([each.detach().cpu() for each in result])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-12)
