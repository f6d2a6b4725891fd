"""Choose the layers to watch, and say which are refused or skipped."""

from collections.abc import Iterable, Sequence

from torch import nn

from labkit.check import check_kind
from labkit.instruments.attention_call import AttentionCall, refused_attention
from labkit.instruments.layer_calls import (
    INSTANCES,
    ConvCall,
    EmbeddingCall,
    LinearCall,
    NormCall,
)
from labkit.instruments.recurrent_calls import GRUCall, RecurrentCall
from labkit.layers import CONV, find_layer, refused_form

MIXES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
# layer type -> class that records its calls
KINDS = {nn.Linear: LinearCall, nn.Embedding: EmbeddingCall, nn.GRU: GRUCall}
KINDS |= dict.fromkeys(CONV, ConvCall)
KINDS |= dict.fromkeys((nn.RNN, nn.LSTM), RecurrentCall)
NORMS = nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, *INSTANCES, *MIXES
KINDS |= dict.fromkeys(NORMS, NormCall)
KINDS[nn.MultiheadAttention] = AttentionCall


def refusal(module: nn.Module) -> str:
    """Return why a layer cannot be watched, or an empty string if it can."""
    if type(module) not in KINDS:
        kinds = ", ".join(kind.__name__ for kind in KINDS)
        return f"it is a {type(module).__name__}, and there are {kinds}"
    if isinstance(module, nn.MultiheadAttention):
        return refused_attention(module)
    if isinstance(module, nn.Embedding):
        for name in ("max_norm", "scale_grad_by_freq"):
            if getattr(module, name):
                return f"{name}={getattr(module, name)} is not written"
    return refused_form(module)


def check_mixing(model: nn.Module) -> None:
    """Raise ValueError if a BatchNorm mixes the examples by the batch's mean."""
    for name, module in model.named_modules():
        if isinstance(module, MIXES) and (module.training or not _stored(module)):
            raise ValueError(
                f"layer {name!r} is a {type(module).__name__} that mixes the examples "
                "of a batch, so none has a gradient of its own; use GroupNorm, say, or "
                "its evaluation mode"
            )


def _stored(module) -> bool:
    return module.running_mean is not None


def choose(
    model: nn.Module, layers: Sequence[str] | None, skip: bool
) -> tuple[list[tuple[str, nn.Module]], dict[str, str]]:
    """Return names and modules to watch, and why others are skipped.

    ValueError if there is none, or one is refused and not to be skipped.
    """
    check_mixing(model)
    modules = dict(model.named_modules())
    if layers is None:
        inside = {
            f"{n}.out_proj".lstrip(".") for n, m in modules.items() if _attends(m)
        }
        own = {name: own_parameters(m) for name, m in modules.items()}
        wanted = [
            name
            for name, mine in own.items()
            if name not in inside and any(p.requires_grad for p in mine.values())
        ]
        chosen = [(name, modules[name]) for name in wanted]
    elif isinstance(layers, str | nn.Module) or hasattr(layers, "ndim"):
        raise ValueError(f"layers must be a list of layers, got {layers!r}")
    else:
        check_kind("layers", layers, Iterable, "a list of layers")
        known = lambda module: type(module) in KINDS  # noqa: E731
        chosen = [find_layer(model, wanted, known) for wanted in layers]
    if not chosen:
        raise ValueError(f"{type(model).__name__} has no layer to watch")
    shared = _shared(modules)
    refused = {
        name: reason
        for name, module in chosen
        if (reason := refusal(module) or shared.get(name, ""))
    }
    if refused and (not skip or len(refused) == len(chosen)):
        reasons = "; ".join(
            f"layer {n!r} cannot be watched: {r}" for n, r in refused.items()
        )
        raise ValueError(f"{reasons}; choose layers=[...], or skip_unsupported=True")
    return [pair for pair in chosen if pair[0] not in refused], refused


def _attends(module) -> bool:
    return type(module) is nn.MultiheadAttention


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return a layer's own parameters, for attention with its output projection."""
    return dict(module.named_parameters(recurse=_attends(module)))


def _shared(modules) -> dict[str, str]:
    """Return the names of layers that share a parameter, with the reason to refuse."""
    owners = {}
    for name, module in modules.items():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(name)
    return {
        name: f"layers {names[0]!r} and {names[1]!r} share a parameter, whose gradient "
        "neither has alone; use one module in both places"
        for names in owners.values()
        if len(names) > 1
        for name in names
    }
