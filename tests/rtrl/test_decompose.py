"""The form of the decompositions that makes no host wait, beside LAPACK's."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from labkit.rtrl import OK, decompose
from tests.draws import close, randn, seeded

from .conftest import agree, make_cell, read


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
    "graded": lambda q: with_values(10 ** -torch.linspace(0, 6, q)),
    "graded to nothing": lambda q: with_values(10 ** -torch.linspace(0, 14, q)),
    "deficient": lambda q: randn(q, 1) @ randn(1, q, seed=1),
    "arrow": arrow,
    "ones": lambda q: torch.ones(q, q, dtype=torch.float64),
    "zero": lambda q: torch.zeros(q, q, dtype=torch.float64),
    "large": lambda q: 1e60 * randn(q, q),
    "small": lambda q: 1e-60 * randn(q, q),
}


def assert_decomposed(C, U, d, V):
    q, size = len(C), float(C.norm())
    eye = torch.eye(q, dtype=torch.float64)
    real = d > 1e-7 * d[0]  # below, OK takes d as zero
    assert (d.diff() <= 0).all() and close(d, torch.linalg.svdvals(C), 1e-13 * size)
    assert close(U * d @ V.mT, C, 1e-13 * size)
    assert close(V.mT @ V, eye, 1e-13)
    U = U[:, real]
    assert close(U.mT @ U, eye[real][:, real], 1e-13)


@pytest.mark.parametrize("q", [1, 2, 3, 8, 9, 17])
def test_jacobi_is_an_svd(q):
    given = torch.stack([make(q) for make in MATRICES.values()])
    for each in zip(given, *torch.ops.labkit.jacobi(given), strict=True):
        assert_decomposed(*each)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_ok_draws_the_same_with_either_form(kind, dtype, monkeypatch):
    """Where the singular values differ, signs alone make the noise."""
    ends = []
    for lapack in (True, False):
        monkeypatch.setattr("labkit.rtrl.decompose.on_host", lambda _, it=lapack: it)
        cell = make_cell(kind, 2, 6, dtype=dtype)
        learner = OK(cell, batch_size=4, rank=3, generator=seeded())
        read(learner, randn(9, 4, 2, dtype=dtype))
        ends.append(learner)
    one, two = ends
    tol = 1e-10 if dtype == torch.float64 else 1e-3
    assert agree(one.influence(), two.influence(), tol)
    assert agree(one.spectrum, two.spectrum, tol)


def test_cuda_without_triton_waits_for_torch(monkeypatch):
    monkeypatch.setattr(decompose, "HAS_TRITON", False)
    assert "Triton is not installed" in decompose.waits(torch.device("cuda"))
    assert not decompose.waits(torch.device("cpu"))
    for each in zip(
        randn(2, 5, 5), *decompose._jacobi_on_cuda(randn(2, 5, 5)), strict=True
    ):
        assert_decomposed(*each)


def test_what_the_kernel_would_do_on_cuda():
    """In Triton's interpreter, which must be chosen before the import of Triton."""
    if find_spec("triton") is None:
        pytest.skip("Triton comes with torch for CUDA only")
    code = "from tests.rtrl.test_decompose import interpret; interpret()"
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def interpret():
    """Slow: small orders, one odd and one even."""
    kinds = ("random", "repeated", "deficient", "graded to nothing", "zero")
    for q, some in ((3, kinds), (4, kinds[:1])):
        given = torch.stack([MATRICES[name](q) for name in some])
        for each in zip(given, *decompose._jacobi_on_cuda(given), strict=True):
            assert_decomposed(*each)
