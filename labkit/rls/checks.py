"""Check models, layers and options before anything runs."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.parameter import is_lazy

from labkit.check import (
    BELOW_ONE,
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    UP_TO_ONE,
    check_kind,
    check_options,
    number,
    one_of,
    optional,
    or_tensor,
)
from labkit.layers import find_layer, refused_form
from labkit.rls.inputs import KINDS, kind_of

LAYER_OPTIONS = {
    "forgetting": UP_TO_ONE,
    "mean_weight": POSITIVE,
    "P0_scale": POSITIVE,
    "lr": or_tensor(NOT_NEGATIVE),
    "momentum": BELOW_ONE,
    "l1": NOT_NEGATIVE,
}
OPTIONS = LAYER_OPTIONS | {
    "on_failure": one_of(("raise", "reset")),
    "max_grad_norm": optional(number("> 0", lambda value: value > 0)),
    "max_fan_in": COUNT,
}
DTYPES = torch.float32, torch.float64


def check_model(model: object) -> None:
    """Raise TypeError or ValueError unless this is a bare model."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise ValueError(
            "RLS adds up gradients and inputs over workers itself: give it the bare "
            "model, and train that, RLS(ddp.module, workers=labkit.scale.workers())"
        )
    if not isinstance(model, nn.Module):
        raise TypeError(
            "RLS reads the inputs of layers, so it takes the model and not its "
            f"parameters: RLS(model); got a {type(model).__name__}"
        )


def choose_layers(
    model: nn.Module, layers: Iterable | None
) -> list[tuple[str, nn.Module, dict]]:
    """Return (name, module, options) of each layer to train, or raise ValueError."""
    owners = [
        module
        for module in model.modules()
        if any(p.requires_grad for p in module.parameters(recurse=False))
    ]
    if isinstance(layers, str | nn.Module):
        raise ValueError(f"layers must be a list of layers, got {layers!r}")
    check_kind("layers", layers, (Iterable, type(None)), "a list of layers or None")
    chosen, owner_of = [], {}
    for entry in owners if layers is None else layers:
        options = dict(entry) if isinstance(entry, Mapping) else {"layer": entry}
        if "layer" not in options:
            raise ValueError(f'an entry of layers needs the key "layer", got {options}')
        wanted = options.pop("layer")
        name, module = find_layer(model, wanted, lambda each: each in owners)
        known = LAYER_OPTIONS | {"time_steps": optional(COUNT)}
        check_options(options, known, f"layer {name!r}")
        if reason := _refusal(module):
            raise ValueError(f"RLS cannot train layer {name!r}: {reason}")
        if options.get("time_steps") and not isinstance(module, nn.Linear):
            kind = type(module).__name__
            raise ValueError(f"layer {name!r} is a {kind} and has no time_steps")
        if any(module is other for _, other, _ in chosen):
            raise ValueError(f"layer {name!r} is named 2 times")
        for parameter in module.parameters():
            other = owner_of.setdefault(parameter, name)
            if other != name:
                raise ValueError(
                    f"layers {other!r} and {name!r} share a parameter; each needs its "
                    "own, or use one module in both places"
                )
        chosen.append((name, module, options))
    if not chosen:
        raise ValueError(
            f"there is nothing for RLS to train in {type(model).__name__}: "
            "no layer with parameters that require a gradient was chosen"
        )
    return chosen


def _refusal(module: nn.Module) -> str:
    """Return why RLS cannot train this module, or an empty string if it can."""
    rest = "train the rest by another optimizer, Hybrid(RLS(model, layers=[...]), rest)"
    if nn.utils.parametrize.is_parametrized(module):
        return f"parametrizations make its weight of other parameters; {rest}"
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return f"attention takes its weight without calling it; {rest}"
    if kind_of(module) is None:
        if isinstance(module, tuple(KINDS)):
            return f"{type(module).__name__} has a forward of its own; {rest}"
        kinds = ", ".join(kind.__name__ for kind in KINDS)
        return f"it is a {type(module).__name__}, and RLS knows {kinds}; {rest}"
    if any(map(is_lazy, module.parameters())):
        return "its shape is not known yet; run one forward pass before"
    if reason := refused_form(module):
        return reason
    if getattr(module, "groups", 1) > 1:
        return f"groups={module.groups}, and RLS has one P for a layer; {rest}"
    train = [p.requires_grad for p in module.parameters()]
    if not all(train):
        which = "some of" if any(train) else "all"
        return f"{which} its parameters are frozen; leave it out, or train all of it"
    for dtype in {p.dtype for p in module.parameters()} - {*DTYPES}:
        return (
            f"its dtype is {dtype}; RLS trains torch.float32 and torch.float64: keep "
            "the parameters in float32, and run the forward pass under torch.autocast"
        )
    return ""


def check_fan_in(name: str, n: int, itemsize: int, limit: int) -> None:
    """Raise ValueError if a P would have more than ``limit`` rows."""
    if n > limit:
        size = n * n * itemsize / 2**30
        raise ValueError(
            f"layer {name!r} has {n} inputs, so its P would take {size:.1f} GiB and "
            f"the limit is max_fan_in={limit}; pool or narrow the layer before it, "
            "train this one by another optimizer through Hybrid, or raise the limit"
        )


def check_pass(name: str, module: nn.Module, x: object, time_steps: int | None) -> None:
    """Raise ValueError if RLS cannot read this call of a layer."""
    if not isinstance(x, Tensor):
        raise ValueError(
            f"layer {name!r} got a {type(x).__name__}; RLS reads plain tensors: "
            "pad the sequences to one length"
        )
    if isinstance(module, nn.Linear) and x.ndim > 2 and time_steps is None:
        raise ValueError(
            f"layer {name!r} got an input of shape {tuple(x.shape)}; say what "
            'its time_steps is, by layers=[{"layer": ..., "time_steps": T}]: T if the '
            "loss sums over T steps, 1 if it averages over all rows"
        )
