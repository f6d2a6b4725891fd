"""Record a call of an attention layer for the squared gradients of its examples.

``nn.MultiheadAttention`` returns neither its projections nor their deltas. Both are
computed again from its inputs, and autograd takes the deltas of the outputs back.
"""

import math
from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from labkit.instruments.per_layer import Moments, bias_moments, weight_moments
from labkit.layers import working_dtype

INPUTS = "query", "key", "value"


class AttentionCall:
    """A call with inputs (M, T, E) and masks, and with four projections."""

    NAMES = (*INPUTS, "key_padding_mask", "need_weights", "attn_mask")
    NAMES += ("average_attn_weights", "is_causal")
    random: Tensor | None = None  # state of torch's generator before the call

    def __init__(
        self, module: nn.Module, given: dict, output: object, batch_first: bool
    ):
        self.alone, self.swap = given["query"].ndim == 2, not module.batch_first
        self.x = [self.by_example(given[name].detach()) for name in INPUTS]
        self.examples = len(self.x[0])
        self.average = given.get("average_attn_weights", True)
        self.mask = self.masked(module, given)
        if module.dropout and module.training:
            self.random, self.y = given["random"], self.by_example(output[0].detach())
        self.gradients: list[Tensor | None] = []

    def by_example(self, sequence: Tensor) -> Tensor:
        """Return a sequence as (M, T, E)."""
        if self.alone:
            return sequence[None]
        return sequence.transpose(0, 1) if self.swap else sequence

    def masked(self, module: nn.Module, given: dict) -> list[Tensor]:
        """Return terms to add to the scores (M, heads, T, S), one for each mask."""
        mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
        if mask is not None and mask.ndim == 3:
            mask = mask.view(-1, module.num_heads, *mask.shape[1:])
        if padding is not None:
            padding = padding.view(self.examples, 1, 1, -1)
        found = [each.detach() for each in (mask, padding) if each is not None]
        zero = self.x[0].new_zeros(())
        return [
            zero.masked_fill(m, -math.inf) if m.dtype == torch.bool else m
            for m in found
        ]

    def pairs(
        self, module: nn.Module, dtype: torch.dtype
    ) -> list[tuple[Tensor, Tensor]]:
        """Return inputs and deltas of the three input projections and the output's."""
        own = {n: p.detach().to(dtype) for n, p in module.named_parameters()}
        biases = own.get("in_proj_bias")
        biases = (None,) * 3 if biases is None else biases.chunk(3)
        weights, heads = own["in_proj_weight"].chunk(3), module.num_heads
        xs = [x.to(dtype) for x in self.x]
        z = [linear(*each) for each in zip(xs, weights, biases, strict=True)]
        with torch.enable_grad():
            for each in z:
                each.requires_grad_()
            q, k, v = (each.unflatten(2, (heads, -1)).transpose(1, 2) for each in z)
            scores = q @ k.mT / math.sqrt(q.shape[-1])
            for mask in self.mask:
                scores = scores + mask.to(dtype)
            A = self.dropped(module, scores.softmax(-1))
            context = (A @ v).transpose(1, 2).flatten(2)
            y = linear(context, own["out_proj.weight"], own.get("out_proj.bias"))
            shown = A.mean(1) if self.average else A
        if self.random is not None and not alike(y, self.y):
            raise RuntimeError(
                "the mask that attention's dropout has drawn could not be drawn again; "
                "set its dropout to 0.0, or leave it out with layers=[...]"
            )
        dy, dA = (*self.gradients, None)[:2]
        dy = torch.zeros_like(y) if dy is None else self.by_example(dy).to(dtype)
        outputs, gradients = [y], [dy]
        if dA is not None:
            outputs, gradients = [y, shown], [dy, dA.to(dtype).view_as(shown)]
        dz = torch.autograd.grad(outputs, z, gradients)
        return [*zip(xs, dz, strict=True), (context.detach(), dy)]

    def dropped(self, module: nn.Module, A: Tensor) -> Tensor:
        """Apply dropout to A with the same mask as in the call."""
        if self.random is None:
            return A
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random)
            return dropout(A, module.dropout)

    @staticmethod
    def moments(
        module: nn.MultiheadAttention,
        calls: list["AttentionCall"],
        wanted: Collection[str],
    ) -> list[Moments]:
        """Compute the moments of the three input projections and the output one."""
        dtype = working_dtype(module.in_proj_weight)
        found = []
        names = ("in_proj_",) * 3 + ("out_proj.",)
        each = zip(*(call.pairs(module, dtype) for call in calls), strict=True)
        for name, pairs in zip(names, each, strict=True):
            x, d = (torch.cat(p, 1) for p in zip(*pairs, strict=True))
            if f"{name}weight" in wanted:
                found.append(weight_moments(x, d))
            if f"{name}bias" in wanted:
                found.append(bias_moments(d))
        return found


def alike(y: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal up to rounding in half precision."""
    return bool((y - other).abs().max() <= 2e-2 * y.abs().max())


def refused_attention(module: nn.MultiheadAttention) -> str:
    """Return why an attention layer cannot be watched, or an empty string."""
    if module.dropout and module.out_proj.weight.device.type != "cpu":
        return (
            f"dropout={module.dropout} draws a mask that is drawn again on the CPU "
            "only; set its dropout to 0.0 (an nn.Dropout after it may stay)"
        )
    if module.bias_k is not None or module.add_zero_attn:
        return "add_bias_kv and add_zero_attn are not written"
    if module.in_proj_weight is None:
        return "kdim and vdim of their own are not written"
    return ""
