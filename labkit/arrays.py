"""What the estimators take."""

import torch


def plain(X):
    """Give a tensor as NumPy can read it, off its graph and device; else X itself."""
    return X.detach().cpu() if isinstance(X, torch.Tensor) else X
