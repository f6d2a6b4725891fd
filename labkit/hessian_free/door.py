"""What a Hessian-free step is given, looked at before anything is changed."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from labkit.hessian_free.autoencoder import Autoencoder
from labkit.hessian_free.losses import Loss, check_like, check_targets
from labkit.ranges import number

# Of damping that is squared: in float32 too, without overflow.
SQUARABLE = number("at most 1e18, for it is squared", lambda v: v <= 1e18)


def check_rows(model: nn.Module, inputs, targets=None, name="inputs") -> None:
    """Refuse what is no batch for the model; looks at shapes and reads no number."""
    targets = inputs if targets is None else targets
    roles = ((name, inputs), (f"targets of {name}", targets))
    for role, x in roles:
        if not isinstance(x, Tensor):
            kind = type(x).__name__
            what = "; a step takes the batch, no closure" if callable(x) else ""
            what = what or "; see torch.as_tensor"
            raise TypeError(f"{role} must be a tensor, got {kind}{what}")
    if not inputs.ndim or not len(inputs):
        raise ValueError(f"{name} must have rows, got shape {tuple(inputs.shape)}")
    if isinstance(model, Autoencoder):
        W, m = model.weights[0], model.widths[0]
        for role, x in roles:
            if x.shape != (len(inputs), m):
                shape = tuple(x.shape)
                raise ValueError(f"{role} must have shape (n, {m}), got {shape}")
            _check_dtype(role, x, W)
    for module in model.modules():
        mixes = module.training or getattr(module, "running_mean", None) is None
        if isinstance(module, _BatchNorm) and mixes:
            raise ValueError(
                f"{type(module).__name__} in training mode makes a row's output depend "
                "on the other rows, which Gauss-Newton products exclude; call "
                "model.eval(), or use GroupNorm"
            )


@torch.no_grad()
def check_pair(model: nn.Module, loss: Loss, name: str, inputs, targets=None) -> None:
    """Refuse rows for a loss, on whose first the model is tried."""
    check_rows(model, inputs, targets, name)
    targets = inputs if targets is None else targets
    outputs = inputs[:1]  # of an Autoencoder of this shape
    if not isinstance(model, Autoencoder):
        outputs = tried(lambda: model(inputs[:1]), model, inputs)
    if isinstance(outputs, Tensor):
        outputs = outputs.expand(len(inputs), *outputs.shape[1:])
    check_like(loss, outputs, targets)
    check_targets(loss, outputs, targets)


def tried(forward, model: nn.Module, inputs):
    """A first forward pass: errors in words, random numbers and changes refused.

    What a model draws anew at each pass, such as dropout, or changes, such as running
    averages, leaves no function that could be differentiated. The state of the
    generator and the buffers are put back.
    """
    of_state = (inputs.device,) if inputs.is_cuda else ()
    random = torch.cuda if of_state else torch.random
    before = random.get_rng_state(*of_state)
    held = [(name, t, t._version, t.clone()) for name, t in model.named_buffers()]
    try:
        outputs = forward()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ValueError(
            f"the model does not take inputs of shape {tuple(inputs.shape)}, "
            f"{inputs.dtype}, on {inputs.device}: {error}"
        ) from error
    changed = [(name, t, old) for name, t, v, old in held if t._version != v]
    for _, t, old in changed:
        t.copy_(old)
    if changed:
        raise ValueError(
            f"the model changes its buffer {changed[0][0]} in its forward pass, so its "
            "loss may be another function each time; call model.eval()"
        )
    if not torch.equal(before, random.get_rng_state(*of_state)):
        random.set_rng_state(before, *of_state)
        raise ValueError(
            "the model draws random numbers in its forward pass (dropout in training "
            "mode?), so its loss is another function each time; call model.eval()"
        )
    return outputs


def _check_dtype(role, x, like, whose="the weights'"):
    if x.dtype != like.dtype:
        raise TypeError(f"{role} must have {whose} dtype {like.dtype}, got {x.dtype}")
