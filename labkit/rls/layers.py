"""Define the blocks and the mean inputs of each layer kind.

FC and CONV layers have one block. A recurrent layer has two, ``ih`` for its inputs and
``hh`` for its own past, since all gates of an LSTM or GRU share their inputs.
"""

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from labkit.layers import CONV, RECURRENT, working_dtype, zeros_before
from labkit.rls.blocks import Block, InputSum


def blocks_of(name: str, module: nn.Module) -> list[Block]:
    """Return the blocks of a layer, in the order in which its inputs are summed."""
    if not isinstance(module, nn.RNNBase):
        inputs_first = isinstance(module, _ConvTransposeNd)
        groups = getattr(module, "groups", 1)
        return [Block(name, module.weight, module.bias, inputs_first, groups)]
    blocks = []
    for kind in ("ih", "hh"):
        weight = getattr(module, f"weight_{kind}_l0")
        bias = getattr(module, f"bias_{kind}_l0", None)
        blocks.append(Block(f"{name}.{kind}", weight, bias))
    return blocks


def summed(
    X: Tensor, weights: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, int | Tensor]:
    """Return the weighted sum of rows (..., n), and the sum of the weights (...)."""
    X = X.reshape(-1, X.shape[-1])
    if weights is None:
        return X.sum(0, dtype=dtype), len(X)
    weights = weights.reshape(-1).to(dtype)
    return weights @ X.to(dtype), weights.sum()


def linear_inputs(
    module: nn.Linear,
    inputs: tuple,
    output: Tensor,
    time_steps: int | None,
    weights: Tensor | None = None,
) -> list[InputSum]:
    """Sum the inputs of an FC layer, for the mean in (31), (51), or (80) with T > 1."""
    total, rows = summed(inputs[0], weights, working_dtype(module.weight))
    return [InputSum(total, rows, sequences(rows, time_steps))]


def conv_inputs(
    module: _ConvNd,
    inputs: tuple,
    output: Tensor,
    time_steps: int | None,
    weights: Tensor | None = None,
) -> list[InputSum]:
    """Sum the receptive fields of a CONV layer, (72), one dimension after the other.

    The mean is linear, so only the mean map of the batch is needed. A transposed layer
    is a CONV layer on its input with zeros between the pixels. Each of its outputs is
    linear in such a field with the same weights, so the derivation holds.
    """
    x, sides = inputs[0], len(module.kernel_size)
    x = x if x.ndim == sides + 2 else x[None]
    if weights is None:
        field, examples = x.mean(0, dtype=working_dtype(module.weight)), len(x)
    else:
        total, examples = summed(x.flatten(1), weights, working_dtype(module.weight))
        field = (total / examples).view(x.shape[1:])  # (C, ...)
    places = output.shape[-sides:]
    for i, places_i in enumerate(places):
        form = module.kernel_size[i], module.stride[i], module.dilation[i]
        before = zeros_before(module, i), isinstance(module, _ConvTransposeNd)
        share = taps(
            field.shape[1], places_i, *form, *before, field.dtype, field.device
        )
        field = torch.tensordot(field, share, ([1], [0]))  # the next one becomes 1
    rows = examples * math.prod(places)
    return [InputSum(field.flatten() * rows, rows, rows)]


@functools.lru_cache(maxsize=256)
def taps(
    size: int,
    places: int,
    kernel: int,
    stride: int,
    dilation: int,
    before: int,
    transposed: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Return the share of places where a kernel's tap sees a pixel, (size, kernel)."""
    pixel = torch.arange(size)[:, None]
    tap = torch.arange(kernel) * dilation - before
    if transposed:
        place, meets = pixel * stride + tap, True
    else:
        place, meets = (pixel - tap) // stride, (pixel - tap) % stride == 0
    inside = (place >= 0) & (place < places) & meets
    return inside.to(device, dtype) / places


def recurrent_inputs(
    module: nn.RNNBase,
    inputs: tuple,
    output: tuple,
    time_steps: int | None,
    weights: Tensor | None = None,
) -> list[InputSum]:
    """Sum x_1 .. x_T and y_0 .. y_{T-1} of RNN, LSTM and GRU layers, (92).

    The reset gate of a GRU multiplies the linear output of its past, not the past
    itself, so both blocks are linear in their inputs, and torch gives the derivatives.
    """
    x, y = inputs[0], output[0]
    time = 1 if x.ndim == 3 and module.batch_first else 0
    T, dtype = x.shape[time], working_dtype(module.weight_hh_l0)
    first, later = (None, None) if weights is None else weights.split([1, T - 1], time)
    past, _ = summed(y.narrow(time, 0, T - 1), later, dtype)
    if len(inputs) > 1:
        y_0 = inputs[1][0] if isinstance(inputs[1], tuple) else inputs[1]
        past = past + summed(y_0, first, dtype)[0]
    present, rows = summed(x, weights, dtype)
    if time_steps is None and weights is not None:
        count = (weights != 0).any(time).sum()  # T is the mean length
    else:
        count = sequences(rows, T if time_steps is None else time_steps)
    return [InputSum(present, rows, count), InputSum(past, rows, count)]


def sequences(rows: int | Tensor, time_steps: int | None) -> int | Tensor:
    """Return the number of sequences of T rows.

    ValueError if T does not divide the number of rows.
    """
    if isinstance(rows, Tensor):
        return rows / (time_steps or 1)
    if rows % (time_steps or 1):
        raise ValueError(
            f"time_steps={time_steps} does not divide the {rows} rows of the input"
        )
    return rows // (time_steps or 1)


# layer type -> its mean inputs
KINDS = {nn.Linear: linear_inputs}
KINDS |= dict.fromkeys(CONV, conv_inputs)
KINDS |= dict.fromkeys(RECURRENT, recurrent_inputs)


def kind_of(module: nn.Module) -> type | None:
    """Return the known type that computes the layer's forward, or None."""
    for kind in KINDS:
        forward = getattr(module.forward, "__func__", None)
        if isinstance(module, kind) and forward is kind.forward:
            return kind
    return None
