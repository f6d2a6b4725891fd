"""Handwritten digits that come with scikit-learn."""

import torch
from sklearn.datasets import load_digits as sklearn_digits
from sklearn.model_selection import train_test_split

from labkit.lab.datasets.results import Labelled

N_TRAIN = 1437  # four fifths of 1797


def load_digits(split, dtype=torch.float32):
    """Read the 1,797 digit images of 8 x 8 pixels that scikit-learn carries.

    A fixed, stratified random split: 1,437 are ``train``, 360 ``test``, the usual cut.
    In the file, neighbours come from the same hand; a contiguous cut would test mostly
    on hands not seen in training, which costs every method some five points and makes
    figures incomparable with published ones.

    Returns
    -------
    Labelled, `inputs` (N, 64): ink in [0, 1], pixels in row order; `targets`: 0 to 9

    References
    ----------
    E. Alpaydin, C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI
    Machine Learning Repository, 1998 (the test part of that collection).
    """
    pixels, labels = sklearn_digits(return_X_y=True)
    rows = train_test_split(
        range(len(labels)), train_size=N_TRAIN, random_state=0, stratify=labels
    )[0 if split == "train" else 1]
    # Sixteenths are exact in every floating-point type that torch has.
    inputs = torch.from_numpy(pixels[rows] / 16).to(dtype)
    return Labelled("digits", inputs, torch.tensor(labels[rows], dtype=torch.int64))
