r"""Run one walk over rows that come in batches, by the sums of its normal equations.

A walk keeps the values $H_l$ of the random network as they are (Algorithm 1), so the
matrix and the right side of every layer's solve are sums over the samples:

(6) $V_l = (G_l + \lambda I)^{-1} C_l$, $G_l = \sum_b H_{l-1}^T H_{l-1}$,
$C_l = \sum_b H_{l-1}^T B_l$ over the batches b.

All $G_l$ and the output layer's $V$ are the same as in a walk over all rows together,
whatever the batches. The targets $B_l$ of a hidden layer follow from the weights above
it. Those of a batch are computed with the weights from all rows so far, and do not
change when later batches change these weights. With one hidden layer, repeating the
rows k times makes the difference k + 1 times smaller.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.bpls.activations import Activation, clamp_targets, send_back
from labkit.bpls.solve import Solve, cross, cut_eigh, factored, gram, weighed
from labkit.bpls.targets import hidden_targets
from labkit.bpls.walk import Settings, Weights, hidden_values


class Sums(NamedTuple):
    """The normal equations of a layer."""

    G: Tensor  # (K, K), A^T A over all rows so far
    C: Tensor  # (K, J), A^T B

    def solve(self, ridge: float) -> tuple[Tensor, Solve]:
        """Solve for weights (K, J) with a relative ridge; 0 gives the minimum norm."""
        if ridge == 0:
            return cut_eigh(self.G, self.C, 0.0)
        regular = factored(self.G.clone(), ridge)
        return regular.solve(self.C), regular.info()


class LayerSums(NamedTuple):
    """The normal equations of both solves of a layer."""

    first: Sums  # of the values of the random network
    second: Sums | None = None  # of the corrected values, for Algorithm 2


def added(sums: Sums | None, A: Tensor, B: Tensor, root: Tensor | None) -> Sums:
    """Return normal equations to which the rows of A (D, K) and B (D, J) are added."""
    A, B = weighed(root, A), weighed(root, B)
    G, C = gram(A), cross(A, B)
    return Sums(G, C) if sums is None else Sums(sums.G + G, sums.C + C)


def batch_walk(
    sums: Sequence[LayerSums | None],
    X: Tensor,
    B: Tensor,
    start: Weights,
    activations: Sequence[Activation],
    settings: Settings,
    *,
    ridge: float,
    second_solve: bool = False,
    root: Tensor | None = None,
) -> tuple[list[LayerSums], Weights, list[Solve]]:
    r"""Add a batch to the walk, and solve all layers again.

    The layers are solved as in `layer_step`, but from the sums:

    (6) $V = (G + \lambda I)^{-1} C$    (5) $T = H + R\,V^+$
    (7) $C' = \mathrm{clamp}_\varepsilon(T)$    (8) $B' = a^{-1}(C')$
    (9) $W = (G' + \lambda I)^{-1} C''$, with $G' = \sum_b C'^T C'$,
    $C'' = \sum_b C'^T B$.

    Parameters
    ----------
    sums : sequence of L + 1 `LayerSums`, of layers 1 to L + 1; None before any batch
    X : (D, M) tensor, inputs, dense or in COO form
    B : (D, J) tensor, `output_targets`
    start : tuple of tensors, the random network
    activations : sequence of L `Activation`
    settings : Settings, of which ``interpretation`` and ``clamp`` are read
    ridge : float >= 0, relative
    second_solve, root : as for `labkit.bpls.walk`

    Returns
    -------
    sums : list of LayerSums
    weights : tuple of tensors, W_1, ..., W_{L+1}
    infos : list of Solve, of layers 1 to L + 1

    Notes
    -----
    Cost in multiply-adds: D sum_l N_{l-1}^2 for the batch, and the factors of all
    layers, sum_l N_{l-1}^3 / 6. The sums need sum_l N_{l-1} (N_{l-1} + N_l) numbers.
    """
    H, sums = hidden_values(X, start, activations), list(sums)
    weights, infos = [None] * len(sums), [None] * len(sums)
    for i in reversed(range(len(sums))):  # layer i + 1
        old = sums[i] or LayerSums(None)
        first = added(old.first, H[i], B, root)  # (6)
        weights[i], infos[i] = first.solve(ridge)  # (6)
        sums[i] = LayerSums(first)
        if i == 0:
            break
        a = activations[i - 1]
        T = hidden_targets(H[i], weights[i], B, settings.interpretation)  # (5)
        C = clamp_targets(T, a, settings.clamp)  # (7)
        if second_solve:
            second = added(old.second, C, B, root)  # (9)
            weights[i], _ = second.solve(ridge)  # (9)
            sums[i] = LayerSums(first, second)
        B = send_back(C, a)  # (8)
    return sums, tuple(weights), infos


def all_finite(weights: Weights) -> bool:
    """Return whether every weight is finite."""
    return all(bool(torch.isfinite(W).all()) for W in weights)
