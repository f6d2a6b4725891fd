"""Choose the layers to watch, and say which are refused or skipped."""

from collections.abc import Iterable, Sequence

from torch import nn

from labkit.check import check_kind
from labkit.instruments.layer_calls import (
    ConvCall,
    EmbeddingCall,
    LinearCall,
    RecurrentCall,
)
from labkit.layers import find_layer, refused_form

MIXES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
# layer type -> class that records its calls
KINDS = {
    nn.Linear: LinearCall,
    nn.Conv1d: ConvCall,
    nn.Conv2d: ConvCall,
    nn.Conv3d: ConvCall,
    nn.RNN: RecurrentCall,
    nn.LSTM: RecurrentCall,
    nn.Embedding: EmbeddingCall,
}


def refusal(module: nn.Module) -> str:
    """Return why a layer cannot be watched, or an empty string if it can."""
    if type(module) not in KINDS:
        kinds = ", ".join(kind.__name__ for kind in KINDS)
        return (
            f"it is a {type(module).__name__}, and GradientNoise reads {kinds}; opacus "
            "and backpack-for-pytorch read more kinds"
        )
    for name, allowed in (("groups", 1), ("max_norm", None), ("scale_grad_by_freq", 0)):
        if (value := getattr(module, name, allowed)) != allowed:
            return f"{name}={value} is not written"
    return refused_form(module)


def check_mixing(model: nn.Module) -> None:
    """Raise ValueError if a BatchNorm mixes the examples by the batch's mean."""
    for name, module in model.named_modules():
        if isinstance(module, MIXES) and (
            module.training or module.running_mean is None
        ):
            raise ValueError(
                f"layer {name!r} is a {type(module).__name__} that mixes the examples "
                "of a batch, so none has a gradient of its own; use GroupNorm, say, or "
                "its evaluation mode"
            )


def choose(
    model: nn.Module, layers: Sequence[str | nn.Module] | None, skip: bool
) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """Return the modules to watch by name, and why others are skipped.

    ValueError if there is none, or one is refused and not to be skipped.
    """
    check_mixing(model)
    if layers is None:
        chosen = {
            name: module
            for name, module in model.named_modules()
            if any(p.requires_grad for p in module.parameters(recurse=False))
        }
    elif isinstance(layers, str | nn.Module):
        raise ValueError(f"layers must be a list of layers, got {layers!r}")
    else:
        check_kind("layers", layers, Iterable, "a list of layers")
        chosen = dict(
            find_layer(model, layer, lambda module: type(module) in KINDS)
            for layer in layers
        )
    if not chosen:
        raise ValueError(f"{type(model).__name__} has no layer to watch")
    shared = _shared(model)
    refused = {
        name: reason
        for name, module in chosen.items()
        if (reason := refusal(module) or shared.get(name, ""))
    }
    if refused and (not skip or len(refused) == len(chosen)):
        reasons = "; ".join(
            f"layer {name!r} cannot be watched: {reason}"
            for name, reason in refused.items()
        )
        raise ValueError(f"{reasons}; choose layers=[...], or skip_unsupported=True")
    for name in refused:
        del chosen[name]
    return chosen, refused


def _shared(model: nn.Module) -> dict[str, str]:
    """Return the names of layers that share a parameter, with the reason to refuse."""
    owners = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, []).append(name)
    return {
        name: f"layers {names[0]!r} and {names[1]!r} share a parameter, whose gradient "
        "neither has alone; use one module in both places"
        for names in owners.values()
        if len(names) > 1
        for name in names
    }
