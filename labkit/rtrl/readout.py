"""Output layers: the loss of a step and its derivatives by h and the weights."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from labkit.check import COUNT, check_options, check_tensor
from labkit.precision import outside_modes
from labkit.rtrl.cells import normal_parameter


def check_fit(outputs: Tensor, target: Tensor) -> None:
    """Raise ValueError if a loss would broadcast the outputs and the target."""
    whole = target.is_floating_point() or target.is_complex()
    wanted = outputs.shape if whole else outputs.shape[:1] + outputs.shape[2:]
    if target.shape != wanted:
        kind = "numbers, of the outputs' shape" if whole else "classes, one a sequence"
        raise ValueError(
            f"targets that are {kind} must be {tuple(wanted)}, "
            f"got {tuple(target.shape)} for outputs {tuple(outputs.shape)}"
        )


class Readout(nn.Module):
    """A softmax layer on [h, 1] from n = ``hidden_size`` units to V = ``classes``.

    Its gradient is computed without autograd. The weights start as N(0, 0.01^2).
    """

    def __init__(
        self,
        hidden_size: int,
        classes: int,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        sizes = {"hidden_size": hidden_size, "classes": classes}
        check_options(sizes, dict.fromkeys(sizes, COUNT))
        shape = (hidden_size + 1, classes)
        self.weight = normal_parameter(shape, generator, dtype, device)

    def forward(self, h: Tensor) -> Tensor:
        """Return the logits (b, V) of h (b, n)."""
        return h @ self.weight[:-1] + self.weight[-1]

    @torch.no_grad()
    @outside_modes()
    def loss(self, h: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean cross-entropy and its derivatives.

        h is (b, n) and target (b,) int64. On the CPU a class that is not one of 0..V-1
        raises ValueError.

        Returns
        -------
        loss, dL_dh, dL_dW : () [nats], (b, n) and (n + 1, V) tensors, cost 6 b n V
        """
        log_p = self(h).log_softmax(-1)
        check_fit(log_p, target)
        self._check_classes(target)
        error = log_p.exp()
        error.scatter_(1, target[:, None], -1, reduce="add")  # p - onehot
        error /= len(h)
        loss = nn.functional.nll_loss(log_p, target)
        dL_dW = torch.cat([h.T @ error, error.sum(0, keepdim=True)])
        return loss, error @ self.weight[:-1].T, dL_dW

    def _check_classes(self, target: Tensor) -> None:
        check_tensor("target", target, dtype=torch.int64)
        if target.device.type != "cpu":
            return
        low, high = (int(value) for value in target.aminmax())
        classes = self.weight.shape[1]
        if low < 0 or high >= classes:
            raise ValueError(
                f"target must hold classes in 0..{classes - 1}, got {low}..{high}"
            )


def loss_of(readout: nn.Module, loss: Callable | None) -> Callable:
    """Return a function from h and target to the loss, dL_dh and the vector dL_dW.

    A :class:`Readout` computes them itself; for other modules and losses autograd does.
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
        flat = [gradient.flatten() for gradient in rest]
        return value.detach(), dL_dh, torch.cat([h.new_zeros(0), *flat])

    def loss_at(h, target):
        known = isinstance(readout, Readout) and readout.weight.requires_grad
        return (written_out if known and not loss else by_autograd)(h, target)

    return loss_at


def weights_of(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained."""
    return [each for each in module.parameters() if each.requires_grad]


def hand_out(gradient: Tensor, weights: list[nn.Parameter]) -> None:
    """Set the ``grad`` of each weight that is trained to its part of a vector."""
    parts = gradient.split([each.numel() for each in weights])
    for weight, part in zip(weights, parts, strict=True):
        part = part.view_as(weight).to(weight.dtype)
        weight.grad = part if weight.requires_grad else None
