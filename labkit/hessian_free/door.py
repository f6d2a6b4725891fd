"""What a Hessian-free step is given, looked at before anything is changed."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from labkit.hessian_free.autoencoder import Autoencoder
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
            raise TypeError(f"{role} must be a tensor, got {kind}; see torch.as_tensor")
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


def check_outputs(outputs, targets) -> None:
    """Refuse targets that are not like the outputs."""
    if not isinstance(outputs, Tensor):
        kind = type(outputs).__name__
        raise TypeError(
            f"the model must return a tensor, got {kind}; wrap it in a module that "
            "takes what the loss is of"
        )
    if targets.shape != outputs.shape:  # else one would be spread over the other
        raise ValueError(
            f"targets must have the outputs' shape {tuple(outputs.shape)}, "
            f"got {tuple(targets.shape)}"
        )
    _check_dtype("targets", targets, outputs, "the outputs'")


@torch.no_grad()
def check_validation(model: nn.Module, inputs, targets=None) -> None:
    """Refuse rows of the merit function, on which the model is tried with the first."""
    check_rows(model, inputs, targets, "validation")
    if isinstance(model, Autoencoder):  # whose shapes were looked at
        return
    targets = inputs if targets is None else targets
    outputs = tried(lambda: model(inputs[:1]), inputs)
    if isinstance(outputs, Tensor):
        outputs = outputs.expand(len(inputs), *outputs.shape[1:])
    check_outputs(outputs, targets)


def tried(forward, inputs):
    """A first forward pass: errors in words, random numbers refused.

    What a model draws anew at each pass, such as dropout, leaves no function that could
    be differentiated. The state of the generator is put back.
    """
    of_state = (inputs.device,) if inputs.is_cuda else ()
    random = torch.cuda if of_state else torch.random
    before = random.get_rng_state(*of_state)
    try:
        outputs = forward()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ValueError(
            f"the model does not take inputs of shape {tuple(inputs.shape)}, "
            f"{inputs.dtype}, on {inputs.device}: {error}"
        ) from error
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
