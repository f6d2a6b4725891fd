"""The form of the decompositions that makes no host wait, beside LAPACK's."""

import importlib.util
import os
import subprocess
import sys
from itertools import combinations

import pytest
import torch

from labkit.rtrl import OK, decompose
from labkit.rtrl.decompose import tournament

from .conftest import agree, make_cell, randn, read


def rotations(q):
    return torch.linalg.qr(randn(2, q, q, seed=q))[0]


def with_values(d):
    U, V = rotations(len(d))
    return U * torch.as_tensor(d, dtype=torch.float64) @ V.mT


def arrow(q):
    """The Gram matrix of u after a step of OK: equal norms, orthogonal, but one."""
    x = torch.cat([rotations(q)[0, :-1], randn(1, q) / q**0.5])
    return x @ x.mT


MATRICES = {
    "random": lambda q: randn(q, q),
    "repeated": lambda q: with_values([3.0] * (q // 2) + [1.0] * (q - q // 2)),
    "all equal": lambda q: with_values([2.0] * q),
    "graded": lambda q: with_values(10 ** -torch.linspace(0, 6, q)),
    "graded to nothing": lambda q: with_values(10 ** -torch.linspace(0, 14, q)),
    "deficient": lambda q: randn(q, 1) @ randn(1, q, seed=1),
    "arrow": arrow,
    "arrow in float32": lambda q: arrow(q).float().double(),
    "ones": lambda q: torch.ones(q, q, dtype=torch.float64),
    "zero": lambda q: torch.zeros(q, q, dtype=torch.float64),
    "large": lambda q: 1e60 * randn(q, q),
    "small": lambda q: 1e-60 * randn(q, q),
}


def assert_decomposed(C, U, d, V):
    q, size = len(C), float(C.norm())
    eye = torch.eye(q, dtype=torch.float64)
    real = d > 1e-7 * d[0]  # below, OK takes d as zero
    assert (d.diff() <= 0).all() and torch.allclose(
        d, torch.linalg.svdvals(C), rtol=0, atol=1e-13 * size
    )
    assert torch.allclose(U * d @ V.mT, C, rtol=0, atol=1e-13 * size)
    assert torch.allclose(V.mT @ V, eye, rtol=0, atol=1e-13)
    U = U[:, real]
    assert torch.allclose(U.mT @ U, eye[real][:, real], rtol=0, atol=1e-13)


@pytest.mark.parametrize("q", [1, 2, 3, 8, 9, 17])
def test_jacobi_is_an_svd(q):
    given = torch.stack([make(q) for make in MATRICES.values()])
    for each in zip(given, *torch.ops.labkit.jacobi(given), strict=True):
        assert_decomposed(*each)


@pytest.mark.parametrize("q", [2, 4, 10, 18])
def test_every_two_meet_once_a_sweep(q):
    rounds = [list(zip(*pairs, strict=True)) for pairs in tournament(q)]
    assert all(len({i for pair in r for i in pair}) == q for r in rounds)
    met = sorted(tuple(sorted(pair)) for r in rounds for pair in r)
    assert met == list(combinations(range(q), 2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_ok_draws_the_same_with_either_form(kind, dtype, monkeypatch):
    """Where the singular values differ, signs alone make the noise."""
    ends = []
    for lapack in (True, False):
        monkeypatch.setattr("labkit.rtrl.decompose.on_host", lambda _, it=lapack: it)
        cell = make_cell(kind, 2, 6, dtype=dtype)
        generator = torch.Generator().manual_seed(0)
        learner = OK(cell, batch_size=4, rank=3, generator=generator)
        read(learner, randn(9, 4, 2, dtype=dtype))
        ends.append(learner)
    one, two = ends
    tol = 1e-10 if dtype == torch.float64 else 1e-3
    assert agree(one.influence(), two.influence(), tol)
    assert agree(one.spectrum, two.spectrum, tol)


@pytest.mark.parametrize("rank", [1, 3])
def test_the_decomposition_can_be_chosen(rank):
    """On the CPU the three give the same to rounding; another word is refused."""
    cell = make_cell("rhn", 2, 6)
    ends = []
    for choice in ("auto", "own", "torch"):
        g = torch.Generator().manual_seed(0)
        options = {"rank": rank, "generator": g, "decomposition": choice}
        learner = read(OK(cell, batch_size=4, **options), randn(9, 4, 2))
        learner.change_rank(rank + 1)
        ends.append(read(learner, randn(3, 4, 2, seed=1)).influence())
    assert torch.equal(ends[0], ends[2]) and not torch.equal(ends[0], ends[1])
    assert agree(ends[1], ends[0], 1e-10)
    with pytest.raises(ValueError, match="decomposition must be one of auto, own, tor"):
        OK(cell, batch_size=4, rank=1, decomposition="best")


# The first time on a device: faults planted in the kernel


def wrong_vectors(C):
    U, d, V = torch.ops.labkit.jacobi(C)
    return U, d, V.roll(1, -1)


def wrong_values(C):
    U, d, V = torch.ops.labkit.jacobi(C)
    return U, 1.001 * d, V


def not_orthogonal(C):
    U, d, V = torch.ops.labkit.jacobi(C)
    return U / 2, d, 2 * V


def not_finite(C):
    return tuple(torch.nan * each for each in torch.ops.labkit.jacobi(C))


def raises(C):
    raise RuntimeError("out of registers")


FAULTS = {
    wrong_vectors: "its product of order 3 are .* off torch's",
    wrong_values: "its singular values of order 3 are .* off torch's",
    not_orthogonal: "its vectors of order 3 are .* off torch's",
    not_finite: "its singular values of order 3 are inf off torch's",
    raises: "it failed with RuntimeError: out of registers",
    None: "Triton is not installed",
}


@pytest.fixture
def unproven():
    decompose.distrust.cache_clear()
    yield
    decompose.distrust.cache_clear()


@pytest.mark.parametrize("kernel", FAULTS)
def test_a_faulty_kernel_is_noticed_at_its_first_use(kernel, unproven, monkeypatch):
    """Torch's is taken in its place, and one warning names what was wrong."""
    tried = []
    planted = kernel and (lambda C: tried.append(1) or kernel(C))
    monkeypatch.setattr(decompose, "own_kernel", lambda: planted)
    C = torch.stack([make(5) for make in MATRICES.values()])
    with pytest.warns(RuntimeWarning, match=FAULTS[kernel]) as caught:
        for _ in range(3):
            for each in zip(C, *decompose._jacobi_on_cuda(C), strict=True):
                assert_decomposed(*each)
    assert len(caught) == 1 and len(tried) == bool(kernel)
    reason = decompose.distrust(C.device)
    monkeypatch.setattr(decompose, "distrust", lambda _: reason)
    assert f"waits: {reason}" in decompose.waits(torch.device("cuda"))


def test_a_sound_kernel_is_taken_without_a_word(unproven, monkeypatch, recwarn):
    taken = []
    kernel = lambda C: taken.append(len(C)) or torch.ops.labkit.jacobi(C)  # noqa: E731
    monkeypatch.setattr(decompose, "own_kernel", lambda: kernel)
    C = torch.stack([make(5) for make in MATRICES.values()])
    for _ in range(2):
        for each in zip(C, *decompose._jacobi_on_cuda(C), strict=True):
            assert_decomposed(*each)
    assert taken == [4, 4, len(C), len(C)] and not recwarn.list  # two probes, two uses
    assert decompose.waits(torch.device("cuda"), "own") == ""
    assert "as decomposition='torch' asks" in decompose.waits(
        torch.device("cuda"), "torch"
    )


def test_what_the_kernel_would_do_on_cuda():
    """In Triton's interpreter, which must be chosen before the import of Triton."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton comes with torch for CUDA only")
    code = "from tests.rtrl.test_decompose import interpret; interpret()"
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def interpret():
    """Slow: small orders, one odd and one even."""
    kernel = importlib.import_module("labkit.rtrl.jacobi_kernel")
    kinds = ("random", "repeated", "deficient", "graded to nothing", "zero")
    for q, some in ((3, kinds), (4, kinds[:1])):
        given = torch.stack([MATRICES[name](q) for name in some])
        for each in zip(given, *kernel.jacobi(given), strict=True):
            assert_decomposed(*each)
