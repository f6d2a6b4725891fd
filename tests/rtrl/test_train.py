"""The training loop: its gradients, its updates, and that looking changes nothing."""

import math
from functools import partial
from itertools import islice

import pytest
import torch

from labkit.instruments import (
    gradient_cosine,
    relative_variance,
)
from labkit.rtrl import (
    LEARNERS,
    OK,
    RTRL,
    TBPTT,
    UORO,
    CopyTask,
    DivergedError,
    Readout,
    RHNCell,
    train,
)
from tests.draws import randn, seeded

from .conftest import agree, make_cell

V, N, B = 4, 5, 3  # symbols of the Copy task, units, sequences


def make_readout(n=N):
    readout = Readout(n, V, dtype=torch.float64)
    with torch.no_grad():
        readout.weight.copy_(0.5 * randn(n + 1, V, seed=1))
    return readout


def copy_task(batch_size=B, **kwargs):
    options = {"generator": seeded(2), "dtype": torch.float64, "level": 3}
    return CopyTask(batch_size, **options | kwargs)


def setting(make=RTRL, **kwargs):
    """A cell of some size, a learner of it and a readout, in float64."""
    cell = make_cell("rhn", V, N)
    learner = make(cell, batch_size=B, generator=seeded(3), **kwargs)
    return cell, learner, make_readout()


def sgd(cell, readout, lr=0.1):
    return torch.optim.SGD([cell.weight, readout.weight], lr=lr)


def weights(cell, readout):
    """Copies of both."""
    return [each.weight.detach().clone() for each in (cell, readout)]


def gradients(loss, cell, readout):
    return torch.autograd.grad(loss, [cell.weight, readout.weight])


def went_down(before, after, expected):
    """Whether a step went along these gradients."""
    steps = map(torch.sub, before, after)
    return all(agree(s, 0.1 * g, 1e-10) for s, g in zip(steps, expected, strict=True))


def loss_over(cell, readout, symbols, state=None):
    """Mean loss of a block, differentiable; and the state after it."""
    state = cell.initial_state(B) if state is None else state
    loss = 0
    for x, target, restart in symbols:
        state = torch.where(restart[:, None], 0, state)
        state = cell(x, state)
        logits = readout(cell.hidden(state))
        loss = loss + torch.nn.functional.cross_entropy(logits, target)
    return loss / len(symbols), state.detach()


# Readout


def test_the_readouts_gradient_is_autograds():
    readout, h = make_readout(), randn(7, N).requires_grad_()
    target = torch.randint(V, (7,), generator=seeded())
    loss, dL_dh, dL_dW = readout.loss(h.detach(), target)
    logits = torch.cat([h, torch.ones(7, 1)], 1) @ readout.weight
    torch.testing.assert_close(readout(h), logits, rtol=1e-14, atol=1e-14)
    expected = torch.nn.functional.cross_entropy(logits, target)
    dh, dW = torch.autograd.grad(expected, [h, readout.weight])
    assert abs(float(loss) - float(expected.detach())) <= 1e-12
    assert agree(dL_dh, dh) and agree(dL_dW, dW)
    assert not (loss.requires_grad or dL_dh.requires_grad or dL_dW.requires_grad)


# Records


def test_records():
    cell, learner, readout = setting()
    records = train(learner, readout, copy_task(), steps=6)
    symbols, state = list(islice(copy_task(), 6)), None
    for step, (record, each) in enumerate(zip(records, symbols, strict=True), 1):
        loss, state = loss_over(cell, readout, [each], state)
        assert record.step == step
        assert record.loss == pytest.approx(float(loss.detach()), rel=1e-12)
        assert record.bits == pytest.approx(record.loss / math.log(2), rel=1e-14)
        assert record.level == 3 and not record.updated and not record.gradients
    assert cell.weight.grad is None and readout.weight.grad is None


def test_the_task_hears_of_the_bits():
    _, learner, readout = setting()
    task, error = copy_task(), 1.0
    for record in train(learner, readout, task, steps=20):
        error = 0.999 * error + 0.001 * record.bits
        assert task.error == pytest.approx(error, rel=1e-14)
    task.error = 0.0  # the next step raises the level
    (record,) = train(learner, readout, task, steps=1)
    assert record.level == task.level == 4


# Updates


def test_an_online_update_is_the_gradient_of_this_steps_loss():
    """One step after a start at zero: exact RTRL and autograd take the same step."""
    cell, learner, readout = setting()
    loss, _ = loss_over(cell, readout, [next(copy_task())])
    expected, before = gradients(loss, cell, readout), weights(cell, readout)
    options = {"optimizer": sgd(cell, readout), "clip": 1e9}
    (record,) = train(learner, readout, copy_task(), steps=1, **options)
    assert record.updated
    assert record.loss == pytest.approx(float(loss.detach()), rel=1e-12)
    assert went_down(before, weights(cell, readout), expected)


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_the_cells_gradient_is_clipped_and_the_readouts_is_not(clip):
    cell, learner, readout = setting()
    free, other, clipped = RTRL(cell, batch_size=B), copy_task(), 0
    options = {"optimizer": sgd(cell, readout, lr=0.0)}  # gradients alone
    for _ in train(learner, readout, copy_task(), steps=8, clip=clip, **options):
        x, target, restart = next(other)
        free.reset(restart)
        _, dL_dh, dL_dW = readout.loss(free.step(x), target)
        gradient = free.gradient(dL_dh)
        size = float(gradient.norm())
        clipped += size > clip
        assert agree(cell.weight.grad, gradient * min(1, clip / size))
        assert agree(readout.weight.grad, dL_dW, 1e-14)
    assert clipped == (0 if clip > 1 else 8)


def test_truncated_back_propagation_updates_once_a_block():
    horizon, blocks = 5, 4
    cell, learner, readout = setting(TBPTT, horizon=horizon)
    options = {"optimizer": sgd(cell, readout), "clip": 1e9}
    records = train(learner, readout, copy_task(), **options)
    task, state, restarts = copy_task(), None, 0
    for _ in range(blocks):
        symbols = list(islice(task, horizon))
        restarts += int(sum(each.restart.sum() for each in symbols))
        loss, state = loss_over(cell, readout, symbols, state)
        expected, before = gradients(loss, cell, readout), weights(cell, readout)
        for step in range(1, horizon + 1):
            assert next(records).updated == (step == horizon)
            same = all(map(torch.equal, before, weights(cell, readout)))
            assert same == (step < horizon)
        assert went_down(before, weights(cell, readout), expected)
    assert restarts > 2 * B  # sequences began inside the blocks too


@pytest.mark.parametrize("saved", [False, True])
def test_training_may_stop_inside_a_window(saved):
    """18 steps and 22 more are 40, also from a checkpoint."""
    ends = []
    for parts in ((40,), (18, 22), (1, 5, 2, 32)):
        cell, learner, readout = setting(TBPTT, horizon=5)
        optimizer, task = sgd(cell, readout), copy_task()
        for steps in parts:
            if saved:
                state = learner.state_dict()
                learner = TBPTT(cell, batch_size=B, horizon=5)
                learner.load_state_dict(state)
            list(train(learner, readout, task, steps=steps, optimizer=optimizer))
        ends.append(weights(cell, readout))
    assert all(all(map(torch.equal, ends[0], end)) for end in ends)


# At the door

STRANGER = RTRL(make_cell("rhn", V, N), batch_size=B)
REFUSED = [
    ({"steps": 0}, "steps must be None or an integer >= 1, got 0"),
    ({"clip": 0.0}, "clip must be > 0 and finite, got 0.0"),
    ({"readout": make_readout(7)}, "the readout must read 5 units, got one of 7"),
    ({"watch": {"truth": STRANGER}}, "must share the trained learner's cell"),
    ({"watch": {"learner": STRANGER}}, "the name 'learner' is taken"),
]


@pytest.mark.parametrize(("options", "match"), REFUSED)
def test_refuses(options, match):
    _, learner, readout = setting()
    given = {"readout": readout, "task": copy_task()} | options
    with pytest.raises(ValueError, match=match):
        next(train(learner, **given))


def test_refuses_what_would_be_stepped_or_trained_twice():
    cell, learner, readout = setting()
    with pytest.raises(ValueError, match="watched learner must be one of its own"):
        next(train(learner, readout, copy_task(), watch={"again": learner}))
    with pytest.raises(ValueError, match="the readout must not hold the cell"):
        next(train(learner, cell, copy_task()))


# Watching


def test_watched_gradients_are_the_learners_own_and_the_truth():
    cell, learner, readout = setting()
    alone, uoro = (UORO(cell, batch_size=B, generator=seeded(8)) for _ in range(2))
    watch = {"same": RTRL(cell, batch_size=B), "uoro": uoro}
    task, seen = copy_task(), []
    for record in train(learner, readout, copy_task(), steps=12, watch=watch):
        assert set(record.gradients) == {"learner", "same", "uoro"}
        x, target, restart = next(task)
        alone.reset(restart)
        _, dL_dh, _ = readout.loss(alone.step(x), target)
        assert torch.equal(record.gradients["uoro"], alone.gradient(dL_dh))
        assert torch.equal(record.gradients["learner"], record.gradients["same"])
        seen.append(record.gradients["learner"])
    # Weights are frozen, so the gradients of the steps add up to that of the sum.
    loss, _ = loss_over(cell, readout, list(islice(copy_task(), 12)))
    (expected,) = torch.autograd.grad(12 * loss, cell.weight)
    assert agree(sum(seen), expected)


@pytest.mark.parametrize("frozen", [0, 1])
def test_what_is_frozen_between_two_calls_stays_and_the_rest_learns(frozen):
    cell, learner, readout = setting()
    optimizer = sgd(cell, readout)
    next(train(learner, readout, copy_task(), optimizer=optimizer))
    (cell, readout)[frozen].requires_grad_(False)
    before = weights(cell, readout)
    next(train(learner, readout, copy_task(), optimizer=optimizer))
    same = map(torch.equal, before, weights(cell, readout))
    assert [*same] == [not frozen, bool(frozen)]


# Divergence


@pytest.mark.parametrize("setup", [setting, partial(setting, OK, rank=2)])
def test_divergence_stops_with_the_step_and_the_last_loss(setup):
    cell, learner, readout = setup()
    records = train(learner, readout, copy_task())
    seen = list(islice(records, 4))
    with torch.no_grad():
        cell.weight[0, 0] = math.nan
    with pytest.raises(DivergedError) as caught:
        next(records)
    assert "the loss is nan at step 5" in str(caught.value)
    assert f"the last finite one was {seen[-1].loss}" in str(caught.value)
    assert isinstance(caught.value, RuntimeError)
    assert next(records, None) is None


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (math.nan, "step 1; the last finite one was nan"),
        # finite, and the norm of the gradient is not
        (1e200, "the cell's gradient is inf"),
    ],
)
def test_divergence_changes_no_weight(weight, match):
    cell, learner, readout = setting()
    with torch.no_grad():
        readout.weight.fill_(weight)
    before, optimizer = weights(cell, readout)[0], sgd(cell, readout)
    with pytest.raises(DivergedError, match=match):
        next(train(learner, readout, copy_task(), optimizer=optimizer))
    assert torch.equal(cell.weight, before) and cell.weight.grad is None


# Learning


def test_the_error_falls_on_copy():
    cell = RHNCell(V, 16, generator=seeded())
    readout = Readout(16, V, generator=seeded(1))
    task = CopyTask(8, generator=seeded(2), level=1, fixed=True)
    learner = OK(cell, batch_size=8, rank=8, generator=seeded(3))
    optimizer = torch.optim.Adam([cell.weight, readout.weight], lr=3e-3)
    records = train(learner, readout, task, steps=600, optimizer=optimizer)
    bits = [record.bits for record in records]
    assert sum(bits[:20]) / 20 > 1.4  # 2 bits: four symbols, none known
    assert sum(bits[-100:]) / 100 < 0.7
    assert task.error < 0.9  # from 1, over a thousand steps


# Acceptance: instruments look and do not touch


def trained_weights(watched):
    """Weights after 50 steps; with every learner watched and measured, or none."""
    cell = RHNCell(V, 12, generator=seeded())
    readout = Readout(12, V, generator=seeded(1))
    task = CopyTask(B, generator=seeded(2), level=2)
    learner = OK(cell, batch_size=B, rank=4, generator=seeded(3))
    optimizer = torch.optim.Adam([cell.weight, readout.weight], lr=3e-3)
    watch = {
        name: row.make(cell, 3, batch_size=B, generator=torch.Generator())
        for name, row in LEARNERS.items()
        if watched
    }
    records = train(learner, readout, task, steps=50, optimizer=optimizer, watch=watch)
    for record in records:
        for name, other in watch.items():
            truth = record.gradients["RTRL"]
            gradient_cosine(record.gradients[name], truth)
            estimates = other.per_sequence_gradient(torch.ones(B, 12))
            relative_variance(estimates, truth)
            other.influence(), learner.influence(), learner.state_dict()
    return weights(cell, readout)


def test_looking_leaves_the_weights_bit_identical():
    generator = torch.random.get_rng_state()
    bare, watched = trained_weights(False), trained_weights(True)
    assert torch.equal(generator, torch.random.get_rng_state())
    assert not torch.equal(bare[0], RHNCell(V, 12, generator=seeded()).weight)
    for one, two in zip(bare, watched, strict=True):
        assert one.isfinite().all() and torch.equal(one, two)
