"""The two training loops."""

import itertools
import math
from functools import partial

import pytest
import torch
from sklearn.datasets import load_digits

from labkit.errors import DivergedError
from labkit.hessian_free import (
    Autoencoder,
    HessianFree,
    MartensHF,
    Settings,
    squared_error,
    train,
    train_martens,
)
from labkit.hessian_free.train import draw
from tests.draws import seeded

from .conftest import rand, small_net

X, V, T = torch.tensor(load_digits().data / 16)[:700].split((500, 100, 100))
DAMPING = {"damping": 1.0, "damping_decay": 0.8}
MEAN_IMAGE = float((V - X.mean(0)).square().sum(1).mean())  # its error


def digits_net(generator, *hidden):
    return Autoencoder((64, *hidden, 64), generator=generator, dtype=torch.float64)


def begun(settings=None, **options):
    """A net, and its training to come."""
    generator = seeded()
    net = digits_net(generator, 24, 8, 24)
    stops = {"maxiter": 40, "patience": 20}
    optimizer = HessianFree(net, **DAMPING, **stops, generator=seeded(100))
    settings = settings or Settings(max_batch_size=400)
    data = {"validation": V, "test": T, "batch_size": 50, "generator": generator}
    return net, train(net, optimizer, X, **data, settings=settings, **options)


def trace(records):
    names = ("n", "n_hat", "validation_error", "damping", "iterations", "status")
    return [[getattr(record, name) for name in names] for record in records]


def test_a_short_run_on_digits():
    net, records = begun(steps=25)
    records = list(records)
    last = records[-1]
    assert last.validation_error < MEAN_IMAGE
    assert math.isclose(last.validation_error, squared_error(net, V), rel_tol=1e-12)
    assert math.isclose(last.test_error, squared_error(net, T), rel_tol=1e-12)
    sizes = [r.n for r in records]
    assert sizes == sorted(sizes)
    assert sizes[:6] == [50] * 6 and sizes[-1] > 50
    assert [r.n_next for r in records[:-1]] == sizes[1:]
    least = math.inf
    for r in records:
        assert (r.grew != "") == (r.n_next > r.n)
        assert r.improved == (r.validation_error < least)
        least = min(least, r.validation_error)
    assert [r.rows for r in records] == list(itertools.accumulate(sizes))
    assert all(a.seconds < b.seconds for a, b in itertools.pairwise(records))
    assert last.maxiter > 40
    assert all(r.merit[0][0] == 0 for r in records)


def test_the_same_seed_gives_the_same_trace():
    assert trace(begun(steps=12)[1]) == trace(begun(steps=12)[1])


def test_the_preconditioner_does_not_change_the_batches():
    seen = []
    for kind in ("random_signs", "none"):
        generator, options = seeded(), {"preconditioner": kind, "generator": seeded(1)}
        net = digits_net(generator, 8)
        data = {"validation": V, "batch_size": 10, "steps": 3, "generator": generator}
        list(train(net, HessianFree(net, maxiter=2, **options), X[:100], **data))
        seen.append(generator.get_state())
    assert torch.equal(*seen)


def test_a_batch_has_distinct_rows_and_noise_leaves_the_targets():
    X = torch.arange(40.0).reshape(20, 2)
    inputs, targets = draw(X, None, 12, 0.1, seeded())
    assert len(targets.unique(dim=0)) == 12
    assert set(targets[:, 0].tolist()) <= set(X[:, 0].tolist())
    assert 0 < (inputs - targets).abs().max() < 1
    inputs, targets = draw(X, 2 * X, 12, generator=seeded())
    assert torch.equal(targets, 2 * inputs)


def test_targets_other_than_the_inputs():
    generator, rows = seeded(), X[:200]
    net = digits_net(generator, 16)
    optimizer = HessianFree(net, **DAMPING, maxiter=20, generator=generator)
    options = {
        "targets": 1 - rows,
        "batch_size": 100,
        "steps": 10,
        "generator": generator,
    }
    records = list(train(net, optimizer, rows, validation=(V, 1 - V), **options))
    last = records[-1].validation_error
    assert math.isclose(last, squared_error(net, V, 1 - V), rel_tol=1e-12)
    assert last < 0.6 * records[0].validation_error


@pytest.mark.parametrize(("gradient", "used"), [("full", 500), ("batch", 125)])
def test_martens_on_digits(gradient, used):
    generator = seeded()
    net = digits_net(generator, 24, 8, 24)
    optimizer = MartensHF(net, damping=3.0)
    data = {"validation": V, "generator": generator, "chunks": 4, "steps": 20}
    records = list(train_martens(net, optimizer, X, gradient=gradient, **data))
    assert [r.rows for r in records] == [used * r.step for r in records]
    assert all(r.n == 125 for r in records)
    assert records[-1].validation_error < MEAN_IMAGE


def test_divergence_stops_with_its_step():
    class Broken(HessianFree):
        def step(self, *data, **options):
            done = super().step(*data, **options)
            with torch.no_grad():
                self.param_groups[0]["params"][0].fill_(math.nan)
            return done

    net, X = small_net(), rand(20, 5)
    records = train(net, Broken(net, damping=1.0), X, validation=X, batch_size=5)
    with pytest.raises(DivergedError, match="the validation error is nan at step 1"):
        next(records)


def test_settings_changed_between_steps_hold_from_the_next_one():
    settings = Settings(theta=0.9, max_batch_size=400)
    _, records = begun(settings)
    before = [next(records) for _ in range(7)][-1]
    settings.theta = 0.1
    after = next(records)
    assert before.n == after.n == 50 < after.n_next
    settings.max_batch_size = 60
    assert next(records).n == next(records).n == after.n_next  # never shrinks
    clean = next(records).batch_error
    settings.input_noise = 2.0
    assert next(records).batch_error > 1.2 * clean
    settings.theta = 2.0
    with pytest.raises(ValueError, match=r"theta must be in \(0, 1\), got 2"):
        next(records)


REFUSED = [
    ({"max_batch_size": 21}, {}, "max_batch_size .* integer in 2..20, got 21"),
    ({}, {"batch_size": 10}, "batch_size must be an integer in 2..9, got 10"),
    ({}, {"validation": rand(4, 5) + 0.5}, r"of validation must lie in \[0, 1\]"),
    ({}, {"validation": rand(4, 3)}, r"must have shape \(n, 5\), got \(4, 3\)"),
    ({}, {"test": rand(4, 5) * math.nan}, r"targets of test must lie in \[0, 1\]"),
    ({}, {"targets": -rand(20, 5)}, r"targets of inputs must lie in \[0, 1\]"),
]


@pytest.mark.parametrize(("settings", "options", "match"), REFUSED)
def test_refuses(settings, options, match):
    net, X = small_net(), rand(20, 5)
    settings = Settings(**{"max_batch_size": 9} | settings)
    options = {"validation": X, "batch_size": 5, "settings": settings} | options
    with pytest.raises(ValueError, match=match):
        next(train(net, HessianFree(net), X, **options))


def test_martens_refuses():
    net, X = small_net(), rand(20, 5)
    begin = partial(train_martens, net, MartensHF(net), X, validation=X)
    with pytest.raises(ValueError, match=r"chunks must be an integer in 1..20, got 21"):
        next(begin(chunks=21))


def test_refuses_an_optimizer_of_another_kind_or_model():
    net, X = small_net(), rand(20, 5)
    options = {"validation": X, "batch_size": 5}
    with pytest.raises(TypeError, match="must be a HessianFree, got MartensHF"):
        next(train(net, MartensHF(net), X, **options))
    with pytest.raises(ValueError, match="optimizer was made for another model"):
        next(train(net, HessianFree(small_net()), X, **options))
