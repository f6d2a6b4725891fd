r"""Compute a hidden layer's targets by the interpretations of equation (5).

Equation (5) of Tomic et al. 2024 gives neuron $i$ the value that repairs output $j$ if
all other neurons stay as they are. With the residual $R = B - H W$ it reads

$$\hat n_i = n_i + R_j / \hat w_{ij},$$

This is one value for each of the $J$ outputs, and the paper does not say which is
meant. Every candidate is here under a name. All but two of them also repair the same
residual $N$ times over, since all $N$ neurons move at once: ``overshoot`` measures it.
"""

import torch
from torch import Tensor

from labkit.check import Range, check_options, integer, one_of
from labkit.precision import outside_modes

INTERPRETATIONS = (
    "min_norm",
    "per_neuron",
    "gauss_seidel",
    "mean",
    "cyclic",
    "label",
    "none",
)


def check_interpretation(value: object, outputs: float) -> None:
    """Raise ValueError unless this is an interpretation for so many outputs."""
    names, index = one_of(INTERPRETATIONS), integer(0, outputs - 1)
    known = Range(
        f"{names.words}, or the index of an output, {index.words}",
        lambda value: names.holds(value) or index.holds(value),
    )
    check_options({"interpretation": value}, {"interpretation": known})


@outside_modes()
def hidden_targets(
    H: Tensor, W: Tensor, B: Tensor, interpretation: str | int = "min_norm"
) -> Tensor:
    r"""Compute corrected values of a hidden layer, before clamp and inverse activation.

    With $R = B - H W$, $w_i$ row $i$ of $W$, and (5a) to (5f) our numbers,

    (5') $\hat H = H + R\,W^+$ (min_norm)

    (5a) $\hat n_i = n_i + R\,w_i^T / |w_i|^2$ (per_neuron)

    (5b) $\hat n_i = n_i + R\,w_i^T / |w_i|^2, \;
    R \leftarrow R - (\hat n_i - n_i)\,w_i$, one i after the other (gauss_seidel)

    (5c) $\hat n_i = n_i + \frac1J \sum_j R_j / w_{ij}$ (mean)

    (5d) $\hat n_i = n_i + R_j / w_{ij}, \; j = i \bmod J$ (cyclic)

    (5e) $\hat n_i = n_i + R_j / w_{ij}, \; j = \mathrm{argmax}_k B_k$ of each (label)

    (5f) $\hat n_i = n_i + R_j / w_{ij}$ with one fixed j (an integer)

    Parameters
    ----------
    H : (..., D, N) tensor, values of the layer in the network at hand
    W : (..., N, J) tensor, weights above it, as solved
    B : (..., D, J) tensor, targets of the layer above
    interpretation : one of `INTERPRETATIONS`, or the index of one output

    Returns
    -------
    (..., D, N) tensor; H itself for "none"

    Notes
    -----
    "min_norm" is the smallest change of H that meets B if W allows it. In a linear net
    it makes the walk ordinary least squares, and (5f) gives z + N (P - z) on output j,
    with z the outputs of the net before and P the least-squares fit. If a weight is
    zero, or a singular value of W is zero to the dtype, nothing is corrected through
    it. Cost 2 D N J multiply-adds (gauss_seidel in N small steps).

    Examples
    --------
    >>> H, W = torch.zeros(1, 2), torch.tensor([[1.0], [1.0]])
    >>> B = torch.tensor([[2.0]])
    >>> [float(hidden_targets(H, W, B, how) @ W) for how in ("min_norm", 0)]
    [2.0, 4.0]
    """
    R = B - H @ W
    if interpretation == "min_norm":
        inverse = torch.linalg.pinv(W, rtol=torch.finfo(W.dtype).eps ** 0.5)
        return H + R @ inverse  # (5')
    if interpretation == "per_neuron":
        return H + (R @ W.mT) * reciprocal(W.square().sum(-1))[..., None, :]  # (5a)
    if interpretation == "gauss_seidel":
        return neuron_by_neuron(H, W, R)  # (5b)
    if interpretation == "none":
        return H
    V = reciprocal(W)
    if interpretation == "mean":
        return H + R @ V.mT / W.shape[-1]  # (5c)
    if interpretation == "label":
        j = B.expand_as(R).argmax(-1, keepdim=True)
        chosen = torch.zeros_like(R).scatter(-1, j, R.gather(-1, j))
        return H + chosen @ V.mT  # (5e)
    i = torch.arange(W.shape[-2], device=W.device)
    cyclic = interpretation == "cyclic"
    j = i % W.shape[-1] if cyclic else torch.full_like(i, int(interpretation))
    return H + R[..., j] * V[..., i, j][..., None, :]  # (5d), (5f)


def neuron_by_neuron(H: Tensor, W: Tensor, R: Tensor) -> Tensor:
    """Compute (5b), the Gauss-Seidel form of (5a), one neuron after the other."""
    scale = reciprocal(W.square().sum(-1))
    moves = []
    for i in range(W.shape[-2]):
        w = W[..., i, None, :]  # (..., 1, J)
        move = (R * w).sum(-1) * scale[..., i, None]  # (5b)
        R = R - move[..., None] * w  # (5b)
        moves.append(move)
    return H + torch.stack(moves, -1)


def reciprocal(x: Tensor) -> Tensor:
    """Return 1 / x, or 0 where x is zero or so small that 1 / x is not finite."""
    y = 1 / x
    return torch.where(torch.isfinite(y), y, 0)


def overshoot(change: Tensor, W: Tensor, R: Tensor) -> Tensor:
    r"""Compute how many times a correction repairs the residual: 1 for (5').

    $\langle (\hat H - H) W, R \rangle / |R|^2$, over all samples and outputs. (5a) to
    (5f) overshoot by about N / J to N; below 1 a part of the residual stays.

    Parameters
    ----------
    change : (..., D, N) tensor, corrected values less the values, H^ - H
    W : (..., N, J) tensor
    R : (..., D, J) tensor, residual, B - H W

    Returns
    -------
    (...,) tensor, nan where the residual is zero
    """
    return ((change @ W) * R).sum((-2, -1)) / R.square().sum((-2, -1))
