"""Inverse factorisations against torch's inverse, and what holds midway (float64)."""

import pickle
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from labkit.broad import (
    NotPositiveDefinite,
    block_inverse_ldl,
    division_free_inverse_ldl,
    extend_division_free_inverse_ldl,
    extend_inverse_cholesky,
    extend_inverse_ldl,
    factor,
    inverse_cholesky,
    inverse_ldl,
    sweep as sweeps,
    triangular,
)
from labkit.broad.factor import column_growth, panel_sweep
from labkit.broad.ldl import division_free_sweep, ldl_sweep
from tests.draws import randn

WAYS = [{"method": "columns"}, {"method": "panels"}, {"panel": 1}, {"panel": 3}]
sizes = st.integers(1, 24)
seeds = st.integers(0, 999)


def positive(k, seed=0, ridge=0.1):
    A = np.random.default_rng(seed).normal(size=(k + 3, k))
    return torch.from_numpy(A.T @ A + ridge * np.eye(k))


def close(x, y, tolerance=1e-9):
    scale = max(1.0, float(y.abs().max()))
    return float((x - y).abs().max()) <= tolerance * scale


@pytest.mark.parametrize("way", WAYS)
@given(k=sizes, seed=seeds)
def test_inverse_cholesky_is_the_transposed_inverse_of_the_factor(way, k, seed):
    R = positive(k, seed)
    F = inverse_cholesky(R, **way)
    assert torch.equal(F, F.triu())
    assert close(F, torch.linalg.cholesky(R).inverse().T)
    assert close(F @ F.T, R.inverse())


@given(k=sizes, seed=seeds)
def test_inverse_ldl(k, seed):
    R = positive(k, seed)
    L, d = inverse_ldl(R)
    assert torch.equal(L, L.triu()) and (L.diagonal() == 1).all()
    assert close(L * d @ L.T, R.inverse())
    assert close(L * d.sqrt(), inverse_cholesky(R))


@pytest.mark.parametrize("panel", [64, 1, 5])
@given(k=sizes, seed=seeds, scale=st.floats(-6, 6))
def test_division_free_stays_in_range(panel, k, seed, scale):
    """The powers of two absorb the size of R; the result is the inverse to 1e-9."""
    R = positive(k, seed) * 10**scale
    U, delta = R.clone(), torch.ones(k, dtype=R.dtype)
    beta = torch.ones((), dtype=R.dtype)
    for done in division_free_sweep(U, delta, beta, panel):
        assert 0.5 <= float(beta) < 1
        assert np.frexp(float(delta[done - 1]))[0] == 0.5  # a power of two
    U = U.triu()
    inverse = U * delta @ U.T / beta
    assert close(inverse * 10**scale, R.inverse() * 10**scale)


@pytest.mark.parametrize(("k", "scale"), [(20, True), (4, False)])
def test_division_free_without_scaling_is_right_while_float64_lasts(k, scale):
    R = positive(k)
    U, delta, beta = division_free_inverse_ldl(R, scale=scale)
    assert close(U * delta @ U.T / beta, R.inverse())
    assert (0.5 <= float(beta) < 1) == scale
    with pytest.raises(OverflowError, match="float64 is left at column"):
        division_free_inverse_ldl(positive(20), scale=False)


def test_without_roots_or_divisions_over_several_panels():
    R = positive(150, ridge=10.0)
    exact = R.inverse()
    L, d = inverse_ldl(R)
    U, delta, beta = division_free_inverse_ldl(R)
    assert close(L * d @ L.T, exact, 1e-12)
    assert close(U * delta @ U.T / beta, exact, 1e-12)
    R[130, 130] = -1.0
    with pytest.raises(NotPositiveDefinite, match="pivot 130 is -"):
        inverse_ldl(R)
    with pytest.raises(NotPositiveDefinite, match="pivot 130 is -"):
        division_free_inverse_ldl(R)


ONE_BY_ONE = [1, 2, 3, 4, 5, 6, 7]


def rooted(F):
    """The Cholesky form of an LDL factor with d on its diagonal."""
    d = F.diagonal().clone()
    return F.clone().fill_diagonal_(1) * d.sqrt()


@pytest.mark.parametrize(
    ("sweep", "sizes", "form"),
    [
        (column_growth, ONE_BY_ONE, torch.clone),
        (lambda R: panel_sweep(R, 3), [3, 6, 7], torch.clone),
        (lambda R: ldl_sweep(R, 1), ONE_BY_ONE, rooted),
        (lambda R: ldl_sweep(R, 3), [3, 6, 7], rooted),
    ],
)
def test_a_sweep_yields_its_finished_columns_and_reads_one_triangle(sweep, sizes, form):
    R = positive(7)
    inverse = R.inverse()
    R = R.triu() + torch.full_like(R, float("nan")).tril(-1)
    done = []
    for i in sweep(R):
        done.append(i)
        early = R[:i, :i].triu().clone()
    assert done == sizes
    F = R.triu()
    assert torch.equal(early, F)
    assert close(form(F) @ form(F).T, inverse)


def test_midway_a_panel_sweep_holds_factor_m_and_schur_complement():
    R = positive(9)
    whole = R.clone()
    next(panel_sweep(R, 4))
    lead = whole[:4, :4].inverse()
    M = -lead @ whole[:4, 4:]
    S = whole[4:, 4:] + whole[4:, :4] @ M
    assert close(R[:4, :4].triu() @ R[:4, :4].triu().T, lead)
    assert close(R[:4, 4:], M)
    assert close(R[4:, 4:].triu(), S.triu())


@given(k=sizes, q=sizes, seed=seeds)
def test_extending_equals_factorising_the_whole(k, q, seed):
    R = positive(k + q, seed)
    F = inverse_cholesky(R[:k, :k])
    grown = extend_inverse_cholesky(F, R[:k, k:], R[k:, k:])
    assert torch.equal(grown[:k, :k], F)
    assert close(grown, inverse_cholesky(R))
    assert float(factor.factor_error(grown, R)) < 1e-9


@given(k=sizes, q=sizes, seed=seeds)
def test_the_block_forms_equal_factorising_the_whole(k, q, seed):
    """(209) and (231), whose old columns stay as they are."""
    R = positive(k + q, seed)
    (L, d), P, S = inverse_ldl(R[:k, :k]), R[:k, k:], R[k:, k:]
    grown, e = extend_inverse_ldl(L, d, P, S)
    assert torch.equal(grown[:k, :k], L) and torch.equal(e[:k], d)
    wanted, f = inverse_ldl(R)
    assert close(grown, wanted) and close(e, f)
    U, delta, beta = division_free_inverse_ldl(R[:k, :k])
    grown, delta, beta = extend_division_free_inverse_ldl(U, delta, beta, P, S)
    assert torch.equal(grown[:k, :k], U) and torch.equal(grown, grown.triu())
    assert 0.5 <= float(beta) < 1
    assert close(grown * delta @ grown.T / beta, R.inverse())


def test_the_division_free_block_form_without_scaling():
    R = positive(4)
    old = division_free_inverse_ldl(R[:2, :2], scale=False)
    grown = extend_division_free_inverse_ldl(*old, R[:2, 2:], R[2:, 2:], scale=False)
    U, delta, beta = division_free_inverse_ldl(R, scale=False)
    assert close(grown[2], beta) and close(grown[1], delta) and close(grown[0], U)


def test_large_enough_for_several_blocks_and_on_views():
    """The block products on a view of a larger buffer equal the dense ones."""
    buffer = randn(700, 900)
    F, X = buffer[:500, :500].triu(), buffer[:500, 500:850]
    G, S = buffer[:350, :350].triu(), triangular.gram(X)
    assert close(triangular.upper_mm(F, X), F @ X, 1e-12)
    assert close(triangular.upper_t_mm(F, X), F.T @ X, 1e-12)
    assert close(triangular.mm_upper(X, G), X @ G, 1e-12)
    assert close(S, X.T @ X, 1e-12) and torch.equal(S, S.T)
    L = (buffer[:500, :500].tril() / 50).fill_diagonal_(1)
    assert close(L @ triangular.lower_solve(L, X), X, 1e-9)
    assert close(L.T @ triangular.lower_t_solve(L, X), X, 1e-9)
    R = positive(400, ridge=10.0)
    assert close(inverse_cholesky(R), factor.small_inverse_cholesky(R)[0])


# Algorithm 13


@given(k=sizes, p=st.integers(1, 5), seed=seeds)
def test_the_block_sweep_is_the_inverse_ldl(k, p, seed):
    """Whatever the blocks, and of the matrix that Algorithm 12 factorises."""
    R, generator = positive(k, seed), np.random.default_rng(seed)
    cuts = sorted({0, k, *generator.integers(0, k + 1, p).tolist()})
    for found, wanted in zip(block_inverse_ldl(R, cuts), inverse_ldl(R), strict=True):
        assert found.shape == wanted.shape and close(found, wanted)


@pytest.mark.parametrize(
    ("p", "columns", "rows"), [(2, 0.13, 0.12), (4, 0.45, 0.42), (8, 1.13, 1.06)]
)
def test_what_the_workers_of_the_block_sweep_send(p, columns, rows, monkeypatch):
    """Each is given column i, and the row up to its own last column, of k numbers."""
    k, sent = 48, {"columns": 0, "rows": 0}
    edges = [k * w // p for w in range(p + 1)]
    step = sweeps.column_step

    def counted(B, i, start, m, d, v):
        if start > i:  # on the right of the owner
            sent["columns"] += len(m) + 1
            sent["rows"] += len(v) - B.shape[1]
        assert len(m) == i and i + 1 + len(v) == start + B.shape[1]
        step(B, i, start, m, d, v)

    monkeypatch.setattr(sweeps, "column_step", counted)
    L, d = block_inverse_ldl(positive(k), edges)
    assert close(L * d @ L.T, positive(k).inverse())
    assert sent["columns"] / k**2 == pytest.approx(columns, abs=0.005)
    assert sent["rows"] / k**2 == pytest.approx(rows, abs=0.005)


INDEFINITE = torch.diag(torch.tensor([2.0, 3.0, -0.5, 1.0], dtype=torch.float64))


def test_a_lost_pivot_is_named():
    ways = [partial(inverse_cholesky, **way) for way in WAYS]
    ways += [partial(block_inverse_ldl, edges=[0, 2, 4]), inverse_ldl]
    R = INDEFINITE.clone()
    for factorise, pivot in product(ways, (torch.inf, -0.5)):
        R[2, 2] = pivot
        with pytest.raises(NotPositiveDefinite, match=f"pivot 2 is {pivot}") as caught:
            factorise(R)
        assert (caught.value.index, caught.value.pivot) == (2, pivot)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.index, str(again)) == (2, str(caught.value))


def test_a_lost_pivot_counts_from_the_first_column_of_all():
    F = inverse_cholesky(positive(3))
    with pytest.raises(NotPositiveDefinite, match=r"pivot 5 is -0\.5"):
        extend_inverse_cholesky(F, torch.zeros(3, 4, dtype=F.dtype), INDEFINITE)
    with pytest.raises(NotPositiveDefinite, match="pivot 2 is"):
        division_free_inverse_ldl(INDEFINITE)
    P, R = torch.zeros(3, 4, dtype=F.dtype), positive(3)
    with pytest.raises(NotPositiveDefinite, match=r"pivot 5 is -0\.5"):
        extend_inverse_ldl(*inverse_ldl(R), P, INDEFINITE)
    with pytest.raises(NotPositiveDefinite, match="pivot 5 is"):
        extend_division_free_inverse_ldl(*division_free_inverse_ldl(R), P, INDEFINITE)


@pytest.mark.parametrize("R", [torch.ones(3), torch.ones(2, 3), torch.ones(0, 0)])
def test_refuses_what_is_not_square(R):
    for factorise in (inverse_cholesky, inverse_ldl, division_free_inverse_ldl):
        with pytest.raises(ValueError, match="R must be a square matrix, got shape"):
            factorise(R)


def test_refuses_bad_options():
    R = positive(2)
    with pytest.raises(ValueError, match="method must be one of panels, columns, got"):
        inverse_cholesky(R, method="rows")
    with pytest.raises(
        ValueError, match="panel must be None or an integer >= 1, got 0"
    ):
        inverse_cholesky(R, panel=0)
    with pytest.raises(ValueError, match=r"P must have shape \(2, q\), got \(3, 1\)"):
        extend_inverse_cholesky(R, *(torch.ones(n, 1).double() for n in (3, 1)))
    for edges in ([0], [0, 2, 2], [1, 2], [0, 3]):
        with pytest.raises(ValueError, match="edges must ascend from 0 to 2, got"):
            block_inverse_ldl(R, edges)


def test_float32_stays_float32():
    R = positive(6).float()
    U, delta, beta = division_free_inverse_ldl(R)
    found = [inverse_cholesky(R), *inverse_ldl(R), U, delta, beta]
    assert {x.dtype for x in found} == {torch.float32}
