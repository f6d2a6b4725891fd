"""MNIST and Fashion-MNIST: counts that no seed changes, and the accuracies reached."""

from functools import cache
from statistics import mean

import pytest
import torch

from labkit.bpls import activation, scores, train

from .conftest import IMAGES, images, start

pytestmark = pytest.mark.real_data

LONG = pytest.mark.long
# MNIST is in every run of the tests, Fashion-MNIST in the long one; so are a hidden
# layer without a nonlinearity and one of sigmoids.
SETS = [n if n == "mnist" else pytest.param(n, marks=LONG) for n in IMAGES]
HIDDEN = ["identity", pytest.param("sigmoid", marks=LONG)]
SEEDS = pytest.mark.parametrize("seeds", [(0,), pytest.param((0, 1), marks=LONG)])

FIRST = {"mnist": 5904, "fashion-mnist": 6948}  # misses of least squares on the labels
# train and test accuracy in %, means over five seeds of an independent implementation
REFERENCE = {
    ("mnist", "identity"): (90.48, 88.82),
    ("mnist", "sigmoid"): (90.38, 88.97),
    ("fashion-mnist", "identity"): (83.98, 81.10),
    ("fashion-mnist", "sigmoid"): (83.87, 81.37),
}

load = cache(images)


@cache
def ends(name, hidden, seed=0, dtype=torch.float64, **options):
    """The ends of all walks, and the test accuracy in % of the weights kept."""
    X, y, X_test, y_test = load(name, dtype)
    records = train(X, y, start(784, 50, 10, seed=seed, dtype=dtype), hidden, **options)
    found = [record.end for record in records if record.end]
    S = scores(X_test, found[-1].best, [activation(hidden)])
    return found, percent(S, y_test)


def percent(S, y):
    return 100 * float((S.argmax(1) == y).double().mean())


def kept(found):
    """Training accuracy in % of the weights kept."""
    return 100 * max(end.accuracy for end in found)


@SEEDS
@pytest.mark.parametrize("name", SETS)
def test_the_first_walk_of_a_linear_layer_is_least_squares_for_every_seed(name, seeds):
    for seed in seeds:
        first = ends(name, "identity", seed, ridge=0)[0][0]
        assert abs(first.misses - FIRST[name]) <= 10


@SEEDS
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_the_accuracies_kept(name, hidden, seeds):
    runs = [ends(name, hidden, seed, ridge=0) for seed in seeds]
    train_, test = REFERENCE[name, hidden]
    assert mean([kept(found) for found, _ in runs]) == pytest.approx(train_, abs=0.7)
    assert mean([tested for _, tested in runs]) == pytest.approx(test, abs=0.7)
    for found, _ in runs:
        counts = [end.misses for end in found]
        assert counts[-1] >= counts[-2] == min(counts)
        assert counts[:-1] == sorted(set(counts[:-1]), reverse=True)


@pytest.mark.long
def test_later_walks_collapse_on_fashion_mnist_and_the_stop_rule_prevents_it():
    stopped, _ = ends("fashion-mnist", "identity", ridge=0)
    going_on, _ = ends("fashion-mnist", "identity", ridge=0, max_walks=12, stop=False)
    assert 100 * going_on[12].accuracy < 80
    assert kept(stopped) > 83.5


def test_the_clamp_decides_a_softmax_layer():
    dtype = torch.float32
    assert kept(ends("mnist", "softmax", dtype=dtype)[0]) > 86
    assert kept(ends("mnist", "softmax", dtype=dtype, clamp=1e-6)[0]) < 70
