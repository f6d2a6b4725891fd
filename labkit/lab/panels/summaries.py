"""Values made small enough to keep: what a line of code left in its variables."""

import dataclasses
import math
import zlib
from collections.abc import Iterator, Mapping
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

HEAT = 16  # rows and columns of a heat map at most
DEPTH = 3  # levels of attributes, keys and items that are opened
WIDTH = 12  # items of one list, tuple or mapping that are opened
TEXT = 80  # characters of a plain value that are kept

_PLAIN = (Number, str, type(None), np.generic, torch.dtype)


class Summary(NamedTuple):
    """One value, without the value.

    Of a tensor or array: shape, dtype, device, norm, least and greatest entry, and a
    coarse picture of the entries, means over blocks. Of anything else: its text.
    """

    kind: str  # name of the type
    text: str = ""  # how a plain value reads; empty for tensors and arrays
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    device: str = ""
    norm: float = math.nan
    least: float = math.nan
    greatest: float = math.nan
    heat: np.ndarray | None = None  # float32, at most HEAT x HEAT


@torch.no_grad()
def summarise(value: Any) -> Summary:
    """Summarise one value; reads it once, changes nothing, draws no random number.

    Examples
    --------
    >>> s = summarise(torch.tensor([[3.0, 4.0]]))
    >>> s.shape, s.norm, s.heat.tolist(), summarise(0.5).text
    ((1, 2), 5.0, [[3.0, 4.0]], '0.5')
    """
    kind = type(value).__name__
    if not isinstance(value, torch.Tensor | np.ndarray):
        text = repr(value) if isinstance(value, _PLAIN) else ""
        return Summary(kind, text if len(text) <= TEXT else text[: TEXT - 1] + "…")
    shape = tuple(value.shape)
    dtype = str(value.dtype).removeprefix("torch.")
    device = str(value.device) if isinstance(value, torch.Tensor) else "cpu"
    x = torch.as_tensor(value).detach() if value.dtype != object else None
    if x is None or x.is_complex() or not x.numel():
        return Summary(kind, "", shape, dtype, device)
    x = x.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    numbers = torch.stack([torch.linalg.vector_norm(x), x.min(), x.max()]).tolist()
    return Summary(kind, "", shape, dtype, device, *numbers, heat_map(x))


def heat_map(x: torch.Tensor) -> np.ndarray:
    """Means over at most HEAT x HEAT blocks; leading dimensions become rows."""
    rows = x.reshape(1, -1) if x.ndim < 2 else x.flatten(0, -2)
    size = tuple(min(HEAT, n) for n in rows.shape)
    return nn.functional.adaptive_avg_pool2d(rows[None].float(), size)[0].cpu().numpy()


def leaves(name: str, value: Any, depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """Open containers and labkit's own objects; yields (path, tensor or plain value).

    Examples
    --------
    >>> dict(leaves("state", {"P": 1.0, "pair": (2, 3)}))
    {'state["P"]': 1.0, 'state["pair"][0]': 2, 'state["pair"][1]': 3}
    """
    if isinstance(value, (*_PLAIN, torch.Tensor, np.ndarray)):
        yield name, value
    elif depth:
        for path, inner in _opened(name, value):
            yield from leaves(path, inner, depth - 1)


def _opened(name, value) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        items = [(f'{name}["{k}"]', v) for k, v in value.items() if isinstance(k, str)]
    elif hasattr(value, "_fields"):  # a NamedTuple
        items = [(f"{name}.{k}", getattr(value, k)) for k in value._fields]
    elif isinstance(value, list | tuple):
        items = [(f"{name}[{i}]", v) for i, v in enumerate(value)]
    elif isinstance(value, nn.Module):
        items = [(f"{name}.{k}", v) for k, v in value.named_parameters(recurse=False)]
    elif dataclasses.is_dataclass(value) or type(value).__module__.startswith(
        "labkit."
    ):
        items = [(f"{name}.{k}", v) for k, v in getattr(value, "__dict__", {}).items()]
    else:
        items = []
    return items[:WIDTH]


def version(value: Any) -> Any:
    """A mark that differs after a change in place."""
    if isinstance(value, torch.Tensor):
        return None if value.is_inference() else value._version
    if isinstance(value, np.ndarray):
        return zlib.adler32(np.ascontiguousarray(value).view(np.uint8))
    return None
