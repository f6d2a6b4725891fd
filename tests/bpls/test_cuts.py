"""A fit that is cut off at any line of labkit: it happened, or it did not."""

import numpy as np
import pytest

from labkit.bpls import BPLSClassifier, BPLSRegressor
from tests.cuts import lines_of

SAMPLE = 8  # lines of a change that are cut at; all of them in `make test-long`

g = np.random.default_rng(0)
X = g.normal(size=(30, 3))
VALUES, LABELS = np.stack([X[:, 0] ** 2, X[:, 1]], 1), (X[:, 0] > 0) + 2 * (X[:, 1] > 1)
FIRST = {"classes": range(4)}


def numbers_of(net):
    """All that can be seen of a network, but for its seconds."""
    if not hasattr(net, "weights_"):
        return sorted(vars(net))
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in net.history_]
    weights = [W.tolist() for W in net.weights_]
    return [sorted(vars(net)), str(history), weights, net.n_samples_seen_]


def regressor(**options):
    return BPLSRegressor((4,), random_state=np.random.RandomState(3), **options)


def classifier(**options):
    return BPLSClassifier((4,), random_state=np.random.RandomState(3), **options)


REFINED = {"refine": "gauss-newton", "activation": "tanh", "max_walks": 2}
BALANCED = {"class_weight": "balanced", "bias": True}
# from what, and by which change
CHANGES = {
    "values": (regressor, lambda net: net.fit(X, VALUES)),
    "labels": (classifier, lambda net: net.fit(X, LABELS)),
    "balanced": (lambda: classifier(**BALANCED), lambda net: net.fit(X, LABELS)),
    "refined": (lambda: regressor(**REFINED), lambda net: net.fit(X, VALUES)),
    "again": (
        lambda: regressor().fit(X[:20, :2], VALUES[:20, 0]),
        lambda net: net.fit(X, VALUES),
    ),
    "first batch": (classifier, lambda net: net.partial_fit(X, LABELS, **FIRST)),
    "batch": (
        lambda: regressor().partial_fit(X[:20], VALUES[:20]),
        lambda net: net.partial_fit(X[20:], VALUES[20:], np.arange(10)),
    ),
    "batch after a fit": (
        lambda: classifier().fit(X, LABELS),
        lambda net: net.partial_fit(X[20:], LABELS[20:]),
    ),
}
changes = pytest.mark.parametrize(("make", "change"), CHANGES.values(), ids=CHANGES)


def cut_at(lines, make, change, error):
    """Cut a change at each of these lines, and say how often it had happened."""
    done, happened = make(), 0
    change(done)
    wanted, after = numbers_of(done), str(done.random_state.get_state())
    for line in lines:
        net = make()
        before, draws = vars(net).copy(), str(net.random_state.get_state())
        lines_of(lambda: change(net), line, error, (AttributeError,))  # noqa: B023
        now = vars(net)
        if now.keys() == before.keys() and all(now[k] is before[k] for k in before):
            assert str(net.random_state.get_state()) == draws, line
            change(net)  # and a repeat gives what one call gives
        else:
            happened += 1
            if str(net.random_state.get_state()) == draws != after:
                net.random_state.randint(2**31 - 1)  # cut in the moment before this
        assert numbers_of(net) == wanted, line
        assert str(net.random_state.get_state()) == after, line
    return happened


@changes
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_cut_at_some_lines(make, change, error):
    net = make()
    passed = lines_of(lambda: change(net))
    assert passed > 100
    inside = np.random.default_rng(passed).integers(1, passed, SAMPLE)
    ends = {1, 2, *range(passed - 3, passed + 1)}
    happened = cut_at(sorted({*inside.tolist(), *ends}), make, change, error)
    assert happened < len(ends)  # it happens at the very end, in one moment


@pytest.mark.long
@changes
def test_a_cut_at_every_line(make, change):
    net = make()
    passed = lines_of(lambda: change(net))
    assert cut_at(range(1, passed + 1), make, change, KeyboardInterrupt) < 6
