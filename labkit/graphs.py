"""A training step as a CUDA graph: recorded once, then launched as one.

Nothing of it has run on a GPU yet; the tests replay a stand-in for the graph.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


class Replayed:
    """A function of tensors, called as written once for each form, then replayed.

    A form is the shapes of the arguments and ``settings()``, all that the host decides
    by. The first call of a form runs as written and makes what stays; the second
    records, and from then on a call copies its arguments in and replays.

    Parameters
    ----------
    run : callable, tensors -> tuple of tensors; what stays is changed in place only.
    settings : callable, -> hashable
    generators : of random numbers drawn in it, but torch's own of the device
    """

    def __init__(self, run: Callable, settings: Callable, generators: Iterable = ()):
        self.run, self.settings, self.generators = run, settings, generators
        self.seen, self.recorded = set(), {}

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """What ``run`` gives, in tensors that the next call leaves alone."""
        form = tuple(each.shape for each in given), self.settings()
        if form not in self.seen:
            found = aside(lambda: self.run(*given))
            self.seen.add((form[0], self.settings()))  # the run may have made state
            return found
        if form not in self.recorded:
            own = [each.clone() for each in given]
            made = record(lambda: self.run(*own), self.generators)
            self.recorded[form] = own, *made
        own, replay, found = self.recorded[form]
        torch._foreach_copy_(own, list(given))
        replay()
        return tuple(each.clone() for each in found)


def settings_of(optimizer, clip: Callable[[], float]) -> tuple:
    """All options of an optimiser, its clip, and where its state lies."""
    groups = [
        tuple(item for item in group.items() if item[0] != "params")
        for group in optimizer.param_groups
    ]
    kept = [v for own in optimizer.state.values() for v in own.values()]
    return (*groups, *places(kept), clip())


def places(values: Iterable) -> tuple[int, ...]:
    """Where the tensors among these lie."""
    return tuple(v.data_ptr() for v in values if isinstance(v, Tensor))


def aside(run: Callable):
    """Run on a stream of its own, as torch asks for before a recording."""
    stream, here = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        found = run()
    here.wait_stream(stream)
    return found


def record(run: Callable, generators: Iterable[torch.Generator]):
    """What replays a function, and what it gives, which each replay fills anew."""
    graph = torch.cuda.CUDAGraph()
    for each in generators:
        graph.register_generator_state(each)
    with torch.cuda.graph(graph):
        found = run()
    return graph.replay, found


def check(device: torch.device, optimizer, watch, group, other: str = "") -> None:
    """Raise ValueError if a step cannot be recorded, with what to do.

    ``other`` is a reason of the caller's own, if there is one.
    """
    groups = optimizer.param_groups if optimizer else ()
    reason = other
    if device.type != "cuda":
        reason = f"the data are on {device.type}: move model and data to cuda"
    elif watch:
        reason = "watch looks inside a step, which is one recording"
    elif group is not None:
        reason = "workers of a process group step as written"
    elif any(each.get("capturable") is False for each in groups):
        reason = "a torch optimizer needs capturable=True"
    if reason:
        raise ValueError(f"capture=True records a step as a CUDA graph; {reason}")
