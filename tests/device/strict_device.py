"""A strict accelerator that needs none: device ``acc`` in the memory of the CPU.

Operands on two devices are an error, and so is a generator of another device; whatever
makes the host wait for the device is counted with the line of labkit that asked. It
stands on experimental parts of torch (2.11 to 2.13 have them). The module must be
imported before the first backward pass of the process.
"""

import contextlib
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import pytest
import torch
from torch.utils import backend_registration
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

import labkit
from tests.device import lstm

HOME = labkit.__path__[0] + "/"
NAME = "acc"
# Their result, or whether they went well, is read by the host.
READS = {"_local_scalar_dense", "equal", "allclose", "_linalg_check_errors"}
READS |= {"_linalg_eigh", "_linalg_svd", "linalg_pinv", "linalg_lstsq"}
READS |= {"linalg_eig", "linalg_matrix_rank"}
# The size of their result is.
SIZES = {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"}
SIZES |= {"bincount", "repeat_interleave"}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}
CROSSING = {"_to_copy", "copy_"}
# Those that take no scalar from the host in place of a tensor.
ALONE = {"mm", "bmm", "addmm", "addmm_", "baddbmm", "addmv_", "mv", "dot", "cat"}
ALONE |= {"stack"}


@dataclass
class Tally:
    """What was asked of a device: waits by operator and line of labkit."""

    waits: Counter = field(default_factory=Counter)
    drains: int = 0  # asked for by a clock

    def clear(self) -> None:
        """Count from zero."""
        self.waits.clear()
        self.drains = 0

    def wait(self, name: str) -> None:
        """Note that the host waits for a number."""
        self.waits[name, asked_by()] += 1

    def synchronize(self, *_) -> None:
        """Note a drain, which is no wait for a number."""
        self.drains += 1


TALLY = Tally()
_generators = {}  # by address, and held: a freed one's would be given to another


def tensors(tree) -> list:
    """All tensors among the arguments of an operator, or its results."""
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def raw(x):
    """What a tensor of either device holds."""
    return x.raw if isinstance(x, Acc) else x


@cache
def name_of(func) -> str:
    """``aten::mm.out`` as ``mm``."""
    return func._schema.name.removeprefix("aten::")


def asked_by() -> str:
    """The line of labkit that runs."""
    frame = sys._getframe(1)
    while frame and not frame.f_code.co_filename.startswith(HOME):
        frame = frame.f_back
    if not frame:
        return "elsewhere"
    return f"{frame.f_code.co_filename[len(HOME) :]}:{frame.f_lineno}"


class AccGenerator(torch._C.Generator):
    device = torch.device("cpu")  # set below, once the device has its name

    def __init__(self, *_):
        _generators[self._cdata] = self


class AnyGenerator(type):
    def __call__(cls, device="cpu"):
        acc = torch.device(device).type == NAME
        return AccGenerator() if acc else torch._C.Generator(device)

    def __instancecheck__(cls, x):
        return isinstance(x, torch._C.Generator)


class Generator(metaclass=AnyGenerator):
    """In the place of ``torch.Generator``."""


class Acc(torch.Tensor):
    """A tensor on the device; ``raw`` is what it holds."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw):
        form = {"strides": raw.stride(), "storage_offset": raw.storage_offset()}
        form |= {"dtype": raw.dtype, "device": f"{NAME}:0"}
        new = torch.Tensor._make_wrapper_subclass(cls, raw.size(), **form)
        new.raw = raw
        return new

    def __init__(self, raw):
        pass

    def tolist(self):  # torch refuses subclasses
        return self.cpu().tolist()

    def numpy(self, **_):
        raise TypeError(f"can't convert an {NAME} tensor to numpy; use .cpu()")

    def data_ptr(self):
        return self.raw.data_ptr()

    @property
    def data(self):
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, value):
        torch.Tensor.data.__set__(self, value)
        self.raw = value.raw

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class Everywhere(TorchDispatchMode):
    """What makes tensors is asked as well, not only what has some."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if Acc in types or "device" in kwargs:
            return run(func, args, kwargs)
        return func(*args, **kwargs)  # as most are, in a notebook


def run(func, args, kwargs):
    """Judge an operator, count it, and run it on what the tensors hold."""
    given = tensors((args, kwargs))
    accs = [x for x in given if isinstance(x, Acc)]
    here = torch.device(kwargs.get("device") or "cpu").type == NAME
    if not (accs or here):
        return func(*args, **kwargs)
    name, to = name_of(func), True
    if name in CROSSING:
        to = crossed(name, args, kwargs, here)
    else:
        check(name, given, args, kwargs)
    raw_args = tree_map_only(torch.Tensor, raw, args)
    raw_kwargs = tree_map_only(torch.Tensor, raw, kwargs)
    if kwargs.get("device"):
        raw_kwargs["device"] = "cpu"
    raw_kwargs.pop("pin_memory", None)
    out = lstm.KERNELS.get(name, func)(*raw_args, **raw_kwargs)
    if name == "_to_copy":
        return Acc(out) if to else out
    if torch.Tag.inplace_view in func.tags and name != "set_":
        with no_dispatch():
            return func(*args, **kwargs)  # the wrapper has a shape of its own
    known = {id(raw(x)): x for x in given}
    return tree_map_only(
        torch.Tensor, lambda x: known[id(x)] if id(x) in known else Acc(x), out
    )


def crossed(name, args, kwargs, here) -> bool:
    """Whether a copy ends on the device; the host waits for one across."""
    into = name == "copy_"
    to = isinstance(args[0], Acc) if into or not kwargs.get("device") else here
    at_once = kwargs.get("non_blocking") or args[2:]
    if isinstance(args[into], Acc) == to:
        return to
    if not at_once:
        TALLY.wait(name)
    elif not to:
        raise RuntimeError(f"{name}: the host would read before the copy is there")
    return to


def check(name, given, args, kwargs) -> None:
    """Refuse what a device refuses; note what the host waits for."""
    indices = args[1] if name in INDEXED else ()
    for x in given:
        if isinstance(x, Acc) or (x.dim() == 0 and name not in ALONE):
            continue
        if not any(x is i for i in indices) or not isinstance(args[0], Acc):
            raise RuntimeError(f"{name}: tensors on two devices")
    slow = [i for i in indices if i is not None and not at_home(i)]
    fills = name != "index" and len(slow) == 1 and args[2].numel() == 1
    if name in READS | SIZES or (slow and not fills):
        TALLY.wait(name)
    generator = kwargs.get("generator")
    if generator is not None and generator._cdata not in _generators:
        raise RuntimeError(f"{name}: a CPU generator for an {NAME} tensor")


def at_home(index) -> bool:
    """Whether an index is on the device, and no mask, whose count must be read."""
    return isinstance(index, Acc) and index.dtype != torch.bool


def _setup() -> None:
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        why = f"torch {torch.__version__} has no back ends in Python (experimental)"
        pytest.skip(why, allow_module_level=True)
    if torch._C._get_privateuse1_backend_name() != NAME:
        backend_registration._setup_privateuseone_for_python_backend(NAME)
    AccGenerator.device = torch.device(NAME, 0)


_setup()


@contextlib.contextmanager
def strict():
    """The device ``acc`` exists inside; yields the :class:`Tally`, set to zero."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    torch._C._set_only_lift_cpu_tensors(True)
    generator, torch.Generator = torch.Generator, Generator
    synchronize = torch.accelerator.synchronize
    torch.accelerator.synchronize = TALLY.synchronize
    TALLY.clear()
    try:
        with Everywhere():
            yield TALLY
    finally:
        torch.Generator = generator
        torch.accelerator.synchronize = synchronize
        torch._C._set_only_lift_cpu_tensors(False)
        torch.__future__.set_overwrite_module_params_on_conversion(False)
