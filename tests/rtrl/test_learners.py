"""The learners: against back-propagation, after resets, across checkpoints."""

import math
import re
from functools import partial

import pytest
import torch

from labkit.rtrl import KFRTRL, KTP, LEARNERS, OK, RTRL, TBPTT
from labkit.rtrl.low_rank import random_signs
from labkit.theorems import rtrl as theorems
from labkit.theorems.rtrl import back_propagate
from tests.draws import randn

from .conftest import D_X, B, N, agree, every, make, make_cell, read, small


def inputs(steps, *, batch_size=B, seed=50, dtype=torch.float64):
    return randn(steps, batch_size, D_X, seed=seed, dtype=dtype)


def losses(steps, *, batch_size=B, n=N):
    """dL_t / dh_t of losses linear in h."""
    return randn(steps, batch_size, n, seed=70)


# Against back-propagation


@pytest.mark.parametrize("horizon", [9, 14])
def test_a_window_that_covers_everything_is_exact(kind, horizon):
    T = 9
    cell = small(kind)
    xs, dLs = inputs(T), losses(T)
    state = 0.7 * randn(B, cell.state_size)
    window, exact = TBPTT(cell, batch_size=B, horizon=horizon), RTRL(cell, batch_size=B)
    window.state, exact.state = state.clone(), state.clone()
    read(window, xs), read(exact, xs)
    dLs[:-1] = 0  # the loss of the last step alone
    expected, _ = back_propagate(cell, xs, dLs, state)
    assert agree(window.gradient(dLs[-1]), expected)
    assert agree(window.influence(), exact.influence())


def test_a_short_window_forgets(kind):
    """The state ``horizon`` steps back is a constant."""
    cell, xs, dL = small(kind), inputs(9), losses(1)
    window = read(TBPTT(cell, batch_size=B, horizon=4), xs[:5])
    start = window.state.clone()
    read(window, xs[5:])
    last_only = torch.cat([torch.zeros_like(dL).repeat(3, 1, 1), dL])
    expected, _ = back_propagate(cell, xs[5:], last_only, start)
    assert agree(window.gradient(dL[0]), expected)
    of_h = window.influence()[:, -N:].flatten(0, 1)  # all sequences stacked
    assert agree(dL[0].flatten() @ of_h, expected.flatten())


RESETS = {0: [0, 1, 2], 2: [0], 3: [0, 2], 5: [1], 8: [2], 11: [0], 13: [1, 2], 14: [1]}


def test_backward_is_the_mean_over_the_block(kind):
    horizon, T = 4, 16
    cell, xs, dLs = small(kind), inputs(T), losses(T)
    restart = torch.zeros(T, B, dtype=torch.bool)
    for t, rows in RESETS.items():
        restart[t, rows] = True
    window = TBPTT(cell, batch_size=B, horizon=horizon)
    state = cell.initial_state(B)
    for t in range(T):
        window.reset(restart[t])
        window.step(xs[t])
        got = window.backward(dLs[t])
        if (t + 1) % horizon:
            assert got is None
            continue
        block = slice(t + 1 - horizon, t + 1)
        given = (cell, xs[block], dLs[block], state, restart[block])
        total, state = back_propagate(*given)
        assert agree(got, total / horizon)
        assert agree(window.state, state, 1e-14)


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_first_steps_after_a_reset_are_exact(kind, rank, dtype):
    """r terms hold r steps. In float64 roundoff makes singular values of 1e-16 d_1 that
    are mixed like any other: an error of the root of that, not of 1e-16."""
    cell = make_cell(kind, D_X, 4, dtype=dtype)
    ok, exact = OK(cell, batch_size=B, rank=rank), RTRL(cell, batch_size=B)
    xs = inputs(9 + rank, dtype=dtype)
    read(ok, xs[:9]).reset()
    assert not ok.influence().any()
    start = 0.5 * randn(B, cell.state_size, dtype=dtype)
    ok.state, exact.state = start.clone(), start.clone()
    for x in xs[9:]:
        ok.step(x)
        exact.step(x)
        tol = 1e-5 if dtype == torch.float32 else 1e-6
        assert agree(ok.influence(), exact.influence(), tol)


# What gradient means


@every
def test_the_gradient_is_the_loss_times_the_influence(name, rank, kind):
    cell, dL = small(kind), losses(1)[0]
    learner = make(name, rank, cell)
    *before, last = inputs(7)
    h = read(learner, before).step(last)
    assert torch.equal(h, cell.hidden(learner.state))
    G = learner.influence()
    assert G.shape == (B, cell.state_size, cell.weight.numel())
    per = learner.per_sequence_gradient(dL)
    assert per.shape == (B, *cell.weight.shape)
    dense = torch.einsum("bs,bsc->bc", dL, G[:, -N:]).view_as(per)
    assert agree(per, dense)
    assert agree(learner.gradient(dL), per.sum(0))
    # The derivative of a batch mean gives the gradient of that mean.
    assert agree(learner.gradient(dL / B), per.mean(0))
    if name != "TBPTT":
        assert torch.equal(learner.backward(dL), learner.gradient(dL))
    assert cell.weight.grad is None and not per.requires_grad


def test_copies_are_kf_by_themselves_and_are_averaged():
    whole, *alone = (make("KF-AVG", copies, small()) for copies in (3, 1, 1, 1))
    for x in inputs(5):
        signs = random_signs((B, 3), x)
        theorems._step_with(whole, x, signs)
        for i, one in enumerate(alone):
            theorems._step_with(one, x, signs[:, i : i + 1])
    assert agree(whole.influence(), sum(one.influence() for one in alone) / 3)


# Saturation


@pytest.mark.parametrize("case", [("KF-AVG", 1), ("KF-AVG", 3), ("OK", 1), ("OK", 2)])
def test_no_bias_where_units_saturate(case, kind):
    draws, T, n = 3000, 8, 4
    cell = make_cell(kind, D_X, n, seed=1)
    xs = 30 * inputs(T, batch_size=1, seed=11)
    learner = make(*case, cell, batch_size=draws, seed=12)
    exact = RTRL(cell, batch_size=1)
    for x in xs:
        exact.step(x)
        learner.step(x.repeat(draws, 1))
        assert learner.influence().isfinite().all()
    dL = losses(1, batch_size=1, n=n)[0]
    truth = exact.gradient(dL).flatten()
    # The exact gradient itself, then random directions.
    directions = torch.cat([truth[None], randn(5, len(truth), seed=13)])
    directions /= directions.norm(dim=1, keepdim=True)
    estimates = learner.per_sequence_gradient(dL.repeat(draws, 1)).flatten(1)
    seen = estimates @ directions.T
    error = seen.std(0) / draws**0.5
    wanted = directions @ truth
    assert error.max() < 0.1 * truth.norm()  # otherwise anything would pass
    # 1e-6: the bias that treating d below 1e-7 d_1 as zero may leave.
    assert ((seen.mean(0) - wanted).abs() <= 4 * error + 1e-6 * truth.norm()).all()


# Resets


@every
@pytest.mark.parametrize("mask", [[True, False, False], [False] * B, None])
def test_a_reset_is_of_the_sequences_that_are_named_or_of_all(name, rank, mask, kind):
    cell, xs, dL = small(kind), inputs(11), losses(1)[0]
    learner, undisturbed = make(name, rank, cell), make(name, rank, cell)
    read(learner, xs[:6]), read(undisturbed, xs[:6])
    fresh = make(name, rank, cell)
    fresh.generator.set_state(learner.generator.get_state())
    learner.reset(None if mask is None else torch.tensor(mask))
    ended = torch.tensor(mask or [True] * B)
    assert not learner.state[ended].any() and not learner.influence()[ended].any()
    assert torch.equal(learner.state[~ended], undisturbed.state[~ended])
    assert torch.equal(learner.influence()[~ended], undisturbed.influence()[~ended])
    for x in xs[6:]:
        views = []
        for each in (learner, undisturbed, fresh):
            each.step(x)
            views.append([each.state, each.influence(), each.per_sequence_gradient(dL)])
        for kept, same, new in zip(*views, strict=True):
            assert torch.equal(kept[~ended], same[~ended])  # bit for bit
            assert agree(kept[ended], new[ended], 1e-14)


@every
def test_a_reset_leaves_what_a_step_returned(name, rank):
    learner = make(name, rank, small())
    h = learner.step(inputs(1)[0])
    before = h.clone()
    learner.reset()
    assert torch.equal(h, before) and h.any()


# Checkpoints


def equal(one, two):
    """Tensor by tensor, bit for bit."""
    return len(one) == len(two) and all(map(torch.equal, one, two))


def same_state(one, two):
    assert one.keys() == two.keys()
    one, two = ([*s.pop("waiting"), *s.values()] for s in (dict(one), dict(two)))
    return equal(one, two)


def run(learner, xs, dLs, restart=4):
    """What a training loop would see: gradients, applied gradients, states."""
    seen = []
    for t, (x, dL) in enumerate(zip(xs, dLs, strict=True)):
        if t == restart:
            learner.reset(torch.tensor([False, True, False]))
        seen += [learner.step(x), learner.gradient(dL), learner.backward(dL)]
    return [x for x in seen if x is not None]


@every
def test_checkpoint_continues_bit_for_bit(name, rank, kind):
    cell, xs, dLs = small(kind), inputs(15), losses(15)
    learner = make(name, rank, cell)
    run(learner, xs[:7], dLs[:7])  # tbptt: in the middle of a block
    learner.reset(torch.tensor([False, False, True]))  # and of a restart
    saved, wanted = learner.state_dict(), run(learner, xs[7:], dLs[7:])
    resumed = make(name, rank, cell, seed=99)
    run(resumed, xs[:3], dLs[:3])
    resumed.load_state_dict(saved)
    assert same_state(saved, resumed.state_dict())
    assert equal(run(resumed, xs[7:], dLs[7:]), wanted)
    assert same_state(learner.state_dict(), resumed.state_dict())
    # Neither run wrote into what was saved: it serves a second time.
    resumed.load_state_dict(saved)
    assert equal(run(resumed, xs[7:], dLs[7:]), wanted)


@every
def test_a_checkpoint_that_does_not_fit_changes_nothing(name, rank):
    learner = read(make(name, rank, small()), inputs(4))
    before = learner.state_dict()
    good = make(name, rank, learner.cell, seed=5).state_dict()
    wrong = torch.zeros(B + 1, 2).double()
    for match, saved in (
        (r"entries must be .*'state'", {k: good[k] for k in good if k != "state"}),
        (r"entries must be .*, got .*'extra'", good | {"extra": torch.zeros(1)}),
        (r"state must have shape .*, got .4, 2", good | {"state": wrong}),
        ("state must .*float64, got .*float32", good | {"state": wrong.float()}),
    ):
        with pytest.raises((TypeError, ValueError), match=match):
            learner.load_state_dict(saved)
        assert same_state(before, learner.state_dict())


# Random streams


@every
def test_learners_do_not_share_a_random_stream(name, rank):
    """Each has its own, which torch's seed repeats and no other learner moves."""
    cell, xs, dLs = small(), inputs(8), losses(8)
    fresh = lambda name, rank: LEARNERS[name].make(cell, rank, batch_size=B)  # noqa: E731
    torch.manual_seed(3)
    alone, again = (run(fresh(name, rank), xs, dLs) for _ in range(2))
    torch.manual_seed(3)
    first = fresh(name, rank)
    others = [fresh(other, 2) for other in LEARNERS]
    before = torch.random.get_rng_state()
    seen = []
    for t in range(8):
        for other in others:
            other.step(xs[t])
        seen += run(first, xs[t : t + 1], dLs[t : t + 1], restart=4 - t)
    assert equal(seen, alone) and equal(alone, again) != first.draws
    seeded = [run(make(name, rank, cell, seed=6), xs, dLs) for _ in range(2)]
    assert equal(*seeded)
    assert torch.equal(before, torch.random.get_rng_state())


@every
def test_weights_are_read_at_every_step(name, rank):
    cell, xs = small(), inputs(4)
    learner = make(name, rank, cell)
    learner.step(xs[0])
    with torch.no_grad():
        cell.weight.mul_(0.5)
    state, weight = learner.state.clone(), cell.weight.detach().clone()
    learner.step(xs[1])
    assert agree(learner.state, cell(xs[1], state).detach(), 1e-14)
    assert torch.equal(weight, cell.weight)


# Refusals


@every
def test_inputs_and_derivatives_that_do_not_fit_change_nothing(name, rank):
    learner = read(make(name, rank, small()), inputs(3))
    before = learner.state_dict()
    for method in ("step", "gradient", "per_sequence_gradient", "backward"):
        good = torch.zeros(B, D_X if method == "step" else N).double()
        for wrong, match in (
            (good[:, :1], r"must have shape \(3, [23]\), got \(3, 1\)"),
            (good.float(), "must have the dtype torch.float64, got torch.float32"),
            (good + math.nan, r"must be finite, got nan at \(0, 0\)"),
        ):
            with pytest.raises((TypeError, ValueError), match=match):
                getattr(learner, method)(wrong)
    assert same_state(before, learner.state_dict())


@pytest.mark.parametrize("mask", [torch.ones(B), torch.ones(B + 1).bool(), [True] * B])
def test_refuses_a_bad_mask(mask):
    learner = read(make("OK", 3, small()), inputs(1))
    before = learner.state_dict()
    for refused in (learner.reset, lambda mask: learner.step(inputs(1)[0], mask=mask)):
        with pytest.raises((TypeError, ValueError), match=r"mask must .*, got"):
            refused(mask)
    assert same_state(before, learner.state_dict())


@every
def test_refuses_bad_arguments(name, rank):
    build = partial(LEARNERS[name].make, rank=rank)
    with pytest.raises(ValueError, match="batch_size must be an integer >= 1, got 0"):
        build(small(), batch_size=0)
    with pytest.raises(TypeError, match=r"cell must be a labkit\.rtrl cell, got RNN"):
        build(torch.nn.RNNCell(2, 3), batch_size=B)
    with pytest.raises(TypeError, match="generator must be a torch"):
        build(small(), batch_size=B, generator=3)


@pytest.mark.parametrize(
    ("build", "size", "words", "value"),
    [
        (OK, "rank", "in 1..6", 7),
        (KTP, "rank", "in 1..3", 4),
        (KFRTRL, "copies", ">= 1", 0),
        (KFRTRL, "diagonal_rank", "in 1..3", 4),
        (TBPTT, "horizon", ">= 1", 0),
    ],
)
def test_refuses_a_bad_size(build, size, words, value):
    match = re.escape(f"{size} must be an integer {words}, got {value}")
    with pytest.raises(ValueError, match=match):
        build(small(), batch_size=B, **{size: value})


def test_largest_rank_is_allowed():
    """m terms hold any sum of Kronecker products: exact at every step."""
    cell = small()
    ok, exact = OK(cell, batch_size=B, rank=6), RTRL(cell, batch_size=B)
    xs = inputs(10)
    assert agree(read(ok, xs).influence(), read(exact, xs).influence(), 1e-5)
