"""What lsmr and cg take for A and b, their callbacks, and SciPy's stopping rules."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch

from labkit.hessian_free import cg, lsmr

from .conftest import rand, randn, relative, spectrum

M, N, LAM = 20, 8, 0.4
A = randn(M, N) * (rand(M, N, seed=9) > 0.5)  # with zeros, for the sparse kinds
SPD = A.T @ A + torch.eye(N).to(A)
PLAIN = {"tensor": lambda A: A, "coo": lambda A: A.to_sparse()}
PLAIN |= {"csr": lambda A: A.to_sparse_csr(), "csc": lambda A: A.to_sparse_csc()}
ARRAYS = {
    "array": lambda A: A.numpy(),
    "matrix": lambda A: np.matrix(A.numpy()),
    "Fortran order": lambda A: np.asfortranarray(A.numpy()),
    "read-only": lambda A: np.broadcast_to(A.numpy(), A.shape),
    "sparse array": lambda A: scipy.sparse.csr_array(A.numpy()),
    "sparse matrix": lambda A: scipy.sparse.coo_matrix(A.numpy()),
    "LinearOperator": lambda A: scipy.sparse.linalg.aslinearoperator(A.numpy()),
}
KINDS = PLAIN | ARRAYS
kinds = pytest.mark.parametrize("kind", KINDS)


def like(kind, *tensors):
    """As this kind's vectors are, in memory that must stay as it is."""
    return [t.clone().numpy() if kind in ARRAYS else t.clone() for t in tensors]


def same(found, want):
    assert type(found) is type(want)
    assert relative(torch.as_tensor(found), torch.as_tensor(want)) < 1e-12


@kinds
@pytest.mark.parametrize("columns", [(), (3,)], ids=["vector", "columns"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_kind_of_operator_gives_the_same(kind, columns, dtype):
    tensors = randn(M, *columns), randn(N, *columns, seed=2), 0.1 + rand(N, *columns)
    tensors = [t.to(dtype) for t in tensors]
    matrix = KINDS[kind](A.to(dtype))
    b, x0, c = given = like(kind, *tensors)
    held = [torch.as_tensor(t).clone() for t in given]
    options = {"damping": LAM, "atol": 0.0, "maxiter": 4}
    found = lsmr(matrix, None, b, x0=x0, scale=c, **options)
    dense = dict(zip(("b", "x0", "scale"), tensors, strict=True)) | options
    want = lsmr(A.to(dtype), None, **dense)
    assert type(found.x) is type(b) and found.x.dtype == b.dtype
    gap = relative(torch.as_tensor(found.x), want.x)
    assert gap < (1e-12 if dtype == torch.float64 else 1e-4)
    assert np.array_equal(found.status, want.status)
    for now, before in zip(given, held, strict=True):
        assert torch.equal(torch.as_tensor(now), before)


@kinds
@pytest.mark.parametrize("columns", [(), (3,)], ids=["vector", "columns"])
def test_cg_takes_the_same(kind, columns):
    tensors = randn(N, *columns), randn(N, *columns, seed=2), 0.5 + rand(N, *columns)
    b, x0, P = like(kind, *tensors)
    options = {"tolerance": 0.0, "maxiter": 50}
    found = cg(KINDS[kind](SPD), b, x0=x0, preconditioner=P, **options)
    assert type(found.x) is type(b)
    want = torch.linalg.solve(SPD, tensors[0])
    assert relative(torch.as_tensor(found.x), want) < 1e-10
    assert set(np.atleast_1d(found.status)) == {"exact"}
    if columns:
        one = cg(SPD, tensors[0][:, 1], x0=tensors[1][:, 1], **options)
        assert len(found.iterations) == 3 and one.status == "exact"


def test_pairs_of_functions_on_arrays_one_or_several():
    array = A.numpy()
    seen = []

    def forward(x):
        seen.append(x)
        return array @ np.concatenate(x)

    def back(u):
        seen.append((u,))
        g = array.T @ u
        return g[:3], g[3:]

    b = randn(M).numpy()
    x = lsmr(forward, back, b, atol=0.0, maxiter=5).x
    want = lsmr(A, None, randn(M), atol=0.0, maxiter=5).x
    same(np.concatenate(x), want.numpy())
    one = lsmr(lambda x: array @ x, lambda u: array.T @ u, b[::1], atol=0.0, maxiter=5)
    same(one.x, want.numpy())
    backwards = np.ascontiguousarray(b[::-1])[::-1]  # a stride below 0
    same(lsmr(array, None, backwards, atol=0.0, maxiter=5).x, want.numpy())
    B = lambda x: SPD.numpy() @ x  # noqa: E731
    same(cg(B, b[:N], tolerance=0.0).x, cg(SPD, randn(M)[:N], tolerance=0.0).x.numpy())
    assert all(isinstance(t, np.ndarray) for blocks in seen for t in blocks)


@kinds
def test_the_merit_and_the_callback_get_vectors_of_the_callers_kind(kind):
    (b,) = like(kind, randn(M))
    seen, merits = [], []

    def told(step):
        seen.append((step.k, step.x.copy() if kind in ARRAYS else step.x.clone()))

    merit = lambda x: merits.append(type(x)) or float(abs(x).sum())  # noqa: E731
    options = {"atol": 0.0, "maxiter": 7, "merit": merit, "as_published": True}
    found = lsmr(KINDS[kind](A), None, b, callback=told, **options)
    assert [k for k, _ in seen] == list(range(1, 8))
    same(seen[-1][1], found.x)
    same(seen[3][1], lsmr(KINDS[kind](A), None, b, atol=0.0, maxiter=4).x)
    assert set(merits) == {type(b)}
    seen.clear()
    found = cg(KINDS[kind](SPD), b[:N], tolerance=0.0, maxiter=4, callback=told)
    assert [k for k, _ in seen] == [1, 2, 3, 4]
    same(seen[-1][1], found.x)


@pytest.mark.parametrize("every", [1, 4])
def test_the_callback_of_columns_and_of_several_iterations_at_once(every):
    norms = []
    b = randn(M, 2)
    stops = {"atol": 0.0, "maxiter": 6, "check_every": every}
    stats = lsmr(A, None, b, callback=lambda s: norms.append(s.norms), **stops).stats
    assert len(norms) == 6
    for one, rnorm in zip(norms, stats.rnorm[1:], strict=True):
        assert np.array_equal(one.rnorm, rnorm)


# A, right-hand side, tolerances, and SciPy's reason: 1 btol, 2 atol, 3 conlim
STEEP = spectrum(90, 60, np.logspace(-4, 0, 60))
FLAT = spectrum(90, 60, np.linspace(1, 3, 60))
CASES = {
    "a solution": (spectrum(30, 12, np.linspace(1, 3, 12)), True, (1e-9, 1e-6, 0), 1),
    "atol in its test": (spectrum(30, 9, np.linspace(1, 2, 9)), True, (1e-5, 0, 0), 1),
    "none": (FLAT, False, (1e-6, 1e-6, 1e8), 2),
    "condition": (STEEP, False, (0, 0, 8), 3),
    "condition, solution": (STEEP, True, (0, 1e-14, 8), 3),
    "conlim off": (FLAT, False, (1e-4, 1e-14, 0), 2),
}
NAMES = {1: "btol", 2: "atol", 3: "conlim"}


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("case", CASES)
def test_btol_and_conlim_stop_where_scipy_does(case, every):
    matrix, solvable, (atol, btol, conlim), istop = CASES[case]
    b = (
        matrix @ randn(matrix.shape[1], seed=4)
        if solvable
        else randn(len(matrix), seed=4)
    )
    stops = {"atol": atol, "btol": btol, "conlim": conlim, "maxiter": 60}
    x, why, k, _, _, norm, cond, _ = scipy.sparse.linalg.lsmr(
        matrix.numpy(), b.numpy(), **stops
    )
    assert why == istop
    found = lsmr(matrix, None, b, check_every=every, **stops)
    assert (found.status, found.stats.iterations) == (NAMES[istop], k)
    assert relative(found.x, torch.from_numpy(x)) < 1e-6
    assert found.stats.acond == pytest.approx(cond, rel=1e-6)
    assert found.stats.anorm == pytest.approx(norm, rel=1e-9)
    both = lsmr(matrix, None, torch.stack((b, b), 1), check_every=every, **stops)
    assert list(both.status) == [NAMES[istop]] * 2
    assert abs(both.stats.iterations - k).max() <= 1


def test_off_unless_given():
    """As before: neither a solution nor the condition ends a run."""
    b = STEEP @ randn(60)
    assert lsmr(STEEP, None, b, atol=0.0, maxiter=25).status == "maxiter"


a = A.numpy()
v = randn(M).numpy()
REFUSED = [
    ((a, None, v.astype("f4")), TypeError, "A has dtype float64, but b has float32"),
    ((a.astype("f4"), None, v), TypeError, "A has dtype float32, but b has float64"),
    (
        (A.to_sparse(), None, randn(M).float()),
        TypeError,
        "torch.float64, but b has tor",
    ),
    (
        (scipy.sparse.csr_array(a), None, v.astype("f4")),
        TypeError,
        "A has dtype float64",
    ),
    ((a, None, v.astype(int)), TypeError, "b must hold real floating-point"),
    ((a, None, v + 1j), TypeError, "b must hold real floating-point"),
    ((a, None, list(v)), TypeError, "b must hold real floating-point"),
    ((a, None, randn(M)), TypeError, "b must be a NumPy array, for A is a ndarray, go"),
    ((A, None, v), TypeError, "b must be a tensor, for A is a tensor, got a ndarray"),
    ((a[None], None, v), ValueError, r"A must be \(m, n\), got shape \(1, 20, 8\)"),
    ((a, None, v[:3]), ValueError, r"b must have shape \(20,\) or \(20, k\), got \(3,"),
    ((a, a.T, v), TypeError, "At must be None where A is a ndarray"),
    ((lambda x: a @ x, None, v), TypeError, "must both be functions, unless A is a ma"),
    (
        (lambda x: (a @ x).astype("f4"), lambda u: a.T @ u, v),
        TypeError,
        "A x has dtype torch.float32, but b has torch.float64",
    ),
    (
        (lambda x: (a @ x)[:1], lambda u: a.T @ u, v),
        ValueError,
        "A x must be like b, but has 1 entries, but b has 20",
    ),
]


@pytest.mark.parametrize(("given", "error", "match"), REFUSED)
def test_refuses_by_name(given, error, match):
    with pytest.raises(error, match=match):
        lsmr(*given)


BADS = [
    (a, v, ValueError, r"B must be square, got shape \(20, 8\)"),
    (SPD, randn(N).float(), TypeError, "A has dtype torch.float64, but b has torch.fl"),
    (3, v, TypeError, "B must be a matrix or a function, got int"),
    (
        lambda x: x.float(),
        randn(N),
        TypeError,
        "B x has dtype torch.float32, but b has",
    ),
]


@pytest.mark.parametrize(("B", "b", "error", "match"), BADS)
def test_cg_refuses_by_name(B, b, error, match):
    with pytest.raises(error, match=match):
        cg(B, b)


@pytest.mark.parametrize("name", ["btol", "conlim"])
def test_refuses_tolerances_below_zero(name):
    with pytest.raises(
        ValueError, match=f"{name} must be None or >= 0 and finite, got"
    ):
        lsmr(A, None, randn(M), **{name: -1.0})
