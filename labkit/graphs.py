"""Training steps as CUDA graphs, which are recorded once and then replayed.

Each recording is checked: its first replay is compared with a plain step. Most tests
replay a stand-in for the graph; on a GPU, ``make gpu`` compares 1,000 steps.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence

import torch
from torch import Tensor

CLOSE = 1e-3  # relative to the norm of each tensor, as other kernels round otherwise


class Replayed:
    """A function of tensors, run plainly once for each form and then replayed.

    A form consists of the shapes of the arguments, the value of ``settings()`` (on
    which all decisions of the host depend) and the addresses of the tensors of
    ``kept()``. The first call of a form runs the function and creates what stays. The
    second call records, and compares the first replay with a plain run from the same
    state; later calls copy their arguments in and replay. If the two differ, one
    warning says what differs, and all calls run the function plainly.

    Parameters
    ----------
    run : callable, tensors -> tuple of tensors; what stays is changed in place only.
    kept : callable, -> tensors that a call finds as the call before has left them
    settings : callable, -> hashable
    generators : of random numbers drawn in it, but torch's own of the device

    Attributes
    ----------
    fault : str, what was wrong with a replay; empty as long as none was
    """

    def __init__(
        self,
        run: Callable,
        kept: Callable[[], Sequence[Tensor]],
        settings: Callable[[], Hashable],
        generators: Iterable[torch.Generator] = (),
    ) -> None:
        self.run, self.kept, self.settings = run, kept, settings
        self.generators = list(generators)
        self.known, self.recorded, self.fault = set(), {}, ""

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Return what ``run`` returns, in tensors that no later call changes."""
        form = self._form(given)
        if self.fault:
            return self.run(*given)
        if form not in self.known:
            results = aside(lambda: self.run(*given))
            self.known.add(self._form(given))  # the run may have created state
            return results
        if form not in self.recorded:
            # Zeros, not the arguments: so a replay that does not read them is detected.
            own = [torch.zeros_like(each) for each in given]
            made = record(lambda: self.run(*own), self.generators)
            self.recorded[form] = own, *made
            return self._proven(form, given)
        return self._replay(form, given)

    def _form(self, given: Sequence[Tensor]) -> tuple:
        shapes = tuple(each.shape for each in given)
        return shapes, self.settings(), places(self.kept())

    def _replay(self, form: tuple, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        own, replay, results = self.recorded[form]
        torch._foreach_copy_(own, list(given))
        replay()
        return tuple(each.clone() for each in results)

    def _proven(self, form: tuple, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the first replay of a form, or the plain run if the two differ."""
        before = self._state()
        plain = tuple(each.clone() for each in aside(lambda: self.run(*given)))
        wanted = self._state()
        self._restore(before)
        try:
            results = self._replay(form, given)
        except RuntimeError as error:
            self.fault = f"it failed: {error}"
        else:
            self.fault = difference(results, plain, "result")
            self.fault = self.fault or difference(self._state()[0], wanted[0], "state")
        if not self.fault:
            return results
        self._restore(wanted)
        self.recorded.clear()
        warnings.warn(
            "the first replay of a recorded step is not the step: "
            f"{self.fault}. Steps run as written from here on",
            RuntimeWarning,
            stacklevel=4,
        )
        return plain

    def _state(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return copies of the tensors that stay and of the random streams."""
        streams = [each.get_state() for each in self.generators]
        return [each.detach().clone() for each in self.kept()], streams

    @torch.no_grad()
    def _restore(self, state: tuple[list[Tensor], list[Tensor]]) -> None:
        values, streams = state
        for tensor, value in zip(self.kept(), values, strict=True):
            tensor.copy_(value)
        for generator, stream in zip(self.generators, streams, strict=True):
            generator.set_state(stream)


def difference(got: Sequence[Tensor], wanted: Sequence[Tensor], what: str) -> str:
    """Return which tensor differs from the wanted one by more than `CLOSE`, or ""."""
    for i, (one, two) in enumerate(zip(got, wanted, strict=True)):
        one, two = one.double(), two.double()
        same = (one == two) | (one.isnan() & two.isnan())
        off = torch.where(same, 0, one - two).norm()
        if not off <= CLOSE * two.nan_to_num(0, 0, 0).norm():
            return f"{what} {i} of shape {tuple(two.shape)} is {float(off):.3g} off"
    return ""


def state_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the weights of an optimiser and the tensors of its state."""
    weights = [each for group in optimizer.param_groups for each in group["params"]]
    kept = [v for own in optimizer.state.values() for v in own.values()]
    return weights + [each for each in kept if isinstance(each, Tensor)]


def settings_of(
    optimizer: torch.optim.Optimizer, clip: Callable[[], float]
) -> tuple[Hashable, ...]:
    """Return all options of an optimiser, and its clip."""
    groups = [
        tuple(item for item in group.items() if item[0] != "params")
        for group in optimizer.param_groups
    ]
    return (*groups, clip())


def places(values: Iterable[Tensor]) -> tuple[int, ...]:
    """Return the addresses of tensors."""
    return tuple(each.data_ptr() for each in values)


def aside(run: Callable) -> tuple[Tensor, ...]:
    """Run on a separate stream, as torch requires before a recording."""
    stream, here = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        results = run()
    here.wait_stream(stream)
    return results


def record(
    run: Callable, generators: Iterable[torch.Generator]
) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
    """Record a function; return its replay, and the results that each replay fills."""
    graph = torch.cuda.CUDAGraph()
    for each in generators:
        graph.register_generator_state(each)
    with torch.cuda.graph(graph):
        results = run()
    return graph.replay, results


def check(
    device: torch.device,
    optimizer: torch.optim.Optimizer | None,
    watch: object,
    group: object,
    other: str = "",
) -> None:
    """Raise ValueError if a step cannot be recorded, and say what to do.

    ``other`` is a further reason that the caller knows, or empty.
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
