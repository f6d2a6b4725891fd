"""What RLS must know of each layer kind: its blocks and its mean inputs.

FC and CONV layers are one block; a recurrent layer is two, ``ih`` for its inputs and
``hh`` for its own past, since all gates of an LSTM share their inputs.
"""

from torch import nn

from labkit.rls.blocks import Block, InputSum


def blocks_of(name: str, module: nn.Module) -> list[Block]:
    """The blocks of a layer, in the order in which its inputs are summed."""
    if not isinstance(module, nn.RNNBase):
        return [Block(name, module.weight, module.bias)]
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


def conv2d_inputs(module, inputs, output, time_steps) -> list[InputSum]:
    """CONV layer, (72): the mean receptive field.

    The mean is linear, so one map, the batch's mean, is unfolded, not all.
    """
    x = inputs[0]
    x = x if x.ndim == 4 else x[None]
    kernel, dilation = module.kernel_size, module.dilation
    mean = x.mean(0, keepdim=True, dtype=module.weight.dtype)
    mean = nn.functional.pad(mean, _padding(module))
    fields = nn.functional.unfold(mean, kernel, dilation, 0, module.stride)
    rows = len(x) * fields.shape[-1]
    return [InputSum(fields[0].mean(1) * rows, rows, rows)]


def _padding(module) -> list[int]:
    """Zeros to add: left, right, top, bottom."""
    if module.padding == "valid":
        return [0, 0, 0, 0]
    sides = []
    for i in (1, 0):
        if module.padding == "same":
            total = module.dilation[i] * (module.kernel_size[i] - 1)
        else:
            total = 2 * module.padding[i]
        sides += [total // 2, total - total // 2]  # the larger part of an odd one last
    return sides


def recurrent_inputs(module, inputs, output, time_steps) -> list[InputSum]:
    """RNN and LSTM layers, (92): means of x_1 .. x_T and of y_0 .. y_{T-1}."""
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
KINDS = {nn.Linear: linear_inputs, nn.Conv2d: conv2d_inputs}
KINDS |= dict.fromkeys((nn.RNN, nn.LSTM), recurrent_inputs)
