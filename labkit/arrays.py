"""What the estimators take."""

from collections.abc import Iterator

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor


def plain(X):
    """Give a tensor as NumPy can read it, off its graph and device; else X itself."""
    return X.detach().cpu() if isinstance(X, torch.Tensor) else X


class SparseRows:
    """Rows of a SciPy matrix in CSR form, which are dense a chunk at a time only.

    Parameters
    ----------
    X : (l, d) sparse matrix or array
    device : optional, of the chunks

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows = SparseRows(csr_array(np.eye(3)))
    >>> len(rows), [len(x) for x in rows.split(2)]
    (3, [2, 1])
    """

    def __init__(self, X, device=None):
        self.X, self.device = X, device

    def __len__(self) -> int:
        return self.X.shape[0]

    def split(self, rows: int) -> Iterator[Tensor]:
        """Dense tensors of so many rows, one after the other, as a tensor's own."""
        for i in range(0, len(self), rows):
            yield torch.from_numpy(self.X[i : i + rows].toarray()).to(self.device)


def joined(X, new):
    """Rows of X and new ones: tensors, or one of them SparseRows and so the whole."""
    if isinstance(X, Tensor) and isinstance(new, Tensor):
        return torch.cat([X, new])
    parts = [r.X if isinstance(r, SparseRows) else r.cpu().numpy() for r in (X, new)]
    device = (X if isinstance(X, SparseRows) else new).device
    return SparseRows(
        sparse.vstack([sparse.csr_array(p) for p in parts], "csr"), device
    )


def weights_of_rows(sample_weight, X) -> tuple[np.ndarray | None, np.ndarray | slice]:
    """Weights > 0, and which rows of X they are of; all of them if there are none.

    Raises ValueError for weights that are negative, not finite, or nowhere positive.
    """
    if sample_weight is None:
        return None, slice(None)
    weight = _check_sample_weight(plain(sample_weight), X, dtype=np.float64)
    if weight.min() < 0 or not weight.any():
        raise ValueError(
            f"sample_weight must be >= 0 and somewhere > 0, got values in "
            f"{weight.min():g}..{weight.max():g}"
        )
    return weight[weight > 0], weight > 0
