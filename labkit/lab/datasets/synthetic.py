"""The Copy task: repeat a row of bits after having read it."""

import torch

from labkit.lab.datasets.results import Labelled

COPY_SYMBOLS = ("0", "1", "#", "*")
_START, _BLANK = COPY_SYMBOLS.index("#"), COPY_SYMBOLS.index("*")
_SEEDS = {"train": 0, "valid": 1, "test": 2}


def copy_sequences(n, length, *, generator):
    """Draw examples of the Copy task.

    With T bits b1...bT the input is ``#``, the bits, then T + 1 times ``*``; the
    target is T + 1 times ``*``, then ``#`` and the bits. For T = 5::

        input   #01101******
        target  ******#01101

    Parameters
    ----------
    n : int, number of examples, at least 1
    length : int, T, the number of bits in each, at least 1
    generator : torch.Generator
        Source of the bits, each 0 or 1 with probability 1/2; its device is that of
        the result.

    Returns
    -------
    Labelled, `inputs` and `targets` of shape (n, 2 T + 2)

    Raises
    ------
    ValueError : if `n` or `length` is less than 1

    Examples
    --------
    >>> pair = copy_sequences(2, 5, generator=torch.Generator().manual_seed(0))
    >>> pair.inputs.shape
    torch.Size([2, 12])
    """
    for name, value in (("n", n), ("length", length)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value!r}")
    device = generator.device
    bits = torch.randint(2, (n, length), generator=generator, device=device)
    start = torch.full((n, 1), _START, device=device)
    blanks = torch.full((n, length + 1), _BLANK, device=device)
    return Labelled(
        "copy",
        inputs=torch.cat([start, bits, blanks], dim=1),
        targets=torch.cat([blanks, start, bits], dim=1),
        vocabulary=COPY_SYMBOLS,
    )


def load_copy(split):
    """Make 1,000 examples of the Copy task with T = 5, always the same.

    There are only 32 rows of five bits, so the splits differ in order and in
    counts, not in what can occur: they test memory, not generalisation.

    Returns
    -------
    Labelled, `inputs` and `targets` of shape (1000, 12)
    """
    generator = torch.Generator().manual_seed(_SEEDS[split])
    return copy_sequences(1000, 5, generator=generator)
