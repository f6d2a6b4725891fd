"""What a call of each layer kind leaves for the squares of its examples' gradients.

A call keeps the layer's inputs; once the gradients by its outputs have come,
``moments`` makes the `labkit.instruments.per_layer.Moments` of the wanted parameters
from all calls of one pass.  Calls of one layer in one pass count as further positions
of the same examples.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from labkit.instruments.per_layer import (
    Moments,
    bias_moments,
    conv2d_moments,
    fields,
    lstm_deltas,
    rnn_deltas,
    weight_moments,
)


class LinearCall:
    """Inputs (M, n), (M, ..., n), or with ``batch_first=False`` (T, M, ..., n)."""

    def __init__(self, module, x: Tensor, hx, output, batch_first: bool):
        self.x, self.batch = x.detach(), 0 if batch_first or x.ndim < 3 else 1
        self.examples = 1 if x.ndim == 1 else x.shape[self.batch]
        self.gradients: list[Tensor | None] = []

    def rows(self, tensor: Tensor) -> Tensor:
        """(M, T, n)."""
        if tensor.ndim < 3:
            return tensor.reshape(self.examples, 1, -1)
        return tensor.movedim(self.batch, 0).flatten(1, -2)

    @staticmethod
    def moments(module, calls, wanted) -> list[Moments]:
        """Of the weight and the bias."""
        dtype = working_dtype(module.weight)
        d = torch.cat([call.rows(call.gradients[0].to(dtype)) for call in calls], 1)
        found = []
        if "weight" in wanted:
            x = torch.cat([call.rows(call.x.to(dtype)) for call in calls], 1)
            found.append(weight_moments(x, d))
        if "bias" in wanted:
            found.append(bias_moments(d))
        return found


class Conv2dCall:
    """Inputs (M, C, H, W), or (C, H, W) for one example."""

    def __init__(self, module, x: Tensor, hx, output, batch_first):
        self.x = x.detach() if x.ndim == 4 else x.detach()[None]
        self.examples = len(self.x)
        self.gradients: list[Tensor | None] = []

    @staticmethod
    def moments(module, calls, wanted) -> list[Moments]:
        """Of the weight and the bias."""
        dtype = working_dtype(module.weight)
        maps = [call.gradients[0].to(dtype) for call in calls]
        maps = [d if d.ndim == 4 else d[None] for d in maps]
        found = []
        if "weight" in wanted and len(calls) == 1:
            found.append(conv2d_moments(module, calls[0].x.to(dtype), maps[0]))
        elif "weight" in wanted:
            x = torch.cat([fields(module, call.x.to(dtype)) for call in calls], 1)
            d = torch.cat([d.flatten(2).mT for d in maps], 1)
            found.append(weight_moments(x, d))
        if "bias" in wanted:
            sums = [d.sum((2, 3)) for d in maps]
            found.append(bias_moments(torch.stack(sums, 1)))
        return found


class RecurrentCall:
    """Inputs, states h_0 .. h_T and, for an LSTM, c_0; time stands first in all."""

    def __init__(self, module, x: Tensor, hx, output, batch_first):
        if not isinstance(x, Tensor):
            raise ValueError(
                f"a recurrent layer got a {type(x).__name__}; the squares need plain "
                "tensors: pad the sequences to one length"
            )
        self.alone, self.swap = x.ndim == 2, module.batch_first
        self.x = self.time_first(x.detach())
        y = self.time_first(output[0].detach())
        start = hx if isinstance(hx, tuple) else (hx, hx)
        h_0, c_0 = (self.state(s, y[0]) for s in start)
        # a copy: what follows may change y in place
        self.h, self.c_0 = torch.cat([h_0[None], y]), c_0
        self.examples = y.shape[1]
        self.gradients: list[Tensor | None] = []

    def time_first(self, sequence: Tensor) -> Tensor:
        """(T, M, n)."""
        if self.alone:
            return sequence[:, None]
        return sequence.transpose(0, 1) if self.swap else sequence

    def state(self, given: Tensor | None, like: Tensor) -> Tensor:
        """(M, H), zero where none is given."""
        return torch.zeros_like(like) if given is None else given.detach().view_as(like)

    def inputs_and_deltas(self, module, dtype) -> tuple[Tensor, Tensor]:
        """(T, M, n + H) inputs with the states before each step, and the deltas."""
        h = self.h.to(dtype)
        xh = torch.cat((self.x.to(dtype), h[:-1]), 2)
        dy, dh_T, dc_T = (*self.gradients, None)[:3]
        if dy is None:
            dh = torch.zeros_like(h[1:])
        else:
            dh = self.time_first(dy).to(dtype, copy=dh_T is not None)
        if dh_T is not None:
            dh[-1] += dh_T.view_as(dh[-1])
        W_hh = module.weight_hh_l0.detach().to(dtype)
        if isinstance(module, nn.RNN):
            return xh, rnn_deltas(h, dh, W_hh, module.nonlinearity)
        W = torch.cat((module.weight_ih_l0.detach().to(dtype), W_hh), 1)
        b = (module.bias_ih_l0 + module.bias_hh_l0).to(dtype) if module.bias else None
        z = nn.functional.linear(xh, W, b)
        dc = None if dc_T is None else dc_T.to(dtype).view_as(h[0])
        return xh, lstm_deltas(z, self.c_0.to(dtype), dh, dc, W_hh)

    @staticmethod
    def moments(module, calls, wanted) -> list[Moments]:
        """Of both weights as one: they share their deltas, and so the deltas' Gram."""
        dtype = working_dtype(module.weight_hh_l0)
        pairs = zip(*(c.inputs_and_deltas(module, dtype) for c in calls), strict=True)
        # Without copies: large arrays move at the speed of memory.
        joined = (torch.cat(p) if len(p) > 1 else p[0] for p in pairs)
        x, d = (sequence.transpose(0, 1) for sequence in joined)
        if "weight_ih_l0" not in wanted:
            x = x[:, :, module.input_size :]
        if "weight_hh_l0" not in wanted:
            x = x[:, :, : x.shape[2] - module.hidden_size]
        biases = {"bias_ih_l0", "bias_hh_l0"} & wanted
        return [weight_moments(x, d)] + [bias_moments(d)] * len(biases)


def working_dtype(weight: Tensor) -> torch.dtype:
    """The weight's dtype, at least float32: squares overflow in half precision."""
    return torch.promote_types(weight.dtype, torch.float32)


def tensors(output) -> list[Tensor]:
    """A layer's outputs: z, or a recurrent layer's y and h, or y, h and c."""
    if isinstance(output, Tensor):
        return [output]
    y, last = output
    return [y, *last] if isinstance(last, tuple) else [y, last]


def tensor_to_hook(z: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Where to hang a hook for the gradient by z, and how to read what it gets.

    Some layers return a view: of (M T, N) rows as (M, T, N), say.  An activation that
    works in place gives a view a new history, past a hook on z but not on its base.
    """
    base = z._base
    whole = base is not None and base.requires_grad and base.numel() == z.numel()
    if not whole or not base.is_contiguous():
        return z, lambda gradient: gradient
    size, stride = z.size(), z.stride()
    return base, lambda gradient: gradient.contiguous().as_strided(size, stride)


MIXES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
# layer type -> what a call of it leaves
KINDS = {nn.Linear: LinearCall, nn.Conv2d: Conv2dCall}
KINDS |= dict.fromkeys((nn.RNN, nn.LSTM), RecurrentCall)


def refusal(module: nn.Module) -> str:
    """Why a layer cannot be watched; empty if it can."""
    if isinstance(module, nn.GRU):
        return "a GRU's reset gate sees W_hh h apart from the inputs; watch RNN or LSTM"
    if type(module) not in KINDS:
        kinds = ", ".join(kind.__name__ for kind in KINDS)
        return f"it is a {type(module).__name__}, and there are {kinds}"
    if isinstance(module, nn.Conv2d):
        if module.groups != 1:
            return f"groups={module.groups}; only groups=1 is written"
        if module.padding_mode != "zeros":
            return f"padding_mode={module.padding_mode!r}; only 'zeros' is written"
    if isinstance(module, nn.RNNBase):
        if module.num_layers != 1:
            inner = f"num_layers={module.num_layers} hides the inner layers' states"
            return f"{inner}; stack single layers"
        if module.bidirectional:
            return "it is bidirectional; use one forward layer"
        if module.proj_size:
            return f"proj_size={module.proj_size}; use proj_size=0"
    return ""


def choose(model, layers) -> list[tuple[str, nn.Module]]:
    """Names and modules to watch; ValueError where one cannot be."""
    modules = dict(model.named_modules())
    for name, module in modules.items():
        if isinstance(module, MIXES):
            raise ValueError(
                f"layer {name!r} is a {type(module).__name__}: it mixes the examples "
                "of a batch, so none has a gradient of its own; use GroupNorm, say"
            )
    if layers is None:
        own = {name: m.parameters(recurse=False) for name, m in modules.items()}
        wanted = [n for n, mine in own.items() if any(p.requires_grad for p in mine)]
        chosen = [(name, modules[name]) for name in wanted]
    elif isinstance(layers, str | nn.Module):
        raise ValueError(f"layers must be a list of layers, got {layers!r}")
    else:
        chosen = [_find(modules, wanted) for wanted in layers]
    if not chosen:
        raise ValueError(f"{type(model).__name__} has no layer to watch")
    for name, module in chosen:
        reason = refusal(module)
        if reason:
            raise ValueError(
                f"layer {name!r} cannot be watched: {reason}; or choose layers=[...]"
            )
    _check_owners(modules, {module for _, module in chosen})
    return chosen


def _find(modules, wanted):
    for name, module in modules.items():
        if module is wanted or name == wanted:
            return name, module
    names = [repr(name) for name, module in modules.items() if type(module) in KINDS]
    raise ValueError(f"the model has no layer {wanted!r}; it has {', '.join(names)}")


def _check_owners(modules, watched):
    owners = {}
    for name, module in modules.items():
        for parameter in module.parameters(recurse=False):
            other, its_module = owners.setdefault(id(parameter), (name, module))
            if other != name and {module, its_module} & watched:
                raise ValueError(
                    f"layers {other!r} and {name!r} share a parameter, whose gradient "
                    "neither has alone; use one module in both places"
                )
