"""A change that is interrupted halfway has not happened; one row a class (float64)."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

import labkit
from labkit.bpls import BPLSClassifier, BPLSRegressor
from labkit.broad import BroadLearningClassifier, BroadLearningRegressor
from labkit.hessian_free import Autoencoder, HessianFree, MartensHF
from labkit.rls import RLS, Hybrid
from labkit.rtrl import LEARNERS, LSTMCell
from tests.draws import seeded

HOME = str(Path(labkit.__file__).parent)

X, VALUES = torch.randn(20, 5, generator=seeded()).split(4, 1)
X, VALUES = X.double().numpy(), VALUES.double().numpy()[:, 0]
CLASSES = np.arange(20) % 3
ROWS = torch.rand(6, 5, dtype=torch.float64)


def estimator(model, target):
    """An estimator that is fitted, to be fitted again to half of the rows."""
    model = clone(model).fit(X, target)
    return (
        lambda: model.fit(X[:10], target[:10]),
        lambda: model.predict(X).tolist(),
    )


def optimiser(make):
    """An optimiser before the step of a gradient that has arrived."""
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    made = make(model)
    for step in range(2):
        made.zero_grad()
        model(ROWS + step).square().mean().backward()
        if not step:
            made.step()
    return made.step, lambda: (repr(model.state_dict()), repr(made.state_dict()))


def hybrid(model):
    rls = RLS(model, layers=["0"], max_grad_norm=0.5)
    return Hybrid(rls, torch.optim.AdamW(model[2].parameters()))


def newton(kind):
    model = Autoencoder((5, 3, 5), incoming=3, dtype=torch.float64)
    made = kind(model, maxiter=3)
    made.step(ROWS)
    return lambda: made.step(ROWS), lambda: repr(model.state_dict())


def learner(name):
    cell = LSTMCell(2, 3, dtype=torch.float64)
    made = LEARNERS[name].make(cell, 2, batch_size=4)
    x = torch.ones(4, 2, dtype=torch.float64)
    made.step(x)
    made.step(x)
    return lambda: made.step(x), lambda: (repr(made.state), repr(made.influence()))


BROAD = {"ridge": 0.1, "random_state": 0}
ESTIMATORS = (
    (BPLSRegressor((4,), random_state=0), VALUES),
    (BPLSClassifier((4,), random_state=0), CLASSES),
    (BroadLearningRegressor(2, 3, 5, **BROAD), VALUES),
    (BroadLearningClassifier(2, 3, 5, **BROAD), CLASSES),
)
# class -> a function that returns a change, and a function that returns what is seen
CASES = {
    **{type(m).__name__: partial(estimator, m, target) for m, target in ESTIMATORS},
    "RLS": partial(optimiser, RLS),
    "Hybrid": partial(optimiser, hybrid),
    **{kind.__name__: partial(newton, kind) for kind in (HessianFree, MartensHF)},
    **{name: partial(learner, name) for name in LEARNERS},
}


def lines_of(call, cut=None):
    """Count the lines of labkit that a call passes; interrupt it at one of them."""
    passed = 0

    def trace(frame, event, _):
        nonlocal passed
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        if event == "line":
            passed += 1
            if passed == cut:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return passed


@pytest.mark.parametrize("name", CASES)
def test_a_change_that_is_interrupted_halfway_has_not_happened(name):
    torch.manual_seed(0)
    change, _ = CASES[name]()
    lines = lines_of(change)
    torch.manual_seed(0)
    change, seen = CASES[name]()
    before = seen()
    # a no_grad that is cut as it ends stays on
    with pytest.raises(KeyboardInterrupt), torch.enable_grad():
        lines_of(change, cut=lines - 3 if name in LEARNERS else lines // 2)
    assert seen() == before
    change()
    assert seen() != before
