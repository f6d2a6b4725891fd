"""Broad learning on two gloo processes, and on four: the model of one process."""

import contextlib
import io
import json
import re

import numpy as np
import pytest
from sklearn.base import clone
from torch.distributed.device_mesh import init_device_mesh

from labkit.broad import (
    BroadLearningClassifier,
    BroadLearningRegressor,
    NotPositiveDefinite,
)
from labkit.scale import (
    BroadMeshClassifier,
    BroadMeshRegressor,
    broad,
    workers as workers_of,
)
from tests import ROOT
from tests.draws import close, randn

MESHES = [{"nodes": 2}, {"samples": 2}, {"samples": 2, "nodes": 2}]
on_every_mesh = pytest.mark.parametrize("mesh", MESHES, ids=str)
OPTIONS = {"ridge": 0.1, "random_state": 5}


def shared_by(mesh):
    """The workers of each dimension, by name."""
    shape = tuple(mesh.values())
    made = init_device_mesh("cpu", shape, mesh_dim_names=tuple(mesh))
    return {name: workers_of(made.get_group(name)) for name in mesh}


def rows_of(samples, count):
    """Uneven shares of the samples, or all of them."""
    shares = slice(count * 2 // 5), slice(count * 2 // 5, None)
    return slice(None) if samples is None else shares[samples.rank]


def world_of(mesh):
    return int(np.prod(list(mesh.values())))


def images():
    """60 inputs, three classes by name of which a worker's share may miss one."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(60, 8))
    y = np.array(["b", "c", "a"])[np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.2])]
    order = np.argsort(y, kind="stable")
    return X[order], y[order], generator.normal(size=(20, 8))


def grown(model, X, y, new):
    """What a model is after each of five changes."""
    changes = [lambda: model.fit(X, y), lambda: model.add_nodes(4)]
    changes += [lambda: model.add_feature_nodes(2, 3, 5), lambda: model.drop_last(7)]
    changes += [lambda: model.add_nodes(3)]
    weights = [change().weights_ for change in changes]
    table = [(row.columns, row.features, row.added) for row in model.history_]
    pivots = [row.smallest_pivot for row in model.history_]
    staged = list(model.staged_score(new, model.predict(new)))
    exactly = table, list(model.classes_), staged
    return weights, pivots, model.decision_function(new), exactly


def grown_here(rank, world, mesh):
    X, y, new = images()
    shared, broad.PANEL = shared_by(mesh), 4  # so that a start has several panels
    rows = rows_of(shared.get("samples"), len(X))
    options = OPTIONS | {"random_state": 5 + rank}  # that of the first counts
    model = clone(BroadMeshClassifier(2, 4, 5, **options, **shared))
    found = grown(model, X[rows], y[rows], new)
    own = np.arange(model.nodes_.columns)[model._mesh.own(0)]
    return found, (own, model.factor())


@on_every_mesh
def test_a_model_on_several_workers_is_that_of_one_process(mesh, workers):
    """To 1e-9: the condition of R is some 2e3, and nodes are tuned on other sums."""
    model = BroadLearningClassifier(2, 4, 5, **OPTIONS)
    weights, pivots, outputs, rest = grown(model, *images())
    for found, (own, F) in workers(grown_here, mesh, world=world_of(mesh)):
        for one, other in zip(found[0], weights, strict=True):
            assert close(one, other, 1e-9)
        assert found[1] == pytest.approx(pivots, rel=1e-9)
        assert close(found[2], outputs, 1e-9)
        assert found[3] == rest
        assert close(F, model.factor()[:, own], 1e-9)


def predicted_here(rank, world, mesh):
    X, y, new = images()
    rows = rows_of((shared := shared_by(mesh)).get("samples"), len(X))
    model = BroadMeshRegressor(2, 4, 5, **OPTIONS, **shared)
    return model.fit(X[rows], far(X, y)[rows]).add_nodes(4).predict(new)


def far(X, y):
    """Two outputs of large means, one of which differs between the workers' shares."""
    return np.stack([X[:, 0] + 1e3, X[:, 1] + 1e3 * (y == "c")], 1)


@on_every_mesh
def test_the_mean_of_targets_is_that_of_all_workers_samples(mesh, workers):
    X, y, new = images()
    model = BroadLearningRegressor(2, 4, 5, **OPTIONS).fit(X, far(X, y)).add_nodes(4)
    for found in workers(predicted_here, mesh, world=world_of(mesh)):
        assert close(found, model.predict(new), 1e-6)


def lose_a_pivot(rank, world, mesh):
    A = 1e6 * randn(60, 12)
    shared = shared_by(mesh)
    A = A[rows_of(shared.get("samples"), len(A))]
    on = broad.Mesh(**shared)
    state = on.start(A, A[:, :2], 1e-9)
    with pytest.raises(NotPositiveDefinite) as caught:
        on.update(state, A[:, on.own(0)], A[:, :8], A[:, :2])
    return caught.value.index


@on_every_mesh
def test_a_lost_pivot_is_named_on_every_worker(mesh, workers):
    first, *others = workers(lose_a_pivot, mesh, world=world_of(mesh))
    assert 12 <= first < 20 and set(others) == {first}


@pytest.mark.parametrize(
    "options", [{"solver": "chol-2"}, {"fallback": "chol-2"}, {"ridge": [1, 2]}]
)
def test_what_several_workers_cannot_do_is_refused(options):
    X, y, _ = images()
    with pytest.raises(ValueError, match="need solver='chol-1' without fallback and"):
        BroadMeshClassifier(2, 4, 5, **options).fit(X, y)


# The example of docs/scaling.md

PAGE = ROOT / "docs/scaling.md"


def run_here(rank, world, folder):
    """The script in a group that is there already."""
    page = PAGE.read_text()
    script = re.search(r"```python\n(# grow.py\n.*?)```", page, re.DOTALL)[1]
    script = re.sub(r"dist\.(init|destroy)_process_group\(.*\)\n", "", script)
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(script, {})
    return printed.getvalue()


def test_the_example_of_the_page_runs(tmp_path, workers):
    one, other = workers(run_here, tmp_path)
    columns = [380, 480, 580, 680, 780]
    lines = (tmp_path / "grow.jsonl").read_text().splitlines()[1:]
    assert [json.loads(line)["columns"] for line in lines] == columns
    assert [int(line.split()[0]) for line in one.splitlines()] == columns
    assert other == ""
