"""What people get wrong, and the sentence that they meet."""

import numpy as np
import pytest
import torch
from torch import nn

from labkit.instruments import (
    GradientNoise,
    Trace,
    angle,
    best_ratio,
    cost,
    gradient_cosine,
    gradient_variance,
    relative_variance,
)

ONE, MANY = torch.ones(2, 3), torch.ones(5, 2, 3)
NET = nn.Linear(3, 2)


# a mistake -> a call that makes it, and a part of the message
MISTAKES = {
    "a list": (
        lambda: gradient_variance([1.0, 2.0]),
        "estimates must be a tensor, got list",
    ),
    "whole numbers": (
        lambda: gradient_variance(torch.arange(4)),
        "estimates must be real floating point, got the dtype torch.int64",
    ),
    "one estimate": (
        lambda: gradient_variance(ONE[:1]),
        r"shape \(R, \.\.\.\) with R >= 2, got \(1, 3\)",
    ),
    "another dtype": (
        lambda: gradient_cosine(ONE, ONE.double()),
        "estimate must have the dtype torch.float64, got torch.float32",
    ),
    "another shape": (
        lambda: gradient_cosine(ONE, ONE.T),
        r"shape \(2, 3\) do not fit the exact gradient of shape \(3, 2\)",
    ),
    "no entries": (
        lambda: gradient_cosine(ONE[:0], ONE[:0]),
        "nothing to compare",
    ),
    "no sample": (
        lambda: relative_variance(ONE, ONE),
        r"expected \(R, \.\.\.\) against",
    ),
    "vectors of two lengths": (
        lambda: angle(ONE[0], ONE[0, :2]),
        r"b must have shape \(3,\)",
    ),
    "inputs of one row": (
        lambda: best_ratio(ONE[0]),
        r"inputs must be \(M, n\), M > 0; got \(3,\)",
    ),
    "a size of zero": (
        lambda: cost(max, hidden=0, inputs=2),
        "hidden must be an integer >= 1, got 0",
    ),
    "a formula's result": (
        lambda: cost(2.0, hidden=3, inputs=2),
        "count must be a function of n, m, K, P and r, got float 2.0",
    ),
    "no model": (
        lambda: GradientNoise("net"),
        "model must be an nn.Module, got str",
    ),
    "no layer": (
        lambda: GradientNoise(nn.ReLU()),
        "ReLU has no layer to watch",
    ),
    "a reduction": (
        lambda: GradientNoise(NET, reduction="average"),
        "reduction must be .* got 'average'",
    ),
    "a layer's name": (
        lambda: GradientNoise(nn.Sequential(NET), layers=["1"]),
        "the model has no layer '1'; it has '0'",
    ),
    "one layer": (
        lambda: GradientNoise(nn.Sequential(NET), layers="0"),
        "layers must be a list of layers, got '0'",
    ),
    "nothing measured": (
        lambda: GradientNoise(NET).total,
        "nothing has been measured in 0 training passes",
    ),
    "a step of 1.5": (
        lambda: Trace().log(1.5),
        "step must be an int, got float 1.5",
    ),
    "a column's value": (
        lambda: Trace().log(0, loss=ONE),
        r"'loss' must be an int.* got Tensor of shape \(2, 3\)",
    ),
    "a numpy boolean": (
        lambda: Trace(resume=np.False_),
        "resume must be True, False or a step",
    ),
    "a path": (
        lambda: Trace(3),
        "path must be a path, got int 3",
    ),
    "a seed": (
        lambda: Trace(seed="one"),
        "seed must be an integer or None, got str 'one'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake):
    call, message = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        call()
