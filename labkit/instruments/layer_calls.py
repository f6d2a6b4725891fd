"""Record calls of each layer kind for the squared gradients of its examples.

A call keeps the layer's inputs. Once the gradients of its outputs have arrived,
``moments`` computes the `labkit.instruments.per_layer.Moments` of the wanted parameters
from all calls of one pass. Calls of one layer in one pass count as further positions of
the same examples.
"""

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor, nn

from labkit.instruments.per_layer import (
    Moments,
    bias_moments,
    conv_moments,
    embedding_moments,
    fields,
    lstm_deltas,
    rnn_deltas,
    weight_moments,
)
from labkit.precision import wide


class LinearCall:
    """A call with inputs (M, n), (M, ..., n), or (T, M, ..., n) if not batch first.

    Its ``gradients``, of the outputs, arrive later.
    """

    def __init__(
        self, module: nn.Module, output: Tensor, batch_first: bool, input: Tensor
    ) -> None:
        if input.is_floating_point():
            input = input.to(output.dtype)  # what autocast read: it may change in place
        else:  # indices
            input = input[..., None]
        self.x, self.batch = input.detach(), 0 if batch_first or input.ndim < 3 else 1
        self.examples = 1 if input.ndim == 1 else input.shape[self.batch]

    def rows(self, tensor: Tensor) -> Tensor:
        """Return inputs or outputs as (M, T, n)."""
        if tensor.ndim < 3:
            return torch.atleast_2d(tensor)[:, None]
        return tensor.movedim(self.batch, 0).flatten(1, -2)

    def inputs(self, module: nn.Module, dtype: torch.dtype) -> Tensor:
        """Return the inputs at all positions, (M, T, n)."""
        return self.rows(self.x.to(dtype))

    def deltas(self, module: nn.Module, dtype: torch.dtype) -> Tensor:
        """Return the deltas at all positions, (M, T, N)."""
        return self.rows(self.gradients[0].to(dtype))

    @staticmethod
    def moments(
        module: nn.Module, calls: Sequence["LinearCall"], wanted: Collection[str]
    ) -> list[Moments]:
        """Compute the moments of the weight and the bias."""
        dtype, found = wide(module.weight), []
        d = joined([call.deltas(module, dtype) for call in calls])
        if "weight" in wanted:
            found.append(calls[0].weight_moments(module, calls, d))
        if "bias" in wanted:
            found.append(bias_moments(d))
        return found

    def weight_moments(
        self, module: nn.Module, calls: Sequence["LinearCall"], d: Tensor
    ) -> Moments:
        """Compute the moments of the weight from the deltas of all calls."""
        x = joined([call.inputs(module, d.dtype) for call in calls])
        return weight_moments(x, d)


class EmbeddingCall(LinearCall):
    """A call with indices (M,), (M, T, ...), or (T, M, ...) if not batch first."""

    def weight_moments(
        self, module: nn.Embedding, calls: Sequence[LinearCall], d: Tensor
    ) -> Moments:
        """Compute the moments of the weight, which has a row for each token."""
        tokens = joined([call.rows(call.x)[..., 0] for call in calls])
        if module.padding_idx is not None:
            d = d.masked_fill((tokens == module.padding_idx)[:, :, None], 0)
        return embedding_moments(tokens, d, len(module.weight))


class ConvCall(LinearCall):
    """A call of a CONV layer with inputs (M, C, ...) or (C, ...).

    Its positions are the places of the outputs, its inputs there are receptive fields.
    """

    def __init__(
        self, module: nn.Module, output: Tensor, batch_first: bool, input: Tensor
    ) -> None:
        self.x = as_maps(module, input.detach().to(output.dtype))
        self.examples, self.places = len(self.x), as_maps(module, output).shape[2:]

    def inputs(self, module: nn.Module, dtype: torch.dtype) -> Tensor:
        """Return the receptive fields at all places, (M, T, n)."""
        return fields(module, self.x.to(dtype), self.places)

    def deltas(self, module: nn.Module, dtype: torch.dtype) -> Tensor:
        """Return the deltas at all places, (M, T, N)."""
        return as_maps(module, self.gradients[0].to(dtype)).flatten(2).mT

    def weight_moments(
        self, module: nn.Module, calls: Sequence["ConvCall"], d: Tensor
    ) -> Moments:
        """Compute the moments of the weight, of one call in the cheaper of two ways."""
        if len(calls) > 1:
            return super().weight_moments(module, calls, d)
        return conv_moments(module, self.x.to(d.dtype), d, self.places)


def as_maps(module: nn.Module, tensor: Tensor) -> Tensor:
    """Return a CONV layer's inputs or outputs as (M, C, ...), with M = 1 if missing."""
    return tensor if tensor.ndim == module.weight.ndim else tensor[None]


class RecurrentCall:
    """A call with inputs, states h_0 .. h_T and, for an LSTM, c_0, all time first.

    Its ``gradients``, of y, h_T and, for an LSTM, c_T, arrive later, or are None.
    """

    def __init__(
        self,
        module: nn.Module,
        output: tuple,
        batch_first: bool,
        input: Tensor,
        hx: Tensor | tuple[Tensor, Tensor] | None = None,
    ) -> None:
        if not isinstance(input, Tensor):
            raise ValueError(
                f"a recurrent layer got a {type(input).__name__}; the squares need "
                "plain tensors: pad the sequences to one length"
            )
        self.alone, self.swap = input.ndim == 2, module.batch_first
        self.x = self.time_first(input.detach())
        y = self.time_first(output[0].detach())
        start = hx if isinstance(hx, tuple) else (hx, hx)
        zero = torch.zeros_like(y[0])
        h_0, c_0 = (zero if s is None else s.detach().view_as(zero) for s in start)
        # a copy: what follows may change y in place
        self.h, self.c_0 = torch.cat([h_0[None], y]), c_0
        self.examples = y.shape[1]

    def time_first(self, sequence: Tensor) -> Tensor:
        """Return a sequence as (T, M, n)."""
        if self.alone:
            return sequence[:, None]
        return sequence.transpose(0, 1) if self.swap else sequence

    def inputs_and_deltas(
        self, module: nn.Module, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Return inputs and states before each step, (T, M, n + H), and deltas."""
        h = self.h.to(dtype)
        dy, dh_T, dc_T = (*self.gradients, None)[:3]
        if dy is None:
            dh = torch.zeros_like(h[1:])
        else:
            dh = self.time_first(dy).to(dtype, copy=dh_T is not None)
        if dh_T is not None:
            dh[-1] += dh_T.view_as(dh[-1])
        xh = torch.cat((self.x.to(dtype), h[:-1]), 2)
        W_hh = module.weight_hh_l0.detach().to(dtype)
        if isinstance(module, nn.RNN):
            return xh, rnn_deltas(h, dh, W_hh, module.nonlinearity)
        W = torch.cat((module.weight_ih_l0.detach().to(dtype), W_hh), 1)
        b = (module.bias_ih_l0 + module.bias_hh_l0).to(dtype) if module.bias else None
        z = nn.functional.linear(xh, W, b)
        dc = None if dc_T is None else dc_T.to(dtype).view_as(h[0])
        return xh, lstm_deltas(z, self.c_0.to(dtype), dh, dc, W_hh)

    @staticmethod
    def moments(
        module: nn.Module, calls: Sequence["RecurrentCall"], wanted: Collection[str]
    ) -> list[Moments]:
        """Compute the moments of both weights as one, since they share their deltas."""
        dtype = wide(module.weight_hh_l0)
        pairs = [call.inputs_and_deltas(module, dtype) for call in calls]
        x, d = (
            joined([sequence.transpose(0, 1) for sequence in sequences])
            for sequences in zip(*pairs, strict=True)
        )
        if "weight_ih_l0" not in wanted:
            x = x[:, :, module.input_size :]
        if "weight_hh_l0" not in wanted:
            x = x[:, :, : x.shape[2] - module.hidden_size]
        biases = {"bias_ih_l0", "bias_hh_l0"} & wanted
        return [weight_moments(x, d)] + [bias_moments(d)] * len(biases)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Join (M, T, ...) tensors along T; one alone is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def tensor_to_hook(z: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the tensor to hook for the gradient of z, and a function that reads it.

    Some layers return a view, for example of (M T, N) rows as (M, T, N). An in-place
    activation gives a view a new history, which avoids a hook on z but not one on its
    base.
    """
    base = z._base
    whole = base is not None and base.requires_grad and base.numel() == z.numel()
    if not (whole and base.is_contiguous()):
        return z, lambda gradient: gradient
    size, stride = z.size(), z.stride()
    return base, lambda gradient: gradient.contiguous().as_strided(size, stride)
