"""Handwritten digits that come with scikit-learn."""

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits as sklearn_digits

N_TRAIN = 1437  # four fifths of 1797


@dataclass(frozen=True, eq=False)
class Labelled:
    """Examples with class labels.

    Attributes
    ----------
    name : str
        Name of the data set.
    inputs : torch.Tensor, shape (N, features) or (N, channels, height, width)
        Floating point.
    targets : torch.Tensor, shape (N,), int64
        Class of each example, from 0.
    """

    name: str
    inputs: torch.Tensor
    targets: torch.Tensor


def load_digits(split, dtype=torch.float32):
    """Read the 1,797 digit images of 8 x 8 pixels that scikit-learn carries.

    The first 1,437 are ``train``, the last 360 ``test``, unshuffled: neighbours in
    the file come from the same hand, so a contiguous cut tests (mostly) on hands
    not seen in training, and needs no random numbers. The classes stay balanced
    (33 to 37 of each in ``test``).

    Parameters
    ----------
    split : {"train", "test"}
    dtype : torch.dtype
        Of the inputs.

    Returns
    -------
    Labelled
        `inputs` (N, 64): ink in [0, 1], pixels in row order; `targets`: 0 to 9.

    References
    ----------
    E. Alpaydin, C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI
    Machine Learning Repository, 1998 (the test part of that collection).
    """
    pixels, labels = sklearn_digits(return_X_y=True)
    rows = slice(None, N_TRAIN) if split == "train" else slice(N_TRAIN, None)
    # Sixteenths are exact in every floating-point type that torch has.
    inputs = torch.from_numpy(pixels[rows] / 16).to(dtype)
    return Labelled("digits", inputs, torch.tensor(labels[rows], dtype=torch.int64))
