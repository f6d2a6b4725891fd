"""LSMR against dense solves, SciPy, an explicit matrix, and the printed stop rules."""

import itertools
import math
import re

import numpy as np
import pytest
import scipy.sparse.linalg
import torch
from hypothesis import given, strategies as st

from labkit.hessian_free import cg_steps, lsmr, lsmr_steps
from labkit.hessian_free.system import build_system
from labkit.theorems.hessian_free import (
    explicit,
    joined,
    least_gradient,
    norms_fall,
    rotations_annihilate,
    true_norms,
)

from .conftest import rand, randn, relative, spectrum, split

M, N, LAM = 20, 12, 0.6
FORMS = itertools.product(("identity", "scaled"), ("zero", "start"))
FORMS = [{"damping_norm": norm, "damp_towards": towards} for norm, towards in FORMS]
STATED = FORMS[0]
forms = pytest.mark.parametrize("form", FORMS, ids=lambda f: "-".join(f.values()))


def problem(seed=0, m=M, n=N):
    """A, b, and the options of a random start and a preconditioner far from 1."""
    x0, c = randn(n, seed=seed + 2), 0.05 + 0.95 * rand(n, seed=seed + 3)
    options = {"x0": x0, "scale": c, "damping": LAM}
    return randn(m, n, seed=seed), randn(m, seed=seed + 1), options


def first(A, b, k, **options):
    """What LSMR has after k iterations."""
    return lsmr(A, b, atol=0.0, maxiter=k, **options)


def scipys(A, b, k, lam=0.0):
    """The same by SciPy, and its other results."""
    stops = {"atol": 0, "btol": 0, "conlim": 0, "maxiter": k}
    x, *others = scipy.sparse.linalg.lsmr(A.numpy(), b.numpy(), damp=lam, **stops)
    return torch.from_numpy(x), *others


def solution(A, b, x0, scale, damping, damping_norm, damp_towards):
    """The four normal equations, spelled out."""
    D = torch.diag(scale**-2) if damping_norm == "scaled" else torch.eye(len(x0)).to(A)
    s = x0 if damp_towards == "start" else torch.zeros_like(x0)
    return s + torch.linalg.solve(A.T @ A + damping**2 * D, A.T @ (b - A @ s))


@forms
@pytest.mark.parametrize("seed", range(5))
def test_equals_the_dense_solution_of_its_normal_equations(form, seed):
    A, b, options = problem(seed)
    found = lsmr(A, b, **options, **form, atol=1e-14, maxiter=60)
    x = solution(A, b, **options, **form)
    assert relative(found.x, x) < 1e-10 and found.status in ("atol", "exact")
    if form == STATED:  # started there, it stays there
        assert relative(first(A, b, 30, **options | {"x0": x}).x, x) < 1e-8


@forms
@pytest.mark.parametrize("k", [1, 2, 5, 12])
def test_iterates_and_norms_are_those_of_the_explicit_matrix(form, k):
    A, b, options = problem(7, 90, 60)  # so large that 12 iterations do not exhaust it
    K, r0 = explicit(A, b, **options, **form)
    y, *_, norm_K, _, _ = scipys(K, r0, k)
    x, _, stats = first(A, b, k, **options, **form)
    assert relative(x, options["x0"] + options["scale"] * y) < 1e-10
    norms = true_norms(A, b, k, **options, **form)
    assert norms.holds, norms
    assert norms.wanted[:, k].tolist() == pytest.approx(
        [stats.rnorm[k], stats.arnorm[k]], rel=1e-8
    )
    assert math.isclose(stats.anorm, norm_K, rel_tol=1e-10)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_minimises_the_gradient_over_the_krylov_space(k):
    """(17) of the paper, from the definition: no Golub-Kahan, no rotations."""
    A, b, options = problem(3)
    found = least_gradient(A, b, k, **options)
    assert found.holds, found
    assert relative(first(A, b, k, **options).x, found.wanted) < 1e-9


@given(st.lists(st.tuples(*[st.floats(0.1, 10)] * 2), min_size=2, max_size=9))
def test_the_rotations_annihilate(scalars):
    finding = rotations_annihilate(*zip(*scalars, strict=True))
    assert finding.holds, finding


@forms
def test_a_constant_factor_of_the_preconditioner_changes_no_iterate(form):
    A, b, options = problem(1)
    # scaled damping is on x / c, so its lambda goes with the factor
    lam = LAM * (8 if form["damping_norm"] == "scaled" else 1)
    other = options | {"scale": 8 * options["scale"], "damping": lam}
    for k in (1, 3, 7):
        one, two = (first(A, b, k, **each, **form).x for each in (options, other))
        assert relative(one, two) < 1e-12


def test_norms_never_rise_and_cg_has_the_lower_model():
    """Same Krylov space: LSMR has the smaller gradient, CG the smaller model value."""
    A, b, options = problem(4)
    x0 = options["x0"]
    B, g = A.T @ A + LAM**2 * torch.eye(N).to(A), A.T @ b
    model = lambda x: 0.5 * x @ B @ x - g @ x  # noqa: E731
    lsmr = lsmr_steps(build_system(A, b, x0=x0, damping=LAM))
    cg = cg_steps(lambda x: (B @ x[0],), (g,), (x0,))
    fall = norms_fall(A, b, 9, x0=x0, damping=LAM)
    assert fall.holds, fall
    for _ in range(9):
        one, two = next(lsmr), next(cg)
        x, y = one.x[0], two.x[0]
        assert math.isclose(two.q, model(y), rel_tol=1e-9)
        if one.k:
            assert model(y) < model(x)
            assert (B @ x - g).norm() < (B @ y - g).norm()


CASES = {
    "well": (30, 12, np.linspace(1, 3, 12)),
    "bad": (30, 12, np.logspace(-3, 0, 12)),
    "deficient": (30, 12, np.linspace(1, 3, 7)),
    "wide": (8, 12, np.linspace(0.5, 2, 8)),
    "repeated": (30, 12, np.ones(12)),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_scipy_from_a_cold_start_and_ends_at_the_shortest_solution(case):
    A = spectrum(*CASES[case])
    b = randn(len(A), seed=5)
    # At given iterations, since the rules that stop the two differ: on the way, where
    # rounding has not yet chosen its own, and long after the end.
    for k, lam in itertools.product((1, 3, 6, 300), (0.0, 0.4)):
        want, *_ = scipys(A, b, k, lam)
        assert relative(first(A, b, k, damping=lam).x, want) < 1e-8
    found = lsmr(A, b, atol=1e-14, maxiter=500)
    want = torch.linalg.pinv(A, rtol=1e-9) @ b
    assert relative(found.x, want) < 1e-9  # "bad" has condition 1000
    assert found.status in ("atol", "exact")


def test_trivial_systems():
    one = torch.eye(4, dtype=torch.float64)
    b = randn(4)
    x, status, stats = lsmr(one, b)
    assert relative(x, b) < 1e-15 and status == "exact"
    assert stats.iterations <= 2  # the second on rounding
    x, status, stats = lsmr(one, 0 * b)
    assert torch.equal(x, 0 * b) and (status, stats.iterations) == ("exact", 0)
    x, *_ = lsmr(torch.full((1, 1), 4.0), torch.ones(1), damping=2.0)
    assert math.isclose(x, 4 / (16 + 4), rel_tol=1e-6)
    x, status, _ = lsmr(0 * one, b)
    assert torch.equal(x, 0 * b) and status == "exact"


small = st.integers(1, 9)


@given(m=small, n=small, lam=st.floats(0.05, 3), seed=st.integers(0, 10**6))
def test_any_shape(m, n, lam, seed):
    A, b, options = problem(seed, m, n)
    options |= {"damping": lam}
    x, *_ = lsmr(A, b, **options, atol=1e-14, maxiter=100)
    want = solution(A, b, **options, **STATED)
    assert relative(x, want) < 1e-8  # lam^2 >= 0.0025 of |A|^2 <= 36: 4 digits


def test_operator_on_tuples_equals_the_matrix():
    A, b, options = problem(5)
    seen = []

    def forward(x):
        seen.append([t.shape for t in x])
        return A @ joined(x)

    blocks = {"x0": split(options["x0"]), "scale": split(options["scale"])}
    stops = {"maxiter": 9, "atol": 0.0}
    found = lsmr(forward, b, At=lambda u: split(A.T @ u), **options | blocks, **stops)
    assert relative(joined(found.x), first(A, b, 9, **options).x) < 1e-12
    seen.append([t.shape for t in found.x])
    assert all(shapes == [(2, 3), (4,), (2, 1)] for shapes in seen)


def test_arguments_are_left_alone_and_identity_operators_are_safe():
    x0, b = randn(6, seed=1), randn(6, seed=2)
    held = x0.clone(), b.clone()
    same = lambda x: x  # noqa: E731
    x, *_ = lsmr(same, b, At=same, x0=x0, damping=0.5, atol=1e-14, maxiter=9)
    assert relative(x, b / 1.25) < 1e-12
    assert relative(lsmr(same, b, At=same).x, b) < 1e-12
    assert torch.equal(x0, held[0]) and torch.equal(b, held[1])


def test_in_float32_the_recurrence_flatters():
    """What the docstring says: the recurrence falls on below the true gradient."""
    A = spectrum(200, 60, np.logspace(-2, 0, 60)).float()
    b = randn(200, seed=1).float()
    exact = torch.linalg.pinv(A.double()) @ b.double()
    found = first(A, b, 600)
    assert relative(found.x.double(), exact) < 1e-3
    true = (A.double().T @ (b.double() - A.double() @ found.x.double())).norm()
    assert found.stats.arnorm[-1] < 0.8 * true
    assert true < 1e-5 * found.stats.anorm * found.stats.rnorm[-1]


def watched(values, **options):
    """Run with a scripted merit; the result, what the merit received, and when."""
    seen = []

    def merit(x):
        seen.append(x.clone())
        return values(len(seen) - 1)

    # The gradient test does not stop this within 400 iterations.
    A, b = spectrum(400, 380, np.logspace(-6, 0, 380)), randn(400, seed=1)
    options = {"atol": 0.0, "maxiter": 400, "ftol": 1e-5} | options
    result = lsmr(A, b, merit=merit, **options)
    return result, seen, [k for k, _ in result.stats.merit]


LOOKED = (0, 5, 7, 9, 12, 15, 19, 24, 30, 38, 48, 60, 75, 94, 118, 148, 185)
SCRIPTS = [  # merit at check i, options, why and when it stops, and the best check
    (lambda i: 1.0, {}, "ftol", 60, 1),
    (lambda i: 1.0 + i, {}, "patience", 118, 1),
    (lambda i: 1.0 + i, {"miniter": 5, "patience": 20}, "patience", 30, 1),
    (lambda i: 0.5**i, {"maxiter": 200}, "maxiter", 200, -1),
    (lambda i: 1.0 + i if i else 0.0, {}, "patience", 118, 1),  # no candidate: start
    # From 48 to 60 are 12 iterations: a gain of 11 ftol stops, one of 13 does not.
    (lambda i: 1.0 - (i > 10) * 11e-5, {}, "ftol", 60, -1),
    (lambda i: 1.0 - (i > 10) * 13e-5, {}, "ftol", 75, -2),
]


@pytest.mark.parametrize(("values", "options", "status", "k", "best"), SCRIPTS)
def test_where_a_merit_stops_and_what_is_returned(values, options, status, k, best):
    result, seen, checks = watched(values, **options)
    assert (result.status, result.stats.iterations) == (status, k)
    assert checks == [*(each for each in LOOKED if each < k), k]
    assert result.stats.best == checks[best] and torch.equal(result.x, seen[best])


def test_as_published_the_last_iterate_is_returned_and_not_the_best():
    last, seen, _ = watched(lambda i: 1.0 + i, as_published=True)
    assert last.stats.best == last.stats.iterations
    assert torch.equal(last.x, seen[-1])


def test_merit_receives_the_solution_not_y():
    """With a preconditioner and a warm start x, x / c and x - x0 all differ."""
    A, b, options = problem(8)
    seen = []
    first(A, b, 5, merit=lambda x: seen.append(x.clone()) or 1.0, **options)
    assert torch.equal(seen[0], options["x0"])
    assert torch.equal(seen[1], first(A, b, 5, **options).x)


MATRIX, RIGHT, _ = problem()
FORTH, BACK = MATRIX.mv, MATRIX.mT.mv
REFUSED = [
    ({"maxiter": 0}, ValueError, "maxiter must be None or an integer >= 1, got 0"),
    ({"scale": 0 * rand(N)}, ValueError, "scale must have entries > 0 only, got 0.0"),
    ({"x0": rand(3)}, ValueError, r"x0 must have shape \(12,\), got \(3,\)"),
    ({"b": rand(M, 2)}, ValueError, r"b must have shape \(20,\), got \(20, 2\)"),
    ({"A": rand(3)}, ValueError, r"A must have shape \(m, n\), got \(3,\)"),
    ({"b": RIGHT.float()}, TypeError, "A must have the dtype torch.float32, got torch"),
    ({"b": RIGHT.half()}, TypeError, "b must have the dtype torch.float32 or torch.fl"),
    (
        {"A": MATRIX.numpy()},
        TypeError,
        "got A: ndarray .* is scipy.sparse.linalg",
    ),
    ({"A": FORTH}, TypeError, r"A and At functions: lsmr\(A, b, At=At\); got"),
    ({"At": BACK}, TypeError, "At must be None where A is a matrix, got builtin"),
    (
        {"A": lambda x: FORTH(x)[:1], "At": BACK},
        ValueError,
        r"A x must have shape \(20,\), got \(1,\)",
    ),
    (
        {"A": FORTH, "At": lambda u: BACK(u).float()},
        TypeError,
        "A'b must have the dtype torch.float64, got torch.float32",
    ),
    ({"b": RIGHT * math.inf}, FloatingPointError, "not finite at iteration 0"),
    (
        {"merit": lambda x: math.nan},
        FloatingPointError,
        "the merit is nan at the start",
    ),
]


@pytest.mark.parametrize(("changes", "error", "match"), REFUSED)
def test_refuses(changes, error, match):
    with pytest.raises(error, match=match):
        lsmr(**{"A": MATRIX, "b": RIGHT} | changes)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "wrong", [lambda A: 1.01 * A, lambda A: A.flip(0), lambda A: -A, lambda A: A + 0.1]
)
def test_refuses_a_pair_that_is_not_adjoint(wrong, dtype):
    A, b, x0 = MATRIX.to(dtype), RIGHT.to(dtype), randn(N, dtype=dtype)
    B = wrong(A)
    for start in (None, x0):
        with pytest.raises(ValueError, match="At is not the adjoint of A"):
            lsmr(A.mv, b, At=B.mT.mv, x0=start, damping=LAM)


def test_refuses_a_product_that_is_not_finite():
    calls = []

    def forward(x):
        calls.append(1)
        return FORTH(x) * (math.nan if len(calls) == 4 else 1)

    with pytest.raises(FloatingPointError, match="not finite at iteration 3"):
        lsmr(forward, RIGHT, At=BACK, atol=0.0)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 36), (torch.float64, 300)])
def test_a_system_of_any_magnitude_is_solved_or_refused(dtype, most):
    """Products or squares that leave the dtype are an error and never a solution."""
    A, want, solved = MATRIX[:, :3], torch.linalg.pinv(MATRIX[:, :3]) @ RIGHT, 0
    powers = range(-most, most + 1, most // 12)
    for of_A, of_b in itertools.product(powers, repeat=2):
        try:
            x = lsmr((A * 10.0**of_A).to(dtype), (RIGHT * 10.0**of_b).to(dtype)).x
        except FloatingPointError as error:
            assert re.search("squares underflow|or its square, is not", str(error))
        else:
            assert relative(x.double() / 10.0 ** (of_b - of_A), want) < 1e-3
            solved += 1
    assert solved > 125  # of 625
