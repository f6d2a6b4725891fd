r"""RFLO: the influence along a unit's own leak (Murray, eLife 2019).

Random-feedback online learning ignores, as SnAp-1 does, what a weight does to units
other than its own. It ignores the paths through the recurrent weights too: only the
unit's leak remains, which is the direct path of a cell.

Deviations from the paper, each held by a test: its network leaks at a constant rate
1 / tau, here the rate is the cell's direct path (0 for :class:`RNNCell`, the carry gate
of :class:`RHNCell`, the forget gate of :class:`LSTMCell`); and its second idea, random
weights in place of the readout's, is left to the caller, who hands ``gradient`` the
error times any matrix as ``dL_dh``.
"""

import torch
from torch import Tensor

from labkit.rtrl.snap import SnAp1


def rflo_step(J: Tensor, direct: Tensor | None, h_hat: Tensor, D: Tensor) -> Tensor:
    r"""Compute one step of RFLO (Murray 2019, equation 4, for the cells of labkit).

    $J_{direct}$ is d s_t / d s_{t-1} at fixed pre-activations, unit by unit. Cost
    2 P^2 m K n per sequence, memory P m K n; H is never formed.

    (1) $J_t = J_{direct} J_{t-1} + F_t$    (2) $F_t = \hat h_t \otimes D_t$

    Parameters
    ----------
    J : (b, P, m, K, n) tensor, $J$, [p, i, k, j] is d s[p n + j] / d W[i, k, j]
    direct : (b, P, P, n) tensor, $J_{direct}$; None where it is zero
    h_hat, D : tensors, $\hat h$, $D$ of the cell's step
    """
    F = h_hat[:, None, :, None, None] * D[:, :, None]  # (2)
    if direct is None:
        return F
    return torch.einsum("bpqj,bqikj->bpikj", direct, J) + F  # (1)


def rflo_count(n: int, m: int, K: int, P: int, r: int) -> tuple[int, int]:
    """Return the count of :class:`~labkit.rtrl.learners.Method`."""
    W = m * K * n
    return 2 * W + 2 * P * P * W + 4 * P * W, P * W


class RFLO(SnAp1):
    """RFLO, without noise but biased; exact where no unit reads any unit's output."""

    def _advance(self, x: Tensor) -> dict[str, Tensor]:
        new = self.cell.linearise(x, self.state)
        J = rflo_step(self.J, new.direct, new.h_hat, new.D)
        return {"state": new.state, "J": J}
