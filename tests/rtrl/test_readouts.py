"""Any module as read-out, any iterable as task; and shapes that would broadcast."""

from itertools import islice

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

from labkit.rls import RLS
from labkit.rtrl import LEARNERS, OK, RTRL, TBPTT, CopyTask, Readout, RNNCell, train

from .conftest import agree, make, make_cell, randn, read

B, N, V, D_X = 3, 4, 5, 2


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pair():
    """A Readout and a Linear with the same weights."""
    readout, linear = Readout(N, V).double(), nn.Linear(N, V).double()
    with torch.no_grad():
        readout.weight.copy_(randn(N + 1, V))
        linear.weight.copy_(readout.weight[:-1].T)
        linear.bias.copy_(readout.weight[-1])
    return readout, linear


def symbols(steps=6):
    xs = randn(steps, B, D_X, seed=4)
    targets = torch.randint(V, (steps, B), generator=seeded(5))
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
    told = [
        (x, y, restart if t == 3 else ~restart) for t, (x, y) in enumerate(symbols())
    ]
    cell = make_cell("rhn", D_X, N)
    learner, other = RTRL(cell, batch_size=B), RTRL(cell, batch_size=B)
    for _, (x, _, rows) in zip(train(learner, pair()[0], told), told, strict=True):
        other.reset(rows), other.step(x)
        assert torch.equal(learner.G, other.G)


WRONG = [
    (
        nn.Linear(N, 1).double(),
        torch.zeros(B).double(),
        mse_loss,
        r"\(3, 1\), got \(3,",
    ),
    (
        nn.Linear(N, 1).double(),
        torch.zeros(1).double(),
        mse_loss,
        r"\(3, 1\), got \(1,",
    ),
    (pair()[1], torch.zeros(B, 1).long(), None, r"one a sequence must be \(3,\), got"),
    (
        pair()[0],
        torch.zeros(1).long(),
        None,
        r"one a sequence must be \(3,\), got \(1,",
    ),
    (pair()[0], torch.zeros(B, 1).long(), None, r"must be \(3,\), got \(3, 1\)"),
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


# Stacks and embeddings


def test_a_stack_and_an_embedding_learn_by_the_inputs_gradient(kind):
    """Exact where the upper layer's old state is taken for given."""
    below, above = make_cell("rnn", D_X, 3), make_cell(kind, 3, N, seed=1)
    table = nn.Embedding(6, D_X, dtype=torch.float64)
    lower, upper = RTRL(below, batch_size=B), RTRL(above, batch_size=B)
    tokens, dL = torch.randint(6, (5, B), generator=seeded()), randn(B, N, seed=3)
    old = below.initial_state(B)
    for t, each in enumerate(tokens, 1):
        inputs = table(each)
        old = below(inputs if t == len(tokens) else inputs.detach(), old)
        given = upper.state
        upper.step(lower.step(inputs.detach()))
    expected = torch.autograd.grad(
        (above.hidden(above(old, given)) * dL).sum(),
        [below.weight, table.weight],
        retain_graph=True,
    )
    to_lower = upper.input_gradient(dL)
    assert agree(lower.gradient(to_lower), expected[0])
    inputs.backward(lower.input_gradient(to_lower))
    # The last step's share of the embedding: its rows before are in the state.
    assert agree(table.weight.grad, expected[1])


def test_no_step_no_gradient_of_it():
    learner = RTRL(RNNCell(D_X, N), batch_size=B)
    with pytest.raises(ValueError, match="no step to differentiate: call step first"):
        learner.input_gradient(torch.zeros(B, N))


# Sequences that have ended


@pytest.mark.parametrize("name", sorted(set(LEARNERS) - {"TBPTT"}))
def test_an_ended_sequence_stays_and_the_others_go_on(name, kind):
    """To the bit what they do unmasked, with the same noise."""
    cell, xs = make_cell(kind, D_X, 3), randn(6, B, D_X)
    masked, whole = make(name, 2, cell), make(name, 2, cell)
    mask, dL = torch.tensor([True, False, True]), randn(B, 3, seed=2)
    read(masked, xs[:3]), read(whole, xs[:3])
    before = masked.state_dict()
    for x in xs[3:]:
        h = masked.step(x, mask=mask)
        whole.step(x)
    for key, value in masked.kept().items():
        assert torch.equal(value[1], before[key][1]), key
        assert torch.equal(value[mask], whole.kept()[key][mask]), key
    assert torch.equal(h, cell.hidden(masked.state))
    by_x = masked.input_gradient(dL)
    assert not by_x[1].any() and torch.equal(by_x[mask], whole.input_gradient(dL)[mask])
    masked.step(xs[0], mask=mask | True)  # and it may go on


def test_masks_that_do_not_fit():
    cell, x = make_cell("rnn", D_X, 3), randn(B, D_X)
    learner = make("OK", 2, cell)
    for mask in (torch.ones(B), torch.ones(B + 1, dtype=torch.bool)):
        with pytest.raises((TypeError, ValueError), match="mask must have"):
            learner.step(x, mask=mask)
    assert not learner.state.any()
    with pytest.raises(ValueError, match="TBPTT has one window for all sequences"):
        make("TBPTT", 2, cell).step(x, mask=torch.ones(B, dtype=torch.bool))


# The noise of a gradient


@pytest.mark.parametrize("name", LEARNERS)
def test_the_variance_is_that_over_the_draws(name):
    """As of as many sequences side by side; nothing is left changed."""
    cell, xs, dL = make_cell("rhn", D_X, 3), randn(5, B, D_X), randn(B, 3, seed=2)
    learner = read(make(name, 2, cell), xs[:2])
    before, draws = learner.state_dict(), 300
    found = learner.variance(xs[2:], dL, draws)
    after = learner.state_dict()
    for key, value in before.items():
        assert key == "waiting" or torch.equal(value, after[key])
    assert found.shape == (B,)
    if not learner.draws:
        assert found.max() < 1e-25
        return
    many = make(name, 2, cell, batch_size=B * draws, seed=8)
    for key in many.kept():
        setattr(many, key, before[key].repeat(draws, *[1] * (before[key].ndim - 1)))
    estimates = read(many, xs[2:].repeat(1, draws, 1))
    gradients = estimates.per_sequence_gradient(dL.repeat(draws, 1))
    wanted = gradients.unflatten(0, (draws, B)).var(0).sum((1, 2))
    torch.testing.assert_close(found, wanted, rtol=0.5, atol=1e-12)


def test_a_variance_takes_two_draws_and_leaves_a_refused_learner_alone():
    learner = make("OK", 1, make_cell("rnn", D_X, 3))
    before = learner.state_dict()
    with pytest.raises(
        ValueError, match=r"draws must be an integer in 2\.\.1000000, got 1"
    ):
        learner.variance(randn(2, B, D_X), randn(B, 3), 1)
    with pytest.raises(ValueError, match="xs must have shape"):
        learner.variance(randn(2, B, D_X + 1), randn(B, 3), 2)
    assert torch.equal(before["generator"], learner.generator.get_state())
    assert not learner.state.any()


# An optimiser that reads what goes through the layers of the readout


def by_hand(learner, readout, symbols, optimizer, window):
    """Train with an optimiser that needs passes; each is made here."""
    for t, (x, target, restart) in enumerate(symbols, start=1):
        learner.reset(restart)
        h = learner.step(x).requires_grad_()
        loss = torch.nn.functional.cross_entropy(readout(h), target)
        (loss / window).backward()
        gradient = learner.backward(h.grad * window)
        if t % window == 0:
            learner.cell.weight.grad = gradient
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("name", ["OK", "TBPTT"])
def test_rls_trains_the_readout(name, depth):
    """As a loop by hand does: RLS sees each step's pass, and each update's gradient."""
    ends, window = [], 4 if name == "TBPTT" else 1
    for train_it in (by_hand, None):
        torch.manual_seed(0)
        cell = make_cell("rhn", 4, 5)
        layers = [nn.Linear(5, 6).double(), nn.Tanh(), nn.Linear(6, 4).double()]
        readout = nn.Sequential(*layers) if depth == 2 else nn.Linear(5, 4).double()
        learner, optimizer = make(name, 4, cell), RLS(readout)
        before = [each.detach().clone() for each in readout.parameters()]
        task = CopyTask(
            B, generator=torch.Generator().manual_seed(2), dtype=torch.float64
        )
        if train_it:
            by_hand(learner, readout, islice(task, 24), optimizer, window)
        else:
            records = list(train(learner, readout, task, steps=24, optimizer=optimizer))
            assert records[-1].updated
        ends.append([each.detach() for each in readout.parameters()])
        assert not any(map(torch.equal, before, ends[-1]))
    for one, two in zip(*ends, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def test_with_rls_a_group_is_refused(monkeypatch):
    cell, readout = make_cell("rhn", 4, 5), nn.Linear(5, 4).double()
    learner, optimizer = make("OK", 2, cell), RLS(readout)
    with pytest.raises(ValueError, match="has a hook that reads its passes, as RLS"):
        next(train(learner, readout, [], optimizer=optimizer, group=object()))
