"""Any module as read-out, any iterable as task; and shapes that would broadcast."""

from itertools import islice

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

from labkit.rtrl import LEARNERS, OK, RTRL, TBPTT, CopyTask, Readout, train
from tests.draws import randn, seeded

from .conftest import agree, make, make_cell, read

B, N, V, D_X = 3, 4, 5, 2


def pair():
    """A Readout and a Linear with the same weights."""
    readout, linear = Readout(N, V).double(), nn.Linear(N, V).double()
    with torch.no_grad():
        readout.weight.copy_(randn(N + 1, V))
        linear.weight.copy_(readout.weight[:-1].T)
        linear.bias.copy_(readout.weight[-1])
    return readout, linear


def symbols():
    xs = randn(6, B, D_X, seed=4)
    targets = torch.randint(V, (6, B), generator=seeded(5))
    return list(zip(xs, targets, strict=True))


def run(readout, task, make=RTRL, **options):
    cell = make_cell("rhn", D_X, N)
    kind = {TBPTT: {"horizon": 2}, OK: {"rank": 2, "generator": seeded(1)}}
    learner = make(cell, batch_size=B, **kind.get(make, {}))
    weights = [cell.weight, *readout.parameters()]
    sgd = torch.optim.SGD([w for w in weights if w.requires_grad], lr=0.1)
    records = list(train(learner, readout, task, optimizer=sgd, **options))
    return [r.loss for r in records], [w.detach() for w in weights], records


@pytest.mark.parametrize("make", [RTRL, OK, TBPTT])
def test_a_module_learns_as_the_readout_does(make):
    (losses, one, _), (again, two, records) = (
        run(each, symbols(), make) for each in pair()
    )
    assert losses == pytest.approx(again, rel=1e-12)
    assert {record.level for record in records} == {0}
    assert agree(two[0], one[0])
    assert agree(torch.cat([two[1].T, two[2][None]]), one[1])


def test_a_loader_is_a_task_and_a_deep_module_with_a_frozen_layer_a_readout():
    torch.manual_seed(0)
    deep = nn.Sequential(nn.Linear(N, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    deep[0].weight.requires_grad_(False)
    before = [w.detach().clone() for w in deep.parameters()]
    rows = TensorDataset(randn(12, D_X), randn(12, 1, seed=1))
    losses, (_, *after), _ = run(deep, DataLoader(rows, B), loss=mse_loss)
    assert len(losses) == 4
    moved = [not torch.equal(*each) for each in zip(before, after, strict=True)]
    assert moved == [False, True, True, True]


@pytest.mark.parametrize("frozen", [False, True])
def test_a_readout_with_a_loss_of_ones_own(frozen):
    found = []
    for readout in pair():
        readout.requires_grad_(not frozen)
        loss = lambda z, y: 2 * cross_entropy(z, y)  # noqa: E731
        found.append(run(readout, symbols(), loss=loss)[:2])
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    assert agree(found[0][1][0], found[1][1][0])


def test_an_iterable_says_which_sequences_begin():
    restart = torch.tensor([True, False, True])
    triples = [
        (x, y, restart if t == 3 else ~restart) for t, (x, y) in enumerate(symbols())
    ]
    cell = make_cell("rhn", D_X, N)
    learner, other = RTRL(cell, batch_size=B), RTRL(cell, batch_size=B)
    for _, (x, _, rows) in zip(
        train(learner, pair()[0], triples), triples, strict=True
    ):
        other.reset(rows), other.step(x)
        assert torch.equal(learner.G, other.G)


ONE = nn.Linear(N, 1).double()
WRONG = [
    (ONE, torch.zeros(B).double(), mse_loss, r"must be \(3, 1\), got \(3,\)"),
    (pair()[1], torch.zeros(B, 1).long(), None, r"one a sequence must be \(3,\), got"),
    (pair()[0], torch.zeros(1).long(), None, r"must be \(3,\), got \(1,\)"),
    (pair()[0], torch.full((B,), V), None, r"must hold classes in 0\.\.4, got 5\.\.5"),
]


@pytest.mark.parametrize(("readout", "target", "loss", "match"), WRONG)
def test_shapes_that_broadcast_are_refused(readout, target, loss, match):
    before = [w.detach().clone() for w in readout.parameters()]
    with pytest.raises(ValueError, match=match):
        run(readout, [(torch.zeros(B, D_X).double(), target)], loss=loss)
    assert all(map(torch.equal, before, readout.parameters()))


# Streams of their own


def test_tasks_draw_apart_and_torchs_seed_repeats_them():
    def targets():
        return torch.stack([each.target for each in islice(CopyTask(4, level=9), 20)])

    torch.manual_seed(1)
    one, two = targets(), targets()
    torch.manual_seed(1)
    assert torch.equal(one, targets()) and not torch.equal(one, two)


# Sequences that have ended


@pytest.mark.parametrize("name", sorted(set(LEARNERS) - {"TBPTT"}))
def test_an_ended_sequence_stays_and_the_others_go_on(name, kind):
    """To the bit what they do unmasked, with the same noise."""
    cell, xs = make_cell(kind, D_X, 3), randn(6, B, D_X)
    masked, whole = make(name, 2, cell), make(name, 2, cell)
    mask = torch.tensor([True, False, True])
    read(masked, xs[:3]), read(whole, xs[:3])
    before = masked.state_dict()
    for x in xs[3:]:
        h = masked.step(x, mask=mask)
        whole.step(x)
    for key, value in masked.kept().items():
        assert torch.equal(value[1], before[key][1]), key
        assert torch.equal(value[mask], whole.kept()[key][mask]), key
    assert torch.equal(h, cell.hidden(masked.state))
    masked.step(xs[0], mask=mask | True)  # and it may go on


def test_a_window_takes_no_mask():
    window = make("TBPTT", 2, make_cell("rnn", D_X, 3))
    with pytest.raises(ValueError, match="TBPTT has one window for all sequences"):
        window.step(randn(B, D_X), mask=torch.ones(B, dtype=torch.bool))
