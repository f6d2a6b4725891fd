"""Output layers: the loss of a step and its derivatives by h and the weights."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from labkit.check import check_options, check_tensor, described
from labkit.rtrl.cells import SIZE, normal_parameter


def check_fit(outputs: Tensor, target: Tensor) -> None:
    """Raise ValueError if a loss would broadcast the outputs and the target."""
    if not isinstance(target, Tensor):
        raise TypeError(f"targets must be a tensor, got {described(target)}")
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
        check_options(sizes, dict.fromkeys(sizes, SIZE))
        shape = (hidden_size + 1, classes)
        self.weight = normal_parameter(shape, generator, dtype, device)

    def forward(self, h: Tensor) -> Tensor:
        """Return the logits (b, V) of h (b, n)."""
        return h @ self.weight[:-1] + self.weight[-1]

    @torch.no_grad()
    def loss(self, h: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean cross-entropy and its derivatives.

        h is (b, n) and target (b,) int64. On the CPU a class that is not one of 0..V-1
        raises ValueError.

        Returns
        -------
        loss, dL_dh, dL_dW : () [nats], (b, n) and (n + 1, V) tensors, cost 6 b n V
        """
        check_tensor("h", h, shape=("b", len(self.weight) - 1), like=self.weight)
        log_p = self(h).log_softmax(-1)
        self._check_classes(log_p, target)
        error = log_p.exp()
        error[torch.arange(len(h), device=h.device), target] -= 1  # p - onehot
        error /= len(h)
        loss = nn.functional.nll_loss(log_p, target)
        dL_dW = torch.cat([h.T @ error, error.sum(0, keepdim=True)])
        return loss, error @ self.weight[:-1].T, dL_dW

    def _check_classes(self, log_p: Tensor, target: Tensor) -> None:
        check_fit(log_p, target)
        check_tensor("target", target, dtype=torch.int64)
        if target.device != log_p.device:
            raise ValueError(f"target must be on {log_p.device}, got {target.device}")
        if target.device.type == "cpu" and len(target):
            low, high = (int(each) for each in target.aminmax())
            if low < 0 or high >= log_p.shape[1]:
                raise ValueError(
                    f"target must hold classes in 0..{log_p.shape[1] - 1}, "
                    f"got {low}..{high}"
                )


def loss_of(readout: nn.Module, loss: Callable | None, share: float = 0.0) -> Callable:
    """Return a function from h and target to the loss, dL_dh and the vector dL_dW.

    A :class:`Readout` computes them itself; for other modules and losses autograd does.

    With a ``share`` above 0 the weights' part, times ``share``, is not returned but
    added to their ``grad`` by a backward pass through the module: an optimiser that
    reads what goes through its layers, as ``labkit.rls.RLS`` does, sees it. dL_dW is
    empty then.
    """

    def written_out(h, target):
        value, dL_dh, dL_dW = readout.loss(h, target)
        return value, dL_dh, dL_dW.flatten()

    def through_the_module(h, target):
        h = h.detach().requires_grad_()
        outputs = readout(h)
        check_fit(outputs, target)
        return h, (loss or nn.functional.cross_entropy)(outputs, target)

    def by_autograd(h, target):
        with torch.enable_grad():
            h, value = through_the_module(h, target)
            by = [h, *weights_of(readout)]
            dL_dh, *rest = torch.autograd.grad(value, by, materialize_grads=True)
        empty = h.new_zeros(0)
        return value.detach(), dL_dh, torch.cat([empty, *map(torch.flatten, rest)])

    def by_a_pass(h, target):
        with torch.enable_grad():
            h, value = through_the_module(h, target)
            (value if share == 1 else share * value).backward()
        dL_dh = torch.zeros_like(h) if h.grad is None else h.grad / share
        return value.detach(), dL_dh, h.new_zeros(0)

    if share:
        return by_a_pass
    known = isinstance(readout, Readout) and readout.weight.requires_grad
    return written_out if known and not loss else by_autograd


def listened_to(readout: nn.Module) -> bool:
    """Return whether a layer of the readout has a forward hook."""
    return any(each._forward_hooks for each in readout.modules())


def weights_of(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained."""
    return [each for each in module.parameters() if each.requires_grad]


def hand_out(gradient: Tensor, weights: list[nn.Parameter]) -> None:
    """Set the ``grad`` of each weight to its part of a vector."""
    parts = gradient.split([each.numel() for each in weights])
    for weight, part in zip(weights, parts, strict=True):
        weight.grad = part.view_as(weight)
