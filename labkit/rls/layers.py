"""What RLS must know of each layer kind: its blocks and its mean inputs.

FC and CONV layers are one block; a recurrent layer is two, ``ih`` for its inputs and
``hh`` for its own past, since all gates of an LSTM or GRU share their inputs.
"""

import functools
import math

import torch
from torch import nn
from torch.nn.modules.conv import _ConvTransposeNd

from labkit.layers import CONV, RECURRENT, zeros_before
from labkit.rls.blocks import Block, InputSum


def blocks_of(name: str, module: nn.Module) -> list[Block]:
    """The blocks of a layer, in the order in which its inputs are summed."""
    if not isinstance(module, nn.RNNBase):
        inputs_first = isinstance(module, _ConvTransposeNd)
        return [Block(name, module.weight, module.bias, inputs_first)]
    blocks = []
    for kind in ("ih", "hh"):
        weight = getattr(module, f"weight_{kind}_l0")
        bias = getattr(module, f"bias_{kind}_l0", None)
        blocks.append(Block(f"{name}.{kind}", weight, bias))
    return blocks


def linear_inputs(module, inputs, output, time_steps) -> list[InputSum]:
    """FC layer: the mean of (31), (51), or (80) with ``time_steps`` > 1."""
    X = inputs[0].reshape(-1, module.in_features)
    total = X.sum(0, dtype=module.weight.dtype)
    return [InputSum(total, len(X), sequences(len(X), time_steps))]


def conv_inputs(module, inputs, output, time_steps) -> list[InputSum]:
    """CONV layer, (72): the mean receptive field, one dimension of the map by one.

    The mean is linear, so one map, the batch's mean, is taken, not all. A transposed
    layer is a CONV layer on its input with zeros between the pixels, and each of its
    outputs is linear in such a field with the same weights: the derivation holds.
    """
    x, sides = inputs[0], len(module.kernel_size)
    x = x if x.ndim == sides + 2 else x[None]
    field = x.mean(0, dtype=module.weight.dtype)  # (C, ...)
    places = output.shape[-sides:]
    for i, places_i in enumerate(places):
        form = module.kernel_size[i], module.stride[i], module.dilation[i]
        before = zeros_before(module, i), isinstance(module, _ConvTransposeNd)
        seen = taps(field.shape[1], places_i, *form, *before, field.dtype, field.device)
        field = torch.tensordot(field, seen, ([1], [0]))  # the next one comes to 1
    rows = len(x) * math.prod(places)
    return [InputSum(field.flatten() * rows, rows, rows)]


@functools.lru_cache(maxsize=256)
def taps(size, places, kernel, stride, dilation, before, transposed, dtype, device):
    """(size, kernel): share of the places at which a tap of the kernel sees a pixel."""
    pixel = torch.arange(size)[:, None]
    tap = torch.arange(kernel) * dilation - before
    if transposed:
        place, meets = pixel * stride + tap, True
    else:
        place, meets = (pixel - tap) // stride, (pixel - tap) % stride == 0
    seen = (place >= 0) & (place < places) & meets
    return seen.to(device, dtype) / places


def recurrent_inputs(module, inputs, output, time_steps) -> list[InputSum]:
    """RNN, LSTM and GRU layers, (92): means of x_1 .. x_T and of y_0 .. y_{T-1}.

    A GRU's reset gate multiplies the linear output of its past, not the past: both
    blocks are linear in their inputs, and torch gives the derivatives.
    """
    x, y = inputs[0], output[0]
    time = 1 if x.ndim == 3 and module.batch_first else 0
    T, rows = x.shape[time], x[..., 0].numel()
    dtype = module.weight_hh_l0.dtype
    past = y.narrow(time, 0, T - 1).reshape(-1, module.hidden_size).sum(0, dtype=dtype)
    if len(inputs) > 1:
        y_0 = inputs[1][0] if isinstance(inputs[1], tuple) else inputs[1]
        past = past + y_0.reshape(-1, module.hidden_size).sum(0)
    seen = x.reshape(-1, module.input_size).sum(0, dtype=dtype)
    count = sequences(rows, T if time_steps is None else time_steps)
    return [InputSum(seen, rows, count), InputSum(past, rows, count)]


def sequences(rows: int, time_steps: int | None) -> int:
    """Rows that count as one sequence each; ValueError if T does not divide them."""
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
    """The known type that a layer computes as, itself or a subclass; None if none."""
    for kind in KINDS:
        forward = getattr(module.forward, "__func__", None)
        if isinstance(module, kind) and forward is kind.forward:
            return kind
    return None
