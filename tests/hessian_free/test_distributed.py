"""Steps on two workers equal steps on all rows in one process (float64)."""

import math

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit.hessian_free import (
    CrossEntropy,
    HessianFree,
    MartensHF,
    batch_gradient_variance,
    train,
)
from labkit.hessian_free.optimizer import KINDS
from labkit.theorems.hessian_free import joined

from .conftest import rand, randn, relative, small_net

ROWS = (13, 7, 4)  # of the ranks
STEPS = 3
DAMPING = {HessianFree: 2.0, MartensHF: 4.0}  # so that rounding is not blown up


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def conv():
    torch.manual_seed(0)
    layers = nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6, 3)
    return nn.Sequential(nn.Unflatten(1, (1, 5)), *layers).double()


def classes(n):
    return torch.arange(n) % 3


CASES = {
    "autoencoder": (small_net, "squared", lambda n: None),
    "module": (mlp, "squared", lambda n: randn(n, 3, seed=9)),
    "softmax": (conv, "softmax", classes),
    "ignored": (mlp, CrossEntropy(ignore_index=0, label_smoothing=0.1), classes),
}


def part(data, rank, world):
    """The rows of a rank, or all of them."""
    if data is None or world is None:
        return data
    return data.split(ROWS[:world])[rank]


def steps(rank, world, case, kind, options, total=20):
    """Weights, records and the noise of the gradient after some steps."""
    make, loss, targets = CASES[case]
    model = make()
    X, T = rand(total, 5, seed=1), targets(total)
    V, W = rand(total, 5, seed=2), targets(total)
    mine = [part(data, rank, world) for data in (X, T, V, W)]
    wrapped = model if world is None else DistributedDataParallel(model)
    if kind is HessianFree:
        # Other signs on each rank, of which those of rank 0 count.
        options = options | {"generator": torch.Generator().manual_seed(rank)}
    made, records = kind(wrapped, loss=loss, damping=DAMPING[kind], **options), []
    for step in range(STEPS):
        if kind is HessianFree:
            beside = {"validation": tuple(mine[2:])} if step else {}
        else:
            beside = {"chunk": tuple(mine[2:])} if step else {}
        done = made.step(mine[0], mine[1], **beside)
        noise = batch_gradient_variance(done.point) if done.point else ()
        told = (done.n, done.loss, done.loss_after, done.rho, done.step_length)
        records.append((*told, done.damping_next, done.iterations, *noise))
    weights = joined([p.detach() for p in model.parameters()])
    return weights, joined(made.warm_start()), records


RUNS = [(case, HessianFree, {"maxiter": 12}) for case in CASES]
RUNS += [(case, MartensHF, {"maxiter": 12}) for case in CASES]
RUNS += [("softmax", HessianFree, {"maxiter": 12, "preconditioner": k}) for k in KINDS]


@pytest.mark.parametrize(("case", "kind", "options"), RUNS)
def test_two_workers_equal_one_process(workers, case, kind, options):
    alone = steps(0, None, case, kind, options)
    both = workers(steps, case, kind, options)
    for weights, warm, records in both:
        assert relative(weights, alone[0]) < 1e-12
        assert relative(warm, alone[1]) < 1e-9
        for ours, theirs in zip(records, alone[2], strict=True):
            for a, b in zip(ours, theirs, strict=True):
                assert math.isclose(a, b, rel_tol=1e-8)
    assert torch.equal(both[0][0], both[1][0])


def test_three_workers_equal_one_process(workers):
    given = "softmax", HessianFree, {"maxiter": 12}, sum(ROWS)
    alone = steps(0, None, *given)
    for weights, *_ in workers(steps, *given, world=3):
        assert relative(weights, alone[0]) < 1e-12


def refused(rank, world):
    """What the optimiser of several workers says no to."""
    model = DistributedDataParallel(small_net())
    made, said = HessianFree(model, damping=0.5), []
    X = rand(10, 5)
    for call in (
        lambda: next(train(model, made, X, validation=X, batch_size=5)),
        lambda: made.__getstate__(),
    ):
        try:
            call()
        except (ValueError, TypeError) as error:
            said.append(str(error))
    return said


def test_refuses_what_it_cannot_do_on_several_workers(workers):
    for loop, copies in workers(refused):
        assert "draws its batches in one process" in loop
        assert "cannot be copied or pickled; save its state_dict()" in copies


def saved(rank, world):
    """State after two steps, as one worker saves it."""
    make, loss, targets = CASES["softmax"]
    X, T = (part(data, rank, world) for data in (rand(20, 5, seed=1), targets(20)))
    model = make()
    made = HessianFree(DistributedDataParallel(model), loss=loss, damping=0.5)
    for _ in range(2):
        made.step(X, T)
    return model.state_dict(), made.state_dict()


def test_one_process_reads_what_two_have_saved(workers):
    (weights, state), _ = workers(saved)
    make, loss, targets = CASES["softmax"]
    model = make()
    made = HessianFree(model, loss=loss)
    model.load_state_dict(weights)
    made.load_state_dict(state)
    assert made.param_groups[0]["damping"] == state["param_groups"][0]["damping"]
    assert joined(made.warm_start()).any()
    done = made.step(rand(20, 5, seed=1), targets(20))
    assert done.loss_after < done.loss
