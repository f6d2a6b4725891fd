"""Torch's layers as labkit reads them: their forms, their outputs and their hooks.

RLS and the instrument for a gradient's noise read the inputs of the same layers and
refuse the same forms of them, with the same messages.
"""

import weakref
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

# Required values: attribute -> its only value, and advice for other values.
FORMS = {
    "padding_mode": ("zeros", "only 'zeros' can be read"),
    "bidirectional": (False, "use one forward layer"),
    "num_layers": (1, "it hides the inputs of the inner layers; stack single layers"),
    "proj_size": (0, "use proj_size=0"),
}


def refused_form(module: nn.Module) -> str:
    """Return why a layer cannot be read; empty if it can."""
    for name, (allowed, advice) in FORMS.items():
        if (value := getattr(module, name, allowed)) != allowed:
            return f"{name}={value!r}; {advice}"
    # such as those of torch.nn.utils.weight_norm and prune
    known = {"weight", "bias", "weight_ih", "weight_hh", "bias_ih", "bias_hh"}
    other = {name.removesuffix("_l0") for name, _ in module.named_parameters()} - known
    if other:
        return f"it has a parameter {other.pop()!r}, not of its kind"
    return ""


def find_layer(
    model: nn.Module, wanted: str | nn.Module, known: Callable[[nn.Module], bool]
) -> tuple[str, nn.Module]:
    """Return the name and the module of a layer that is given as either.

    It raises ValueError with the names of all ``known`` modules if there is none.
    """
    for name, module in model.named_modules():
        if module is wanted or (isinstance(wanted, str) and name == wanted):
            return name, module
    names = [repr(name) for name, module in model.named_modules() if known(module)]
    raise ValueError(f"the model has no layer {wanted!r}; it has {', '.join(names)}")


def zeros_before(module: _ConvNd, i: int) -> int:
    """Return the number of zeros before the first pixel of dimension i of a map."""
    if isinstance(module.padding, str):  # of an odd total the larger part comes last
        total = module.dilation[i] * (module.kernel_size[i] - 1)
        return total // 2 if module.padding == "same" else 0
    return module.padding[i]


def tensors(output: object) -> list[Tensor]:
    """Return the tensors among a layer's outputs, such as y, h and c of (y, (h, c))."""
    if isinstance(output, Tensor):
        return [output]
    return [tensor for each in output or () for tensor in tensors(each)]


def current_backward() -> int:
    """Return the number of the backward pass on this thread, or -1 outside of one.

    Torch has no public function for this.
    """
    return torch._C._current_graph_task_id()


def is_returned(node: object) -> bool:
    """Return whether ``torch.autograd.grad`` returns the gradient of a parameter.

    ``node`` is the parameter's, among ``next_functions``, in a backward pass under way.
    Torch has no public function for this, and one that fails in this case alone.
    """
    try:
        torch._C._will_engine_execute_node(node)
    except RuntimeError:
        return True
    return False


class WeakHook:
    """A module's hook that calls a method of an object as long as that object lives.

    The object's ``hooked(module)`` returns whether the module is its own: a copy of a
    module has its hooks too, and these call nothing.
    """

    def __init__(self, method: Callable):
        self.method = weakref.WeakMethod(method)

    @property
    def owner(self) -> object | None:
        """Return the object, or None if it was deleted or :meth:`let_go` was called."""
        method = self.method and self.method()
        return method.__self__ if method else None

    def let_go(self) -> None:
        """Stop calling the method."""
        self.method = None

    def __call__(self, module: nn.Module, *given) -> object:
        """Return what the method returns, or None if the hook calls nothing."""
        method = self.method and self.method()
        if method and method.__self__.hooked(module):
            return method(module, *given)
        return None

    def __getstate__(self) -> dict:  # weak links cannot be pickled with the model
        return {"method": None}


def remove_all(handles: Iterable) -> None:
    """Take hooks off their modules and parameters by the handles of these."""
    for handle in handles:
        handle.remove()
