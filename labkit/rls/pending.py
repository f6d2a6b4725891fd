"""One block in the middle of a step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from labkit.rls.blocks import Block


@dataclass
class Pending:
    """One block in the middle of a step.

    The preconditioned gradient is ``left @ right``, in the cheaper of two orders.
    """

    block: Block
    options: Mapping[str, Any]  # the parameter group
    state: dict
    x_mean: Tensor  # (n,), of the minibatches of all workers
    steps: float | Tensor  # T, () if there are several workers
    gradient: Tensor | None = None  # (N, n), or in its place
    X: Tensor | None = None  # (M, n) inputs with the column of ones, and
    dZ: Tensor | None = None  # (M, N) residuals: the gradient is dZ' X
    u: Tensor | None = None  # (n,)
    h: Tensor | None = None  # ()
    left: Tensor | None = None  # (N, r)
    right: Tensor | None = None  # (r, n); None: the identity

    @property
    def rule(self) -> dict:
        """Arguments that belong to the update of P."""
        options = self.options
        return {
            "forgetting": options["forgetting"],
            "ratio": options["ratio"],
            "steps": self.steps,
        }

    def squared_norm(self) -> Tensor:
        """Square of the raw gradient's Frobenius norm, ()."""
        if self.gradient is not None:
            return self.gradient.square().sum()
        # |dZ' X|^2 without dZ' X, by two M x M Gram matrices
        return (self.X @ self.X.T).mul_(self.dZ @ self.dZ.T).sum()

    def tensors(self) -> list[Tensor]:
        """All that the step may change in place or replace: weight, bias, state."""
        block = self.block
        changed = [self.state[key] for key in self.kept()]
        changed.append(block.weight)
        return changed if block.bias is None else [*changed, block.bias]

    def kept(self) -> list[str]:
        """Names of the tensors in the state that carry over to the next step."""
        others = ("step", "h", "resets", "failed_at", "failed_h")
        return [key for key in self.state if key not in others]
