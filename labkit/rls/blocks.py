"""A weight, its bias, and what backward passes have left since the last step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from labkit.rls.update import Residuals, Theta


class InputSum(NamedTuple):
    """Inputs of one block, summed over rows."""

    total: Tensor  # (n - 1,), or (n,) without bias: sum over the rows
    rows: int | Tensor  # samples x positions x time steps
    sequences: int | Tensor  # rows that count as one: rows / sequences is T


@dataclass(eq=False)
class Block:
    """A weight with its bias, and what passes have left since the last step."""

    name: str  # of the module, with ".ih" or ".hh" for recurrent ones
    weight: nn.Parameter  # (N, ...)
    bias: nn.Parameter | None  # (N,)
    total: Tensor | None = None  # as in `InputSum`, added up over backward passes
    rows: int = 0
    sequences: int = 0
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

    @property
    def inputs(self) -> InputSum:
        """Inputs of all passes since the last step."""
        return InputSum(self.total, self.rows, self.sequences)

    def add(self, inputs: InputSum):
        """Add the inputs of one backward pass."""
        total, rows, sequences = inputs
        self.total = total if self.total is None else self.total + total
        self.rows += rows
        self.sequences += sequences

    def clear(self):
        """Forget all passes."""
        self.total, self.rows, self.sequences = None, 0, 0
        self.residuals.clear()

    def gradient(self) -> Tensor:
        """(N, n): gradient by weight and bias, a new tensor."""
        rows = self.weight.flatten(1)
        G = rows.new_zeros(len(rows), self.fan_in)
        if self.weight.grad is not None:
            G[:, : rows.shape[1]] = self.weight.grad.flatten(1)
        if self.bias is not None and self.bias.grad is not None:
            G[:, -1] = self.bias.grad
        for X, dZ in self.residuals:
            G[:, : rows.shape[1]].addmm_(dZ.T, X)
            if self.bias is not None:
                G[:, -1] += dZ.sum(0)
        return G

    def factors(self) -> Residuals:
        """The gradient of passes that all left residuals."""
        X, dZ = (_joined(parts) for parts in zip(*self.residuals, strict=True))
        return Residuals(dZ, _with_ones(X, self))


def _joined(parts) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _with_ones(inputs: Tensor, block: Block) -> Tensor:
    """Inputs (..., n - 1) with a last 1 if the block has a bias."""
    return inputs if block.bias is None else nn.functional.pad(inputs, (0, 1), value=1)


@dataclass(frozen=True, eq=False)
class BlockStep:
    """One block before its step: collected, and nothing changed yet."""

    block: Block
    options: Mapping[str, Any]  # the parameter group
    state: dict  # what the optimiser keeps of the block
    x_mean: Tensor  # (n,), of the minibatches of all workers
    steps: float | Tensor  # T, () if there are several workers
    gradient: Tensor | Residuals  # (N, n)
    gained: tuple[Tensor, Tensor] | None = None  # u and h, of `gain`

    @classmethod
    def of(cls, block: Block, options: Mapping, state: dict, inputs: InputSum):
        """What the passes since the last step have left, with these inputs."""
        x_mean = (inputs.total / inputs.rows).to(block.weight.dtype)
        left = block.weight.grad is None and block.residuals
        return cls(
            block,
            options,
            state,
            _with_ones(x_mean, block),
            inputs.rows / inputs.sequences,
            block.factors() if left else block.gradient(),
        )

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

    def squared_norm(self) -> Tensor:
        """Square of the raw gradient's Frobenius norm, ()."""
        if isinstance(self.gradient, Tensor):
            return self.gradient.square().sum()
        dZ, X = self.gradient  # |dZ' X|^2 without dZ' X, by two M x M Gram matrices
        return (X @ X.T).mul_(dZ @ dZ.T).sum()

    def changing(self) -> list[Tensor]:
        """All tensors that the step changes in place: weight, bias, state."""
        other = ("step", "h", "resets", "failed_at", "failed_h")
        kept = [value for key, value in self.state.items() if key not in other]
        return kept + [each for each in self.block.theta if each is not None]
