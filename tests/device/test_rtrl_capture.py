"""Steps of RTRL and its kin as graphs: recorded, they are the steps; or are refused."""

from functools import partial

import pytest
import torch

from labkit import rtrl
from labkit.scale import graphed, graphs
from tests.device.rows import seeded
from tests.device.strict_device import NAME, strict
from tests.scale.test_graphs import FAULTS

B, N = 3, 4
CAPTURED = [name for name in rtrl.LEARNERS if name != "TBPTT"]
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def run(name, *, record, device=NAME, steps=6, make=SGD, readout=None, between=None):
    """Losses of a run on the strict device, and what it leaves."""
    options = {"dtype": torch.float64}
    cell = rtrl.RHNCell(4, N, generator=seeded(), **options).to(device)
    given = {"batch_size": B, "generator": seeded(device)}
    learner = rtrl.LEARNERS[name].make(cell, **given)
    readout = readout or rtrl.Readout(N, 4, generator=seeded(), **options)
    readout = readout.to(device)
    task = rtrl.CopyTask(B, level=1, generator=seeded(device), device=device, **options)
    optimizer = make([cell.weight, *readout.parameters()])
    train = rtrl.train(learner, readout, task, optimizer=optimizer, record=record)
    losses = []
    for row in train:
        losses.append(row.loss)
        assert row.updated
        if between:
            between(row.step, learner, optimizer)
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
    with strict(counting=False) as tally:
        plain = run(name, record=None)
        same(run(name, record=graphed), plain)
        assert tally.waits.total() < 60


def turned(step, learner, optimizer):
    """Between two steps: another rate, and a checkpoint read back."""
    if step == 2:
        optimizer.param_groups[0]["lr"] = 0.05
    if step == 4:
        learner.load_state_dict(learner.state_dict())


@pytest.mark.parametrize("between", [None, turned])
def test_a_recording_runs_the_step_no_more(taped, monkeypatch, between):
    """Once as written, once to record, once to compare; anew where one was turned."""
    steps, advance = [], rtrl.UORO._advance
    count = lambda self, x: steps.append(1) or advance(self, x)  # noqa: E731
    monkeypatch.setattr(rtrl.UORO, "_advance", count)
    options = {"readout": torch.nn.Linear(N, 4).double(), "between": between}
    with strict(counting=False):
        found = run("UORO", record=graphed, **options | {"readout": copied(options)})
        assert len(steps) == (3 if between is None else 9)
        same(found, run("UORO", record=None, **options))


def copied(options):
    weights = options["readout"].state_dict()
    other = torch.nn.Linear(N, 4).double()
    other.load_state_dict(weights)
    return other


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["OK", "UORO"])
def test_a_planted_fault_leaves_the_run_as_it_was(taped, monkeypatch, name, fault):
    """It is noticed at the first replay; learner, weights and momentum go on plain."""
    monkeypatch.setattr(graphs, "record", fault)
    with strict(counting=False):
        with pytest.warns(RuntimeWarning, match="replay of a recorded step is not the"):
            found = run(name, record=graphed)
        same(found, run(name, record=None))


def test_a_task_whose_resets_come_from_the_cpu(taped):
    ends = []
    with strict(counting=False):
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


def test_the_cpu_records_nothing():
    with pytest.raises(ValueError, match="CUDA graph; the data are on cpu: move model"):
        run("OK", record=graphed, device="cpu")


def test_what_no_recording_holds():
    cuda, weight = torch.device("cuda"), [torch.zeros(1)]
    adam = torch.optim.Adam(weight)
    window = rtrl.TBPTT(rtrl.RNNCell(2, 3), batch_size=1, horizon=2)
    uoro = rtrl.UORO(window.cell, batch_size=1)
    for optimizer in (None, SGD(weight), torch.optim.Adam(weight, capturable=True)):
        assert isinstance(
            graphed(len, device=cuda, optimizer=optimizer, learner=uoro),
            graphs.Replayed,
        )
    with pytest.raises(ValueError, match="needs capturable=True"):
        graphed(len, device=cuda, optimizer=adam)
    with pytest.raises(ValueError, match="TBPTT counts its steps on the host"):
        graphed(len, device=cuda, learner=window)


def test_nothing_looks_into_a_recording():
    cell, task = rtrl.RNNCell(4, 3), rtrl.CopyTask(1)
    learner, readout = rtrl.UORO(cell, batch_size=1), rtrl.Readout(3, 4)
    watch = {"RTRL": rtrl.RTRL(cell, batch_size=1)}
    with pytest.raises(ValueError, match="leave out watch, and use one process"):
        next(rtrl.train(learner, readout, task, record=graphed, watch=watch))
