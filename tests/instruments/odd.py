"""Calls of the instruments' functions, for odd inputs; see :mod:`tests.odd`."""

import tempfile
from pathlib import Path

import torch
from torch import nn

from labkit import instruments
from labkit.instruments import GradientNoise, Trace
from labkit.rtrl import LEARNERS

E = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))
G = E[0].clone()
NOISE = {"every": 1, "reduction": "mean", "layers": ["0"], "batch_first": True}


def measured(model, **options):
    """What is measured of one pass."""
    model = {"net": lambda: nn.Sequential(nn.Linear(3, 2))}.get(
        str(model), lambda: model
    )()
    noise = GradientNoise(model, **options)
    try:
        model(G).square().mean().backward()
        return noise.per_layer, noise.total
    finally:
        noise.close()


def logged(path, step, value, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / path if isinstance(path, str) else path
        trace = Trace(path, **options)
        trace.log(step, value=value)
        trace.close()
        return trace.rows


def read_again(path):
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "a.jsonl"
        Trace(written).close()
        return Trace.load(written if isinstance(path, str) else path).rows


def listened(callback):
    trace = Trace()
    trace.subscribe(callback)
    trace.log(0, a=1)


def column(name):
    trace = Trace()
    trace.log(0, a=1)
    return trace.column(name)


TRACE = {"path": "a.jsonl", "step": 1, "value": 2.0, "parameters": {"rank": 1}}
TRACE |= {"device": "cpu", "seed": 0, "resume": False}
COST = {
    "count": LEARNERS["OK"].count,
    "hidden": 3,
    "inputs": 2,
    "blocks": 2,
    "parts": 1,
}
COST |= {"batch": 2, "rank": 2, "dtype_bytes": 4}
CALLS = {
    "gradient_cosine": (instruments.gradient_cosine, {"estimate": E, "exact": G}),
    "relative_variance": (instruments.relative_variance, {"estimates": E, "exact": G}),
    "gradient_variance": (instruments.gradient_variance, {"estimates": E}),
    "angle": (instruments.angle, {"a": G, "b": E[1]}),
    "best_ratio": (instruments.best_ratio, {"inputs": G}),
    "effective_rank": (instruments.effective_rank, {"singular_values": G.abs()}),
    "cost": (instruments.cost, COST),
    "wire_bytes": (
        instruments.wire_bytes,
        {"kind": "all_reduce", "payload": 8, "group": 2},
    ),
    "GradientNoise": (measured, {"model": "net", **NOISE}),
    "Trace": (logged, TRACE),
    "Trace.subscribe": (listened, {"callback": print}),
    "Trace.column": (column, {"name": "a"}),
    "Trace.load": (read_again, {"path": "a.jsonl"}),
}
