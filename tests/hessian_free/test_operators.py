"""What lsmr and cg take for A and b, their callbacks, and SciPy's stopping rules."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from torch.utils._python_dispatch import TorchDispatchMode

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
    found = lsmr(matrix, b, x0=x0, scale=c, **options)
    dense = dict(zip(("b", "x0", "scale"), tensors, strict=True)) | options
    want = lsmr(A.to(dtype), **dense)
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
    x = lsmr(forward, b, At=back, atol=0.0, maxiter=5).x
    want = lsmr(A, randn(M), atol=0.0, maxiter=5).x
    same(np.concatenate(x), want.numpy())
    one = lsmr(
        lambda x: array @ x, b[::1], At=lambda u: array.T @ u, atol=0.0, maxiter=5
    )
    same(one.x, want.numpy())
    backwards = np.ascontiguousarray(b[::-1])[::-1]  # a stride below 0
    same(lsmr(array, backwards, atol=0.0, maxiter=5).x, want.numpy())
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
    found = lsmr(KINDS[kind](A), b, callback=told, **options)
    assert [k for k, _ in seen] == list(range(1, 8))
    same(seen[-1][1], found.x)
    same(seen[3][1], lsmr(KINDS[kind](A), b, atol=0.0, maxiter=4).x)
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
    stats = lsmr(A, b, callback=lambda s: norms.append(s.norms), **stops).stats
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
    found = lsmr(matrix, b, check_every=every, **stops)
    assert (found.status, found.stats.iterations) == (NAMES[istop], k)
    assert relative(found.x, torch.from_numpy(x)) < 1e-6
    assert found.stats.acond == pytest.approx(cond, rel=1e-6)
    assert found.stats.anorm == pytest.approx(norm, rel=1e-9)
    both = lsmr(matrix, torch.stack((b, b), 1), check_every=every, **stops)
    assert list(both.status) == [NAMES[istop]] * 2
    assert abs(both.stats.iterations - k).max() <= 1


def test_off_unless_given():
    """As before: neither a solution nor the condition ends a run."""
    b = STEEP @ randn(60)
    assert lsmr(STEEP, b, atol=0.0, maxiter=25).status == "maxiter"


a = A.numpy()
v = randn(M).numpy()
ONE = "both must have the same precision: A has torch."
REFUSED = [
    ((a, v.astype("f4")), TypeError, ONE + "float64, but b has torch.float32"),
    ((a.astype("f4"), v), TypeError, ONE + "float32, but b has torch.float64"),
    ((A.to_sparse(), randn(M).float()), TypeError, ONE + "float64, but b has torch.f"),
    ((scipy.sparse.csr_array(a), v.astype("f4")), TypeError, ONE + "float64, but"),
    ((a, v.astype("c8")), TypeError, ONE + "float64, but b has torch.complex64"),
    (
        (a, v.astype("f2")),
        TypeError,
        "b must hold numbers of 32 or 64 bits, .*float16",
    ),
    ((A.half(), randn(M).half()), TypeError, "A must hold numbers of 32 or 64 bits, r"),
    (
        (a, v.astype(object)),
        TypeError,
        "b must hold numbers of 32 or 64 bits, .*object",
    ),
    ((a, list(v)), TypeError, "b must be a tensor, a NumPy array or a tuple of these"),
    ((a, None), TypeError, "b must be a tensor, a NumPy array .* these, got None"),
    ((lambda x: x, (), a), TypeError, "b must be a tensor, .* of these, got none"),
    ((a, randn(M)), TypeError, "b must be a NumPy array, for A is a ndarray, got Te"),
    ((A, v), TypeError, "b must be a tensor, for A is a tensor, got ndarray"),
    (
        (a[None], v),
        ValueError,
        r"A must be \(m, n\), neither of .* got shape \(1, 20, 8",
    ),
    (
        (a[:, :0], v),
        ValueError,
        r"A must be \(m, n\), neither of .* got shape \(20, 0\)",
    ),
    ((A[:, :0], randn(M)), ValueError, r"neither of them 0, got shape \(20, 0\)"),
    ((a, v[:3]), ValueError, r"b must have shape \(20,\) or \(20, k\), got \(3,"),
    ((A, randn(M, 0)), ValueError, r"b must have shape \(20,\) or .* got \(20, 0\)"),
    ((a, v, a.T), TypeError, "At must be None where A is a ndarray, got ndarray"),
    (
        (lambda x: a @ x, v),
        TypeError,
        r"A is no matrix, .* lsmr\(A, b, At=At\); got A: f",
    ),
    (
        (lambda x: (a @ x).astype("f4"), v, lambda u: a.T @ u),
        TypeError,
        "A x has dtype torch.float32, but b has torch.float64",
    ),
    (
        (lambda x: (a @ x)[:1], v, lambda u: a.T @ u),
        ValueError,
        "A x must be like b, but has 1 entries, but b has 20",
    ),
]


@pytest.mark.parametrize(("given", "error", "match"), REFUSED)
def test_refuses_by_name(given, error, match):
    matrix, b, *At = given
    with pytest.raises(error, match=match):
        lsmr(matrix, b, At=At[0] if At else None)


@pytest.mark.parametrize("old", [(None, v), (a.T, v), (v, 0.1)])
def test_an_old_call_shows_the_new_one(old):
    """lsmr(A, At, b), and damping by position as in SciPy."""
    with pytest.raises(TypeError, match=r"by name: lsmr\(A, b, At=At, damping=0.1\)"):
        lsmr(a, *old)


STARTS = [
    ({"x0": randn(N - 1)}, ValueError, r"x0 must have shape \(8,\), got \(7,\)"),
    ({"scale": rand(N, 2)}, ValueError, r"scale must have the shapes .*\(8, 2\)"),
    ({"scale": rand(N) * 1j}, TypeError, "scale must be real, of torch.float64, got"),
    ({"x0": v[:N]}, TypeError, "x0 must be a tensor, for A is a tensor, got ndarray"),
    (
        {"damping": 1e300},
        ValueError,
        r"damping must be at most 1.3e\+154 in torch.float",
    ),
]


@pytest.mark.parametrize(("options", "error", "match"), STARTS)
def test_refuses_a_start_or_a_scale_that_does_not_fit(options, error, match):
    with pytest.raises(error, match=match):
        lsmr(A, randn(M), **options)


def test_a_damping_that_float32_cannot_square_is_refused():
    with pytest.raises(
        ValueError, match=r"at most 1.8e\+19 in torch.float32, .* 1e\+30"
    ):
        lsmr(A.float(), randn(M).float(), damping=1e300)


COMPLEX = torch.complex(randn(M, N), randn(M, N, seed=1))


@kinds
@pytest.mark.parametrize("columns", [(), (3,)], ids=["vector", "columns"])
@pytest.mark.parametrize("form", ["identity", "scaled"])
def test_complex_systems_have_their_solution(kind, columns, form):
    """The damped normal equations with A^H, by every kind of matrix, warm-started."""
    if kind == "read-only":
        matrix = np.broadcast_to(COMPLEX.numpy(), COMPLEX.shape)
    else:
        matrix = KINDS[kind](COMPLEX)
    c, real = 0.5 + rand(N, *columns), randn(M, *columns)
    b = torch.complex(real, randn(M, *columns, seed=3))
    x0 = torch.complex(randn(N, *columns, seed=4), randn(N, *columns, seed=5))
    given = [t.numpy() if kind in ARRAYS else t for t in (b, x0, c)]
    stops = {"damping": LAM, "damping_norm": form, "atol": 1e-14, "maxiter": 60}
    found = lsmr(matrix, given[0], x0=given[1], scale=given[2], **stops)
    for i in range(columns[0] if columns else 1):
        pick = (lambda t, i=i: t[:, i]) if columns else (lambda t: t)
        D = torch.eye(N).to(c) if form == "identity" else torch.diag(pick(c) ** -2)
        G = COMPLEX.mH @ COMPLEX + LAM**2 * D
        want = torch.linalg.solve(G, COMPLEX.mH @ pick(b))
        assert relative(torch.as_tensor(pick(found.x)), want) < 1e-10
    assert type(found.x) is type(given[0])


@pytest.mark.parametrize("kind", ["tensor", "csr", "array", "sparse array"])
def test_what_is_complex_makes_all_complex(kind):
    """A, b or x0 alone; and of real numbers the answer of SciPy."""
    real, b = KINDS[kind](A), like(kind, randn(M))[0]
    x0 = like(kind, torch.complex(randn(N), randn(N)))[0]
    want = lsmr(KINDS["tensor"](A), randn(M), atol=1e-13, maxiter=50).x
    for matrix, right, start in (
        (real, b, x0),
        (KINDS[kind](A + 0j), b, None),
        (real, b + 0j, None),
    ):
        found = lsmr(matrix, right, x0=start, atol=1e-13, maxiter=50).x
        found = torch.as_tensor(found)
        assert found.is_complex() and relative(found, want + 0j) < 1e-9
    z = torch.complex(randn(M), randn(M, seed=2)).numpy()
    theirs = scipy.sparse.linalg.lsmr(COMPLEX.numpy(), z, atol=0, btol=0, maxiter=3)[0]
    ours = lsmr(COMPLEX.numpy(), z, atol=0.0, maxiter=3).x
    assert np.allclose(ours, theirs, rtol=1e-12)


def test_complex_functions_on_tuples():
    b, x0 = COMPLEX @ COMPLEX[0], torch.zeros(N, dtype=torch.complex128)
    A_ = lambda x: COMPLEX @ torch.cat(x)  # noqa: E731
    At = lambda u: (COMPLEX.mH @ u).split((3, N - 3))  # noqa: E731
    for start in (None, x0.split((3, N - 3))):
        x = lsmr(A_, b, At=At, x0=start, atol=1e-14, maxiter=60).x
        assert relative(torch.cat(x), COMPLEX[0]) < 1e-10
    with pytest.raises(ValueError, match="At is not the adjoint of A"):
        lsmr(lambda x: COMPLEX @ x, b, At=lambda u: COMPLEX.mT @ u)


@kinds
@pytest.mark.parametrize("which", ["A", "b", "both"])
def test_integers_are_taken_as_floating_point(kind, which):
    W, w = (3 * A).round(), (5 * randn(M)).round()
    want = lsmr(W, w, atol=1e-13, maxiter=60).x
    matrix = KINDS[kind](W.long() if which != "b" else W)
    b = like(kind, w.long() if which != "A" else w)[0]
    found = torch.as_tensor(lsmr(matrix, b, atol=1e-13, maxiter=60).x)
    assert found.dtype == torch.float64 and relative(found, want) < 1e-10


def test_cg_takes_complex_and_integer_systems():
    H = COMPLEX.mH @ COMPLEX + torch.eye(N)
    b = torch.complex(randn(N), randn(N, seed=1))
    for one, right in ((H, b), (H.numpy(), b.numpy()), (lambda x: H @ x, b)):
        found = cg(one, right, preconditioner=abs(right), tolerance=0.0, maxiter=60)
        want = torch.linalg.solve(H, b)
        assert relative(torch.as_tensor(found.x), want) < 1e-10
    whole = (2 * SPD).round().long()
    found = cg(whole, torch.arange(N), tolerance=0.0)
    want = torch.linalg.solve(whole.double(), torch.arange(N).double())
    assert relative(found.x, want) < 1e-9


def test_frames_and_series_are_arrays():
    frame, series = pd.DataFrame(a), pd.Series(v)
    same(lsmr(frame, series, maxiter=5).x, lsmr(a, v, maxiter=5).x)


def test_the_adjoint_of_a_sparse_tensor_is_made_once():
    """Each product is one of CSR, which is fast, and no conversion is repeated."""
    for make in (A.to_sparse_csr, A.to_sparse_csc):
        matrix, b = make(), randn(M)
        with Calls() as short:
            lsmr(matrix, b, atol=0.0, maxiter=2)
        with Calls() as long:
            lsmr(matrix, b, atol=0.0, maxiter=7)
        assert short.conversions == long.conversions <= 4
        assert long.csc == 0


class Calls(TorchDispatchMode):
    """Counts conversions of sparse tensors, and products with others than CSR."""

    conversions = csc = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, sparse = str(function), [t for t in args if is_sparse(t)]
        self.conversions += "to_sparse" in name
        product = any(word in name for word in ("mm", "mv", "matmul"))
        self.csc += product and any(t.layout != torch.sparse_csr for t in sparse)
        return function(*args, **(kwargs or {}))


def is_sparse(x):
    return isinstance(x, torch.Tensor) and x.layout != torch.strided


CODED = [  # options, the status, and SciPy's code
    ({"atol": 1e-3}, "atol", 2),
    ({"atol": 0.0, "btol": 1.0}, "btol", 1),
    ({"atol": 0.0, "conlim": 1.5}, "conlim", 3),
    ({"atol": 0.0, "maxiter": 2}, "maxiter", 7),
    ({"atol": 0.0, "merit": lambda x: 1.0, "miniter": 0}, "ftol", 8),
    ({"atol": 0.0, "merit": abs, "miniter": 5, "patience": 0}, "patience", 9),
    ({"x0": torch.zeros(N)}, "exact", 0),
]


@pytest.mark.parametrize(("options", "status", "code"), CODED)
def test_every_status_has_scipys_code(options, status, code):
    options, counts = dict(options), iter(range(1, 99))
    if options.get("merit") is abs:
        options["merit"] = lambda x: float(next(counts))
    b = 0 * randn(M) if status == "exact" else randn(M)
    found = lsmr(A, b, **options)
    assert (found.status, found.istop) == (status, code)


def test_exact_runs_tell_residual_from_gradient_and_columns_have_their_own():
    b = torch.stack((A @ randn(N), randn(M), 0 * randn(M)), 1)
    found = lsmr(A, b, atol=0.0, maxiter=100)
    assert found.istop.tolist() == [4, 5, 0]
    assert lsmr(A, b[:, 0], atol=0.0, maxiter=100).istop == 4


BADS = [
    (a, v, ValueError, r"B must be square, got shape \(20, 8\)"),
    (SPD, randn(N).float(), TypeError, ONE + "float64, but b has torch.float32"),
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
        lsmr(A, randn(M), **{name: -1.0})
