"""Record calls of each layer kind for the squared gradients of its examples.

A call keeps the layer's inputs. Once the gradients of its outputs have arrived,
``moments`` computes the `labkit.instruments.per_layer.Moments` of the wanted parameters
from all calls of one pass. Calls of one layer in one pass count as further positions of
the same examples.
"""

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from labkit.instruments.per_layer import (
    Moments,
    bias_moments,
    conv_moments,
    embedding_moments,
    fields,
    formed_moments,
    weight_moments,
)
from labkit.layers import CONV, working_dtype

INSTANCES = nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d
# layer type -> number of dimensions of its inputs, with that of the examples
MAPS = {kind: 3 + i % 3 for i, kind in enumerate(CONV + INSTANCES)}


class LinearCall:
    """A call with inputs (M, n), (M, ..., n), or (T, M, ..., n) if not batch first."""

    NAMES = ("input",)  # arguments of the layer's forward

    def __init__(
        self, module: nn.Module, given: dict, output: object, batch_first: bool
    ):
        x = given["input"]
        self.x, self.batch = x.detach(), 0 if batch_first or x.ndim < 3 else 1
        self.examples = 1 if x.ndim == 1 else x.shape[self.batch]
        self.gradients: list[Tensor | None] = []

    def rows(self, tensor: Tensor) -> Tensor:
        """Return a tensor as (M, T, n)."""
        if tensor.ndim < 3:
            return tensor.reshape(self.examples, 1, -1)
        return tensor.movedim(self.batch, 0).flatten(1, -2)

    @staticmethod
    def moments(
        module: nn.Module, calls: list, wanted: Collection[str]
    ) -> list[Moments]:
        """Compute the moments of the weight and the bias."""
        dtype = working_dtype(module.weight)
        d = torch.cat([call.rows(call.gradients[0].to(dtype)) for call in calls], 1)
        found = []
        if "weight" in wanted:
            x = torch.cat([call.rows(call.x.to(dtype)) for call in calls], 1)
            found.append(weight_moments(x, d))
        if "bias" in wanted:
            found.append(bias_moments(d))
        return found


class ConvCall:
    """A call of a CONV or transposed layer with inputs (M, C, ...) or (C, ...)."""

    NAMES = ("input",)

    def __init__(
        self, module: nn.Module, given: dict, output: object, batch_first: bool
    ):
        self.x = as_maps(module, given["input"].detach())
        self.examples = len(self.x)
        self.gradients: list[Tensor | None] = []

    @staticmethod
    def moments(
        module: nn.Module, calls: list, wanted: Collection[str]
    ) -> list[Moments]:
        """Compute the moments of the weight and the bias."""
        dtype, found = working_dtype(module.weight), []
        deltas = [as_maps(module, call.gradients[0].to(dtype)) for call in calls]
        pairs = [(call.x.to(dtype), d) for call, d in zip(calls, deltas, strict=True)]
        if isinstance(module, _ConvTransposeNd):
            pairs = [(d, x) for x, d in pairs]
        if "weight" in wanted:
            groups = [
                zip(*(each.chunk(module.groups, 1) for each in pair), strict=True)
                for pair in pairs
            ]
            for part in zip(*groups, strict=True):  # the pairs of one group
                found.append(ConvCall.of_group(module, part))
        if "bias" in wanted:
            sums = [d.sum((*range(2, d.ndim),)) for d in deltas]
            found.append(bias_moments(torch.stack(sums, 1)))
        return found

    @staticmethod
    def of_group(module: _ConvNd, pairs: Sequence[tuple[Tensor, Tensor]]) -> Moments:
        """Compute the moments of a group's weight from inputs and deltas."""
        if len(pairs) == 1:
            return conv_moments(module, *pairs[0])
        x = torch.cat([fields(module, x, d.shape[2:]) for x, d in pairs], 1)
        return weight_moments(x, torch.cat([d.flatten(2).mT for _, d in pairs], 1))


def as_maps(module: nn.Module, tensor: Tensor) -> Tensor:
    """Return a layer's inputs or outputs as (M, C, ...), with M = 1 if missing."""
    return tensor if tensor.ndim == MAPS[type(module)] else tensor[None]


class EmbeddingCall:
    """A call with indices (M,), (M, T, ...), or (T, M, ...) if not batch first."""

    NAMES = ("input",)

    def __init__(
        self, module: nn.Module, given: dict, output: object, batch_first: bool
    ):
        x = given["input"].detach()
        self.x = (
            x.movedim(0 if batch_first or x.ndim < 2 else 1, 0) if x.ndim else x[None]
        )
        self.moved = not batch_first and x.ndim > 1
        self.examples = len(self.x)
        self.gradients: list[Tensor | None] = []

    @staticmethod
    def moments(
        module: nn.Module, calls: list, wanted: Collection[str]
    ) -> list[Moments]:
        """Compute the moments of the weight, which has a row for each token."""
        dtype, deltas = working_dtype(module.weight), []
        for call in calls:
            d = call.gradients[0].to(dtype)
            d = d.movedim(1, 0) if call.moved else d
            deltas.append(d.reshape(call.examples, -1, module.embedding_dim))
        tokens = torch.cat([c.x.reshape(c.examples, -1) for c in calls], 1)
        return [
            embedding_moments(
                tokens,
                torch.cat(deltas, 1),
                rows=len(module.weight),
                skip=module.padding_idx,
            )
        ]


class NormCall:
    """A call of a norm, whose weight scales the normalised inputs.

    The inputs of LayerNorm and RMSNorm are (M, ..., *shape), or (T, M, ..., *shape)
    with ``batch_first=False``; those of GroupNorm, and of BatchNorm in evaluation mode,
    are (M, C, ...); those of InstanceNorm may also be (C, ...).
    """

    NAMES = ("input",)

    def __init__(
        self, module: nn.Module, given: dict, output: object, batch_first: bool
    ):
        x = given["input"].detach()
        x = self.x = as_maps(module, x) if type(module) in INSTANCES else x
        self.training = module.training
        shape = getattr(module, "normalized_shape", None)
        if shape is None:
            self.batch, self.own = 0, {1}
        else:
            free = x.ndim - len(shape)
            self.batch = 0 if batch_first or free < 2 else 1
            self.own = {*range(free, x.ndim)}
            self.batch = None if not free else self.batch
        self.examples = 1 if self.batch is None else x.shape[self.batch]
        self.gradients: list[Tensor | None] = []

    def share(self, sized: Tensor) -> Tensor:
        """Sum over the positions of each example, and return (M, P)."""
        if self.batch is None:
            return sized.flatten()[None]
        rest = {*range(sized.ndim)} - self.own - {self.batch}
        return (sized.sum([*rest]) if rest else sized).flatten(1)

    def normalised(self, module: nn.Module, dtype: torch.dtype) -> Tensor:
        """Return the normalised inputs, which the norm's weight multiplies."""
        x = self.x.to(dtype)
        if isinstance(module, nn.LayerNorm):
            return F.layer_norm(x, module.normalized_shape, eps=module.eps)
        if isinstance(module, nn.RMSNorm):
            return F.rms_norm(x, module.normalized_shape, eps=module.eps)
        if isinstance(module, nn.GroupNorm):
            return F.group_norm(x, module.num_groups, eps=module.eps)
        mean, var = module.running_mean, module.running_var
        if type(module) in INSTANCES and (self.training or mean is None):
            return F.instance_norm(x, eps=module.eps)
        return F.batch_norm(x, mean.to(dtype), var.to(dtype), eps=module.eps)

    @staticmethod
    def moments(
        module: nn.Module, calls: list, wanted: Collection[str]
    ) -> list[Moments]:
        """Compute the moments of the weight and the bias."""
        dtype, found = working_dtype(module.weight), []
        deltas = [call.gradients[0].to(dtype).view_as(call.x) for call in calls]
        pairs = list(zip(calls, deltas, strict=True))
        if "weight" in wanted:
            shares = [c.share(d * c.normalised(module, dtype)) for c, d in pairs]
            found.append(formed_moments(sum(shares)))
        if "bias" in wanted:
            found.append(formed_moments(sum(c.share(d) for c, d in pairs)))
        return found


def tensor_to_hook(z: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the tensor to hook for the gradient of z, and a function that reads it.

    Some layers return a view, for example of (M T, N) rows as (M, T, N). An in-place
    activation gives a view a new history, which avoids a hook on z but not one on its
    base.
    """
    base = z._base
    whole = base is not None and base.requires_grad and base.numel() == z.numel()
    if not whole or not base.is_contiguous():
        return z, lambda gradient: gradient
    size, stride = z.size(), z.stride()
    return base, lambda gradient: gradient.contiguous().as_strided(size, stride)
