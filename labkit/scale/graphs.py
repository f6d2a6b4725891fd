"""Training steps as CUDA graphs, which are recorded once and then replayed.

Each recording is checked: its first replay is compared with a plain step. Most tests
replay a stand-in for the graph; on a GPU, ``make gpu`` compares 1,000 steps.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

CLOSE = 1e-3  # relative to the norm of each tensor, as other kernels round otherwise


def graphed(
    step: Callable[..., tuple[Tensor, ...]],
    *,
    device: torch.device,
    optimizer: torch.optim.Optimizer | None = None,
    learner: Any = None,
) -> "Replayed":
    """Return a training step that is recorded as a CUDA graph and then replayed.

    Hand the function itself to a paper: ``labkit.rls.train(..., record=graphed)``.

    Parameters
    ----------
    step : callable, tensors on the device -> tuple of tensors
    device : torch.device, of the step
    optimizer : torch.optim.Optimizer, optional, that steps in it
        Each setting of its options is recorded for itself; a rate that changes often is
        best a tensor.
    learner : labkit.rtrl.Learner, optional, that steps in it

    Returns
    -------
    Replayed, called as ``step`` is

    Raises
    ------
    ValueError
        If the device is not CUDA, or the host decides something within the step: a
        torch optimiser without ``capturable=True``, a learner with an ``on_host``.
    """
    check(torch.device(device), optimizer, learner)
    return Replayed(step, optimizer, learner)


def check(
    device: torch.device, optimizer: torch.optim.Optimizer | None, learner: Any
) -> None:
    """Raise ValueError if a step cannot be recorded, and say what to do."""
    groups = optimizer.param_groups if optimizer else ()
    reason = getattr(learner, "on_host", "")
    if device.type != "cuda":
        reason = f"the data are on {device.type}: move model and data to cuda"
    elif any(group.get("capturable") is False for group in groups):
        reason = "a torch optimizer needs capturable=True"
    if reason:
        raise ValueError(f"a step is recorded as a CUDA graph; {reason}")


class Replayed:
    """A step that is run plainly once for each form and then replayed.

    A form consists of the shapes and dtypes of the arguments, the options of the
    optimiser, on which all decisions of the host depend, and the addresses of all
    tensors that stay: weights, the optimiser's state and the learner's tensors, which
    are kept where they are or exchange their places. The first call of a form runs the
    step and creates what stays. The second call records, and compares the first replay
    with a plain run from the same state; later calls copy their arguments in and
    replay. If the two differ, one warning says what differs, and all calls run the step
    plainly.

    Parameters
    ----------
    step, optimizer, learner : see :func:`graphed`

    Attributes
    ----------
    fault : str, what was wrong with a replay; empty as long as none was
    """

    def __init__(
        self,
        step: Callable,
        optimizer: torch.optim.Optimizer | None,
        learner: Any,
    ) -> None:
        self.step, self.optimizer, self.learner = step, optimizer, learner
        self.generators = [] if learner is None else [learner.generator]
        self.known, self.recorded, self.fault = set(), {}, ""

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Return what the step returns, in tensors that no later call changes."""
        form = self._form(given)
        if self.fault:
            return self._run(given)
        if form not in self.known:
            results = aside(lambda: self._run(given))
            self.known |= {form, self._form(given)}  # the run may have created state
            return results
        if form not in self.recorded:
            # Zeros, not the arguments: so a replay that does not read them is detected.
            own, places = [torch.zeros_like(value) for value in given], self._own()
            replay, results = record(lambda: self._run(own), self.generators)
            self.recorded[form] = own, replay, results, self._own()
            self._put(places)
            return self._proven(form, given)
        return self._replay(form, given)

    def _run(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Step, and keep the learner's tensors where they were before.

        Two that have exchanged their places stay there, which spares a copy.
        Those whose names begin with _ are buffers, which carry nothing over.
        """
        places = self._own()
        results = self.step(*given)
        now = self._own()
        for name, place in places.items():
            new = now[name]
            if any(now[key] is place and other is new for key, other in places.items()):
                continue  # where it was, or two have exchanged their places
            if not name.startswith("_"):
                place.copy_(new)
            setattr(self.learner, name, place)
        return results

    def _put(self, tensors: dict[str, Tensor]) -> None:
        """Set the learner's tensors by name."""
        if self.learner:
            vars(self.learner).update(tensors)

    def _own(self) -> dict[str, Tensor]:
        """Return the learner's tensors by name."""
        own = vars(self.learner) if self.learner else {}
        return {name: value for name, value in own.items() if isinstance(value, Tensor)}

    def _kept(self) -> list[Tensor]:
        """Return all tensors that a step finds as the step before has left them."""
        groups, state = (), {}
        if self.optimizer:
            groups, state = self.optimizer.param_groups, self.optimizer.state
        weights = [weight for group in groups for weight in group["params"]]
        values = [value for own in state.values() for value in own.values()]
        tensors = [value for value in values if isinstance(value, Tensor)]
        own = [value for name, value in self._own().items() if not name.startswith("_")]
        return [*own, *weights, *tensors]

    def _form(self, given: Sequence[Tensor]) -> tuple[Hashable, ...]:
        groups = self.optimizer.param_groups if self.optimizer else ()
        options = [
            tuple(item for item in group.items() if item[0] != "params")
            for group in groups
        ]
        options.append(getattr(self.optimizer, "max_grad_norm", None))
        shapes = [(value.shape, value.dtype) for value in given]
        places = [value.data_ptr() for value in self._kept()]
        return tuple(shapes), tuple(options), tuple(places)

    def _replay(self, form: tuple, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        own, replay, results, places = self.recorded[form]
        torch._foreach_copy_(own, list(given))
        replay()
        self._put(places)
        return tuple(result.clone() for result in results)

    def _proven(self, form: tuple, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the first replay of a form, or the plain run if the two differ."""
        before, places = self._state(), self._own()
        plain = tuple(each.clone() for each in aside(lambda: self._run(given)))
        wanted = self._state()
        self._put(places)
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
        streams = [generator.get_state() for generator in self.generators]
        return [value.detach().clone() for value in self._kept()], streams

    @torch.no_grad()
    def _restore(self, state: tuple[list[Tensor], list[Tensor]]) -> None:
        values, streams = state
        if values:
            torch._foreach_copy_(self._kept(), values)
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
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        results = run()
    return graph.replay, results
