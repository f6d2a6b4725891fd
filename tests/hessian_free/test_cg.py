"""Conjugate gradients against dense solves and Martens' stop test."""

import math

import pytest
import torch

from labkit.hessian_free import cg, cg_steps
from labkit.theorems.hessian_free import joined

from .conftest import rand, randn, relative, split

N = 12


def problem(seed=0):
    A = randn(20, N, seed=seed)
    B = A.T @ A + 0.3 * torch.eye(N).to(A)
    return B, randn(N, seed=seed + 1), randn(N, seed=seed + 2), 0.1 + rand(N, seed=seed)


def test_solves_from_a_warm_start_with_a_preconditioner():
    B, b, x0, M = problem()
    want = torch.linalg.solve(B, b)
    for options in ({}, {"x0": x0}, {"x0": x0, "preconditioner": M}):
        found = cg(lambda x: B @ x, b, tolerance=0.0, maxiter=60, **options)
        assert found.status == "exact" and relative(found.x, want) < 1e-12


@pytest.mark.parametrize("k", [1, 2, 4])
def test_minimises_the_model_over_the_krylov_space(k):
    B, b, x0, M = problem(1)
    g = (b - B @ x0) / M
    basis = [g]
    for _ in range(k - 1):
        basis.append(B @ basis[-1] / M)
    V = torch.linalg.qr(torch.stack(basis, 1))[0]
    want = x0 + V @ torch.linalg.solve(V.T @ B @ V, V.T @ (b - B @ x0))
    steps = cg_steps(lambda x: (B @ x[0],), (b,), (x0,), (M,))
    for _ in range(k + 1):
        step = next(steps)
    x = step.x[0]
    assert relative(x, want) < 1e-10
    assert math.isclose(step.q, 0.5 * x @ B @ x - b @ x, rel_tol=1e-10)
    r = B @ x - b
    assert math.isclose(step.rnorm, (r @ (r / M)).sqrt(), rel_tol=1e-8)


def test_tuples_equal_vectors():
    B, b, x0, M = problem(2)
    options = {"tolerance": 0.0, "maxiter": 6}
    one = cg(lambda x: B @ x, b, x0=x0, preconditioner=M, **options)
    blocks = {"x0": split(x0), "preconditioner": split(M)}
    two = cg(lambda x: split(B @ joined(x)), split(b), **blocks, **options)
    assert relative(joined(two.x), one.x) < 1e-10
    assert two.status == one.status == "maxiter"


def slow():
    d = torch.logspace(-5, 0, 300, dtype=torch.float64)
    return lambda x: d * x, torch.ones(300, dtype=torch.float64)


def test_stops_where_the_progress_ends():
    B, b = slow()
    found = cg(B, b, maxiter=2000, tolerance=5e-4)
    q, k = found.q, found.iterations
    assert found.status == "progress"

    def small(k):
        gap = max(10, math.ceil(k / 10))
        return k > gap and q[k] < 0 and (q[k] - q[k - gap]) / q[k] < 5e-4 * gap

    assert small(k) and not any(small(j) for j in range(k))


def test_keeps_iterates_at_growing_intervals_and_the_last():
    B, b = slow()
    found = cg(B, b, maxiter=30, tolerance=0.0)
    assert [k for k, _ in found.kept] == [5, 7, 9, 11, 15, 19, 25, 30]
    assert torch.equal(found.kept[-1][1][0], found.x)
    for k, x in found.kept[:3]:
        assert torch.equal(x[0], cg(B, b, maxiter=k, tolerance=0.0).x)


def test_follows_no_negative_curvature():
    d = torch.tensor([1.0, 2.0, -3.0])
    found = cg(lambda x: d * x, torch.tensor([0.0, 0.0, 1.0]))
    assert found.status == "curvature" and torch.equal(found.x, torch.zeros(3))


def test_a_right_side_of_zero():
    found = cg(lambda x: x, torch.zeros(3))
    assert (found.status, found.iterations) == ("exact", 0)


REFUSED = [
    ({"maxiter": 0}, ValueError, "maxiter must be an integer >= 1, got 0"),
    ({"B": torch.ones(3, 2)}, ValueError, r"B must have shape \(3, 3\), got \(3, 2\)"),
    (
        {"b": torch.arange(3)},
        TypeError,
        "b must have the dtype torch.float32 or",
    ),
    ({"x0": torch.ones(2)}, ValueError, r"x0 must have shape \(3,\), got \(2,\)"),
    ({"preconditioner": -torch.ones(3)}, ValueError, "must have entries > 0 only"),
    ({"b": torch.full((3,), 1e-24)}, FloatingPointError, "underflow in torch.float32"),
    ({"B": lambda x: x * math.nan}, FloatingPointError, "not finite at iteration 1"),
]


@pytest.mark.parametrize(("changes", "error", "match"), REFUSED)
def test_refuses(changes, error, match):
    with pytest.raises(error, match=match):
        cg(**{"B": lambda x: x, "b": torch.ones(3)} | changes)
