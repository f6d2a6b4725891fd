"""The pure step functions as one graph, without a break."""

import pytest
import torch

from labkit.rtrl.exact import rtrl_step
from labkit.rtrl.kronecker import kf_step, ok_step
from labkit.rtrl.ktp import ktp_shared_step, ktp_step
from labkit.rtrl.rflo import rflo_step
from labkit.rtrl.snap import snap1_step
from labkit.rtrl.uoro import uoro_step

from .conftest import make_cell, randn

B, N = 2, 3


def arguments(step):
    """One call of a step function, of an RHN with 3 units."""
    cell = make_cell("rhn", 2, N)
    H, h_hat, D = cell.step(randn(B, 2), randn(B, N))[2:]
    m, Kn = cell.weight.shape
    frozen = H, h_hat, D
    u, A, signs = randn(B, 2, m), randn(B, 2, Kn, N), torch.ones(B, 3).double()
    ktp = randn(B, 2, N), randn(B, 2, Kn), h_hat, randn(B, 2, N), randn(B, 2, Kn)
    return {
        rtrl_step: (randn(B, N, m * Kn), *frozen),
        ok_step: (u, A, h_hat, D, signs),
        kf_step: (u, A, h_hat, D, signs[:, :2]),
        uoro_step: (randn(B, m, Kn), randn(B, N), h_hat, D, signs),
        snap1_step: (randn(B, 1, m, 2, N), *frozen),
        rflo_step: (randn(B, 1, m, 2, N), randn(B, 1, 1, N), h_hat, D),
        ktp_step: (u, *ktp, torch.ones(B, 2, 2).double()),
        ktp_shared_step: (u[:, 0], *ktp, signs),
    }[step]


STEPS = [rtrl_step, ok_step, kf_step, uoro_step, snap1_step, rflo_step]
STEPS += [ktp_step, ktp_shared_step]


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_one_graph(step, backend, monkeypatch):
    monkeypatch.setattr("labkit.rtrl.decompose.on_host", lambda _: step is not ok_step)
    torch._dynamo.reset()
    one = torch.compile(step, fullgraph=True, backend=backend)(*arguments(step))
    two = step(*arguments(step))
    torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-12)
