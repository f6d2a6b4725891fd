"""The results of `load`: rows to draw from, or one long text."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows of inputs, with targets where there are any.

    Attributes
    ----------
    name : str, name of the data set
    inputs : torch.Tensor, shape (N, ...)
        Floating point (N, features) or (N, channels, height, width), or int64
        (N, steps), indices into `vocabulary`.
    targets : torch.Tensor or None
        int64: the class of each row, from 0, shape (N,). Floating point: numbers to be
        learned, shape (N, outputs).
    vocabulary : tuple of str
        The words that indices in the inputs stand for; empty if inputs are numbers.
    classes : tuple of str
        Names of the classes; if there are none, all classes occur in `targets`.
    """

    name: str
    inputs: torch.Tensor
    targets: torch.Tensor | None = None
    vocabulary: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    @property
    def outputs(self) -> int:
        """The number of outputs that a network needs: the classes, or the numbers."""
        if self.targets.is_floating_point():
            return self.targets.shape[1]
        return len(self.classes) or int(self.targets.max()) + 1


@dataclass(frozen=True, eq=False)
class Text:
    """A text as a row of symbols.

    Attributes
    ----------
    name : str, name of the data set
    tokens : torch.Tensor, shape (T,), int64, indices into `symbols`
    symbols : tuple of str, one character each; the same for all splits of a data set
    """

    name: str
    tokens: torch.Tensor
    symbols: tuple[str, ...]
