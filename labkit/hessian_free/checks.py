"""The checks of a model, of its loss and of a batch, made once where a call begins."""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from labkit.check import check_kind, check_options, check_tensor, described, one_of
from labkit.hessian_free.autoencoder import Autoencoder
from labkit.hessian_free.losses import LOSSES

Rows = Tensor | tuple[Tensor, Tensor | None]  # inputs, and targets if they are others
INDICES = torch.int64, torch.int32, torch.uint8


def check_model(model: object, loss: str) -> None:
    """Raise an error for what is no module, an unknown loss, or a softmax too many."""
    check_kind("model", model, nn.Module, "an nn.Module, not its parameters")
    check_options({"loss": loss}, {"loss": one_of(LOSSES)})
    last = model[-1] if isinstance(model, nn.Sequential) and len(model) else None
    name = type(last).__name__ if isinstance(last, nn.Softmax | nn.Sigmoid) else None
    if type(model) is Autoencoder and model.activations[-1] != "linear":
        name = model.activations[-1]
    if loss == "softmax" and name:
        raise ValueError(
            'loss "softmax" takes outputs before the last nonlinearity, which it has '
            f"itself, but the model ends in {name}: leave that out"
        )


def pair_of(rows: Rows, name: str) -> tuple[Tensor, Tensor | None]:
    """Return rows as a pair of inputs and targets, which are None if not given."""
    if isinstance(rows, Tensor):
        return rows, None
    if isinstance(rows, tuple | list) and len(rows) == 2:
        return tuple(rows)
    raise TypeError(
        f"{name} must be a tensor or a pair (inputs, targets), got {described(rows)}"
    )


@torch.no_grad()
def check_batch(
    model: nn.Module,
    loss: str,
    inputs: object,
    targets: object = None,
    name: str = "inputs",
) -> None:
    """Raise an error unless these are rows for a model and its loss.

    A module is tried on the first row. Classes are read by the host, once.
    """
    if inputs is None or callable(inputs):
        raise TypeError(
            f"{name} must be a tensor, got {described(inputs)}; a step takes the "
            "batch, step(inputs, targets), and no closure"
        )
    check_tensor(name, inputs, dtype=getattr(inputs, "dtype", None))
    if torch.is_autocast_enabled(inputs.device.type):
        raise ValueError(
            "Hessian-free needs the precision of the weights: leave the autocast region"
        )
    if not inputs.ndim or not len(inputs):
        raise ValueError(f"{name} must have rows, got shape {tuple(inputs.shape)}")
    for module in model.modules():
        if isinstance(module, _BatchNorm) and (
            module.training or module.running_mean is None
        ):
            raise ValueError(
                f"{type(module).__name__} in training mode makes a row's output depend "
                "on the other rows, which Gauss-Newton products exclude; call "
                "model.eval(), or use GroupNorm"
            )
        if isinstance(module, nn.RNNBase):
            raise ValueError(
                "torch.func has no per-example gradients of nn.RNN, nn.LSTM and "
                "nn.GRU; write the recurrence as a loop over nn.Linear"
            )
    if type(model) is Autoencoder:
        W = model.weights[0]
        check_tensor(name, inputs, shape=("n", model.widths[0]), like=W)
        outputs = inputs[:1]
    else:
        outputs = tried(model, inputs)
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"the model must return a tensor, got {described(outputs)}; wrap it in a "
            "module that takes what the loss is of"
        )
    if outputs.shape[:1] != (1,):
        raise ValueError(
            "the model must return a row for each row, (n, ...), but for one row it "
            f"returns the shape {tuple(outputs.shape)}"
        )
    targets = inputs if targets is None else targets
    shape = (len(inputs), *outputs.shape[1:])
    if loss == "softmax":
        check_classes(f"targets of {name}", targets, shape)
    else:
        check_tensor(f"targets of {name}", targets, shape=shape, like=outputs)


def check_classes(name: str, targets: object, shape: tuple) -> None:
    """Raise an error unless outputs are (n, classes), with the index of one a row."""
    if len(shape) != 2:
        raise ValueError(f"the outputs must be (n, classes), got shape {shape}")
    check_tensor(name, targets, shape=shape[:1], dtype=INDICES)
    low, high = torch.stack(targets.aminmax()).tolist()
    if not (low >= 0 and high < shape[1]):
        raise ValueError(
            f"{name} must be class indices in 0..{shape[1] - 1}, but span {low}..{high}"
        )


def check_reachable(model: nn.Module, targets: Tensor, name: str) -> None:
    """Raise an error for targets that no logistic output of an Autoencoder reaches."""
    if type(model) is not Autoencoder or model.activations[-1] != "logistic":
        return
    low, high = targets.aminmax()
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"targets of {name} must lie in [0, 1], the range of a logistic output, "
            f"but span [{float(low):g}, {float(high):g}]"
        )


def tried(model: nn.Module, inputs: Tensor) -> object:
    """Return the outputs of the first row, and explain the errors of this pass.

    A model that draws random numbers in its forward pass, as dropout does, or changes a
    buffer, as running averages do, is a different function each time, which is a
    ValueError. Generator and buffers stay as they are.
    """
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    devices = [inputs.device] if inputs.is_cuda else []
    random = torch.cuda if devices else torch.random
    with torch.random.fork_rng(devices):
        before = random.get_rng_state(*devices)
        try:
            outputs = functional_call(model, buffers, (inputs[:1],))
        except RuntimeError as error:
            raise ValueError(
                f"the model does not take inputs of shape {tuple(inputs.shape)}, "
                f"{inputs.dtype}, on {inputs.device}: {error}"
            ) from error
        drawn = not torch.equal(before, random.get_rng_state(*devices))
    changed = [name for name, buffer in buffers.items() if buffer._version]
    if changed or drawn:
        draws = "draws random numbers (dropout in training mode?)"
        what = f"changes its buffer {changed[0]}" if changed else draws
        raise ValueError(
            f"the model {what} in its forward pass, so its loss may be another "
            "function each time; call model.eval()"
        )
    return outputs
