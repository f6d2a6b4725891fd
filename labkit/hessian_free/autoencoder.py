r"""Deep autoencoders whose layers carry the bias as the last row of their weights.

Emirahmetoglu and Stewart, sections 3 and 4.1. Layer l has W_l of shape
(m_l + 1, m_{l+1}). Its last row is the bias; W_l^- is W_l without it, and X~ = [X 1].
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from labkit.check import (
    COUNT,
    POSITIVE,
    Range,
    check_making,
    check_options,
    check_tensor,
)

# The derivatives are functions of the output, because a forward pass keeps that.
ACTIVATIONS = {
    "logistic": (torch.sigmoid, lambda S: S * (1 - S)),
    "tanh": (torch.tanh, lambda S: 1 - S * S),
    "linear": (lambda Z: Z, torch.ones_like),
    "relu": (torch.relu, lambda S: (S > 0).to(S)),
}
ENCODER = Range("integers >= 1", lambda v: all(map(COUNT.holds, v)))
WIDTHS = Range(
    "three or more integers >= 1 that mirror, such as mirrored((64, 32, 8))",
    lambda v: len(v) > 2 and v == v[::-1] and ENCODER.holds(v),
)
OPTIONS = {"widths": WIDTHS, "incoming": COUNT, "std": POSITIVE}


def mirrored(encoder: Iterable[int]) -> tuple[int, ...]:
    """Return a net's widths from those of its encoder, whose code layer is last.

    Examples
    --------
    >>> mirrored((64, 32, 8))
    (64, 32, 8, 32, 64)
    """
    encoder = tuple(encoder)
    check_options({"encoder": encoder}, {"encoder": ENCODER})
    return encoder + encoder[-2::-1]


class Autoencoder(nn.Module):
    r"""An autoencoder with mirrored widths, logistic in every layer.

    (3) $S_0 = X, \qquad S_l = \sigma_l(\tilde S_{l-1} W_l)$

    Parameters
    ----------
    widths : sequence of int, $m_1, ..., m_{k+1}$, the same read from either end
    incoming : int, $m_0$, nonzero incoming weights of each unit at the start (9)
    std : float, their standard deviation; the paper's N(0, sigma) is read so
    activations : sequence of str, optional
        A name for each of the k layers: "logistic", "tanh", "relu" or "linear". If not
        given all are logistic, code and output too, as in the paper.
    generator : torch.Generator, optional, of the initial weights

    Examples
    --------
    >>> net = Autoencoder((6, 3, 6))
    >>> [tuple(W.shape) for W in net.parameters()]
    [(7, 3), (4, 6)]
    """

    def __init__(
        self,
        widths: Iterable[int],
        *,
        incoming: int = 10,
        std: float = 1.5,
        activations: Iterable[str] | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        super().__init__()
        check_making(generator, dtype, device)
        self.widths = tuple(widths)
        check_options(
            {"widths": self.widths, "incoming": incoming, "std": std}, OPTIONS
        )
        k = len(self.widths) - 1
        self.activations = tuple(activations or ["logistic"] * k)
        if len(self.activations) != k or not {*self.activations} <= {*ACTIVATIONS}:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(
                f"activations must be {k} names of {known}, got {self.activations}"
            )
        self.weights = nn.ParameterList(
            _sparse_weights(m, p, incoming, std, generator, dtype, device)
            for m, p in pairwise(self.widths)
        )

    def forward(self, X: Tensor) -> Tensor:
        """Return the reconstruction of X: (n, m_1) -> (n, m_1)."""
        check_tensor("X", X, shape=("n", self.widths[0]), like=self.weights[0])
        return self.passed(X, self.weights)

    def encode(self, X: Tensor) -> Tensor:
        """Return the code of X: (n, m_1) -> (n, width of the code layer)."""
        check_tensor("X", X, shape=("n", self.widths[0]), like=self.weights[0])
        return self.passed(X, self.weights[: len(self.weights) // 2])

    def passed(self, X: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Return what the first layers make of X, unchecked: (n, m_1) -> (n, m_l)."""
        S = X
        for W_l, name in zip(weights, self.activations, strict=False):
            S = ACTIVATIONS[name][0](torch.addmm(W_l[-1], S, W_l[:-1]))  # (3)
        return S


def _sparse_weights(m, p, incoming, std, generator, dtype, device) -> nn.Parameter:
    r"""Draw one layer's weights (m + 1, p) by Martens' sparse scheme, the paper's (9).

    Each unit gets min(incoming, m) inputs, drawn without replacement, with weights
    N(0, std^2); all other weights and the bias row are zero.
    """
    order = torch.rand(m, p, generator=generator, device=device).argsort(0)
    chosen = order[: min(incoming, m)]
    values = torch.randn(chosen.shape, generator=generator, dtype=dtype, device=device)
    values *= std
    W = values.new_zeros(m + 1, p)
    return nn.Parameter(W.scatter_(0, chosen, values))
