"""Hessian-free on two workers is a step on all rows in one process (float64)."""

import math

import pytest
import torch
from torch import nn

from labkit.hessian_free import (
    HessianFree,
    batch_gradient_variance,
    diagonal_estimate,
    train,
)
from labkit.hessian_free.linearise import weights_of
from labkit.scale import workers as scale_workers
from labkit.theorems.hessian_free import joined
from tests.draws import randn, seeded
from tests.hessian_free.conftest import rand, relative, small_net

ROWS = 13, 7  # of the ranks


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()


NETS = {
    "autoencoder": (small_net, "squared", lambda n: None),
    "module": (mlp, "squared", lambda n: randn(n, 3, seed=9)),
    "softmax": (mlp, "softmax", lambda n: torch.arange(n) % 3),
}


def part(data, rank):
    """The rows of a rank, or all of them."""
    return data if data is None or rank is None else data.split(ROWS)[rank]


def steps(rank, world, net, preconditioner):
    """Weights, last direction, records and gradient noise after three steps."""
    make, loss, targets = NETS[net]
    model, total = make(), sum(ROWS)
    X, V = (part(rand(total, 5, seed=seed), rank) for seed in (1, 2))
    T = part(targets(total), rank)
    pool = None if rank is None else scale_workers()
    if rank:
        with torch.no_grad():  # the first worker's weights count
            next(model.parameters()).zero_()
    options = {"maxiter": 12, "damping": 2.0, "preconditioner": preconditioner}
    made, records = HessianFree(model, loss=loss, workers=pool, **options), []
    for step in range(3):
        done = made.step(X, T, validation=(V, T) if step else None)
        noise = batch_gradient_variance(done.point)
        record = done.n, done.loss, done.loss_after, done.rho, done.step_length
        records.append((*record, done.damping_next, done.iterations, *noise))
    weights = joined([p.detach() for p in model.parameters()])
    return weights, joined(made.warm_start()), records


# at a damping at which rounding is not blown up
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("preconditioner", ["none", "fisher"])
def test_two_workers_equal_one_process(workers, net, preconditioner):
    alone = steps(None, 1, net, preconditioner)
    both = workers(steps, net, preconditioner)
    for weights, warm, records in both:
        assert relative(weights, alone[0]) < 1e-12
        assert relative(warm, alone[1]) < 1e-9
        for record, other in zip(records, alone[2], strict=True):
            for a, b in zip(record, other, strict=True):
                assert math.isclose(a, b, rel_tol=1e-8)
    assert torch.equal(both[0][0], both[1][0])


def signs(rank, world):
    """A step with random signs, and the diagonal by signs that are given."""
    model, X = small_net(), part(rand(20, 5, seed=1), rank)
    pool = None if rank is None else scale_workers()
    given = part(randn(20, 5, seed=3).sign(), rank)
    generator = seeded(rank or 0)
    optimizer = HessianFree(model, damping=0.5, generator=generator, workers=pool)
    point = optimizer.linearised(X, None, weights_of(model))
    diagonal = joined(diagonal_estimate(point, given))
    optimizer.step(X)
    return joined([p.detach() for p in model.parameters()]), diagonal


def test_each_worker_draws_the_signs_of_its_rows(workers):
    alone, (one, two) = signs(None, 1), workers(signs)
    assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])
    assert relative(one[1], alone[1]) < 1e-12
    assert relative(one[0], alone[0]) < 1e-3  # to the stopping rule


def refused(rank, world):
    """What a loop over one process's data says."""
    model, X = small_net(), rand(10, 5)
    made = HessianFree(model, workers=scale_workers())
    try:
        next(train(model, made, X, validation=X, batch_size=5))
    except ValueError as error:
        return str(error)


def test_a_loop_that_draws_in_one_process_is_refused(workers):
    for message in workers(refused):
        assert "draws its batches in one process" in message
