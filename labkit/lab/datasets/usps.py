"""The 11,000 digits of the United States Postal Service, from Sam Roweis's file."""

import numpy as np
import scipy.io
import torch

from labkit.lab.datasets.fetch import fetch
from labkit.lab.datasets.images import unit_interval
from labkit.lab.datasets.results import Labelled

_CLASSES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 0)  # the zeros come last in the file
_PERIOD = 11
_PLACES = {"train": range(8), "test": (8, 9), "valid": (10,)}


def load_usps(split, dtype=torch.float32):
    """Read 11,000 handwritten digits of 16 x 16 pixels, 1,100 of each.

    The file has no official split. The stochastic Hessian-free paper takes 8,000
    images to train, 2,000 to test and 1,000 to validate without saying which; here, of
    every eleven images of a class, in the order of the file, the first eight go to
    ``train``, the next two to ``test`` and the last to ``valid``. So the sizes are the
    paper's, the classes stay balanced, and the three parts are alike, although
    neighbours in the file resemble each other. It needs no random numbers. The classes
    take turns (1, 2, ..., 9, 0), so ten rows in succession have one image of each.

    This is not the common set of 7,291 + 2,007 images, which is scaled and slanted
    otherwise; figures do not carry over.

    Returns
    -------
    Labelled
        `inputs` (8000, 1000 or 2000, 256): ink in [0, 1], pixels in row order;
        `targets`: 0 to 9.

    References
    ----------
    S. Roweis, *Data for MATLAB hackers*, file ``usps_all.mat``. Sizes of the parts:
    I. Emirahmetoglu, D. E. Stewart, *Training autoencoders using stochastic
    Hessian-free optimization with LSMR*, table 1.
    """
    pixels = read_usps(fetch("usps/usps_all.mat"))
    kept = np.isin(np.arange(len(pixels)) % _PERIOD, _PLACES[split])
    inputs = unit_interval(pixels[kept].reshape(-1, 256), dtype)
    targets = torch.tensor(_CLASSES).repeat(int(kept.sum()))
    return Labelled("usps", inputs, targets)


def read_usps(path):
    """Read the images, turned upright.

    In the file a pixel's index runs down the columns of its image.

    Parameters
    ----------
    path : path-like
        A MATLAB file with the bytes ``data``, (256, n, 10): pixel, sample, class.

    Returns
    -------
    numpy.ndarray, shape (n, 10, 16, 16), uint8
        Sample, class (1, 2, ..., 9, 0), row, column.

    Raises
    ------
    ValueError : if there is no variable ``data``, or it has another type or shape
    """
    variables = scipy.io.loadmat(path, variable_names=["data"])
    if "data" not in variables:
        raise ValueError(f"{path} has no variable 'data'")
    data = variables["data"]
    if data.dtype != np.uint8 or data.ndim != 3 or data.shape[::2] != (256, 10):
        raise ValueError(
            f"{path}: 'data' should be uint8 of shape (256, n, 10), "
            f"and is {data.dtype} of shape {data.shape}"
        )
    columns_first = data.reshape(16, 16, -1, 10)
    return columns_first.transpose(2, 3, 1, 0)
