"""What a theorem says of a step, measured on a small example.

Each paper's room has functions that run a step on a small example and return a
:class:`Property`. Tests call them on the library's own step, and exercises on the step
that a learner wrote: both are judged by the same code.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Property:
    """One property of a step, measured on one example.

    Attributes
    ----------
    says : str, the property, as a whole sentence
    found : tensor, what the step gave
    wanted : tensor, what the theorem says, of the shape of ``found``
    tolerance : float, the largest :attr:`error` with which the property holds
    size : float, optional
        What an error is measured against. By default it is |wanted|, and 1 where that
        is 0.
    example : mapping of str to tensor, the example's inputs by their symbol

    Examples
    --------
    >>> mean = torch.tensor([1.0, 2.0])
    >>> biased = Property("The mean is the truth.", mean, 2 * mean)
    >>> biased.error, biased.holds
    (0.5, False)
    """

    says: str
    found: Tensor = field(repr=False)
    wanted: Tensor = field(repr=False)
    tolerance: float = 1e-10
    size: float | None = None
    example: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def error(self) -> float:
        """Frobenius norm of found - wanted over ``size``; inf for another shape."""
        if self.found.shape != self.wanted.shape:
            return math.inf
        size = self.size or float(torch.linalg.vector_norm(self.wanted)) or 1.0
        return float(torch.linalg.vector_norm(self.found - self.wanted)) / size

    @property
    def holds(self) -> bool:
        """Whether the error is at most the tolerance, which NaN is not."""
        return self.error <= self.tolerance
