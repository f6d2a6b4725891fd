"""Inputs of the estimators: arrays, tensors, sparse matrices and sample weights."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

from labkit.check import check_tensor, described

Matrix = ArrayLike | sparse.sparray | sparse.spmatrix | Tensor


def plain(X: Matrix, name: str = "X") -> Matrix:
    """Return a tensor detached and on the CPU, as NumPy can read it; else X itself.

    A tensor that is sparse or holds no numbers raises an error.
    """
    if not isinstance(X, Tensor):
        return X
    X = check_tensor(name, X, dtype=X.dtype).detach().cpu().resolve_conj().resolve_neg()
    return X.float() if X.dtype == torch.bfloat16 else X


class SparseRows:
    """Rows of a SciPy matrix in CSR form, which are made dense one chunk at a time.

    Parameters
    ----------
    X : (l, d) sparse matrix or array
    device : str or torch.device, optional, of the chunks

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows = SparseRows(csr_array(np.eye(3)))
    >>> len(rows), [len(x) for x in rows.split(2)]
    (3, [2, 1])
    """

    def __init__(
        self, X: sparse.csr_array, device: str | torch.device | None = None
    ) -> None:
        self.X, self.device = X, device

    def __len__(self) -> int:
        return self.X.shape[0]

    def split(self, rows: int) -> Iterator[Tensor]:
        """Yield dense tensors of ``rows`` rows each, as ``Tensor.split`` does."""
        for i in range(0, len(self), rows):
            yield torch.from_numpy(self.X[i : i + rows].toarray()).to(self.device)


def joined(
    X: "Tensor | SparseRows", new: "Tensor | SparseRows"
) -> "Tensor | SparseRows":
    """Return the rows of X and the new rows, as SparseRows if either of them is."""
    if isinstance(X, Tensor) and isinstance(new, Tensor):
        return torch.cat([X, new])
    parts = [r.X if isinstance(r, SparseRows) else r.cpu().numpy() for r in (X, new)]
    device = (X if isinstance(X, SparseRows) else new).device
    return SparseRows(
        sparse.vstack([sparse.csr_array(p) for p in parts], "csr"), device
    )


def weights_of_rows(
    sample_weight: ArrayLike | None, X: Matrix
) -> tuple[np.ndarray | None, np.ndarray | slice]:
    """Return the weights > 0 and which rows of X have them, all rows without weights.

    Raises ValueError for weights that are negative, not finite, or nowhere positive.
    """
    if sample_weight is None:
        return None, slice(None)
    # here, so that a room that has estimators does without scikit-learn otherwise
    from sklearn.utils.validation import _check_sample_weight

    given = plain(sample_weight, "sample_weight")
    try:
        weight = _check_sample_weight(given, X, dtype=np.float64)
    except (TypeError, OverflowError) as error:
        raise TypeError(
            f"sample_weight must hold numbers, got {described(given)}"
        ) from error
    if not (weight.min() >= 0 and np.isfinite(weight).all() and weight.any()):
        raise ValueError(
            f"sample_weight must be >= 0 and somewhere > 0, got values in "
            f"{weight.min():g}..{weight.max():g}"
        )
    return weight[weight > 0], weight > 0
