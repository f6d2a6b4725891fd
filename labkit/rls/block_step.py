"""A step of one block that is due, and the error of one that cannot be taken."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.rls.capture import Block
from labkit.rls.update import Residuals


class NumericalError(ArithmeticError):
    """An invalid value in a layer at a step (from 1); nothing was changed."""

    def __init__(
        self, layer: str, step: int, quantity: str, value: float | None, advice: str
    ):
        shown = "" if value is None else f" is {value:.6g}"
        super().__init__(f"layer {layer!r}, step {step}: {quantity}{shown}; {advice}")
        self.layer, self.step, self.value = layer, step, value


class BlockStep(NamedTuple):
    """A step of one block that is due."""

    block: Block
    options: Mapping[str, Any]  # the parameter group
    state: dict  # what the optimiser keeps of the block, from this step on
    x_mean: Tensor  # (n,)
    rows: Tensor  # number of inputs, (); if it is 0, the others are nan
    time_steps: Tensor  # T, ()
    gradient: Tensor | Residuals  # (N, n)
    h: Tensor  # (), of `gain`

    @property
    def sound(self) -> Tensor:
        r"""Return whether P can be trusted, () bool.

        $h \ge \lambda$ holds exactly as long as P is positive semidefinite along the
        mean input. With $\lambda < 1$ P also grows, like $\lambda^{-s}$ in directions
        without inputs. If it grows beyond 1/eps times its start, what it has learned is
        lost to rounding.
        """
        sound = (self.h >= self.options["forgetting"]) & (self.h < math.inf)
        if self.options["forgetting"] < 1:
            P = self.state["P"]
            bound = self.options["P0_scale"] * len(P) / torch.finfo(P.dtype).eps
            sound &= P.trace() <= bound
        return sound
