r"""The residual at given weights and rows, and its derivative as a pair of maps.

Emirahmetoglu and Stewart, sections 3 and 4.6, Algorithms 4 and 5. With n examples,

.. math:: R = (S_k - T) / \sqrt n, \qquad f = \tfrac12 |R|_F^2, \qquad A = \nabla R,

T the targets (X for an autoencoder). A is never formed: ``forward_map`` gives A d and
``transpose_map`` A'U. Errors are reported as 2 f, the squared error summed over outputs
and averaged over examples. Other losses: :mod:`labkit.hessian_free.losses`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from labkit.hessian_free.autoencoder import ACTIVATIONS, Autoencoder
from labkit.hessian_free.checks import check_batch, check_model
from labkit.hessian_free.losses import LinearisedSoftmax, Point, cross_entropy
from labkit.hessian_free.vectors import Blocks, as_tuple, check_blocks

ROWS = 32  # examples whose gradients a LinearisedModule holds at once


def weights_of(model: nn.Module) -> Blocks:
    """Return the trained parameters, in order, detached; they share memory."""
    return tuple(p.detach() for p in model.parameters() if p.requires_grad)


def linearise(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    loss: str = "squared",
    weights: Blocks | None = None,
) -> "LinearisedLayers | LinearisedModule | LinearisedSoftmax":
    """Return the residual of a model and its derivative, at its weights or at others.

    Parameters
    ----------
    model : nn.Module
        An Autoencoder, whose maps are written by hand unless it is of a subclass or a
        layer is frozen, or any module that takes (n, ...) to (n, ...) row by row and
        draws no random numbers: batch normalisation in training mode, dropout, nn.RNN,
        nn.LSTM and nn.GRU are refused.
    inputs : (n, ...) tensor, $X$
    targets : tensor, optional, $T$, see :class:`HessianFree`
    loss : {"squared", "softmax"}
    weights : tuple of tensors, optional
        Where to linearise; the model's own if not given. They are not copied: leave
        them unchanged.

    Returns
    -------
    LinearisedLayers or LinearisedModule; for "softmax" a LinearisedSoftmax around one
    of them
    """
    _check(model, inputs, targets, loss, weights)
    return linearised(model, inputs, targets, loss, weights)


def linearised(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor | None,
    loss: str,
    weights: Blocks | None,
) -> "LinearisedLayers | LinearisedModule | LinearisedSoftmax":
    """Return what :func:`linearise` returns, of arguments that were checked."""
    weights = weights_of(model) if weights is None else tuple(weights)
    targets = inputs if targets is None else targets
    squared = targets if loss == "squared" else None
    if type(model) is Autoencoder and len(weights) == len(model.weights):
        point = _linearise_layers(weights, model.activations, inputs, squared)
    else:
        point = LinearisedModule(model, weights, inputs, squared)
    return point if loss == "squared" else LinearisedSoftmax(point, targets)


def _check(model, inputs, targets, loss, weights):
    check_model(model, loss)
    check_batch(model, loss, inputs, targets)
    if weights is not None:
        check_blocks("weights", weights, weights_of(model))


def mean_loss(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    loss: str = "squared",
    weights: Blocks | None = None,
) -> Tensor:
    """Return f, (): half the squared error, or the mean cross-entropy."""
    _check(model, inputs, targets, loss, weights)
    return loss_at(model, inputs, targets, loss, weights)


def squared_error(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    weights: Blocks | None = None,
) -> Tensor:
    """Return 2 f, (): the squared error summed over outputs, averaged over examples."""
    return 2 * mean_loss(model, inputs, targets, weights=weights)


@torch.no_grad()
def loss_at(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor | None,
    loss: str,
    weights: Blocks | None = None,
) -> Tensor:
    """Return f, (), of rows and weights that were checked."""
    targets = inputs if targets is None else targets
    outputs = _outputs(model, inputs, weights)
    if loss == "softmax":
        return cross_entropy(outputs, targets)
    return 0.5 * ((outputs - targets).square_().sum() / len(inputs))


def _outputs(model, inputs, weights):
    if weights is None:
        return model(inputs)
    if type(model) is Autoencoder and len(weights) == len(model.weights):
        return model.passed(inputs, weights)
    named = {name: weights[i] for name, i in _indices(model).items()}
    return functional_call(model, named, (inputs,), tie_weights=False)


def _indices(model) -> dict[str, int]:
    """Return the names of trained parameters, each with its index among the weights.

    A tensor that several modules share has all their names. A module that is used twice
    has one name, because ``functional_call`` would restore it wrongly under two.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    index = {p: i for i, p in enumerate(trained)}
    return {
        f"{prefix}.{name}" if prefix else name: index[p]
        for prefix, module in model.named_modules()
        for name, p in module.named_parameters(recurse=False, remove_duplicate=False)
        if p in index
    }


@torch.no_grad()
def _linearise_layers(weights, activations, inputs, targets) -> "LinearisedLayers":
    r"""Linearise layers, keeping $\tilde S_{l-1}$ and $S'_l$ of a forward pass.

    (3) $S_l = \sigma_l(\tilde S_{l-1} W_l)$
    """
    S, kept, derivatives = inputs, [], []
    for W, name in zip(weights, activations, strict=True):
        function, derivative = ACTIVATIONS[name]
        kept.append(with_ones(S))
        S = function(kept[-1] @ W)  # (3)
        derivatives.append(derivative(S))
    residual = S.clone() if targets is None else S - targets
    residual.mul_(1 / math.sqrt(len(inputs)))
    return LinearisedLayers(weights, tuple(kept), tuple(derivatives), residual)


def with_ones(S: Tensor) -> Tensor:
    r"""Return $\tilde S = [S\ 1]$, (n, m) -> (n, m + 1).

    Its rows lie a multiple of 16 entries apart; if they lay an odd number apart, the
    product $\tilde S^T F$ of a wide first layer would take a quarter longer on a CPU.
    """
    n, m = S.shape
    out = S.new_empty(n, -(-(m + 1) // 16) * 16)[:, : m + 1]
    out[:, :m] = S
    out[:, m] = 1
    return out


@dataclass(frozen=True, eq=False, repr=False)
class LinearisedLayers(Point):
    r"""The derivative A = dR/dw of a stack of layers, from stored activations.

    Algorithms 4 and 5; the column of ones in $\tilde S$ has derivative 0: $W^-$
    appears where signals pass, and $\tilde S$ where weights enter:

    (A1) $F_1 = S'_1 \circ \tilde S_0 D_1$
    (A2) $F_l = S'_l \circ (F_{l-1} W_l^- + \tilde S_{l-1} D_l)$, $A d = F_k / \sqrt n$
    (B1) $F_k = U \circ S'_k$    (B2) $F_l = F_{l+1} (W_{l+1}^-)^T \circ S'_l$
    (B3) $A^T U = (\tilde S_{l-1}^T F_l / \sqrt n)_l$

    In both maps $S'_k$ carries the factor $1 / \sqrt n$. A product costs 4 n P
    operations.
    """

    weights: Blocks  # W_l, (m_l + 1, m_{l+1})
    inputs: Blocks  # S~_{l-1}, (n, m_l + 1)
    derivatives: Blocks  # S'_l, (n, m_{l+1})
    residual: Tensor  # R, (n, m_{k+1})

    @cached_property
    def _scaled(self) -> Blocks:
        """The derivatives S'_l, the last of them with the factor 1 / sqrt(n) of R."""
        *others, last = self.derivatives
        return *others, last / math.sqrt(self.n)

    def forward_map(self, d: Blocks) -> Tensor:
        """Return A d: tuple like the weights -> (n, m_{k+1}); 3 kernels a layer."""
        S, S_, W = self.inputs, self._scaled, self.weights
        F = torch.mm(S[0], d[0]).mul_(S_[0])  # (A1)
        for i in range(1, len(W)):
            F = torch.mm(F, W[i][:-1]).addmm_(S[i], d[i]).mul_(S_[i])  # (A2)
        return F

    def transpose_map(self, U: Tensor) -> Blocks:
        """Return A'U: (n, m_{k+1}) -> tuple like the weights; 3 kernels a layer."""
        pairs = zip(self.inputs, self._signals(U, self._scaled), strict=True)
        return tuple(torch.mm(S.T, F_l) for S, F_l in pairs)  # (B3)

    def _signals(self, U: Tensor, S_: Blocks) -> list[Tensor]:
        """Return the backward signals F_1, ..., F_k of U."""
        W, F = self.weights, [U * S_[-1]]  # (B1)
        for i in range(len(W) - 2, -1, -1):
            F.append(torch.mm(F[-1], W[i + 1][:-1].T).mul_(S_[i]))  # (B2)
        return F[::-1]

    def sum_squares(self, U: Tensor) -> Blocks:
        r"""Return the sum over examples $\sum_i (J_i^T u_i)^2$ of each entry, like w.

        J_i is the derivative of the outputs (not divided by sqrt(n)) of example i, u_i
        row i of U (n, m_{k+1}). Its gradient in layer l is the outer product of rows i
        of S~_{l-1} and F_l, hence one product of squared matrices is the sum.
        """
        pairs = zip(self.inputs, self._signals(U, self.derivatives), strict=True)
        return tuple(S.square().T @ F_l.square() for S, F_l in pairs)

    def gradient_moments(self, U: Tensor | None = None) -> tuple[Blocks, Tensor]:
        r"""Return grad f, and $\sum_i |\nabla f_i|^2$, from one backward pass.

        U, R if not given, is the gradient of f by the outputs, times sqrt(n). The
        second is $\sum_l \langle \mathrm{rowsum}(\tilde S_{l-1}^2),
        \mathrm{rowsum}(F_l^2) \rangle$: no matrix product.
        """
        # Row i is grad f_i's signal / sqrt(n).
        F = self._signals(self.residual if U is None else U, self.derivatives)
        pairs = list(zip(self.inputs, F, strict=True))
        scale = 1 / math.sqrt(self.n)
        gradient = tuple(torch.mm(S.T, F_l).mul_(scale) for S, F_l in pairs)
        squares = [S.square().sum(1) @ F_l.square().sum(1) for S, F_l in pairs]
        return gradient, self.n * torch.stack(squares).sum()


def explained(product: Callable) -> Callable:
    """Decorate a product with a Jacobian that torch may lack, and say so then."""

    @wraps(product)
    def called(point, given):
        try:
            found = product(point, given)
            if any(t.is_sparse for t in as_tuple(found)):
                raise NotImplementedError("a gradient is sparse")
        except NotImplementedError as error:
            raise ValueError(
                "torch lacks a derivative that Gauss-Newton products of this model "
                "need, as of nn.EmbeddingBag, nn.Embedding(sparse=True) and "
                f"torch.cdist: {str(error).partition('. ')[0]}"
            ) from error
        return found

    return called


@dataclass(frozen=True, eq=False, repr=False)
class LinearisedModule(Point):
    """The derivative A = dR/dw of any module, by ``torch.func``.

    If the targets T are None, R is that of the outputs alone. A' is the closure of one
    ``vjp``. It is linear in U, and its own transpose, by another ``vjp``, is A. Unlike
    ``jvp`` this keeps the forward pass, and unlike ``linearize`` it does not trace
    every batch again; its products are as fast for Linear layers and faster for
    convolutions.
    Sums of squares hold the gradients of 32 examples at a time.
    """

    model: nn.Module
    weights: Blocks
    inputs: Tensor
    targets: Tensor | None

    def residual_map(self, weights: Blocks) -> Tensor:
        """Return R as a function of the weights, for ``torch.func``."""
        with sdpa_kernel(SDPBackend.MATH):  # its backward pass has a derivative
            outputs = _outputs(self.model, self.inputs, weights)
        if self.targets is not None:
            outputs = outputs - self.targets
        return outputs / math.sqrt(len(self.inputs))

    @cached_property
    def residual(self) -> Tensor:
        """The residual R, of the shape of the targets."""
        with torch.no_grad():
            return self.residual_map(self.weights)

    @cached_property
    def _vjp(self):
        return vjp(self.residual_map, self.weights)[1]

    @cached_property
    def _jvp(self):
        return vjp(self.transpose_map, torch.zeros_like(self.residual))[1]

    @explained
    def forward_map(self, d: Blocks) -> Tensor:
        """Return A d: tuple like the weights -> like the targets."""
        return self._jvp(tuple(d))[0]

    @explained
    def transpose_map(self, U: Tensor) -> Blocks:
        """Return A'U: like the targets -> tuple like the weights."""
        return self._vjp(U)[0]

    @explained
    def sum_squares(self, U: Tensor) -> Blocks:
        """Return the sums of squares, as :meth:`LinearisedLayers.sum_squares`."""

        def signal(x, u):
            def outputs(weights):
                with sdpa_kernel(SDPBackend.MATH):  # vmap supports it
                    return _outputs(self.model, x[None], weights)[0]

            return vjp(outputs, self.weights)[1](u)[0]

        total = [torch.zeros_like(w) for w in self.weights]
        for x, u in zip(self.inputs.split(ROWS), U.split(ROWS), strict=True):
            gradients = vmap(signal)(x, u)
            torch._foreach_add_(total, [g.square().sum(0) for g in gradients])
        return tuple(total)

    def gradient_moments(self, U: Tensor | None = None) -> tuple[Blocks, Tensor]:
        """Return the moments, as :meth:`LinearisedLayers.gradient_moments`."""
        U = self.residual if U is None else U
        squares = self.sum_squares(U * math.sqrt(self.n))
        return self.transpose_map(U), torch.stack([s.sum() for s in squares]).sum()
