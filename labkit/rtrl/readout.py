"""Output layers: the loss of a step, and its derivatives by h and by the weights."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def check_fit(outputs: Tensor, target: Tensor) -> None:
    """ValueError if a loss of these would broadcast the one against the other."""
    whole = target.is_floating_point() or target.is_complex()
    wanted = outputs.shape if whole else outputs.shape[:1] + outputs.shape[2:]
    if target.shape != wanted:
        kind = "numbers, of the outputs' shape" if whole else "classes, one a sequence"
        raise ValueError(
            f"targets that are {kind} must be {tuple(wanted)}, "
            f"got {tuple(target.shape)} for outputs {tuple(outputs.shape)}"
        )


class Readout(nn.Module):
    """Softmax layer on [h, 1], from n = ``hidden_size`` to V = ``classes``.

    Its gradient is written out: no autograd. The weights begin as N(0, 0.01^2).
    """

    def __init__(
        self, hidden_size, classes, *, generator=None, dtype=None, device=None
    ):
        super().__init__()
        weight = torch.empty(hidden_size + 1, classes, dtype=dtype, device=device)
        self.weight = nn.Parameter(weight.normal_(0, 0.01, generator=generator))

    def forward(self, h: Tensor) -> Tensor:
        """(b, n) -> logits (b, V)."""
        return h @ self.weight[:-1] + self.weight[-1]

    @torch.no_grad()
    def loss(self, h: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean cross-entropy and its derivatives, for h (b, n) and target (b,) int64.

        Returns
        -------
        loss, dL_dh, dL_dW : () [nats], (b, n) and (n + 1, V) tensors, cost 6 b n V
        """
        log_p = self(h).log_softmax(-1)
        check_fit(log_p, target)
        error = log_p.exp()
        error[torch.arange(len(h), device=h.device), target] -= 1  # p - onehot
        error /= len(h)
        loss = nn.functional.nll_loss(log_p, target)
        dL_dW = torch.cat([h.T @ error, error.sum(0, keepdim=True)])
        return loss, error @ self.weight[:-1].T, dL_dW


def loss_of(readout: nn.Module, loss: Callable | None) -> Callable:
    """From h and target to the loss, dL_dh and dL_dW, a vector of all weights.

    A :class:`Readout` knows them; of other modules and losses autograd does.
    """

    def written_out(h, target):
        value, dL_dh, dL_dW = readout.loss(h, target)
        return value, dL_dh, dL_dW.flatten()

    def by_autograd(h, target):
        with torch.enable_grad():
            h = h.detach().requires_grad_()
            outputs = readout(h)
            check_fit(outputs, target)
            value = (loss or nn.functional.cross_entropy)(outputs, target)
            by = [h, *weights_of(readout)]
            dL_dh, *rest = torch.autograd.grad(value, by, materialize_grads=True)
        empty = h.new_zeros(0)
        return value.detach(), dL_dh, torch.cat([empty, *map(torch.flatten, rest)])

    known = isinstance(readout, Readout) and readout.weight.requires_grad
    return written_out if known and not loss else by_autograd


def weights_of(module: nn.Module) -> list[nn.Parameter]:
    """Those that are trained."""
    return [each for each in module.parameters() if each.requires_grad]


def hand_out(gradient: Tensor, weights: list[nn.Parameter]) -> None:
    """Give each weight its part of a vector as ``grad``."""
    parts = gradient.split([each.numel() for each in weights])
    for weight, part in zip(weights, parts, strict=True):
        weight.grad = part.view_as(weight)
