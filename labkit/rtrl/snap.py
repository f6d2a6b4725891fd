r"""SnAp-1: the influence where a weight acts at once (Menick et al., ICLR 2021)."""

import torch
from torch import Tensor

from labkit.rtrl.learner import Learner


def snap1_step(J: Tensor, H: Tensor, h_hat: Tensor, D: Tensor) -> Tensor:
    r"""One step of SnAp-1 (Menick et al. 2021, section 3), for a fully connected cell.

    A weight of unit j acts at once on the state of unit j alone: only that part of the
    influence is kept, and only the paths of H from a unit to itself, $H_{jj}$. Cost
    2 P^2 m K n per sequence, memory P m K n.

    (1) $J_t = H_{jj} J_{t-1} + F_t$    (2) $F_t = \hat h_t \otimes D_t$

    Parameters
    ----------
    J : (b, P, m, K, n) tensor, $J$, [p, i, k, j] is d s[p n + j] / d W[i, k, j]
    H, h_hat, D : tensors, $H$, $\hat h$, $D$ of the cell's step
    """
    b, P, _, n = D.shape
    own = H.reshape(b, P, n, P, n).diagonal(dim1=2, dim2=4)  # (1): H_jj, (b, P, P, n)
    J = torch.einsum("bpqj,bqikj->bpikj", own, J)  # (1)
    J += h_hat[:, None, :, None, None] * D[:, :, None]  # (2)
    return J


def snap1_count(n: int, m: int, K: int, P: int, r: int) -> tuple[int, int]:
    """See :class:`~labkit.rtrl.learners.Method`."""
    S, W = P * n, m * K * n
    return 2 * W + 2 * K * S * n + 2 * P * P * W + 4 * P * W, P * W


class SnAp1(Learner):
    """SnAp-1: without noise, but biased; exact where no unit reads another one."""

    tensors, draws = ("J",), False

    def _allocate(self) -> None:
        cell = self.cell
        self.J = self._zeros(
            cell.parts, cell.augmented_size, cell.blocks, cell.hidden_size
        )

    def _advance(self, x: Tensor) -> dict[str, Tensor]:
        step = self.cell.step(x, self.state)
        J = snap1_step(self.J, step.H, step.h_hat, step.D)
        return {"state": step.state, "J": J}

    def _per_sequence(self, delta: Tensor):
        rows = delta.unflatten(1, (self.cell.parts, -1))
        return torch.einsum("bpj,bpikj->bikj", rows, self.J).flatten(2)

    def _influence(self) -> Tensor:
        """Return G', zero outside a weight's own unit."""
        b, P, m, K, n = self.J.shape
        G = self._zeros(P, n, m, K, n)
        G.diagonal(dim1=2, dim2=5).copy_(self.J)
        return G.view(b, P * n, m * K * n)
