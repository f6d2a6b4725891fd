"""Layer kinds against the same function written with Linear layers on what they see."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn

from labkit.layers import zeros_before
from labkit.rls import RLS, loss_mse

from .conftest import RULE, assert_close, randn
from .twins import randomise

pytestmark = pytest.mark.filterwarnings("ignore:with forgetting < 1")


class Fields(nn.Module):
    """A CONV layer as one Linear layer on receptive fields, made by indices."""

    def __init__(self, layer, places):
        super().__init__()
        self.form, self.places = copy.deepcopy(layer), places
        weight = layer.weight
        self.inner = nn.Linear(weight[0].numel(), len(weight), layer.bias is not None)
        self.inner.double()
        with torch.no_grad():
            self.inner.weight.copy_(weight.flatten(1))
            if layer.bias is not None:
                self.inner.bias.copy_(layer.bias)

    def pixel(self, i, place, tap):
        """Which pixel of dimension i a tap sees at a place."""
        stride, dilation = self.form.stride[i], self.form.dilation[i]
        return place * stride + tap * dilation - zeros_before(self.form, i)

    def forward(self, x):
        sizes = x.shape[2:]
        rows = []
        for place in torch.cartesian_prod(*map(torch.arange, self.places)).view(
            -1, len(sizes)
        ):
            seen = []
            taps = torch.cartesian_prod(*map(torch.arange, self.form.kernel_size))
            for tap in taps.view(-1, len(sizes)):
                at = [
                    self.pixel(i, int(place[i]), int(tap[i])) for i in range(len(sizes))
                ]
                outside = any(
                    not 0 <= a < size for a, size in zip(at, sizes, strict=True)
                )
                zero = torch.zeros_like(x[:, :, *[0] * len(sizes)])
                seen.append(zero if outside else x[:, :, *at])
            rows.append(torch.stack(seen, 2).flatten(1))
        z = self.inner(torch.stack(rows, 1))
        return z.mT.unflatten(2, self.places)


FORM = {"stride": 2, "padding": 1}
CONV = {
    "Conv1d": (partial(nn.Conv1d, 2, 3, 3, **FORM), (7,)),
    "Conv1d same": (partial(nn.Conv1d, 2, 3, 4, padding="same", dilation=3), (6,)),
    "Conv1d valid": (partial(nn.Conv1d, 2, 3, 4, padding="valid", bias=False), (6,)),
    "Conv2d": (partial(nn.Conv2d, 2, 3, (3, 2), dilation=(1, 2), **FORM), (5, 6)),
    "Conv3d": (partial(nn.Conv3d, 2, 3, (2, 1, 3), stride=(1, 2, 1)), (3, 4, 3)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("case", CONV)
def test_conv_layers_are_linear_layers_on_receptive_fields(case):
    make, sizes = CONV[case]
    layer = randomise(make())
    places = tuple(layer(randn(1, 2, *sizes)).shape[2:])
    twin = Fields(layer, places)
    steps = [{"layer": twin.inner, "time_steps": 1}]
    pairs = (layer, RLS(layer, **RULE)), (twin, RLS(twin, layers=steps, **RULE))
    for s in range(3):
        x = randn(4, 2, *sizes, seed=s) + 0.5
        target = randn(4, 3, *places, seed=9)
        for model, optimizer in pairs:
            optimizer.zero_grad()
            loss_mse(model(x), target).backward()
            optimizer.step()
    weight, inner = layer.weight, twin.inner
    P, Q = (each.state[each.blocks[0].weight]["P"] for _, each in pairs)
    assert_close((weight.flatten(1), P), (inner.weight, Q), 1e-10)
    if layer.bias is not None:
        assert_close([layer.bias], [inner.bias], 1e-10)


class Named(nn.Linear):
    """A subclass that computes what Linear computes."""


@pytest.mark.parametrize("limit", [None, math.inf])
def test_a_subclass_of_linear_trains_as_linear(limit):
    plain = randomise(nn.Linear(5, 7))
    named = Named(5, 7).double()
    named.load_state_dict(plain.state_dict())
    for layer in (plain, named):
        optimizer = RLS(layer, max_grad_norm=limit)
        loss_mse(layer(randn(2, 5)), randn(2, 7, seed=1)).backward()
        optimizer.step()
    assert_close(named.parameters(), plain.parameters(), 0)
