"""The training generator, the networks, and what RLS does on digits."""

import functools
import math
import statistics

import pytest
import torch
from torch import nn

from labkit.errors import DivergedError
from labkit.lab.books import rls_training as nets
from labkit.lab.datasets import load
from labkit.rls import (
    RLS,
    AveragedRLS,
    Hybrid,
    Settings,
    loss_one_hot,
    train,
)
from labkit.rls.train import accuracy_later
from tests.draws import seeded

from .conftest import identical, randn, snapshot, take
from .twins import fcs

SEEDS = range(3)


@functools.cache
def digits(split):
    data = load("digits", split=split)
    return data.inputs, data.targets


def run(make, seed, spread=1.0, **options):
    """Train on digits for five epochs; the records."""
    torch.manual_seed(seed)
    model = nets.dense_network(64, 512, 10)
    generator = seeded(seed)
    (X, y), options = digits("train"), {"epochs": 5, "generator": generator, **options}
    options["test"] = digits("test")
    return list(train(model, make(model), spread * X, y, **options))


def mean_accuracy(make, **options):
    runs = (run(make, seed, **options) for seed in SEEDS)
    return statistics.mean(records[-1].test_accuracy for records in runs)


def adam(model):
    return torch.optim.Adam(model.parameters())


def test_rls_with_momentum_beats_adam_on_digits():
    rls = mean_accuracy(lambda model: RLS(model, momentum=0.5, max_grad_norm=5.0))
    assert rls >= 0.96
    assert rls > mean_accuracy(adam, max_grad_norm=5.0)


def test_the_averaged_form_does_not_learn():
    assert mean_accuracy(lambda model: AveragedRLS(model, max_grad_norm=5.0)) < 0.5


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("lr", "spread", "limit"), [(10.0, 1.0, None), (10.0, 1.0, 5.0), (1.0, 30.0, None)]
)
def test_a_large_step_factor_or_spread_diverges_and_says_so(lr, spread, limit, seed):
    message = r"(at step \d+, the limit|step \d+: layer).*the last (one|loss) was \d"
    with pytest.raises(DivergedError, match=message):
        run(lambda model: RLS(model, lr=lr, max_grad_norm=limit), seed, spread)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_clip_bears_a_large_spread(seed):
    """As the docstring of RLS says of its defaults."""
    first, *_, last = run(lambda model: RLS(model, max_grad_norm=1.0), seed, 30.0)
    assert last.epoch_loss < first.loss


def data(rows=20):
    y = torch.randint(3, (rows,), generator=seeded(1))
    return randn(rows, 5, seed=2), y


def records(optimizer_of, **options):
    model = fcs()
    optimizer = optimizer_of(model)
    options = {"generator": seeded(3), **options}
    found = list(train(model, optimizer, *data(), batch_size=8, **options))
    return found, model, optimizer


def test_one_record_a_minibatch():
    found, model, _ = records(RLS, epochs=2, test=data(7))
    assert [r.step for r in found] == [1, 2, 3, 4, 5, 6]
    assert [r.epoch for r in found] == [1, 1, 1, 2, 2, 2]
    closing = [r.step for r in found if r.epoch_loss is not None]
    assert closing == [r.step for r in found if r.test_accuracy is not None] == [3, 6]
    mean = statistics.mean(r.loss for r in found[:3])
    assert math.isclose(found[2].epoch_loss, mean)
    assert found[-1].test_accuracy == accuracy_later(model, *data(7))()
    assert all(r.seconds > 0 and not r.clipped for r in found)


def test_a_run_is_the_loop_written_out():
    make = functools.partial(RLS, momentum=0.5, max_grad_norm=1.0)
    found, model, optimizer = records(make, epochs=2)
    twin = fcs()
    other = make(twin)
    generator, losses, norms = seeded(3), [], []
    X, y = data()
    for _ in range(2):
        for rows in torch.randperm(20, generator=generator).split(8):
            target = nn.functional.one_hot(y[rows], 3).double()
            losses.append(take(twin, other, X[rows], target).item())
            norms.append(other.gradient_norm.item())
    assert [r.loss for r in found] == losses
    assert [r.gradient_norm for r in found] == norms
    assert [r.clipped for r in found] == [norm > 1.0 for norm in norms]
    assert identical(snapshot(model, optimizer), snapshot(twin, other))


def test_watching_sees_gradients_and_changes_nothing():
    made = []

    def make(model):
        made.extend((model, RLS(model)))
        return made[1]

    def watch():
        model, optimizer = made
        assert model[0].weight.grad is not None
        return {"rows": int(optimizer.pending()[0].rows)}

    found, *watched = records(make, watch=watch)
    assert [r.watched for r in found] == [{"rows": 8}, {"rows": 8}, {"rows": 4}]
    _, *plain = records(RLS)
    assert identical(snapshot(*watched), snapshot(*plain))


def test_other_optimisers_are_clipped_by_train():
    sgd = functools.partial(torch.optim.SGD, lr=1.0)
    found, model, _ = records(lambda m: sgd(m.parameters()), max_grad_norm=0.2)
    start = fcs()
    assert any(r.clipped for r in found) and found[0].gradient_norm > 0.2
    moved = [p - q for p, q in zip(model.parameters(), start.parameters(), strict=True)]
    assert nn.utils.get_total_norm(moved) < 0.2 * len(found) + 1e-9


def test_hybrid_and_cross_entropy():
    def make(model):
        rls = RLS(model, layers=["0"], max_grad_norm=0.3)
        return Hybrid(rls, torch.optim.Adam(model[2].parameters()))

    found, *_ = records(make, loss=nn.functional.cross_entropy, epochs=10)
    assert found[-1].epoch_loss < found[2].epoch_loss
    assert any(r.clipped for r in found)


def test_the_model_is_in_training_mode_in_every_step_and_keeps_it():
    model = fcs().eval()
    for _ in train(model, RLS(model), *data(), epochs=2, batch_size=8, test=data(5)):
        assert model.training
        model.eval()


def test_a_loss_that_is_not_finite_is_a_divergence_with_all_records_before_it():
    def loss(outputs, labels):
        calls.append(1)
        value = loss_one_hot(outputs, labels)
        return value * math.nan if len(calls) == 3 else value

    for make, message in (
        (RLS, "step 3: layer '0', step 3: .*; the last loss was"),
        (adam, "the loss is nan at step 3, .*; the last one was"),
    ):
        model, calls = fcs(), []
        run = train(model, make(model), *data(), epochs=2, batch_size=8, loss=loss)
        assert [next(run).step, next(run).step] == [1, 2]
        with pytest.raises(DivergedError, match=message):
            next(run)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer >= 1, got 0"),
        ({"batch_size": 21, "drop_last": True}, "nothing of 20 inputs: batch_size=21"),
        ({"max_grad_norm": -1.0}, "max_grad_norm must be None or > 0, got -1.0"),
        ({"max_grad_norm": 2.0}, "RLS clips by itself: .*max_grad_norm=2.0"),
        ({"labels": torch.zeros(19).long()}, "20 inputs and 19 labels"),
        ({"inputs": torch.zeros(0, 5), "labels": torch.zeros(0)}, "0 inputs and 0"),
    ],
)
def test_sizes_that_do_not_fit(options, message):
    model = fcs()
    X, y = data()
    options = {"inputs": X, "labels": y, "batch_size": 8, **options}
    with pytest.raises(ValueError, match=message):
        next(train(model, RLS(model), **options))


def test_accuracy_is_the_share_of_right_rows_in_evaluation_mode():
    model = nn.Sequential(nn.Dropout(0.999), nn.Identity())
    X = torch.eye(4)[[0, 1, 2, 3, 3]] + 0.1
    y = torch.tensor([0, 1, 2, 3, 0])
    for mode in (True, False):
        model.train(mode)
        assert accuracy_later(model, X, y, batch_size=2)() == pytest.approx(0.8)
        assert model.training == mode
    with pytest.raises(ValueError, match=r"labels must have shape \(5,\)"):
        accuracy_later(model, X, y[:, None])


@pytest.mark.parametrize(
    ("drop_last", "rows", "closes"),
    [
        (False, [4, 3, 2, 1, 5, 5], [False, False, False, True, False, True]),
        (True, [4, 3, 2, 5, 5, 5], [False, False, True, False, True, False]),
    ],
)
def test_the_minibatch_may_change_before_each_step(drop_last, rows, closes):
    """Every sample comes once in an epoch, but for those that drop_last leaves out."""
    X, y = torch.arange(10.0)[:, None] * torch.ones(3), torch.zeros(10, dtype=int)
    seen = []

    def loss(outputs, labels):
        seen.append(len(labels))
        return loss_one_hot(outputs, labels)

    model, settings = nn.Linear(3, 2), Settings(4)
    sgd = torch.optim.SGD(model.parameters(), lr=0.0)
    options = {"loss": loss, "epochs": 3, "drop_last": drop_last}
    records = train(model, sgd, X, y, batch_size=settings, **options)
    ended = []
    for settings.batch_size in (4, 3, 2, 5, 5, 5):
        ended.append(next(records).epoch_loss is not None)
    assert seen == rows and ended == closes
    settings.batch_size = 0
    with pytest.raises(ValueError, match="batch_size must be an integer >= 1, got 0"):
        next(records)
