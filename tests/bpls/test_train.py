"""Algorithm 2 as a generator: blending, stopping, records; and the baselines."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn import functional as F

from labkit.bpls import Settings, activation, solve_layer
from labkit.bpls.train import train
from labkit.bpls.walk import output_targets, scores, walked
from labkit.errors import DivergedError
from tests.draws import randn

from . import reference
from .conftest import assert_all_close, blobs, finite, ols, start

SIGMOID = [activation("sigmoid")]
X, y = blobs()
BEFORE = start(4, 6, 3)


def ends(*args, **options):
    return [record.end for record in train(*args, **options) if record.end]


def misses(X, y, weights):
    return int((scores(X, weights, SIGMOID).argmax(1) != y).sum())


def arrays(weights):
    return [W.numpy() for W in weights]


@pytest.mark.parametrize("name", reference.FUNCTIONS)
@pytest.mark.parametrize("sizes", [(4, 6, 3), (4, 6, 5, 3)])
@pytest.mark.parametrize("ridge", [1e-4, 1e-2])
def test_labels_give_algorithm_2_of_the_paper(name, sizes, ridge):
    """As the NumPy reference, which is written from the paper, has it."""
    for seed in range(3):
        X, y = blobs(seed=seed, spread=1)
        before = start(*sizes, seed=seed)
        found = ends(X, y, before, name, ridge=ridge, max_walks=4)
        weights, counts = reference.algorithm_2(
            X.numpy().T, y.numpy(), arrays(before), name, walks=4, ridge=ridge
        )
        assert [end.misses for end in found] == counts
        assert [end.samples for end in found] == [len(y), *counts[:-1]]
        shares = [1, *(count / len(y) for count in counts[:-1])]  # of ALL samples
        assert [end.blend for end in found] == shares
        assert_all_close(arrays(found[-1].best), weights, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", reference.FUNCTIONS)
@pytest.mark.parametrize("sizes", [(4, 6, 2), (4, 3, 5, 2)])
@pytest.mark.parametrize("ridge", [0, 1e-2])
def test_values_give_algorithm_1_of_the_paper(name, sizes, ridge):
    X, Y = randn(30, 4), randn(30, 2, seed=1)
    before = start(*sizes)
    (end,) = ends(X, Y, before, name, ridge=ridge, clamp=0.05)
    given = X.numpy().T, Y.numpy().T, arrays(before), reference.FUNCTIONS[name]
    weights = reference.walk(*given, clamp=0.05, ridge=ridge, second=False)
    assert_all_close(arrays(end.best), weights, rtol=1e-6, atol=1e-8)
    S = scores(X, end.best, [activation(name)] * (len(sizes) - 2))
    assert end.rmse == pytest.approx(float((S - Y).square().mean().sqrt()))
    assert end.misses is None and end.accuracy is None


@given(st.integers(0, 200))
def test_the_best_is_kept_and_the_misses_fall_up_to_it(seed):
    X, y = blobs(seed=seed)
    found = ends(X, y, start(4, 6, 3, seed=seed), max_walks=12)
    *falling, last = counts = [end.misses for end in found]
    assert all(a > b for a, b in pairwise(falling))
    if last and len(counts) < 13:
        assert last >= falling[-1] and not found[-1].kept
    assert misses(X, y, found[-1].best) == min(counts)
    for end in found:
        assert misses(X, y, end.weights) == end.misses
        assert end.accuracy == 1 - end.misses / len(y)


def test_without_the_stop_rule_all_walks_are_made_and_the_best_still_kept():
    X, y = blobs(seed=1, spread=1)
    found = ends(X, y, BEFORE, max_walks=9, stop=False)
    assert len(found) == 10 and not all(end.kept for end in found)
    assert misses(X, y, found[-1].best) == min(end.misses for end in found)
    settings = Settings(max_walks=9)  # the rule taken off before it ends the run
    for record in train(X, y, BEFORE, settings=settings):
        settings.stop = settings.stop and not (record.end and not record.end.kept)
    assert record.walk == 9


def test_settings_changed_between_layers_are_those_of_the_layers_after():
    X, y = blobs(spread=1)
    given = {"ridge": 1e-2, "max_walks": 6, "stop": False}
    plain = list(train(X, y, start(4, 6, 5, 3), "sigmoid", **given))
    settings = Settings(**given)
    records = train(X, y, start(4, 6, 5, 3), "sigmoid", settings)
    for wanted, found in zip(plain[:2], records, strict=False):
        assert torch.equal(found.W, wanted.W) and torch.equal(found.B, wanted.B)
    settings.interpretation, settings.clamp, settings.ridge = "mean", 1e-3, 1e-5
    last = next(records)
    (W, info) = solve_layer(X, last.B, ridge=1e-5)
    assert torch.equal(last.W, W) and not torch.equal(last.W, plain[2].W)
    assert last.condition == float(info.condition)
    settings.max_walks = 2
    assert [record.walk for record in records] == [1, 1, 1, 2, 2, 2]


def test_options_beside_settings_are_refused():
    with pytest.raises(TypeError, match="these change nothing: ridge"):
        next(train(X, y, BEFORE, settings=Settings(), ridge=0.0))


def test_changed_settings_are_refused_where_no_walk_can_take_them():
    for name, value in {"clamp": 0.5, "interpretation": "x", "max_walks": -1}.items():
        settings = Settings()
        records = train(X, y, BEFORE, settings=settings)
        next(records)
        setattr(settings, name, value)
        with pytest.raises(ValueError, match=name):
            list(records)


def test_other_data_begin_with_their_own_misses():
    X, y = blobs(spread=1)
    noisy = X + 0.5 * randn(*X.shape, seed=3)
    settings = Settings(max_walks=2, stop=False)
    records = train(X, y, start(4, 6, 3), settings=settings)
    first = [next(records), next(records)][-1].end
    settings.data = noisy, y
    second = [next(records), next(records)][-1].end
    assert first.misses != second.samples == misses(noisy, y, first.weights)
    assert second.misses == misses(noisy, y, second.weights)
    assert second.kept == (second.misses < second.samples)
    again = train(X, y, BEFORE, data=(X, y), max_walks=2, stop=False)
    plain = train(X, y, BEFORE, max_walks=2, stop=False)
    assert all(torch.equal(a.W, b.W) for a, b in zip(again, plain, strict=True))


@pytest.mark.parametrize("values", [{"X": 1e200 * X}, {"Y": 1e200 * randn(60, 3)}])
def test_values_too_large_for_their_dtype_are_a_diverged_run(values):
    given = {"X": X, "Y": randn(60, 3), "weights": BEFORE} | values
    with pytest.raises(DivergedError, match="are not finite"):
        list(train(**given, activations="identity"))


def test_no_misses_no_walk():
    X, y = blobs(spread=100)
    found = ends(X, y, start(4, 20, 3), stop=False)
    assert [end.misses > 0 for end in found] == [True] * (len(found) - 1) + [False]


@pytest.mark.parametrize("name", ["identity", "sigmoid", "softmax"])
@pytest.mark.parametrize("ridge", [0, 1e-4])
def test_a_class_absent_from_the_misses(name, ridge):
    X, y = blobs(90, seed=1)
    X = torch.cat([X, torch.ones(90, 1, dtype=X.dtype)], 1)
    X[y == 2] += 40  # never missed
    for seed in range(5):
        found = ends(X, y, start(5, 8, 3, seed=seed), name, ridge=ridge, stop=False)
        S = scores(X, found[0].weights, [activation(name)])
        absent = not (S.argmax(1) != y)[y == 2].any()
        assert absent and len(found) > 2
        assert all(finite(end.weights) for end in found)


def test_an_absent_class_makes_two_equal_outputs():
    X, y = blobs(40, classes=2)
    found = ends(X, y, start(4, 6, 4), "softmax")  # two of four classes have no sample
    assert finite(found[-1].weights) and found[0].misses < 20


def test_records_are_one_per_layer():
    records = list(train(X, y, start(4, 6, 5, 3), max_walks=2, stop=False))
    assert [r.layer for r in records] == [3, 2, 1] * 3
    assert [r.walk for r in records] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [r.step for r in records] == list(range(1, 10))
    assert [r.end is not None for r in records] == [False, False, True] * 3
    assert [tuple(r.W.shape) for r in records[:3]] == [(5, 3), (6, 5), (4, 6)]
    assert [tuple(r.B.shape) for r in records[:3]] == [(60, 3), (60, 5), (60, 6)]
    for r in records:
        assert math.isnan(r.overshoot) == math.isnan(r.clamped) == (r.layer == 1)


def test_the_numbers_of_a_record():
    output, hidden = train(X, y, BEFORE, ridge=0, max_walks=0)  # the first walk only
    H = torch.sigmoid(X @ BEFORE[0])
    assert output.rank == np.linalg.matrix_rank(H.numpy()) == 6
    assert output.condition == pytest.approx(np.linalg.cond(H.numpy()), rel=1e-6)
    residual = output.B - ols(H, output.B)
    assert output.residual == pytest.approx(float(residual.square().mean().sqrt()))
    assert output.overshoot == pytest.approx(1)
    sent_back = torch.sigmoid(hidden.B)  # clamped values sit at the clamp
    at = ((sent_back - 0.01).abs() < 1e-9) | ((sent_back - 0.99).abs() < 1e-9)
    assert output.clamped == pytest.approx(float(at.double().mean())) and at.any()
    end = hidden.end
    assert (end.clamped, end.overshoot) == (output.clamped, output.overshoot)
    assert end.condition == max(output.condition, hidden.condition)
    assert end.rank == hidden.rank == 4


def test_the_cosine_is_with_the_negative_gradient_on_the_same_rows():
    records = list(train(X, y, BEFORE, max_walks=1))
    first = records[1].end.weights
    missed = scores(X, first, SIGMOID).argmax(1) != y
    for walk, rows, old in ((0, slice(None), BEFORE), (1, missed, first)):
        leaves = [W.clone().requires_grad_() for W in old]
        S = torch.sigmoid(X[rows] @ leaves[0]) @ leaves[1]
        F.cross_entropy(S, y[rows]).backward()
        of_walk = [r for r in records if r.walk == walk][::-1]
        changes = [(r.W - W).flatten() for r, W in zip(of_walk, old, strict=True)]
        gradients = [W.grad.flatten() for W in leaves]
        pairs = [*zip(changes, gradients, strict=True)]
        pairs += [(torch.cat(changes), torch.cat(gradients))]
        found = [*(r.cosine for r in of_walk), of_walk[0].end.cosine]
        wanted = [float(F.cosine_similarity(c, -g, 0)) for c, g in pairs]
        assert found == pytest.approx(wanted)


def test_values_of_an_output_with_an_activation():
    Y, before = randn(60, 3).sigmoid(), start(4, 3, 3)
    (end,) = ends(X, Y, before, output="sigmoid", ridge=0)
    B = output_targets(Y, "sigmoid")
    assert_all_close(end.best, walked(X, B, before, SIGMOID, ridge=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_start_is_left_as_it_was_and_the_type_is_that_of_the_inputs(dtype):
    before = start(4, 6, 3, dtype=dtype)
    plain, asking = (X.to(dtype).requires_grad_(asks) for asks in (False, True))
    last = ends(asking, y, before)[-1]
    assert_all_close(last.best, ends(plain, y, before)[-1].best)
    assert all(map(torch.equal, before, start(4, 6, 3, dtype=dtype)))
    assert not any(W.requires_grad for W in (*last.best, *before))
    assert all(W.dtype == dtype for W in (*last.best, *last.weights))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_walks": -1}, "max_walks must be an integer >= 0, got -1"),
        ({"clamp": 0.5}, r"clamp must be None or in \(0, 0.5\), got 0.5"),
        ({"interpretation": "printed"}, "one of min_norm, .*, got 'printed'"),
        ({"interpretation": 3}, r"index of an output, an integer in 0\.\.2, got 3"),
        ({"activations": "relu"}, "'relu' has no inverse"),
        ({"activations": ["tanh", "tanh"]}, "1 hidden layers need as many.*got 2"),
        ({"weights": start(4, 3)}, "needs a hidden layer"),
        ({"weights": start(5, 6, 3)}, r"W_1 must have shape \(4, N\), got \(5, 6\)"),
        ({"weights": start(4, 6, 2)}, r"labels must lie in 0\.\.1, got 0\.\.2"),
        ({"ridge": -1}, "ridge must be None or >= 0"),
        ({"clamp": None}, "targets have no inverse under 'sigmoid'.*clamp them"),
        ({"Y": randn(1, 3)}, r"Y .* must have shape \(60, 3\), got \(1, 3\)"),
        (
            {"Y": randn(60)},
            r"labels are int64\) must have shape \(60, 3\), got \(60,\)",
        ),
        ({"Y": y[:1]}, r"labels Y must have shape \(60,\), got \(1,\)"),
        ({"X": X[:0], "Y": y[:0]}, "X must have rows"),
    ],
)
def test_what_training_refuses(change, message):
    options = {"X": X, "Y": y, "weights": BEFORE, "activations": "sigmoid"} | change
    with pytest.raises(ValueError, match=message):
        list(train(**options))
