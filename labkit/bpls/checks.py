"""Check the tensors, weights, labels and devices that this package takes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from labkit.check import check_finite, check_tensor, described

DTYPES = (torch.float32, torch.float64)


def check_matrix(
    name: str,
    value: object,
    shape: Sequence[int | str],
    *,
    like: Tensor | None = None,
    sparse: bool = False,
) -> Tensor:
    """Check that a value is a float32 or float64 tensor of this shape, and return it.

    Parameters
    ----------
    name, shape, like : as for `labkit.check.check_tensor`
    sparse : bool, whether a matrix in COO form may come too
    """
    is_sparse = isinstance(value, Tensor) and value.layout == torch.sparse_coo
    if not (sparse and is_sparse):
        return check_tensor(name, value, shape=shape, like=like, dtype=DTYPES)
    if value.ndim != 2 or value.dense_dim():
        raise ValueError(
            f"{name} in COO form must have two sparse dimensions, got shape "
            f"{tuple(value.shape)} with {value.dense_dim()} dense ones"
        )
    # the other checks need no numbers
    stands_for = torch.empty(0, dtype=value.dtype, device=value.device)
    check_tensor(name, stands_for, like=like, dtype=DTYPES)
    return value


def check_broadcast(**tensors: Tensor) -> None:
    """Raise ValueError if the dimensions before the last two do not broadcast."""
    try:
        torch.broadcast_shapes(*(value.shape[:-2] for value in tensors.values()))
    except RuntimeError:
        shapes = " and ".join(f"{n} {tuple(v.shape)}" for n, v in tensors.items())
        raise ValueError(
            f"the leading dimensions must be equal or 1, got {shapes}"
        ) from None


def check_weights(X: Tensor, weights: object, least: int = 1) -> None:
    """Check that weights are a sequence that fits X (..., D, M) and each other."""
    if not isinstance(weights, tuple | list):
        raise TypeError(f"weights must be a tuple of tensors, got {described(weights)}")
    if len(weights) < least:
        raise ValueError(
            f"a walk needs a hidden layer, so at least two weights; got {len(weights)}"
            if least == 2
            else "there must be at least one layer of weights, got none"
        )
    width = X.shape[-1]
    for layer, W in enumerate(weights, start=1):
        check_matrix(f"W_{layer}", W, ("...", "N", "K"), like=X)
        if W.shape[-2] != width:
            raise ValueError(
                f"W_{layer} has {W.shape[-2]} rows, but the layer below has {width}"
            )
        width = W.shape[-1]
        if width == 0:
            raise ValueError(f"W_{layer} must have a column, got {tuple(W.shape)}")


def check_shapes(
    X: Tensor, Y: Tensor, weights: Sequence[Tensor], *, runs: bool = False
) -> None:
    """Check that X (D, M), Y and the weights fit, and that labels are in range.

    With ``runs``, X may have leading dimensions, (..., D, M).

    Raises
    ------
    TypeError, ValueError
    """
    check_matrix("X", X, ("...", "D", "M") if runs else ("D", "M"), sparse=True)
    if 0 in X.shape:
        raise ValueError(f"X must have a row and a column, got {tuple(X.shape)}")
    check_weights(X, weights, least=2)
    if not isinstance(Y, Tensor):
        raise TypeError(f"Y must be a tensor, got {described(Y)}; see torch.as_tensor")
    labelled = Y.dtype == torch.int64
    check_tensor("Y", Y, dtype=(torch.int64, X.dtype))
    if Y.device != X.device:
        raise ValueError(f"Y must be on {X.device}, as X is, got {Y.device}")
    rows = X.shape[-2]
    if Y.ndim < (1 if labelled else 2) or Y.shape[-1 if labelled else -2] != rows:
        raise ValueError(
            f"Y must be {rows} labels (int64) or rows of values, as X has rows; got "
            f"shape {tuple(Y.shape)}, {Y.dtype}"
        )
    outputs = weights[-1].shape[-1]
    if labelled:
        least, most = torch.stack(Y.aminmax()).tolist()
        if least < 0 or most >= outputs:
            raise ValueError(
                f"labels must lie in 0..{outputs - 1}, got {least}..{most}"
            )
    elif Y.shape[-1] != outputs:
        raise ValueError(f"Y has {Y.shape[-1]} columns for {outputs} outputs")
    layers = {f"W_{layer}": W for layer, W in enumerate(weights, start=1)}
    for name, value in ({"X": X, "Y": Y} | layers).items():
        check_finite(name, value.coalesce().values() if value.is_sparse else value)


def check_generator(generator: object) -> None:
    """Raise TypeError unless this is None or a torch.Generator."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be None or a torch.Generator, got {described(generator)}"
        )
