"""Check models, layers and options before anything runs."""

import collections
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

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
    check_tensor,
    number,
    one_of,
    optional,
    or_tensor,
)
from labkit.layers import CONV, find_layer, refused_form
from labkit.rls.blocks import Block
from labkit.rls.layers import KINDS, blocks_of, kind_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


LAYER_OPTIONS = {
    "forgetting": UP_TO_ONE,
    "mean_weight": POSITIVE,
    "P0_scale": POSITIVE,
    "lr": or_tensor(NOT_NEGATIVE),
    "momentum": BELOW_ONE,
    "l1": NOT_NEGATIVE,
    "weight_decay": NOT_NEGATIVE,
    "time_steps": optional(COUNT),
}
DTYPES = torch.float16, torch.bfloat16, torch.float32, torch.float64
WEIGHTS = (torch.bool, torch.int64, torch.int32, *DTYPES)  # of rows
OPTIONS = LAYER_OPTIONS | {
    "on_failure": one_of(("raise", "reset")),
    "max_grad_norm": optional(number("> 0", lambda v: v > 0)),
}


def unwrap(model: nn.Module) -> "tuple[nn.Module, ProcessGroup | None]":
    """Return the model inside a ``DistributedDataParallel``, and its process group.

    TypeError if ``model`` is no module.
    """
    if isinstance(model, nn.Module):
        for name, parameter in model.named_parameters():
            kinds = {kind.__name__ for kind in type(parameter).__mro__}
            if kinds & {"DTensor", "FlatParameter"}:
                raise ValueError(
                    f"parameter {name!r} is cut in pieces over the workers (FSDP), and "
                    "P needs all inputs of a layer: RLS takes DistributedDataParallel"
                )
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return model.module, model.process_group
    if not isinstance(model, nn.Module):
        raise TypeError(
            "RLS reads the inputs of layers, so it takes the model and not its "
            f"parameters: RLS(model); got a {type(model).__name__}"
        )
    return model, None


def choose_layers(
    model: nn.Module, layers: Iterable | None
) -> list[tuple[str, nn.Module, dict]]:
    """Return (name, module, options) of each layer to train, or raise ValueError."""
    if isinstance(layers, str | nn.Module):
        raise ValueError(f"layers must be a list of layers, got {layers!r}")
    check_kind("layers", layers, (Iterable, type(None)), "a list of layers or None")
    all_layers = [{"layer": module} for _, module in _owners(model)]
    chosen = [_find(model, each) for each in (all_layers if layers is None else layers)]
    if not chosen:
        raise ValueError(
            f"there is nothing for RLS to train in {type(model).__name__}: "
            "no layer with parameters that require a gradient was chosen"
        )
    owner_of: dict[int, str] = {}
    for name, module, options in chosen:
        check_options(options, LAYER_OPTIONS, f"layer {name!r}")
        if reason := _refusal(module):
            raise ValueError(f"RLS cannot train layer {name!r}: {reason}")
        times = sum(other is module for _, other, _ in chosen)
        if times > 1:
            raise ValueError(f"layer {name!r} is named {times} times")
        if isinstance(module, CONV) and options.get("time_steps"):
            kind = type(module).__name__
            raise ValueError(f"layer {name!r} is a {kind} and has no time_steps")
        for parameter in module.parameters():
            other = owner_of.setdefault(id(parameter), name)
            if other != name:
                raise ValueError(
                    f"layers {other!r} and {name!r} share a parameter; each needs its "
                    "own, or use one module in both places"
                )
    return chosen


def trainable(model: nn.Module, max_fan_in: int) -> dict[str, nn.Module]:
    """Return the layers that RLS can train and that share no parameter, by name."""
    owners = collections.Counter(
        id(p) for _, m in _owners(model) for p in m.parameters(recurse=False)
    )
    return {
        name: module
        for name, module in _owners(model)
        if not _refusal(module)
        and all(owners[id(p)] == 1 for p in module.parameters())
        and all(b.fan_in <= max_fan_in for b in blocks_of(name, module))
    }


def reasons(model: nn.Module, left: Iterable[str] = (), most: int = 3) -> str:
    """Return why RLS cannot train the first layers, as the end of a sentence."""
    words = [
        f"layer {name!r}: "
        + (_refusal(module).partition("; train the rest")[0] or "too wide, or shared")
        for name, module in _owners(model)
        if name not in left
    ]
    return ": " + "; ".join(words[:most]) if words else ": no layer is left for it"


def _owners(model):
    """Yield the name and module of each module with trainable parameters of its own."""
    for name, module in model.named_modules():
        if any(p.requires_grad for p in module.parameters(recurse=False)):
            yield name, module


def _find(model, entry):
    options = dict(entry) if isinstance(entry, Mapping) else {"layer": entry}
    if "layer" not in options:
        raise ValueError(f'an entry of layers needs the key "layer", got {options}')
    owners = [module for _, module in _owners(model)]
    known = lambda module: any(module is owner for owner in owners)  # noqa: E731
    return *find_layer(model, options.pop("layer"), known), options


def _refusal(module) -> str:
    """Return why RLS cannot train this module, or an empty string if it can."""
    rest = "train the rest by another optimizer: Hybrid.for_model(model)"
    if nn.utils.parametrize.is_parametrized(module):
        return f"parametrizations make its weight of other parameters; {rest}"
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return f"attention takes its weight without calling it; {rest}"
    if kind_of(module) is None:
        if any(isinstance(module, kind) for kind in KINDS):
            return f"{type(module).__name__} has a forward of its own; {rest}"
        kinds = ", ".join(kind.__name__ for kind in KINDS)
        return f"it is a {type(module).__name__}, and RLS knows {kinds}; {rest}"
    if any(map(is_lazy, module.parameters())):
        return "its shape is not known yet; run one forward pass before"
    if reason := refused_form(module):
        return reason
    known = {"weight", "bias", "weight_ih", "weight_hh", "bias_ih", "bias_hh"}
    other = {name.removesuffix("_l0") for name, _ in module.named_parameters()} - known
    if other:
        return f"it has a parameter {other.pop()!r}, not of its kind"
    train = [p.requires_grad for p in module.parameters()]
    if not all(train):
        which = "some of" if any(train) else "all"
        return f"{which} its parameters are frozen; leave it out, or train all of it"
    for dtype in {p.dtype for p in module.parameters()} - {*DTYPES}:
        return f"its dtype is {dtype}; RLS trains {', '.join(map(str, DTYPES))}"
    return ""


def row_weights(
    name: str, module: nn.Module, x: Tensor, weights: Tensor | None
) -> Tensor | None:
    """Return the weights of a layer's rows, of the shape of its input without the last.

    ValueError if the shapes do not fit. If the input has lost the later dimensions of
    the weights, for example by pooling, all of its rows count, and the result is None.
    """
    if weights is None:
        return None
    shape = tuple(x.shape[:-1])
    if isinstance(module, CONV):
        if weights.ndim == 1 and len(weights) == len(x):
            return weights
        raise ValueError(
            f"layer {name!r} is a {type(module).__name__}, which can weigh examples, "
            f"not their positions: weights of rows must have shape ({len(x)},), got "
            f"{tuple(weights.shape)}"
        )
    if isinstance(module, nn.RNNBase) and not module.batch_first:
        weights = weights.T if weights.ndim == 2 else weights.expand(shape)
    own = tuple(weights.shape)
    if len(own) < len(shape) and shape[: len(own)] == own:  # of whole examples
        return weights.view(*own, *[1] * (len(shape) - len(own))).expand(shape)
    if shape in (own, (weights.numel(),)):
        return weights.reshape(shape)
    if len(shape) < len(own) and shape == own[: len(shape)]:
        return None
    raise ValueError(
        f"layer {name!r} got an input of shape {tuple(x.shape)}, to whose rows weights "
        f"of shape {own} do not belong"
    )


def check_weights(weights: object) -> None:
    """Raise an error unless these are weights of rows, on a CPU not all of them 0."""
    check_tensor("weights", weights, dtype=WEIGHTS, finite=True)
    if weights.device.type == "cpu" and not weights.any():
        raise ValueError("weights must be > 0 for some row, got zeros alone")


def check_time_steps(groups: list[dict], captures: list) -> None:
    """Raise ValueError if ``time_steps`` was changed, which would have no effect."""
    for group, capture in zip(groups, captures, strict=True):
        if group["time_steps"] != capture.time_steps:
            raise ValueError(
                f"time_steps of layer {capture.name!r} is {capture.time_steps} since "
                f"RLS was made; it cannot become {group['time_steps']}"
            )


def check_fan_in(blocks: list[Block], limit: int) -> None:
    """Raise ValueError if a P would have more than ``limit`` rows."""
    check_options({"max_fan_in": limit}, {"max_fan_in": COUNT})
    for block in blocks:
        if (n := block.fan_in) > limit:
            size = block.groups * n * n * block.dtype.itemsize / 2**30
            raise ValueError(
                f"layer {block.name!r} has {n} inputs, so its P would take {size:.1f} "
                f"GiB and the limit is max_fan_in={limit}; pool or narrow the layer "
                "before it, train this one by another optimizer through Hybrid, or "
                "raise the limit"
            )


def check_pass(
    name: str, module: nn.Module, x: Tensor, time_steps: int | None, shared: bool
) -> None:
    """Raise ValueError if RLS cannot read this call of a layer."""
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
    if not shared and nn.parallel.DistributedDataParallel._get_active_ddp_module():
        raise ValueError(
            f"layer {name!r} runs inside DistributedDataParallel, but RLS was made of "
            "the bare model, so each worker's P would follow its own inputs: wrap the "
            "model first and make RLS of the wrapped one, RLS(ddp_model)"
        )
