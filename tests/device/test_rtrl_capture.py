"""Steps of RTRL and its kin as graphs: recorded, they are the steps; or are refused."""

from functools import partial

import pytest
import torch

from labkit import graphs, rtrl
from tests.device.rows import seeded
from tests.device.strict_device import NAME, strict
from tests.test_graphs import FAULTS

B, N = 3, 4
CAPTURED = [name for name in rtrl.LEARNERS if name != "TBPTT"]
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def run(name, *, capture, device=NAME, steps=6, make=SGD, readout=None, between=None):
    """Losses of a run on the strict device, and what it leaves."""
    options = {"dtype": torch.float64}
    cell = rtrl.RHNCell(4, N, generator=seeded(), **options).to(device)
    given = {"batch_size": B, "generator": seeded(device)}
    learner = rtrl.LEARNERS[name].make(cell, **given)
    readout = readout or rtrl.Readout(N, 4, generator=seeded(), **options)
    readout = readout.to(device)
    task = rtrl.CopyTask(B, level=1, generator=seeded(device), device=device, **options)
    optimizer = make([cell.weight, *readout.parameters()])
    train = rtrl.train(learner, readout, task, optimizer=optimizer, capture=capture)
    losses = []
    for record in train:
        losses.append(record.loss)
        assert record.updated
        if between:
            between(record.step, learner, optimizer)
        if record.step == steps:
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
        plain = run(name, capture=False)
        same(run(name, capture=True), plain)
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
        found = run("UORO", capture=True, **options | {"readout": copied(options)})
        assert len(steps) == (3 if between is None else 9)
        same(found, run("UORO", capture=False, **options))


def copied(options):
    weights = options["readout"].state_dict()
    other = torch.nn.Linear(N, 4).double()
    other.load_state_dict(weights)
    return other


@pytest.mark.parametrize("record", FAULTS)
@pytest.mark.parametrize("name", ["OK", "UORO"])
def test_a_planted_fault_leaves_the_run_as_it_was(taped, monkeypatch, name, record):
    """It is noticed at the first replay; learner, weights and momentum go on plain."""
    monkeypatch.setattr(graphs, "record", record)
    with strict(counting=False):
        with pytest.warns(RuntimeWarning, match="replay of a recorded step is not the"):
            found = run(name, capture=True)
        same(found, run(name, capture=False))


def test_a_task_whose_resets_come_from_the_cpu(taped):
    ends = []
    with strict(counting=False):
        for capture in (False, True):
            cell = rtrl.RNNCell(3, N, generator=seeded()).to(NAME)
            text = torch.arange(30) % 3
            stream = rtrl.CharStream(text, 3, B, reset_every=4, device=NAME)
            learner = rtrl.UORO(cell, batch_size=B, generator=seeded(NAME))
            readout = rtrl.Readout(N, 3, generator=seeded(NAME), device=NAME)
            options = {"steps": 6, "capture": capture}
            records = rtrl.train(learner, readout, stream, **options)
            losses = [record.loss for record in records]
            ends.append((losses, [learner.state.cpu(), learner.v.cpu()]))
    same(*ends)


@pytest.mark.parametrize("name", rtrl.LEARNERS)
def test_the_cpu_records_nothing(name):
    with pytest.raises(ValueError, match="CUDA graph; the data are on cpu: move model"):
        run(name, capture=True, device="cpu")


def test_what_no_recording_holds():
    cuda, weight = torch.device("cuda"), [torch.zeros(1)]
    sgd = torch.optim.SGD(weight)
    window = rtrl.TBPTT(rtrl.RNNCell(2, 3), batch_size=1, horizon=2)
    for optimizer in (None, sgd, torch.optim.Adam(weight, capturable=True)):
        graphs.check(cuda, optimizer, {}, None, "")
    for given, message in (
        ((torch.optim.Adam(weight), {}, None, ""), "needs capturable=True"),
        ((sgd, {"RTRL": window}, None, ""), "watch looks inside a step"),
        ((sgd, {}, object(), ""), "a process group step as written"),
        ((sgd, {}, None, window.on_host), "TBPTT counts its steps on the host"),
    ):
        with pytest.raises(ValueError, match=message):
            graphs.check(cuda, *given)
