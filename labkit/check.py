"""Checks of what a caller passes: ranges of options, kinds of values, tensors."""

import math
import numbers
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Range(NamedTuple):
    """The range of an option, in words and as a test."""

    words: str  # after "must be"
    holds: Callable[[Any], bool]


def number(words: str, holds: Callable[[float], bool]) -> Range:
    """Return the range of the real numbers for which ``holds``, without booleans."""
    return Range(words, lambda value: _is(value, numbers.Real) and bool(holds(value)))


def integer(low: int, high: float = math.inf) -> Range:
    """Return the range of the integers from ``low`` to ``high``, without booleans."""
    words = (
        f"an integer >= {low}" if high == math.inf else f"an integer in {low}..{high}"
    )
    return Range(
        words, lambda value: _is(value, numbers.Integral) and low <= value <= high
    )


def one_of(allowed: Sequence) -> Range:
    """Return the range of a few values."""
    words = f"one of {', '.join(map(str, allowed))}"
    return Range(
        words, lambda value: isinstance(value, Hashable) and value in tuple(allowed)
    )


def optional(inner: Range) -> Range:
    """Return the range of None and what another range allows."""
    return Range(
        f"None or {inner.words}", lambda value: value is None or inner.holds(value)
    )


POSITIVE = number("> 0 and finite", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = number(">= 0 and finite", lambda value: 0 <= value < math.inf)
SHARE = number("in [0, 1]", lambda value: 0 <= value <= 1)
INSIDE = number("in (0, 1)", lambda value: 0 < value < 1)
UP_TO_ONE = number("in (0, 1]", lambda value: 0 < value <= 1)
BELOW_ONE = number("in [0, 1)", lambda value: 0 <= value < 1)
COUNT = integer(1)
YES_OR_NO = Range("True or False", lambda value: isinstance(value, bool))
FUNCTION = Range("a function", callable)


def check_options(
    values: Mapping[str, Any], table: Mapping[str, Range], owner: str = ""
) -> None:
    """Raise ValueError for an unknown option or a value out of its range.

    Parameters
    ----------
    values : mapping
        Options by name.
    table : mapping of name to Range
    owner : str
        Whose options they are; stands before the message.

    Raises
    ------
    ValueError
        With the name, what it must be and what was given.

    Examples
    --------
    >>> check_options({"rank": 0}, {"rank": COUNT})
    Traceback (most recent call last):
    ValueError: rank must be an integer >= 1, got 0
    """
    start = f"{owner}: " if owner else ""
    for name, value in values.items():
        if name not in table:
            known = ", ".join(table)
            raise ValueError(f"{start}there is no option {name!r}; there are: {known}")
        words, holds = table[name]
        if not holds(value):
            raise ValueError(f"{start}{name} must be {words}, got {value!r}")


def check_squares(name: str, values: np.ndarray) -> None:
    """Raise ValueError if the sum of the numbers' squares could overflow their dtype.

    Examples
    --------
    >>> check_squares("X", np.array([3e19], np.float32))
    Traceback (most recent call last):
    ValueError: X holds values up to 3e+19, whose squares leave float32; scale it down
    """
    if not values.size:  # such as the values of an empty sparse matrix
        return
    largest = max(float(values.max()), -float(values.min()))
    if largest > (float(np.finfo(values.dtype).max) / values.size) ** 0.5:
        raise ValueError(
            f"{name} holds values up to {largest:.3g}, whose squares leave "
            f"{values.dtype}; scale it down"
        )


def _is(value, kind) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def check_tensor(
    name: str,
    value: object,
    *,
    shape: Sequence[int | str] | None = None,
    like: Tensor | None = None,
    dtype: torch.dtype | tuple[torch.dtype, ...] | None = None,
    finite: bool = False,
    graph: bool = True,
) -> Tensor:
    """Raise an error unless value is a tensor of the wanted kind, and return it.

    Nothing here waits for a device: the numbers of a tensor are read on a CPU only.

    Parameters
    ----------
    name : str, what the caller calls it
    value : object, what was handed in
    shape : sequence, optional
        A length for each dimension. A word stands for any length, and the same word
        for the same one; ``"..."`` in the first place stands for any dimensions.
    like : Tensor, optional
        Whose dtype and device the tensor must have.
    dtype : torch.dtype or tuple of them, optional
        What the dtype must be if `like` is not given; any real floating-point type if
        neither is.
    finite : bool, whether a NaN or an infinity on a CPU is refused
    graph : bool, whether it may require a gradient

    Returns
    -------
    Tensor, ``value`` itself

    Raises
    ------
    TypeError
        If it is no tensor, not strided, or of another dtype.
    ValueError
        If it is on another device or on ``meta``, of another shape, not finite, or
        requires a gradient that is not passed on.

    Examples
    --------
    >>> check_tensor("x", [1.0, 2.0])
    Traceback (most recent call last):
    TypeError: x must be a tensor, got list [1.0, 2.0]; see torch.as_tensor
    >>> check_tensor("x", torch.zeros(2, 3), shape=("b", 4))
    Traceback (most recent call last):
    ValueError: x must have shape (b, 4), got (2, 3)
    """
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a tensor, got {described(value)}; see torch.as_tensor"
        )
    if value.layout != torch.strided:
        raise TypeError(f"{name} must be dense, got {value.layout}; call to_dense()")
    allowed = like.dtype if like is not None else dtype
    allowed = (allowed,) if isinstance(allowed, torch.dtype) else allowed
    if allowed is None:
        if not value.is_floating_point():
            raise TypeError(
                f"{name} must be real floating point, got the dtype {value.dtype}"
            )
    elif value.dtype not in allowed:
        words = " or ".join(map(str, allowed))
        raise TypeError(f"{name} must have the dtype {words}, got {value.dtype}")
    if value.device.type == "meta":
        raise ValueError(f"{name} is on the device meta, where it holds no numbers")
    if like is not None and value.device != like.device:
        raise ValueError(f"{name} must be on {like.device}, got {value.device}")
    if shape is not None and not _fits(value.shape, shape):
        wanted = _written(shape)
        raise ValueError(f"{name} must have shape {wanted}, got {tuple(value.shape)}")
    if finite:
        check_finite(name, value)
    if not graph and value.requires_grad:
        raise ValueError(
            f"{name} requires a gradient, which is not passed on; call {name}.detach()"
        )
    return value


def check_finite(name: str, value: Tensor) -> None:
    """Raise ValueError if a tensor on the CPU holds a NaN or an infinity.

    Parameters
    ----------
    name : str, what the caller calls it
    value : Tensor, looked at on a CPU alone

    Raises
    ------
    ValueError
        With the first such number and its place.

    Examples
    --------
    >>> check_finite("x", torch.tensor([[0.0, float("nan")]]))
    Traceback (most recent call last):
    ValueError: x must be finite, got nan at (0, 1)
    """
    if value.device.type != "cpu":
        return
    value = value.detach()
    if value.sum().isfinite():  # as all are then; a flag for each takes far longer
        return
    bad = ~torch.isfinite(value)
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        raise ValueError(
            f"{name} must be finite, got {value[place].item():g} at {place}"
        )


def check_kind(name: str, value: object, kind: type | tuple, words: str) -> None:
    """Raise TypeError unless a value is an instance of a type or of one of several.

    Parameters
    ----------
    name : str, what the caller calls the value
    value : object, what was handed in
    kind : type or tuple of types
    words : str, what is wanted, after "must be"

    Examples
    --------
    >>> check_kind("path", 3, str, "a path")
    Traceback (most recent call last):
    TypeError: path must be a path, got int 3
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {words}, got {described(value)}")


def check_making(generator: object, dtype: object, device: object) -> None:
    """Raise an error unless tensors can be made by these.

    Each may be None. A dtype is one of real floating-point numbers.

    Raises
    ------
    TypeError
        If one is of another kind.
    ValueError
        If there is no such device here, or it holds no numbers.

    Examples
    --------
    >>> check_making(None, torch.int64, "cpu")
    Traceback (most recent call last):
    ValueError: dtype must be of real floating-point numbers, got torch.int64
    """
    kinds = torch.Generator, type(None)
    check_kind("generator", generator, kinds, "a torch.Generator or None")
    check_kind("dtype", dtype, (torch.dtype, type(None)), "a torch.dtype or None")
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"dtype must be of real floating-point numbers, got {dtype}")
    check_device(device)


def check_device(device: object, meta: bool = False) -> None:
    """Raise an error for a device that does not exist or, without ``meta``, is that.

    Raises
    ------
    TypeError
        If it is no name of a device.
    ValueError
        If there is no such device here.

    Examples
    --------
    >>> check_device("cup")
    Traceback (most recent call last):
    ValueError: device must name a device of this torch, got 'cup'
    """
    if device is None:
        return
    kinds = str, torch.device
    check_kind("device", device, kinds, "None, a string or a torch.device")
    try:
        kind = torch.device(device).type
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(
            f"device must name a device of this torch, got {str(device)!r}"
        ) from error
    if kind == "meta" and not meta:
        raise ValueError("device must hold numbers, got 'meta'")


def or_tensor(inner: Range) -> Range:
    """Return the range of what another range allows, and of tensors of one number.

    The number of a tensor is not read: it may be on a device.
    """

    def holds(value: object) -> bool:
        if isinstance(value, Tensor):
            return value.numel() == 1 and value.is_floating_point()
        return inner.holds(value)

    return Range(f"{inner.words}, or a tensor of one number", holds)


def described(value: object) -> str:
    """Return the name of a value's type, and the value where it is short.

    Examples
    --------
    >>> described("abc"), described(None), described(range(100))
    ("str 'abc'", 'None', 'range range(0, 100)')
    """
    if value is None:
        return "None"
    kind = type(value).__name__
    if callable(value):
        return kind
    shown = repr(value)
    return f"{kind} {shown}" if len(shown) <= 40 and "\n" not in shown else kind


def _fits(shape, wanted) -> bool:
    """Return whether a shape has the wanted lengths; equal words mean equal lengths."""
    if wanted and wanted[0] == "...":
        wanted = wanted[1:]
        shape = shape[max(len(shape) - len(wanted), 0) :]
    if len(shape) != len(wanted):
        return False
    words = {}
    return all(
        size == (words.setdefault(want, size) if isinstance(want, str) else want)
        for size, want in zip(shape, wanted, strict=True)
    )


def _written(shape) -> str:
    inside = ", ".join(map(str, shape))
    return f"({inside},)" if len(shape) == 1 else f"({inside})"
