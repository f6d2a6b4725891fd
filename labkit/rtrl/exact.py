r"""Exact real-time recurrent learning (Williams and Zipser 1989; Benzing et al.)."""

import torch
from torch import Tensor

from labkit.rtrl.learner import Learner


def rtrl_step(
    G: Tensor, H: Tensor, h_hat: Tensor, D: Tensor, out: Tensor | None = None
) -> Tensor:
    r"""Compute one step of exact RTRL; cost 2 S^2 m K n per sequence, memory S m K n.

    (1) $G_t = H_t G_{t-1} + F_t$    (2) $F_t = \hat h_t \otimes D_t$

    F is never formed: its only non-zero entries lie on the diagonals j = j'.

    Parameters
    ----------
    G : (b, S, m K n) tensor, $G$, influence, columns theta = W row by row
    H, h_hat, D : tensors, $H$, $\hat h$, $D$ of the cell's step
    out : like G, optional, receives the result; not G itself
    """
    b, P, K, n = D.shape
    G = torch.bmm(H, G, out=out)  # (1)
    blocks = G.view(b, P, n, h_hat.shape[1], K, n).diagonal(dim1=2, dim2=5)
    blocks += h_hat[:, None, :, None, None] * D[:, :, None]  # (2)
    return G


def rtrl_count(n: int, m: int, K: int, P: int, r: int) -> tuple[int, int]:
    """Return the count of :class:`~labkit.rtrl.learners.Method`."""
    S, W = P * n, m * K * n
    return 2 * W + 2 * K * S * n + 2 * S * S * W + 2 * m * K * S + 2 * S * W, S * W


class RTRL(Learner):
    """Exact RTRL, which keeps all of G, (b, S, m K n), twice; the reference learner.

    In float64 it agrees with back-propagation through the whole sequence to 1e-12
    relative.
    """

    tensors, draws = ("G",), False

    def _allocate(self) -> None:
        self.G = self._zeros(self.cell.state_size, self.cell.weight.numel())
        self._work = torch.empty_like(self.G)

    def _advance(self, x: Tensor) -> dict[str, Tensor]:
        step = self.cell.step(x, self.state)
        G = rtrl_step(self.G, step.H, step.h_hat, step.D, out=self._work)
        return {"state": step.state, "G": G, "_work": self.G}

    def _per_sequence(self, delta: Tensor):
        g = torch.bmm(delta[:, None], self.G)
        return g.view(self.batch_size, *self.cell.weight.shape)

    def _influence(self) -> Tensor:
        return self.G.clone()
