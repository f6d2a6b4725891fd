"""The two training loops."""

import itertools
import math

import pytest
import torch
from sklearn.datasets import load_digits

from labkit.datasets import load
from labkit.errors import DivergedError
from labkit.hessian_free import (
    PAPER,
    Autoencoder,
    HessianFree,
    MartensHF,
    Settings,
    mirrored,
    squared_error,
    train,
    train_martens,
)
from labkit.hessian_free.train import draw

from .conftest import rand, small_net


def digits(count=500):
    """Real digits, 8 x 8, in [0, 1], float64."""
    X = torch.tensor(load_digits().data / 16)[: count + 200]
    return X[:count], X[count : count + 100], X[count + 100 :]


def digits_net(g, widths=(64, 24, 8, 24, 64)):
    return Autoencoder(widths, generator=g, dtype=torch.float64)


def begun(seed=0, settings=None, **options):
    """A net, and its training to come."""
    X, V, T = digits()
    g = torch.Generator().manual_seed(seed)
    net, signs = digits_net(g), torch.Generator().manual_seed(100 + seed)
    damping = {"damping": 1.0, "damping_decay": 0.8}
    optimizer = HessianFree(net, **damping, maxiter=40, patience=20, generator=signs)
    settings = settings or Settings(max_batch_size=400)
    data = {"validation": V, "test": T, "batch_size": 50, "generator": g}
    return net, train(net, optimizer, X, **data, settings=settings, **options)


def short(seed=0, steps=25, **options):
    net, records = begun(seed, steps=steps, **options)
    return net, list(records)


def trace(records):
    return [
        (r.n, r.n_hat, r.validation_error, r.damping, r.iterations, r.status)
        for r in records
    ]


def test_a_short_run_on_digits():
    X, V, T = digits()
    net, records = short()
    mean_image = float((V - X.mean(0)).square().sum(1).mean())
    last = records[-1]
    assert last.validation_error < mean_image
    assert math.isclose(last.validation_error, squared_error(net, V), rel_tol=1e-12)
    assert math.isclose(last.test_error, squared_error(net, T), rel_tol=1e-12)
    sizes = [r.n for r in records]
    assert sizes == sorted(sizes)
    assert sizes[:6] == [50] * 6
    assert sizes[-1] > 50
    assert [r.n_next for r in records[:-1]] == sizes[1:]
    for r in records:
        assert (r.grew != "") == (r.n_next > r.n)
        assert r.improved == (
            r.validation_error
            < min([math.inf] + [q.validation_error for q in records[: r.step - 1]])
        )
    assert [r.rows for r in records] == torch.tensor(sizes).cumsum(0).tolist()
    assert all(a.seconds < b.seconds for a, b in itertools.pairwise(records))
    assert last.maxiter > 40
    assert all(r.merit[0][0] == 0 for r in records)


def test_the_same_seed_gives_the_same_trace():
    assert trace(short(steps=12)[1]) == trace(short(steps=12)[1])


def test_the_preconditioner_does_not_change_the_batches():
    X, V, _ = digits(100)
    seen = []
    for kind in ("random_signs", "none"):
        g = torch.Generator().manual_seed(0)
        net, signs = digits_net(g, (64, 8, 64)), torch.Generator()
        optimizer = HessianFree(net, preconditioner=kind, maxiter=2, generator=signs)
        options = {"validation": V, "batch_size": 10, "steps": 3, "generator": g}
        list(train(net, optimizer, X, **options))
        seen.append(g.get_state())
    assert torch.equal(*seen)


def test_a_batch_has_distinct_rows_and_noise_leaves_the_targets():
    X = torch.arange(40.0).reshape(20, 2)
    g = torch.Generator().manual_seed(0)
    inputs, targets = draw(X, None, 12, 0.1, g)
    assert len(targets.unique(dim=0)) == 12
    assert set(targets[:, 0].tolist()) <= set(X[:, 0].tolist())
    assert 0 < (inputs - targets).abs().max() < 1
    inputs, targets = draw(X, 2 * X, 12, generator=g)
    assert torch.equal(targets, 2 * inputs)


def test_targets_other_than_the_inputs():
    X, V, _ = digits(200)
    g = torch.Generator().manual_seed(0)
    net, damping = digits_net(g, (64, 16, 64)), {"damping": 1.0, "damping_decay": 0.8}
    optimizer = HessianFree(net, **damping, maxiter=20, generator=g)
    options = {"targets": 1 - X, "batch_size": 100, "steps": 10, "generator": g}
    records = list(train(net, optimizer, X, validation=(V, 1 - V), **options))
    last = records[-1].validation_error
    assert math.isclose(last, squared_error(net, V, 1 - V), rel_tol=1e-12)
    assert last < 0.6 * records[0].validation_error


def test_records_hold_no_activations():
    assert short(steps=2)[1][0].detail.point is None


@pytest.mark.parametrize("gradient", ["full", "batch"])
def test_martens_on_digits(gradient):
    X, V, _ = digits()
    g = torch.Generator().manual_seed(0)
    net, options = digits_net(g), {"chunks": 4, "gradient": gradient, "steps": 20}
    run = train_martens(
        net, MartensHF(net, damping=3.0), X, validation=V, generator=g, **options
    )
    records = list(run)
    used = 500 if gradient == "full" else 125
    assert [r.rows for r in records] == [used * r.step for r in records]
    assert all(r.n == 125 for r in records)
    mean_image = float((V - X.mean(0)).square().sum(1).mean())
    assert records[-1].validation_error < mean_image


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
    _, records = begun(settings=settings)
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


def test_settings_changed_before_the_first_step_are_those_of_the_start():
    settings = Settings()
    _, records = begun(settings=settings, steps=8)
    settings.theta, settings.max_batch_size, settings.input_noise = 0.9, 120, 0.2
    assert trace(short(steps=8, settings=Settings(0.9, 120, 0.2))[1]) == trace(records)


@pytest.mark.parametrize(
    ("settings", "options", "match"),
    [
        ({"theta": 0.0}, {}, r"theta must be in \(0, 1\), got 0"),
        ({"theta": 1.5}, {}, r"theta must be in \(0, 1\), got 1.5"),
        ({"max_batch_size": 21}, {}, "max_batch_size .* integer in 2..20, got 21"),
        ({"input_noise": -1.0}, {}, "input_noise must be >= 0 and finite, got -1"),
        ({}, {"batch_size": 1}, "batch_size must be an integer in 2..9, got 1"),
        ({}, {"batch_size": 10}, "batch_size must be an integer in 2..9, got 10"),
        ({}, {"validation": rand(4, 5) + 0.5}, r"of validation must lie in \[0, 1\]"),
        ({}, {"validation": rand(4, 3)}, r"must have shape \(n, 5\), got \(4, 3\)"),
        ({}, {"test": rand(4, 5) * math.nan}, r"targets of test must lie in \[0, 1\]"),
        ({}, {"targets": -rand(20, 5)}, r"targets of inputs must lie in \[0, 1\]"),
    ],
)
def test_refuses(settings, options, match):
    net, X = small_net(), rand(20, 5)
    settings = Settings(**{"max_batch_size": 9} | settings)
    options = {"validation": X, "batch_size": 5, "settings": settings} | options
    with pytest.raises(ValueError, match=match):
        next(train(net, HessianFree(net), X, **options))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"chunks": 21}, "chunks must be an integer in 1..20, got 21"),
        ({"chunks": 2, "gradient": "g"}, "gradient must be one of full, batch, got"),
    ],
)
def test_martens_refuses(options, match):
    net, X = small_net(), rand(20, 5)
    with pytest.raises(ValueError, match=match):
        next(train_martens(net, MartensHF(net), X, validation=X, **options))


def test_refuses_an_optimizer_of_another_kind_or_model():
    net, X = small_net(), rand(20, 5)
    options = {"validation": X, "batch_size": 5}
    with pytest.raises(TypeError, match="must be a HessianFree, got a MartensHF"):
        next(train(net, MartensHF(net), X, **options))
    with pytest.raises(ValueError, match="optimizer was made for another model"):
        next(train(net, HessianFree(small_net()), X, **options))


def test_the_papers_settings():
    assert {name: (s.batch_size, s.max_batch_size) for name, s in PAPER.items()} == {
        "curves": (250, 2500),
        "mnist": (300, 6000),
        "usps": (200, 2000),
    }
    for setting in PAPER.values():
        widths = mirrored(setting.encoder)
        assert widths == widths[::-1]


@pytest.mark.real_data
def test_usps():
    """A small net on the real digits: below PCA with as many numbers, 8.38 at 25."""
    X, V, T = (
        load("usps", split).inputs[:2000] for split in ("train", "valid", "test")
    )
    g = torch.Generator().manual_seed(0)
    net = Autoencoder(mirrored((256, 100, 50, 25)), generator=g)
    options = {"damping": 1.0, "damping_decay": 0.8, "maxiter": 40, "patience": 20}
    optimizer = HessianFree(net, **options, generator=g)
    options = {"batch_size": 200, "steps": 45, "generator": g}
    records = list(train(net, optimizer, X, validation=V, test=T, **options))
    mean_image = float((T - X.mean(0)).square().sum(1).mean())
    assert abs(mean_image - 30.69) < 1  # the figure for the whole data set
    assert min(r.test_error for r in records) < 8.38
