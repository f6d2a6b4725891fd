"""What a theorem says of a step: two sides that must be equal, with their numbers.

A *theorem* is a plain function in a paper's room. It takes a few steps of the library
on a small example and returns a :class:`Finding`. The tests call it on the library as
it is, and an exercise calls it while a learner's function runs in the library's place.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Finding(NamedTuple):
    """Two sides that a theorem says are equal, and what they were.

    Attributes
    ----------
    claim : str
        The property as a whole sentence; formulas stand between ``$``.
    found, wanted : tensors of one shape, the two sides
    example : str, the small example in words, with its numbers
    tolerance : float
        The largest difference that rounding explains, relative to the largest entry of
        ``wanted``, or to 1 where all of these are smaller.
    """

    claim: str
    found: Tensor
    wanted: Tensor
    example: str
    tolerance: float = 1e-8

    @property
    def error(self) -> float:
        """Return the largest difference, relative as ``tolerance`` is.

        The result is infinite where the shapes differ or a number is not finite.
        """
        if self.found.shape != self.wanted.shape:
            return float("inf")
        if not self.found.numel():
            return 0.0
        scale = self.wanted.abs().max().clamp(min=1)
        error = ((self.found - self.wanted).abs().max() / scale).detach()
        return float(error.nan_to_num(nan=torch.inf, posinf=torch.inf))

    @property
    def holds(self) -> bool:
        """Return whether the two sides are equal up to rounding."""
        return self.error <= self.tolerance

    def __str__(self) -> str:
        size = f"differ by {self.error:.2g}" if self.error else "are equal"
        return f"{self.claim} For {self.example} the two sides {size}."


def drawn(*shape: int, seed: int) -> Tensor:
    """Draw standard normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
