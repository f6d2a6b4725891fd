"""The variance of one step, averaged over every sign pattern (float64, frozen input).

The batch dimension holds the sign patterns, so a mean over it is an exact expectation.
"""

import pytest
import torch

from labkit.rtrl import OK, minimum_variance
from labkit.rtrl.decompose import gram_root
from labkit.rtrl.kronecker import kf_step, mix, ok_step, propagate
from labkit.rtrl.ktp import diagonal_factors
from labkit.theorems.rtrl import (
    advanced,
    all_signs,
    balanced_kf,
    balanced_uoro,
    dense_D,
    kronecker_sum,
    least_cross_terms,
    mean_of_draws,
    variance_of_theorem_6,
)
from tests.draws import close, randn, seeded

from .conftest import agree, make, make_cell, read


@pytest.fixture(params=["LAPACK", "Jacobi"])
def decomposed(request, monkeypatch):
    """OK's small decompositions as on the CPU, and as on an accelerator."""
    host = request.param == "LAPACK"
    monkeypatch.setattr("labkit.rtrl.decompose.on_host", lambda _: host)


either = pytest.mark.usefixtures("decomposed")
KINDS = {"rnn": 3, "rhn": 3, "lstm": 2, "gru": 3}  # units: 2^S patterns are to be few
cells = pytest.mark.parametrize("kind", KINDS)


def one_step(kind, n=None, seed=0):
    """A cell's step at a random state: H, h_hat, D, batch 1."""
    cell = make_cell(kind, 2, n or KINDS[kind], seed=seed)
    state = 0.7 * randn(1, cell.state_size, seed=seed + 2)
    step = cell.step(randn(1, 2, seed=seed + 1), state)
    return step.H, step.h_hat, step.D


def prepared(kind, rank, seed=0, change=lambda u, A, h_hat, D: None):
    """Random terms u (1, r, m) and A (1, r, K n, S) transposed, and a cell's step,

    changed in place; and what they come to.
    """
    H, h_hat, D = one_step(kind, seed=seed)
    seed, Kn = seed or 9, D.shape[2] * D.shape[3]
    u = randn(1, rank, h_hat.shape[1], seed=seed)
    A = randn(1, rank, Kn, H.shape[1], seed=seed + 1)
    change(u, A, h_hat, D)
    return (u, A, H, h_hat, D), advanced(kronecker_sum(u, A), H, h_hat, D)


def repeat(count, *tensors):
    return [x.repeat(count, *[1] * (x.ndim - 1)) for x in tensors]


def drawn(step, signs, *terms):
    """What a step makes of the terms with each pattern of signs."""
    u, A, H, h_hat, D = repeat(len(signs), *terms)
    return step(u, propagate(A, H, torch.empty_like(A)), h_hat, D, signs)


def ok_draws(*terms):
    return drawn(ok_step, all_signs(terms[0].shape[1] + 1), *terms)


def kf_variance(u, A, H, h_hat, D, *, balanced):
    """Closed forms of the one-step variance of KF-RTRL with one term."""
    HA, D = (H @ A[:, 0].mT).mT.flatten(1), dense_D(D).mT.flatten(1)
    if balanced:
        return least_cross_terms(u[:, 0], HA, h_hat, D)
    first, second = u.norm() * D.norm(), h_hat.norm() * HA.norm()
    cross = 2 * (u[:, 0] * h_hat).sum() * (HA * D).sum()
    return first**2 + second**2 + cross


@either
@cells
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_ok_mean_and_variance(kind, rank):
    terms, goal = prepared(kind, rank)
    new_u, new_A, d, Y = ok_draws(*terms)
    G = kronecker_sum(new_u, new_A)
    assert mean_of_draws(G, goal[0]).holds
    assert variance_of_theorem_6(G, goal[0], new_u.shape[2], rank, 1e-10).holds
    squared = (G - goal).square().sum((1, 2))
    variance = float(minimum_variance(d[0], rank))
    assert squared.mean() == pytest.approx(variance, rel=1e-10, abs=1e-10)
    by_Y = (Y @ Y.mT - torch.diag_embed(d)).square().sum((1, 2))
    assert torch.allclose(squared, by_Y, rtol=1e-10, atol=1e-10)
    assert squared.mean() > 1e-3  # the comparison is not between zeros


@cells
@pytest.mark.parametrize("seed", range(5))
def test_one_term_ok_is_no_worse_than_kf(kind, seed):
    terms, _ = prepared(kind, 1, seed=seed)
    ok = float(minimum_variance(ok_draws(*terms)[2][0], 1))
    balanced, not_so = (float(kf_variance(*terms, balanced=b)) for b in (True, False))
    assert ok <= balanced + 1e-10 and balanced <= not_so + 1e-10


@either
@cells
def test_ok_is_exact_where_the_terms_share_a_direction(kind):
    """u parallel to h_hat: one term holds the sum. KF is not exact there."""
    terms, goal = prepared(kind, 1, change=lambda u, A, h, D: u[:, 0].copy_(1.7 * h))
    new_u, new_A, _, _ = ok_draws(*terms)
    # A d_2 of roundoff, 1e-16 d_1, is mixed like any other: sqrt(d_1 d_2) per draw.
    assert (kronecker_sum(new_u, new_A) - goal).square().sum((1, 2)).max() < 1e-12
    assert kf_variance(*terms, balanced=True) > 1e-2


SPOIL = {  # u (1, r, m), A (1, r, K n, S), h_hat and D are changed in place
    "duplicate": lambda u, A, h, D: (u[:, 1].copy_(u[:, 0]), A[:, 1].copy_(A[:, 0])),
    "zero term": lambda u, A, h, D: (u[:, 1].zero_(), A[:, 1].zero_()),
    "half a zero term": lambda u, A, h, D: A[:, 0].zero_(),
    "all terms zero": lambda u, A, h, D: (u.zero_(), A.zero_()),
    "zero D": lambda u, A, h, D: D.zero_(),
    "all zero": lambda u, A, h, D: (u.zero_(), A.zero_(), D.zero_()),
    "parallel": lambda u, A, h, D: u[:, 1].copy_(-2 * h[0]),
    "huge and tiny": lambda u, A, h, D: (u[:, 0].mul_(1e12), A[:, 0].mul_(1e-12)),
}


@either
@cells
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("spoil", SPOIL)
def test_ok_on_dependent_terms(kind, rank, spoil):
    terms, goal = prepared(kind, rank, change=SPOIL[spoil])
    new_u, new_A, d, _ = ok_draws(*terms)
    G = kronecker_sum(new_u, new_A)
    assert G.isfinite().all() and d.isfinite().all()
    # d below 1e-7 d_1 counts as zero: a bias of at most that size, not 1e-10.
    assert mean_of_draws(G, goal[0], 1e-6).holds
    assert variance_of_theorem_6(G, goal[0], new_u.shape[2], rank, 1e-6).holds


@either
@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_wrong_gram_matrices_do_not_bias_the_mixing(rank):
    q = rank + 1
    noise, x = 1e-3 * randn(2, q, q, seed=3), randn(2, q, 9)
    signs = all_signs(q)
    grams = x @ x.mT * (1 + noise + noise.mT)
    X, Z, _, _ = mix(*(G.expand(len(signs), q, q) for G in grams), signs)
    assert X.shape == (len(signs), q, rank)
    assert close((X @ Z.mT).mean(0), torch.eye(q, dtype=torch.float64))


@either
@pytest.mark.parametrize("missing", [0, 1, 3])
@pytest.mark.parametrize("spread", [0, 4, 8])
def test_gram_root(missing, spread):
    x = torch.nn.functional.pad(randn(5, 5 - missing, seed=missing), (0, 7))
    size = 10 ** torch.linspace(-spread, spread, 5, dtype=torch.float64)
    x = x * size[:, None]
    x[1] = 0  # a zero term
    G = x @ x.T
    L = gram_root(G)
    assert L.isfinite().all()
    scale = size[:, None] * size
    assert torch.allclose(L.T @ L / scale, G / scale, rtol=0, atol=1e-12)


@either
@cells
@pytest.mark.parametrize("scale", [1.0, 1e12])
def test_ok_moments_in_float32(kind, scale):
    """Moments, because equal signs need not give equal draws."""
    terms, _ = prepared(
        kind, 2, change=lambda u, A, h, D: (A.mul_(scale), D.mul_(scale))
    )
    double = kronecker_sum(*ok_draws(*terms)[:2])
    single = kronecker_sum(*ok_draws(*(x.float() for x in terms))[:2])
    assert single.dtype == torch.float32
    size = float(double.norm(dim=(1, 2)).mean())
    assert close(single.double().mean(0), double.mean(0), 1e-4 * size)
    squares = [x.double().square().mean(0) for x in (single, double)]
    assert close(*squares, 1e-4 * size**2)


@cells
def test_kf_mean_and_variance(kind):
    terms, goal = prepared(kind, 1)
    G = kronecker_sum(*drawn(kf_step, all_signs(1), *terms))
    assert mean_of_draws(G, goal[0]).holds
    squared = (G - goal).square().sum((1, 2)).mean()
    variance = float(kf_variance(*terms, balanced=True))
    assert squared == pytest.approx(variance, rel=1e-10)
    # From zero it is exact.
    terms, goal = prepared(kind, 1, change=SPOIL["all terms zero"])
    G = kronecker_sum(*drawn(kf_step, all_signs(1), *terms))
    assert close(G, goal.expand_as(G), 1e-12)


@cells
def test_the_factors_of_kf_and_uoro_make_the_noise_least_in_a_run(kind):
    """Of each draw, in a learner's third step."""
    cell = make_cell(kind, 5, KINDS[kind])
    start, xs = 0.7 * randn(1, cell.state_size, seed=2), randn(3, 5)
    for name, judge in (("KF-AVG", balanced_kf), ("UORO", balanced_uoro)):
        made = lambda b, name=name: make(name, 2, cell, batch_size=b)  # noqa: E731
        judged = judge(made, start, xs)
        assert judged.holds and judged.wanted.min() > 1e-3, (name, judged.error)


@cells
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dead", [0, 1])
def test_diagonal_factors(kind, rank, dead):
    _, _, D = one_step(kind, n=3)
    D[..., :dead] = 0  # dead units
    S = D.shape[1] * 3
    signs = all_signs(S)
    d, e = diagonal_factors(D.expand(len(signs), -1, -1, -1), rank, signs)
    assert d.shape == (len(signs), rank, S)
    product, goal = d.mT @ e, dense_D(D)
    assert close(product.mean(0), goal[0])
    sigma = torch.linalg.svdvals(D[0].movedim(-1, 0))  # (n, q)
    squared = (product - goal).square().sum((1, 2)).mean()
    variance = float(minimum_variance(sigma.flatten().sort(descending=True)[0], rank))
    assert squared == pytest.approx(variance, abs=1e-10)
    # Row norms of Y: each unit's d and e carry the sum of its singular values.
    for factor in (d, e):
        rows = factor.square().sum(1).unflatten(-1, (-1, 3)).sum(1)
        assert close(rows, sigma.sum(-1).expand_as(rows))


@either
@cells
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_signs_alone_make_the_noise_of_ok(kind, rank):
    """A last bit turned in the weights is not noise drawn anew.

    After r + 1 steps the terms of OK have r equal norms, so that LAPACK is free to
    choose eigenvectors, and their signs.
    """
    influences = []
    for last_bits in (0.0, 1e-15):
        cell = make_cell(kind, 2, KINDS[kind] + 2)
        cell.weight.data *= 1 + last_bits * randn(*cell.weight.shape, seed=1)
        learner = OK(cell, batch_size=8, rank=rank, generator=seeded())
        influences.append(read(learner, randn(rank + 4, 8, 2)).influence())
    assert agree(*influences, 1e-10)
