"""What is refused before anything runs, and why."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from labkit.ranges import (
    BELOW_ONE,
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    UP_TO_ONE,
    number,
    one_of,
    optional,
)
from labkit.rls.blocks import Block
from labkit.rls.layers import KINDS

LAYER_OPTIONS = {
    "forgetting": UP_TO_ONE,
    "mean_weight": POSITIVE,
    "lr": POSITIVE,
    "momentum": BELOW_ONE,
    "l1": NOT_NEGATIVE,
    "P0_scale": POSITIVE,
    "time_steps": optional(COUNT),
}
OPTIONS = {
    "on_failure": one_of(("raise", "reset")),
    "max_grad_norm": optional(number("> 0", lambda v: v > 0)),
}


def choose_layers(
    model: nn.Module, layers: Iterable | None
) -> list[tuple[str, nn.Module, dict]]:
    """(name, module, own options) of each layer to train.

    Raises
    ------
    ValueError
        If there is none, one does not exist, appears twice, or cannot be trained; or,
        with ``layers=None``, if a parameter would be left out.
    """
    if isinstance(layers, str | nn.Module):
        raise ValueError(f"layers must be a list of layers, got {layers!r}")
    if layers is None:
        chosen = [(name, module, {}) for name, module in _owners(model)]
    else:
        chosen = [_find(model, entry) for entry in layers]
    if not chosen:
        raise ValueError(
            f"there is nothing for RLS to train in {type(model).__name__}: "
            "no layer with parameters that require a gradient was chosen"
        )
    seen: dict[int, str] = {}
    for name, module, options in chosen:
        check_layer(name, module)
        if isinstance(module, nn.Conv2d) and options.get("time_steps"):
            raise ValueError(f"layer {name!r} is a Conv2d and has no time_steps")
        for parameter in module.parameters():
            other = seen.setdefault(id(parameter), name)
            if other != name:
                raise ValueError(
                    f"layers {other!r} and {name!r} share a parameter; each needs its "
                    "own, or use one module in both places"
                )
    names = [name for name, *_ in chosen]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"layer {name!r} is named {names.count(name)} times")
    return chosen


def _owners(model):
    """Modules that hold parameters to train themselves, with their names."""
    for name, module in model.named_modules():
        if any(p.requires_grad for p in module.parameters(recurse=False)):
            yield name, module


def _find(model, entry):
    options = dict(entry) if isinstance(entry, Mapping) else {"layer": entry}
    if "layer" not in options:
        raise ValueError(f'an entry of layers needs the key "layer", got {options}')
    wanted = options.pop("layer")
    for name, module in model.named_modules():
        if module is wanted or name == wanted:
            return name, module, options
    names = ", ".join(repr(name) for name, _ in _owners(model))
    raise ValueError(f"the model has no layer {wanted!r}; it has {names}")


def check_layer(name: str, module: nn.Module):
    """Raise ValueError if RLS cannot train this module, saying why."""
    reason = _refusal(module)
    if reason:
        raise ValueError(f"RLS cannot train layer {name!r}: {reason}")


def _refusal(module) -> str:
    if type(module) not in KINDS:
        kinds = ", ".join(kind.__name__ for kind in KINDS)
        return (
            f"it is a {type(module).__name__}, and RLS knows {kinds}; choose "
            "layers=[...] and train the rest by another optimizer through Hybrid"
        )
    if isinstance(module, nn.Conv2d):
        if module.groups != 1:
            return f"groups={module.groups}; each group would need its own P (groups=1)"
        if module.padding_mode != "zeros":
            return f"padding_mode={module.padding_mode!r}; only 'zeros' is written"
    if isinstance(module, nn.RNNBase):
        if module.bidirectional:
            return "it is bidirectional; use one forward layer"
        if module.num_layers != 1:
            return (
                f"num_layers={module.num_layers} hides the inputs of the inner layers; "
                "stack single layers"
            )
        if module.proj_size:
            return f"proj_size={module.proj_size}; use proj_size=0"
    names = {name.removesuffix("_l0") for name, _ in module.named_parameters()}
    known = {"weight", "bias", "weight_ih", "weight_hh", "bias_ih", "bias_hh"}
    if names - known:
        return f"it has a parameter {(names - known).pop()!r}, not of its kind"
    if not all(p.requires_grad for p in module.parameters()):
        return "some of its parameters are frozen; freeze all, or none"
    half = {p.dtype for p in module.parameters()} & {torch.float16, torch.bfloat16}
    if half:
        return f"its dtype is {half.pop()}; P needs float32 or float64"
    return ""


def check_fan_in(blocks: list[Block], limit: int):
    """Raise ValueError if a P would be larger than ``limit`` rows."""
    for block in blocks:
        n = block.fan_in
        if n > limit:
            size = n * n * block.weight.element_size() / 2**30
            raise ValueError(
                f"layer {block.name!r} has {n} inputs, so its P would take "
                f"{size:.1f} GiB and the limit is max_fan_in={limit}; pool "
                "or narrow the layer before it, train this one by another optimizer "
                "through Hybrid, or raise the limit"
            )


def check_inputs(name: str, module: nn.Module, inputs: tuple, time_steps: int | None):
    """Raise ValueError if this call of a layer has a form that RLS cannot read."""
    x = inputs[0]
    if isinstance(module, nn.RNNBase) and not isinstance(x, Tensor):
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


def check_shared(name: str, shared: bool):
    """Raise ValueError if several workers run the model and RLS knows of one only."""
    if not shared and nn.parallel.DistributedDataParallel._get_active_ddp_module():
        raise ValueError(
            f"layer {name!r} runs inside DistributedDataParallel, but RLS was made of "
            "the bare model, so each worker's P would follow its own inputs: wrap the "
            "model first and make RLS of the wrapped one, RLS(ddp_model)"
        )
