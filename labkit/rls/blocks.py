"""A weight, its bias, and what backward passes have left since the last step."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn


class InputSum(NamedTuple):
    """Inputs of one block in one forward pass, summed over rows."""

    total: Tensor  # (n - 1,), or (n,) without bias: sum over the rows
    rows: int | Tensor  # samples x positions x time steps
    sequences: int | Tensor  # rows that count as one: rows / sequences is T

    @property
    def steps(self) -> float | Tensor:
        """T: time steps per sequence; 1 for FC and CONV layers."""
        return self.rows / self.sequences

    def mean(self, block: "Block") -> Tensor:
        """(n,): mean over the rows, 1 appended if the block has a bias."""
        x_mean = (self.total / self.rows).to(block.weight.dtype)
        if block.bias is None:
            return x_mean
        return nn.functional.pad(x_mean, (0, 1), value=1)


@dataclass(eq=False)
class Block:
    """A weight with its bias, and what backward passes have left since the last step.

    Attributes
    ----------
    name : the module's name in the model, with ``.ih`` or ``.hh`` for recurrent ones.
    weight : (N, ...) parameter.  bias : (N,) parameter or None.
    total, rows, sequences : as in :class:`InputSum`, added up over backward passes.
    residuals : list of (X, dZ), (M, n - 1) inputs and (M, N) derivatives of the loss by
        the linear outputs, of passes whose weight gradient was not formed.
    """

    name: str
    weight: nn.Parameter
    bias: nn.Parameter | None
    total: Tensor | None = None
    rows: int = 0
    sequences: int = 0
    residuals: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def fan_in(self) -> int:
        """Side n of P: inputs, and one for the bias."""
        return self.weight[0].numel() + (self.bias is not None)

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

    @property
    def inputs(self) -> InputSum:
        """Inputs of all passes since the last step."""
        return InputSum(self.total, self.rows, self.sequences)

    @property
    def steps(self) -> float:
        """T: time steps per sequence; 1 for FC and CONV layers."""
        return self.inputs.steps

    def mean_input(self) -> Tensor:
        """(n,): mean over the rows of all passes, 1 appended if there is a bias."""
        return self.inputs.mean(self)

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

    def joined_residuals(self) -> tuple[Tensor, Tensor]:
        """(M, n) inputs, with the column of ones if there is a bias, and (M, N) dZ."""
        X, dZ = (torch.cat(parts) for parts in zip(*self.residuals, strict=True))
        return X if self.bias is None else nn.functional.pad(X, (0, 1), value=1), dZ

    def signs(self) -> Tensor:
        """(N, n): signs of weight and bias; sgn(0) = 0."""
        rows = self.weight.flatten(1)
        if self.bias is not None:
            rows = torch.cat([rows, self.bias[:, None]], 1)
        return rows.sign()

    def add_(self, left: Tensor, right: Tensor | None = None):
        """Add ``left @ right``, (N, n), to weight and bias; None is the identity."""
        n = self.weight[0].numel()
        if right is None:
            self.weight.add_(left[:, :n].view_as(self.weight))
            if self.bias is not None:
                self.bias.add_(left[:, -1])
            return
        if self.weight.is_contiguous():
            self.weight.view(-1, n).addmm_(left, right[:, :n])
        else:  # a CONV weight in channels_last
            self.weight.add_((left @ right[:, :n]).view_as(self.weight))
        if self.bias is not None:
            self.bias.addmv_(left, right[:, -1])
