"""Sum the inputs of a layer, kind by kind.

FC and CONV layers have one block. A recurrent layer has two, ``ih`` for its inputs and
``hh`` for its own past, since all gates of an LSTM share their inputs.

Each function returns the sum of the inputs of each block over all rows, the number of
rows, and the number T of time steps among them.
"""

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from labkit.layers import zeros_before


def linear_inputs(
    module: nn.Linear, x: Tensor, start: object, output: Tensor
) -> tuple[list[Tensor], int, int]:
    """Sum the inputs of an FC layer, for the mean in (31), (51) or (80)."""
    X = x.reshape(-1, x.shape[-1])
    return [X.sum(0, dtype=module.weight.dtype)], len(X), 1


def conv_inputs(
    module: _ConvNd, x: Tensor, start: object, output: Tensor
) -> tuple[list[Tensor], int, int]:
    """Sum the receptive fields of a CONV layer, (72), one dimension after the other.

    The sum is linear, so only the sum of the maps of the batch is needed.
    """
    sides = len(module.kernel_size)
    x = x if x.ndim == sides + 2 else x[None]
    field, places = x.sum(0, dtype=module.weight.dtype), output.shape[-sides:]
    for i, places_i in enumerate(places):
        share = taps(
            field.shape[1],
            places_i,
            module.kernel_size[i],
            module.stride[i],
            module.dilation[i],
            zeros_before(module, i),
            field.dtype,
            field.device,
        )
        field = torch.tensordot(field, share, ([1], [0]))  # the next one becomes 1
    count = math.prod(places)
    return [field.flatten() * count], len(x) * count, 1


@functools.lru_cache(maxsize=256)
def taps(
    size: int,
    places: int,
    kernel: int,
    stride: int,
    dilation: int,
    before: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Return the share of places where a kernel's tap sees a pixel, (size, kernel)."""
    apart = torch.arange(size)[:, None] - torch.arange(kernel) * dilation + before
    place = apart // stride
    inside = (place >= 0) & (place < places) & (apart % stride == 0)
    return inside.to(device, dtype) / places


def recurrent_inputs(
    module: nn.RNNBase, x: Tensor, start: object, output: tuple
) -> tuple[list[Tensor], int, int]:
    """Sum x_1 .. x_T and y_0 .. y_{T-1} of RNN and LSTM layers, (92)."""
    y, dtype = output[0], module.weight_hh_l0.dtype
    time = 1 if x.ndim == 3 and module.batch_first else 0
    T, rows = x.shape[time], x[..., 0].numel()
    past = y.narrow(time, 0, T - 1).flatten(0, -2).sum(0, dtype=dtype)
    if start is not None:
        y_0 = start[0] if isinstance(start, tuple) else start
        past = past + y_0.flatten(0, -2).sum(0, dtype=dtype)
    return [x.flatten(0, -2).sum(0, dtype=dtype), past], rows, T


# layer type -> its sums of inputs
KINDS = {nn.Linear: linear_inputs}
KINDS |= dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), conv_inputs)
KINDS |= dict.fromkeys((nn.RNN, nn.LSTM), recurrent_inputs)


def kind_of(module: nn.Module) -> type | None:
    """Return the known type that computes the layer's forward, or None."""
    for kind in KINDS:
        forward = getattr(module.forward, "__func__", None)
        if isinstance(module, kind) and forward is kind.forward:
            return kind
    return None
