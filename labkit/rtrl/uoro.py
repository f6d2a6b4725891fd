r"""UORO: an unbiased rank-one influence (Tallec and Ollivier 2017).

Deviation from the paper: a norm that is 0 (first step, after a reset) makes its balance
factor 1 where the original adds a small epsilon; both keep the estimate unbiased.
"""

import torch
from torch import Tensor

from labkit.rtrl.learner import Learner


def balance(x: Tensor, y: Tensor) -> Tensor:
    """Return sqrt(x / y), or 1 where x or y is 0."""
    ratio = (x / y).sqrt().nan_to_num(0, 0)  # 0 / 0 and what y = 0 makes infinite
    return ratio.masked_fill_(ratio == 0, 1)


def norm(x: Tensor, dims: int) -> Tensor:
    """Return the Frobenius norm over the last ``dims`` axes, kept with size 1."""
    return torch.linalg.vector_norm(x, dim=tuple(range(-dims, 0)), keepdim=True)


def uoro_step(
    v: Tensor, Hu: Tensor, h_hat: Tensor, D: Tensor, signs: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Compute one step of UORO; G' = u v^T with v read row by row.

    (1) $w = \hat h \otimes (\nu^T D)$
    (2) $\rho_0 = \sqrt{|v| / |Hu|}$    (3) $\rho_1 = \sqrt{|w| / |\nu|}$
    (4) $u' = \rho_0\, Hu + \rho_1\, \nu$    (5) $v' = v / \rho_0 + w / \rho_1$

    Returns u' (b, S) and v' (b, m, K n). Cost O(S K + m K n).

    Parameters
    ----------
    v, Hu : (b, m, K n) and (b, S) tensors, $v$, $Hu$: the old u, carried on by H
    h_hat, D : tensors, $\hat h$, $D$ of the cell's step
    signs : (b, S) tensor of -1 and +1, $\nu$, for F's reduction and for the mixing
        E[nu nu^T] = I, and E[nu] = 0 removes the cross terms.
    """
    nu = signs.unflatten(1, (D.shape[1], -1))
    w = torch.einsum("bm,bpj,bpkj->bmkj", h_hat, nu, D).flatten(2)  # (1)
    rho0 = balance(norm(v, 2)[..., 0], norm(Hu, 1))  # (2)
    rho1 = balance(norm(w, 2)[..., 0], norm(signs, 1))  # (3)
    u = rho0 * Hu + rho1 * signs  # (4)
    v = v / rho0[..., None] + w / rho1[..., None]  # (5)
    return u, v


def uoro_count(n: int, m: int, K: int, P: int, r: int) -> tuple[int, int]:
    """Return the count of :class:`~labkit.rtrl.learners.Method`."""
    S, W = P * n, m * K * n
    carry = 2 * K * n * n + 2 * K * S + 2 * P * S
    mix = 2 * K * S + 8 * W + 5 * S
    return 2 * W + carry + mix + 2 * (S + W), S + W


class UORO(Learner):
    """UORO, which is unbiased, with O(S + m K n) memory and noise that grows with S."""

    tensors = ("u", "v")

    def _allocate(self) -> None:
        self.u = self._zeros(self.cell.state_size)
        self.v = self._zeros(*self.cell.weight.shape)

    def _advance(self, x: Tensor) -> dict[str, Tensor]:
        step, Hu = self.cell.jvp(x, self.state, self.u[:, None])
        signs = self._signs(self.cell.state_size)
        u, v = uoro_step(self.v, Hu[:, 0], step.h_hat, step.D, signs)
        return {"state": step.state, "u": u, "v": v}

    def _per_sequence(self, delta: Tensor):
        return (delta * self.u).sum(1)[:, None, None] * self.v

    def _gradient(self, delta: Tensor):
        return torch.einsum("bs,bs,bmk->mk", delta, self.u, self.v)

    def _influence(self) -> Tensor:
        return torch.einsum("bs,bc->bsc", self.u, self.v.flatten(1))
