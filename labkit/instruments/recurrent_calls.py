"""Record calls of recurrent layers; see `labkit.instruments.layer_calls`."""

from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.instruments.per_layer import (
    Moments,
    bias_moments,
    gru_deltas,
    lstm_deltas,
    rnn_deltas,
    weight_moments,
)
from labkit.layers import working_dtype


class RecurrentCall:
    """A call with inputs, states h_0 .. h_T and, for an LSTM, c_0, all time first."""

    NAMES = ("input", "hx")

    def __init__(
        self, module: nn.Module, given: dict, output: object, batch_first: bool
    ):
        x, hx = given["input"], given.get("hx")
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
        """Return a sequence as (T, M, n)."""
        if self.alone:
            return sequence[:, None]
        return sequence.transpose(0, 1) if self.swap else sequence

    def state(self, given: Tensor | None, like: Tensor) -> Tensor:
        """Return a state as (M, H), zero if none is given."""
        return torch.zeros_like(like) if given is None else given.detach().view_as(like)

    def inputs_and_deltas(
        self, module: nn.Module, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Return inputs and states before each step, (T, M, n + H), and deltas."""
        h, dh, dc_T = self.states(dtype)
        xh = torch.cat((self.x.to(dtype), h[:-1]), 2)
        W_hh = module.weight_hh_l0.detach().to(dtype)
        if isinstance(module, nn.RNN):
            return xh, rnn_deltas(h, dh, W_hh, module.nonlinearity)
        W = torch.cat((module.weight_ih_l0.detach().to(dtype), W_hh), 1)
        b = (module.bias_ih_l0 + module.bias_hh_l0).to(dtype) if module.bias else None
        z = nn.functional.linear(xh, W, b)
        dc = None if dc_T is None else dc_T.to(dtype).view_as(h[0])
        return xh, lstm_deltas(z, self.c_0.to(dtype), dh, dc, W_hh)

    def states(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return h_0 .. h_T, and the derivatives by h_1 .. h_T (direct) and c_T."""
        h = self.h.to(dtype)
        dy, dh_T, dc_T = (*self.gradients, None)[:3]
        if dy is None:
            dh = torch.zeros_like(h[1:])
        else:
            dh = self.time_first(dy).to(dtype, copy=dh_T is not None)
        if dh_T is not None:
            dh[-1] += dh_T.view_as(dh[-1])
        return h, dh, dc_T

    @staticmethod
    def moments(
        module: nn.Module, calls: list["RecurrentCall"], wanted: Collection[str]
    ) -> list[Moments]:
        """Compute the moments of both weights as one, since they share their deltas."""
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


class GRUCall(RecurrentCall):
    """A call of a GRU, whose two weights have different deltas."""

    def pairs(
        self, module: nn.Module, dtype: torch.dtype
    ) -> list[tuple[Tensor, Tensor]]:
        """Return inputs with their deltas, and states before each step with theirs."""
        own = {n: p.detach().to(dtype) for n, p in module.named_parameters()}
        h, dh, _ = self.states(dtype)
        x = self.x.to(dtype)
        z_ih = F.linear(x, own["weight_ih_l0"], own.get("bias_ih_l0"))
        z_hh = F.linear(h[:-1], own["weight_hh_l0"], own.get("bias_hh_l0"))
        d_ih, d_hh = gru_deltas(z_ih, z_hh, h, dh, own["weight_hh_l0"])
        return [(x, d_ih), (h[:-1], d_hh)]

    @staticmethod
    def moments(
        module: nn.Module, calls: list["RecurrentCall"], wanted: Collection[str]
    ) -> list[Moments]:
        """Compute the moments of each weight and bias."""
        dtype, found = working_dtype(module.weight_hh_l0), []
        each = zip(*(call.pairs(module, dtype) for call in calls), strict=True)
        for kind, pairs in zip(("ih", "hh"), each, strict=True):
            x, d = (torch.cat(p).transpose(0, 1) for p in zip(*pairs, strict=True))
            if f"weight_{kind}_l0" in wanted:
                found.append(weight_moments(x, d))
            if f"bias_{kind}_l0" in wanted:
                found.append(bias_moments(d))
        return found
