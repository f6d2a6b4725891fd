"""The minimum-variance theorem, by enumerating every sign pattern (float64)."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from labkit.rtrl import minimum_variance, optimal_low_rank, water_level
from labkit.rtrl.low_rank import mixing_matrix, random_signs
from labkit.theorems.rtrl import all_signs
from tests.draws import close, randn, seeded

# Singular values, rank, minimum variance: the theorem evaluated by hand.
TABLE = [
    ((2, 1), 1, 4),
    ((1, 1, 1), 2, 1.5),
    ((10, 1, 1), 2, 2),  # the 10 is kept
    ((5, 1, 1, 1), 3, 1.5),
    ((3, 2, 2, 1), 3, 3.5),
    ((1, 1, 0), 2, 0),  # rank <= r
    ((1, 0.9, 0.8, 0.7), 3, 0.9133333333333333),  # 1.12 with the misprinted rule for m
    (tuple(1 - 0.01 * j for j in range(9)), 8, 1.0308),  # 1.7112 misprinted
    ((0, 0, 0), 2, 0),
]


def with_singular_values(d, seed=0):
    U, V = torch.linalg.qr(randn(2, len(d), len(d), seed=seed))[0]
    return U * d @ V.T


def enumerate_products(C, rank):
    signs = all_signs(min(C.shape))
    L, R = optimal_low_rank(C.expand(len(signs), *C.shape), rank, signs=signs)
    return L @ R.mT


@pytest.mark.parametrize(("d", "rank", "variance"), TABLE)
def test_table_of_the_theorem(d, rank, variance):
    d = torch.tensor(d, dtype=torch.float64)
    assert minimum_variance(d, rank) == pytest.approx(variance, abs=1e-10)
    assert_unbiased(with_singular_values(d), rank, variance, 1e-12)


def assert_unbiased(C, rank, variance, tol):
    products = enumerate_products(C, rank)
    assert products.isfinite().all()
    assert close(products.mean(0), C, tol)
    squared = (products - C).square().sum((1, 2)).mean()
    assert squared == pytest.approx(variance, abs=1e-10)


whole = st.integers


@settings(max_examples=60)
@given(whole(2, 8), whole(1, 7), st.floats(0, 8), whole(0, 3), whole(0, 999))
def test_variance_on_random_graded_and_deficient(q, rank, grading, missing, seed):
    generator = seeded(seed)
    d = torch.rand(q, generator=generator, dtype=torch.float64)
    d = d * 10 ** (-grading * torch.arange(q, dtype=torch.float64) / q)
    d[q - min(missing, q) :] = 0
    d = d.sort(descending=True).values
    variance = float(minimum_variance(d, rank))
    assert_unbiased(with_singular_values(d, seed), rank, variance, 1e-10)


def test_rectangular_and_batched():
    C = randn(3, 4, 6, seed=1)
    L, R = optimal_low_rank(C[:, None], 2, signs=all_signs(4))
    assert L.shape == (3, 16, 4, 2) and R.shape == (3, 16, 6, 2)
    assert close((L @ R.mT).mean(1), C, 1e-12)


def test_kept_values_survive_every_draw():
    d = torch.tensor([10.0, 1, 1], dtype=torch.float64)
    assert float(water_level(d, 2)) == 2.0
    for product in enumerate_products(torch.diag(d), 2):
        assert product[0].tolist() == pytest.approx([10, 0, 0], abs=1e-12)


@pytest.mark.parametrize("shape", [(3, 6, 5), (2, 4, 7)])
def test_the_signs_of_the_librarys_vectors_do_not_matter(shape, monkeypatch):
    C, svd = randn(*shape), torch.linalg.svd
    signs = random_signs((shape[0], min(shape[1:])), C)
    drawn = optimal_low_rank(C, 2, signs=signs)

    def turned(*given, **options):
        U, d, Vh = svd(*given, **options)
        turn = torch.where(torch.arange(d.shape[-1]) % 2 == 0, -1.0, 1.0).to(d)
        return U * turn, d, turn[:, None] * Vh

    monkeypatch.setattr(torch.linalg, "svd", turned)
    again = optimal_low_rank(C, 2, signs=signs)
    assert all(map(torch.equal, drawn, again))


def test_mixing_draws_from_the_given_generator_only():
    C = torch.eye(3)
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    one, two = (optimal_low_rank(C, 2, generator=seeded(5)) for _ in range(2))
    assert all(map(torch.equal, one, two))
    assert torch.equal(before, torch.random.get_rng_state())


def frame_cases():
    generator = seeded()
    for i in range(60):
        N = int(torch.randint(2, 257, (), generator=generator))
        r = int(torch.randint(1, min(N, 17), (), generator=generator))
        d = torch.rand(N, generator=generator, dtype=torch.float64) ** (1 + i % 5)
        if i % 4 == 0:  # running sums that hit integers exactly, equal entries
            d = (4 * d).round() / 4
        if i % 6 == 0:
            d = torch.ones_like(d)
        yield d.sort(descending=True).values, r


@pytest.mark.parametrize(("d", "rank"), list(frame_cases()))
def test_frame_has_orthogonal_columns_and_given_rows(d, rank):
    Y = mixing_matrix(d, rank, torch.ones_like(d))
    scale = torch.maximum(d[:rank], water_level(d, rank))
    assert close(Y.T @ Y, torch.diag(scale))
    assert close(Y.square().sum(1), d)


@pytest.mark.parametrize(
    ("C", "rank", "message"),
    [
        (torch.eye(3), 0, "rank must be an integer >= 1, got 0"),
        (torch.ones(3), 1, r"C must have shape \(..., M, N\), got \(3,\)"),
        (torch.eye(3) / 0, 1, "C must be finite, got inf"),
    ],
)
def test_what_is_no_matrix_or_no_rank_is_refused(C, rank, message):
    with pytest.raises(ValueError, match=message):
        optimal_low_rank(C, rank)
