"""What labkit computes in a caller's autocast or inference region, as outside."""

import pytest
import torch
from torch import nn

from labkit import bpls, broad, rls, rtrl
from labkit.bpls.solve import solve_layer
from labkit.broad.solvers import SOLVERS
from labkit.instruments import best_ratio
from tests.draws import randn
from tests.rtrl.conftest import make, read, small

X, Y = (randn(60, n, seed=n, dtype=torch.float32) + 3 for n in (5, 1))
LABELS = (Y > 3).long().flatten()
R = torch.eye(200) + 0.01


def step_of_rls():
    model = nn.Linear(5, 1)
    for each in model.parameters():
        nn.init.ones_(each)
    optimizer = rls.RLS(model)
    with torch.autocast("cpu", enabled=False):
        rls.loss_mse(model(X), Y).backward()
    optimizer.step()
    return [model.weight]


def sums_of_rls():
    """In half precision those of 256 images are infinite."""
    layer = nn.Conv2d(1, 4, 3)
    optimizer = rls.RLS(layer)
    layer(torch.ones(256, 1, 32, 32)).sum().backward()
    return [optimizer.pending()[0].x_mean]


def learner(name):
    with torch.inference_mode(False):
        one = make(name, 2, small("rnn", dtype=torch.float32))
    read(one, randn(4, 3, 2, dtype=torch.float32))
    one.reset(torch.arange(3) > 1)
    return one.state, one.gradient(torch.ones(3, 3)), one.influence()


def solver(name):
    state = SOLVERS[name].start(X[:, :3], Y, ridge=0.1)
    return [SOLVERS[name].update(state, X[:, :3], X[:, 3:], Y).W]


def shared_columns():
    columns = broad.SharedColumns((X, LABELS), (X, LABELS), room=2)
    columns.add(broad.Update(2))
    ((record,),) = broad.side_by_side(
        columns.A, columns.widths, columns.Y, 0.1, ["d-rdg"]
    )
    return [columns.A, torch.tensor(record.residual)]


def walk_of_bpls():
    *_, record = bpls.train(X, Y, (X[:5, :3], X[:3, :1]))
    return [*record.end.best, torch.tensor([record.residual, record.cosine])]


def broad_estimator():
    model = broad.BroadLearningRegressor(dtype="float32", random_state=0)
    return [torch.tensor(model.fit(X, Y.ravel()).predict(X))]


CASES = {
    "a step of RLS": step_of_rls,
    "sums of RLS": sums_of_rls,
    "solve_layer": lambda: [solve_layer(X, Y)[0]],
    "hidden targets": lambda: [bpls.hidden_targets(X, X[:5, :2], X[:, :2])],
    "low rank": lambda: rtrl.optimal_low_rank(X[:6], 2, torch.ones(5)),
    "best_ratio": lambda: best_ratio(X),
    "shared columns": shared_columns,
    "a walk of BPLS": walk_of_bpls,
    "a broad estimator": broad_estimator,
    "inverse_cholesky": lambda: [broad.inverse_cholesky(R)],
    "inverse_ldl": lambda: broad.inverse_ldl(R),
}
CASES |= {name: lambda name=name: learner(name) for name in rtrl.LEARNERS}
CASES |= {name: lambda name=name: solver(name) for name in SOLVERS}
DIFFERENTIATED = "a step of RLS", "sums of RLS", "a walk of BPLS"


@pytest.mark.parametrize("case", CASES)
def test_autocast_and_inference_change_nothing(case):
    right = CASES[case]()
    with torch.autocast("cpu", torch.float16):
        found = [CASES[case]()]
    if case not in DIFFERENTIATED:
        with torch.inference_mode():
            found.append(CASES[case]())
    for each in found:
        for a, b in zip(each, right, strict=True):
            assert a.dtype == b.dtype and torch.equal(a, b)


def training():
    model = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters())
    yield from rls.train(model, optimizer, X, LABELS, epochs=4, batch_size=60)


def online():
    one, readout = make("RTRL", 1, small(dtype=torch.float32)), nn.Linear(3, 2)
    task = [(X[:3, :2], torch.zeros(3).long(), torch.ones(3).bool())] * 4
    optimizer = torch.optim.SGD([one.cell.weight, *readout.parameters()], lr=0.1)
    yield from rtrl.train(one, readout, task, optimizer=optimizer)


@pytest.mark.parametrize("run", [training, online])
def test_each_step_within_autocast_sees_the_weights_of_the_one_before(run):
    with torch.autocast("cpu", torch.bfloat16):
        assert len({float(record.loss) for record in run()}) == 4
