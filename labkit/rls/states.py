"""Keep the state of RLS and Hybrid whole: state dicts, and interrupts of a step."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from labkit.check import check_kind, check_options, check_tensor
from labkit.rls.blocks import Block
from labkit.rls.checks import LAYER_OPTIONS
from labkit.rls.health import NEVER

# states of other optimizers that have the shape of their parameter
SHAPED = "exp_avg", "exp_avg_sq", "momentum_buffer"


@contextmanager
def interrupt_held_back() -> Iterator[None]:
    """Let a ``with`` block end before an interrupt (Ctrl-C) that comes in it is raised.

    A step that changes weights and P in place would otherwise stop between two of them.
    Python delivers interrupts to the main thread only, so other threads need nothing.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not handler:
        yield
        return
    came = []
    signal.signal(signal.SIGINT, lambda *given: came.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came and callable(handler):
            handler(*came[0])


class Stateful(torch.optim.Optimizer):
    """An optimizer that checks a state dict before it changes anything."""

    _kept: Any = None  # what a state dict that is being loaded gives

    @contextmanager
    def restoring(self, check: Callable[[dict], Any]) -> Iterator[None]:
        """Check a state dict after other load hooks, and keep the result of ``check``.

        Use it as a ``with`` block around torch's loading, which casts every number to
        the dtype of its parameter. P must keep its own dtype.
        """
        last = lambda _, state_dict: setattr(self, "_kept", check(state_dict))  # noqa: E731
        handle = self.register_load_state_dict_pre_hook(last)
        try:
            yield
        finally:
            handle.remove()
            self._kept = None

    def load_state_dict(self, state_dict: dict) -> None:
        """Load a state dict as torch does; ValueError if it is not a mapping."""
        if not isinstance(state_dict, Mapping):
            check_keys(state_dict)
        super().load_state_dict(state_dict)

    def state_dict(self) -> dict:
        """Return options and state, with an entry for every parameter."""

        def fill(_, state_dict):
            for group in state_dict["param_groups"]:
                for number in group["params"]:
                    state_dict["state"].setdefault(number, {})

        handle = self.register_state_dict_post_hook(fill, prepend=True)
        try:
            return super().state_dict()
        finally:
            handle.remove()

    def __reduce_ex__(self, protocol):
        raise TypeError(
            f"{type(self).__name__} reads its model by hooks, which cannot be pickled: "
            "save optimizer.state_dict() beside model.state_dict(), make both anew and "
            "load them"
        )


def check_keys(saved: object) -> None:
    """Raise ValueError if this is not the state dict of a torch optimizer."""
    known = isinstance(saved, Mapping) and {"state", "param_groups"} <= {*saved}
    known = known and isinstance(saved["param_groups"], list | tuple)
    known = known and all(map(_is_group, saved["param_groups"]))
    if not known or not isinstance(saved["state"], Mapping):
        keys = ", ".join(map(repr, saved)) if isinstance(saved, Mapping) else ""
        raise ValueError(
            'a state dict has "state", a mapping, and "param_groups", a list of '
            f"mappings with their parameters; this one has {keys or 'neither'}"
        )


def _is_group(group: object) -> bool:
    return isinstance(group, Mapping) and isinstance(group.get("params"), list)


def check_checkpoint(
    saved: Mapping, groups: list[dict], blocks: list[Block], needed: Iterable[str]
) -> dict[Block, Mapping]:
    """Return what a state dict holds of each block that has a saved state.

    ValueError if the layers, their order or their shapes differ, or if a tensor that is
    ``needed`` is missing.
    """
    check_keys(saved)
    names = [each.get("layer") for each in saved["param_groups"]]
    own = [group["layer"] for group in groups]
    if names != own and sorted(map(str, names)) == sorted(own):
        raise ValueError(f"this checkpoint is of layers {names}, and these are {own}")
    owners = [p for group in groups for p in group["params"]]
    numbers = [i for group in saved["param_groups"] for i in group["params"]]
    pairs = zip(numbers, owners, strict=False)
    fits = {i: b for i, p in pairs for b in blocks if b.weight is p}
    filled = {i: kept for i, kept in saved["state"].items() if kept}
    if (
        len(names) != len(own)
        or len(numbers) != len(owners)
        or not {*filled} <= {*fits}
    ):
        raise ValueError(f"this checkpoint is of layers {names}, not {own}")
    for group in saved["param_groups"]:
        options = {name: group[name] for name in LAYER_OPTIONS if name in group}
        check_options(
            options, LAYER_OPTIONS, f"layer {group['layer']!r} of a checkpoint"
        )
    for number, kept in filled.items():
        _check_kept(kept, fits[number], needed)
    return {fits[number]: kept for number, kept in filled.items()}


def _check_kept(kept: Mapping, block: Block, needed: Iterable[str]) -> None:
    check_kind(f"the state of layer {block.name!r}", kept, Mapping, "a mapping")
    for name in needed:
        if not isinstance(kept.get(name), Tensor | float | int):
            raise ValueError(
                f"{name} of layer {block.name!r} is missing in this checkpoint, which "
                f"has {', '.join(map(str, kept))}"
            )
    for name, value in kept.items():
        if isinstance(value, Tensor):
            check_tensor(f"{name} of layer {block.name!r}", value, dtype=value.dtype)
    n = block.fan_in
    shapes = {"P": (*block.batch, n, n), "total": (n,)}
    shapes |= dict.fromkeys(("velocity", "master"), block.shape)
    for name in (name for name in shapes if name in kept):
        if (shape := torch.as_tensor(kept[name]).shape) != shapes[name]:
            raise ValueError(
                f"{name} of layer {block.name!r} has shape {tuple(shape)} in this "
                f"checkpoint, and the layer needs {shapes[name]}: it is of another "
                "network"
            )


def restored(kept: Mapping[str, Any], block: Block) -> dict[str, Tensor]:
    """Return a block's state from a checkpoint, as copies of its device and dtype."""
    state = {name: torch.as_tensor(value).detach() for name, value in kept.items()}
    state = {
        name: value.to(dtype=block.dtype, device=block.weight.device, copy=True)
        for name, value in state.items()
    }
    if state.pop("failed_h", None) is not None:  # labkit 0.2 wrote 0 for no failure
        state["failed_at"][state["failed_at"] == 0] = NEVER
    return state


def check_shapes(optimizer: torch.optim.Optimizer, saved: Mapping) -> None:
    """Raise ValueError if a state dict has parameters of other shapes."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [i for group in saved["param_groups"] for i in group["params"]]
    kind = type(optimizer).__name__
    if len(numbers) != len(parameters):
        raise ValueError(
            f"{kind} has {len(parameters)} parameters, and this checkpoint is of "
            f"{len(numbers)}: it is of another network"
        )
    for number, parameter in zip(numbers, parameters, strict=True):
        kept = saved["state"].get(number) or {}
        for name in {*SHAPED} & {*kept}:
            shape = getattr(kept[name], "shape", None)
            if shape is not None and shape != parameter.shape:
                raise ValueError(
                    f"{name} of parameter {number} of {kind} has shape {tuple(shape)} "
                    "in this checkpoint: it is of another network"
                )
