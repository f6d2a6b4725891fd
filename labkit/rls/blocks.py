"""A weight, its bias, and what backward passes have left since the last step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from labkit.rls.update import Residuals, Theta


class InputSum(NamedTuple):
    """Inputs of one block, summed over rows."""

    total: Tensor | None = None  # (n - 1,), or (n,) without bias: sum over the rows
    rows: int | Tensor = 0  # samples x positions x time steps
    sequences: int | Tensor = 0  # rows that count as one: rows / sequences is T


NONE = InputSum()


@dataclass(eq=False)
class Block:
    """A weight with its bias, and what passes have left since the last step."""

    name: str  # of the module, with ".ih" or ".hh" for recurrent ones
    weight: nn.Parameter  # (N, ...)
    bias: nn.Parameter | None  # (N,)
    inputs: InputSum = NONE  # added up over backward passes
    # (M, n - 1) inputs and (M, N) derivatives of the loss by the linear outputs, of
    # passes whose weight gradient was not formed
    residuals: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def fan_in(self) -> int:
        """Side n of P: inputs, and one for the bias."""
        return self.weight[0].numel() + (self.bias is not None)

    @property
    def theta(self) -> Theta:
        """Weight and bias as one matrix (N, n)."""
        return Theta(self.weight, self.bias)

    def add(self, inputs: InputSum):
        """Add the inputs of one backward pass."""
        before = self.inputs
        if before.total is not None:
            inputs = InputSum(*(a + b for a, b in zip(before, inputs, strict=True)))
        self.inputs = inputs

    def clear(self):
        """Forget all passes."""
        self.inputs = NONE
        self.residuals.clear()

    def gradient(self) -> Tensor:
        """(N, n): gradient by weight and bias, a new tensor."""
        own = [p for p in self.theta if p is not None]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        G = torch.cat([g.reshape(len(g), -1) for g in grads], 1)
        n = self.weight[0].numel()
        for X, dZ in self.residuals:
            G[:, :n].addmm_(dZ.T, X)
            if self.bias is not None:
                G[:, n] += dZ.sum(0)
        return G

    def factors(self) -> Residuals:
        """The gradient of passes that all left residuals; no ones in X."""
        X, dZ = self.residuals[0]
        if len(self.residuals) > 1:
            X, dZ = map(torch.cat, zip(*self.residuals, strict=True))
        return Residuals(dZ, X, self.bias is not None)

    def with_ones(self, inputs: Tensor) -> Tensor:
        """Inputs (..., n - 1) with a last 1 if there is a bias."""
        if self.bias is None:
            return inputs
        return nn.functional.pad(inputs, (0, 1), value=1)


class BlockStep(NamedTuple):
    """One block before its step: collected, and nothing changed yet."""

    block: Block
    options: Mapping[str, Any]  # the parameter group
    state: dict  # what the optimiser keeps of the block
    x_mean: Tensor  # (n,), of the minibatches of all workers
    steps: float | Tensor  # T, () if there are several workers
    gradient: Tensor | Residuals  # (N, n)
    gained: tuple[Tensor, Tensor] | None = None  # u and h, of `gain`
    still: Tensor | None = None  # () bool on an accelerator: whether nothing changes

    @property
    def h(self) -> Tensor:
        """Normaliser of (39), ()."""
        return self.gained[1]

    @property
    def number(self) -> int:
        """Of this step of the block, from 1; waits for an accelerator."""
        return int(self.state["step"]) + 1

    def chosen(self, *names: str) -> dict[str, Any]:
        """Some of the options, by name."""
        return {name: self.options[name] for name in names}


def joint_norm(gradients: Sequence[Tensor | Residuals]) -> Tensor:
    """Frobenius norm of all gradients as one, ()."""
    formed = [each for each in gradients if isinstance(each, Tensor)]
    norms = list(torch._foreach_norm(formed)) if formed else []
    norms += [each.norm() for each in gradients if isinstance(each, Residuals)]
    return torch.linalg.vector_norm(torch.stack(norms))
