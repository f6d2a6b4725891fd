"""A stand-in for CUDA graphs, on the CPU: a recording is a list of operators."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tape(TorchDispatchMode):
    """In the place of a CUDA graph: what is recorded runs at each replay only.

    What the host decides is decided once, and results stay where they were first.
    """

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, arguments = kwargs or {}, func._schema.arguments
        if func.is_view:
            return func(*args, **kwargs)
        if func._schema.name == "aten::_local_scalar_dense":
            raise RuntimeError("the host waits inside a recording")
        if any(a.alias_info and a.alias_info.is_write for a in arguments):
            self.calls.append((func, args, kwargs, None))
            return kwargs.get("out", args[0]) if func._schema.returns else None
        out = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, out))
        return out

    def replay(self):
        for func, args, kwargs, out in self.calls:
            with torch._C._AutoDispatchBelowAutograd():
                new = func(*args, **kwargs)
            for kept, each in zip(tree_leaves(out), tree_leaves(new), strict=False):
                if isinstance(kept, torch.Tensor):
                    kept.detach().copy_(each)


def on_tape(run, generators):
    """As :func:`labkit.scale.graphs.record`: recorded, nothing is drawn and written."""
    streams = [each.get_state() for each in generators]
    with Tape() as tape:
        found = run()
    for each, stream in zip(generators, streams, strict=True):
        each.set_state(stream)
    return tape.replay, found
