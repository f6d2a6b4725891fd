"""Broad learning on one, two and three gloo processes: the same numbers, counted bytes.

All in float64 on normal numbers, where the condition of A is below 10, so that 1e-12
holds for all that is compared.
"""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from labkit.broad import (
    BroadLearningClassifier,
    NotPositiveDefinite,
    distributed as sharded,
    inverse_ldl,
)
from labkit.broad.mesh import Place
from labkit.broad.ridge import chol1_start, chol1_update, truncated
from labkit.broad.state import safe_ridge, squared_norm
from labkit.broad.triangular import upper_mm, upper_t_mm
from tests.broad.block_sweep import block_inverse_ldl, messages
from tests.broad.conftest import problem

WIDTHS = [7, 12, 13, 14, 29]  # updates of 5, 1, 1 and 15 nodes: uneven, or fewer than p
MESHES = [{name: n} for name in ("nodes", "samples") for n in (1, 2, 3)]
MESHES += [{"samples": 1, "nodes": 2}, {"nodes": 1, "samples": 3}]
MESHES += [{"samples": 2, "nodes": 2}]
on_every_mesh = pytest.mark.parametrize(
    "mesh", MESHES, ids=[" ".join(f"{n} by {d}" for d, n in m.items()) for m in MESHES]
)


def mesh_of(mesh):
    names, shape = tuple(mesh), tuple(mesh.values())
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def processes(mesh):
    return prod(mesh.values())


def close(x, y):
    """The same shape, and numbers that agree to 1e-12 of the largest, or of 1."""
    x, y = np.asarray(x), np.asarray(y)
    gap = abs(x - y).max(initial=0)
    return x.shape == y.shape and gap <= 1e-12 * abs(y).max(initial=1)


def samples_of(mesh):
    """Uneven shares of the samples, or all of them."""
    if (samples := Place.on(mesh).samples) is None:
        return slice(None)
    edges = {1: [0, 60], 2: [0, 23, 60], 3: [0, 11, 35, 60]}[samples.size()]
    return slice(*edges[samples.rank() :][:2])


def whole_problem():
    A, H, Y = problem(k=7, q=22)
    return torch.cat([A, H], 1), Y


# Where nodes live


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_every_node_lives_on_one_worker_and_stays(p):
    places = [Place(p, rank) for rank in range(p)]
    for k in range(12):
        assert sum(place.count(k) for place in places) == k
        for q in range(8):
            for place in places:
                before = list(range(k))[place.own(0)]
                new = list(range(k, k + q))[place.own(k)]
                assert before + new == list(range(k + q))[place.own(0)]
                assert len(before + new) == place.count(k + q)


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("q", [1, 4, 300])
def test_every_row_of_the_triangle_is_computed_once_and_all_areas_are_equal(p, q):
    rows = [range(q)[Place(p, rank).rows(q)] for rank in range(p)]
    assert [i for part in rows for i in part] == list(range(q))
    areas = [sum(q - i for i in part) for part in rows]
    assert max(areas) - min(areas) <= 2 * q


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 7, 500])
def test_products_with_every_pth_column_of_a_triangle(p, k):
    g = torch.Generator().manual_seed(k)
    F, X = torch.randn(k, k + 4, generator=g, dtype=torch.float64).split([k, 4], 1)
    F = F.triu()
    for rank in range(p):
        own = slice(rank, None, p)
        assert close(upper_mm(F[:, own], X[own], every=p), F[:, own] @ X[own])
        assert close(upper_t_mm(F[:, own], X, every=p), F[:, own].T @ X)


# The solver


def grow_here(rank, world, mesh, capacity):
    """What a worker has after each update. It starts node by node."""
    mesh = mesh_of(mesh)
    A, Y = (part[samples_of(mesh)] for part in whole_problem())
    state = sharded.start(A[:, :7], Y, 0.1, mesh, capacity, panel=1)
    place = state.place
    stages = [(state.F.clone(), state.z, sharded.whole(state), float(state.pivot))]
    for k, grown in pairwise(WIDTHS):
        kept = A[:, :k][:, state.place.own(0)]
        state = sharded.update(state, kept, A[:, k:grown], Y)
        whole = sharded.whole(state)
        stages.append((state.F.clone(), state.z, whole, float(state.pivot)))
    short = sharded.truncated(state, 13)
    again = sharded.update(short, A[:, :13][:, state.place.own(0)], A[:, 13:14], Y)
    whole = sharded.whole(short), sharded.whole(again)
    return (place.p, place.rank), stages, *whole


@on_every_mesh
def test_equal_to_one_process(mesh, capacity, workers):
    """F, z = F^T A^T Y, W, smallest pivot: of every worker, after every update."""
    A, Y = whole_problem()
    results = workers(grow_here, mesh, capacity, world=processes(mesh))
    state = chol1_start(A[:, :7], Y, 0.1)
    for stage, k in enumerate(WIDTHS):
        if stage:
            before = WIDTHS[stage - 1]
            state = chol1_update(state, A[:, :before], A[:, before:k], Y)
        for (p, rank), stages, _, _ in results:
            (F, z, W, pivot), own = stages[stage], slice(rank, None, p)
            assert close(F, state.F[:, own])
            assert close(z, (state.F.T @ state.AY)[own])
            assert close(W, state.W)
            assert pivot == pytest.approx(float(state.pivot), rel=1e-12)
    short, again = truncated(state, 13), truncated(state, 14)
    for _, _, W, W_again in results:
        assert close(W, short.W)
        assert close(W_again, again.W)


def lose_a_pivot(rank, world, mesh, big):
    A, _, Y = problem()
    mesh = mesh_of(mesh)
    A, Y = big * A[samples_of(mesh)], Y[samples_of(mesh)]
    state = sharded.start(A, Y, 1e-9, mesh)
    with pytest.raises(NotPositiveDefinite) as caught:
        sharded.update(state, A[:, state.place.own(0)], A[:, :8], Y)
    return caught.value


@on_every_mesh
def test_a_lost_pivot_is_named_on_every_worker(mesh, workers):
    results = workers(lose_a_pivot, mesh, 1e6, world=processes(mesh))
    A, _, _ = problem()
    least = safe_ridge(squared_norm(1e6 * A, 1e6 * A[:, :8]))
    for lost in results:
        assert 12 <= lost.index < 20
        assert lost.index == results[0].index
        assert 0.99 * least <= lost.safe_ridge <= 2 * processes(mesh) * least


# The estimators


def images():
    """60 inputs, three classes by name of which a worker's share may miss one."""
    g = np.random.default_rng(1)
    X = g.normal(size=(60, 8))
    y = np.array(["b", "c", "a"])[np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.2])]
    order = np.argsort(y, kind="stable")
    return X[order], y[order], g.normal(size=(20, 8))


def model_on(mesh, **options):
    options = {"ridge": 0.1, "scaling": "feature", "random_state": 5, **options}
    return BroadLearningClassifier(2, 3, 5, mesh=mesh, **options)


def grown_model(model, X, y, new):
    """What a model is after each of five changes."""
    changes = [lambda: model.fit(X, y), lambda: model.add_nodes(4)]
    changes += [lambda: model.add_feature_nodes(2, 3, 5), lambda: model.drop_last(7)]
    changes += [lambda: model.add_nodes(3)]
    weights = [change().coef_.copy() for change in changes]
    table = [(g.columns, g.features, g.added, g.smallest_pivot) for g in model.history_]
    staged = list(model.staged_score(new, model.predict(new)))
    return weights, table, model.classes_, model.decision_function(new), staged


def model_here(rank, world, mesh, options):
    X, y, new = images()
    mesh = mesh_of(mesh)
    rows = samples_of(mesh)
    if world > 1:
        options = {**options, "random_state": 5 + rank}  # the first worker's counts
    return grown_model(model_on(mesh, **options), X[rows], y[rows], new)


def assert_same(found, expected):
    """To 1e-9: the condition of R is some 2e3, and nodes are tuned on other sums."""
    for one, other in zip(found[0], expected[0], strict=True):
        assert np.allclose(one, other, rtol=0, atol=1e-9)
    assert [row[:3] for row in found[1]] == [row[:3] for row in expected[1]]
    pivots = [row[3] for row in expected[1]]
    pivots[3] = found[1][3][3]  # after dropping it is not factorised again
    assert [row[3] for row in found[1]] == pytest.approx(pivots, rel=1e-9)
    assert found[2].tolist() == expected[2].tolist() == ["a", "b", "c"]
    assert np.allclose(found[3], expected[3], rtol=0, atol=1e-9)
    assert found[4] == expected[4]


@pytest.mark.parametrize(
    "options", [{}, {"capacity": 40}, {"chunk": 7}, {"scaling": "sample"}], ids=str
)
@on_every_mesh
def test_a_model_on_a_mesh_is_that_of_one_process(mesh, options, workers):
    expected = grown_model(model_on(None, **options), *images())
    for found in workers(model_here, mesh, options, world=processes(mesh)):
        assert_same(found, expected)


def many_panels_here(rank, world):
    """More nodes than a panel; only the panel is a constant of the library."""
    sharded.PANEL, kept = 4, sharded.PANEL
    try:
        return model_here(rank, world, {"nodes": world}, {})
    finally:
        sharded.PANEL = kept


def test_growth_in_several_panels(workers):
    expected = grown_model(model_on(None), *images())
    for found in workers(many_panels_here, world=2):
        assert_same(found, expected)


def refuse(rank, world):
    (A, _, Y), (X, y, _) = problem(), images()
    mesh, other = mesh_of({"nodes": world}), mesh_of({"rows": world})
    bare, start = init_device_mesh("cpu", (world,)), sharded.start
    for call, message in (
        (lambda: start(A, Y, 0.0, mesh), "ridge must be > 0 and at most 1e18, got 0.0"),
        (lambda: start(A, Y[:-1], 1.0, mesh), "must have the same rows, got shapes"),
        (lambda: start(A, Y, 1.0, other), "needs mesh_dim_names out of .* got .'rows'"),
        (lambda: start(A, Y, 1.0, bare), "needs mesh_dim_names out of .* got None"),
        (lambda: start(A, Y, 1.0, "nodes"), "mesh must be a DeviceMesh, got 'nodes'"),
        (lambda: start(A, Y, 1.0, mesh, 11), "12 columns exceed the capacity of 11"),
        (
            lambda: block_inverse_ldl(A, [0, 12, 12], 1.0, mesh),
            "edges must ascend from 0 and be 2 for 1 workers",
        ),
        (
            lambda: block_inverse_ldl(A, [0, 11], 1.0, mesh),
            "worker 0 has nodes 0 to 11, but A has 12",
        ),
        (
            lambda: model_on(mesh, solver="chol-2").fit(X, y),
            "mesh needs solver='chol-1' without fallback, got solver='chol-2'",
        ),
        (lambda: model_on(mesh, fallback="chol-2").fit(X, y), "fallback='chol-2'"),
        (lambda: model_on("two").fit(X, y), "mesh must be a DeviceMesh, got 'two'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert not hasattr(model_on(mesh).fit(X, y), "factor_error")
    assert not hasattr(model_on(mesh), "partial_fit")
    with pytest.warns(UserWarning, match="smallest that is safe"):
        model_on(mesh, dtype="float32", ridge=1e-9).fit(X, y)


def test_refusals(workers):
    workers(refuse, world=1)


# The paper's own sweep


def sweep_here(rank, world, edges, A, ridge):
    mesh, A = init_device_mesh("cpu", (world,)), A[:, edges[rank] : edges[rank + 1]]
    try:
        return block_inverse_ldl(A, edges, ridge, mesh)
    except NotPositiveDefinite as lost:
        return lost.index


@pytest.mark.parametrize("edges", [[0, 9], [0, 4, 9], [0, 7, 9], [0, 1, 6, 9]])
def test_the_block_sweep_is_the_inverse_ldl(edges, workers):
    A, _, _ = problem(k=9)
    results = workers(sweep_here, edges, A, 0.1, world=len(edges) - 1)
    L, d = inverse_ldl(A.T @ A + 0.1 * torch.eye(9, dtype=A.dtype))
    assert close(torch.cat([r[0] for r in results], 1), L)
    assert close(torch.cat([r[1] for r in results]), d)


@pytest.mark.parametrize(
    ("p", "columns", "rows"), [(2, 0.13, 0.12), (4, 0.45, 0.42), (8, 1.13, 1.06)]
)
def test_volumes_of_the_block_sweep_with_equal_blocks(p, columns, rows):
    k, l = 48, 500  # noqa: E741
    sent = messages([k * w // p for w in range(p + 1)], l)
    assert sent["nodes"][1] == l * k * (p - 1) / 2
    assert sent["columns"][1] / k**2 == pytest.approx(columns, abs=0.005)
    assert sent["rows"][1] / k**2 == pytest.approx(rows, abs=0.005)


def test_a_pivot_lost_in_the_block_sweep_stops_all_that_wait_for_it(workers):
    A, _, _ = problem(k=9)
    A[:, 4] = 0
    done, *lost = workers(sweep_here, [0, 3, 6, 9], A, 0.0, world=3)
    assert len(done) == 2 and lost == [4, 4]


# The example of docs/scaling.md

ROOT = Path(__file__).parents[2]


def example():
    page = (ROOT / "docs/scaling.md").read_text("utf-8")
    return re.search(r"```python\n(# grow.py\n.*?)```", page, re.DOTALL)[1]


def columns_in(folder):
    path = folder / "grow.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [json.loads(line)["columns"] for line in lines[1:]]


def run_here(rank, world, script, folder):
    """The script in a group that is there already."""
    script = re.sub(r"dist\.(init|destroy)_process_group\(.*\)\n", "", script)
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as said:
        exec(script, {})
    return said.getvalue()


def test_the_example_of_the_page_runs(tmp_path, workers):
    one, other = workers(run_here, example(), tmp_path, world=2)
    columns = [380, 480, 580, 680, 780]
    assert columns_in(tmp_path) == columns
    assert [int(line.split()[0]) for line in one.splitlines()] == columns
    assert other == ""


def test_a_killed_worker_is_named_and_nothing_written_is_lost(tmp_path):
    """The page's script under torchrun, as the page starts it."""
    script = example().replace("range(5)", "range(5000)").replace("(100)", "(1)")
    tell = "open(f'pid{rank}', 'w').write(str(os.getpid()))\nmesh ="
    script = "import os\n" + script.replace("mesh =", tell, 1)
    (tmp_path / "grow.py").write_text(script, "utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "grow.py"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with open(tmp_path / "said", "w") as said:
        to = {"stdout": said, "stderr": said, "cwd": tmp_path, "env": env}
        run = subprocess.Popen(command, **to)
    try:
        end = time.monotonic() + 600
        while len(columns_in(tmp_path)) < 3 and time.monotonic() < end:
            time.sleep(0.05)
        before = columns_in(tmp_path)
        os.kill(int((tmp_path / "pid1").read_text()), signal.SIGKILL)
        assert run.wait(60) != 0
    finally:
        run.terminate()  # torchrun then ends its workers
        run.wait(60)
    said = (tmp_path / "said").read_text("utf-8")
    cause = said[said.index("Root Cause") :]
    assert re.search(r"rank +: 1 .*\n +exitcode +: -9", cause), said
    kept = columns_in(tmp_path)  # every line is whole, or it could not be read
    assert len(before) >= 3
    assert kept == list(range(281, 281 + len(kept)))
    assert kept[: len(before)] == before
