"""Follow one call of a function line by line: what ran, and what it changed.

The real function runs, under ``sys.settrace``; nothing of it is written a second time.
Values are summarised as they stand after each line, so what is kept holds no tensors.
A line is a whole statement, however many lines of the file it takes.
"""

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from numbers import Number
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from labkit.lab.panels.lines.source import docstrings_of, statement

MOST = 256  # entries of a tensor that are kept, if it has no more
DEPTH = 3  # levels of attributes, keys and items that are opened
WIDTH = 12  # items of one list, tuple or mapping that are opened
TEXT = 80  # characters of a plain value that are kept

_PLAIN = (Number, str, type(None), torch.dtype)


class Summary(NamedTuple):
    """One value, without the value.

    Of a tensor: shape, least and greatest entry, and all entries of a small one. Of
    anything else: its text.
    """

    kind: str  # name of the type
    text: str = ""  # how a plain value reads; empty for tensors
    shape: tuple[int, ...] | None = None
    least: float = math.nan
    greatest: float = math.nan
    entries: np.ndarray | None = None


@torch.no_grad()
def summarise(value: Any) -> Summary:
    """Summarise one value; reads it once, changes nothing, draws no random number.

    Examples
    --------
    >>> s = summarise(torch.tensor([[3.0, 4.0]]))
    >>> s.shape, s.greatest, s.entries.tolist(), summarise(0.5).text
    ((1, 2), 4.0, [[3.0, 4.0]], '0.5')
    """
    kind = type(value).__name__
    if not isinstance(value, torch.Tensor):
        text = repr(value) if isinstance(value, _PLAIN) else ""
        return Summary(
            kind=kind, text=text if len(text) <= TEXT else text[: TEXT - 1] + "…"
        )
    shape, tensor = tuple(value.shape), value.detach()
    if tensor.is_complex() or not tensor.numel():
        return Summary(kind=kind, text="", shape=shape)
    least, greatest = torch.stack([tensor.min(), tensor.max()]).tolist()
    entries = tensor.float().cpu().numpy().copy() if tensor.numel() <= MOST else None
    return Summary(
        kind=kind,
        text="",
        shape=shape,
        least=float(least),
        greatest=float(greatest),
        entries=entries,
    )


def leaves(name: str, value: Any, depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """Open containers and labkit's own objects; yields (path, tensor or plain value).

    Examples
    --------
    >>> dict(leaves("state", {"P": 1.0, "pair": (2, 3)}))
    {'state["P"]': 1.0, 'state["pair"][0]': 2, 'state["pair"][1]': 3}
    """
    if isinstance(value, (*_PLAIN, torch.Tensor)):
        yield name, value
    elif depth:
        for path, inner in _opened(name, value):
            yield from leaves(path, inner, depth - 1)


def _opened(name, value) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        items = [
            (f'{name}["{key}"]', inner)
            for key, inner in value.items()
            if isinstance(key, str)
        ]
    elif hasattr(value, "_fields"):  # a NamedTuple
        items = [(f"{name}.{key}", getattr(value, key)) for key in value._fields]
    elif isinstance(value, list | tuple):
        items = [(f"{name}[{i}]", inner) for i, inner in enumerate(value)]
    elif isinstance(value, nn.Module):
        items = [
            (f"{name}.{key}", inner)
            for key, inner in value.named_parameters(recurse=False)
        ]
    elif dataclasses.is_dataclass(value) or type(value).__module__.startswith(
        "labkit."
    ):
        items = [
            (f"{name}.{key}", inner)
            for key, inner in getattr(value, "__dict__", {}).items()
        ]
    else:
        items = []
    return items[:WIDTH]


def version(value: Any) -> int | None:
    """A mark that differs after a change in place."""
    is_tensor = isinstance(value, torch.Tensor) and not value.is_inference()
    return value._version if is_tensor else None


PASSES = 30  # of one line, reached one way, that are kept
_GENERATOR = 0x20  # flag of a code object


@dataclasses.dataclass(frozen=True, eq=False)
class LineRun:
    """One line that ran; what a function called from it changed counts as its own."""

    code: CodeType  # the function's: name, file and first line
    line: int  # number in the file, the first one of the statement
    path: tuple[tuple[CodeType, int], ...]  # code and line of each caller, then its own
    turn: int  # how often this path had run before: the index of a loop
    values: Mapping[str, Summary]  # the locals and what they hold, after the line
    changed: frozenset[str]  # paths new or changed since the line before in this call


@dataclasses.dataclass(frozen=True, eq=False)
class Recording:
    """All lines of one call, in the order in which they ended, and its result."""

    result: Any
    lines: tuple[LineRun, ...]
    docs: Mapping[CodeType, Sequence[str]]  # of each function, see `docstrings_of`


def follow_lines(
    function: Callable, *args: Any, follow: Iterable[str] | None = None, **kwargs: Any
) -> Recording:
    """Call a function and keep what the lines did that it and its own helpers run.

    Parameters
    ----------
    function : callable, a Python function or bound method, perhaps decorated
    args, kwargs : of the call
    follow : tuple of str, optional
        Modules or packages whose functions are followed too where they are called; by
        default the function's own room, such as ``labkit.rls``, and outside labkit its
        own module. Lambdas and comprehensions count as part of their line.

    Raises
    ------
    TypeError, RuntimeError
        If there is no Python source to walk; if another tracer is at work.

    Notes
    -----
    The result is bit for bit that of a plain call: values are read, never written, and
    no random number is drawn. A value is summarised again, which reads it once, only if
    it is another object or was changed in place.

    Examples
    --------
    >>> def halve(x):
    ...     y = x / 2
    ...     return y
    >>> recording = follow_lines(halve, 3)
    >>> [(sorted(line.changed), line.values["y"].text) for line in recording.lines]
    [(['y'], '1.5'), ([], '1.5')]
    """
    start = inspect.unwrap(getattr(function, "__func__", function))
    if not hasattr(start, "__code__"):
        message = "has no Python source to walk; give a function or a method"
        raise TypeError(f"{function!r} {message}")
    if sys.gettrace() is not None:
        message = "another tracer is at work (a debugger, a coverage tool)"
        raise RuntimeError(f"{message}; stop it first")
    if follow is None:
        parts = start.__module__.split(".")
        follow = [".".join(parts[:2] if parts[0] == "labkit" else parts)]
    tracer = _Tracer(start.__code__, follow)
    sys.settrace(tracer.enter)
    try:
        result = function(*args, **kwargs)
    finally:
        sys.settrace(None)
    return Recording(result, tuple(tracer.lines), tracer.docs)


class _Call:
    """One call in progress."""

    def __init__(self, cache: dict):
        self.cache = cache
        self.line: int | None = None  # the one that runs now
        # path -> (value, its version, summary)
        self.seen: dict[str, tuple[Any, Any, Summary]] = {}
        self.values: dict[str, Summary] = {}  # after the last line that was kept

    def read(self, frame: FrameType) -> frozenset[str]:
        """Summarise what is new or changed in a frame's locals; return its paths."""
        seen, changed = {}, set()
        for local, held in frame.f_locals.items():
            for path, value in leaves(local, held):
                path = sys.intern(path)
                mark = version(value)
                old = self.seen.get(path)
                if old is None or old[0] is not value or old[1] != mark:
                    # Two floats of one value, say, are no change.
                    plain = isinstance(value, _PLAIN) and old is not None
                    if not (plain and repr(old[0]) == repr(value)):
                        changed.add(path)
                    old = self._summarised(value, mark)
                seen[path] = old
        self.seen = seen
        return frozenset(changed)

    def _summarised(self, value, mark):
        # The cache holds the value, too, so that its id is not given away meanwhile.
        known = self.cache.get(id(value))
        if known is None or known[1] != mark:
            known = self.cache[id(value)] = (value, mark, summarise(value))
        return known


class _Tracer:
    """Receives the interpreter's events."""

    def __init__(self, start: CodeType, follow: Iterable[str]):
        self.start, self.follow = start, tuple(f"{name}." for name in follow)
        self.lines: list[LineRun] = []
        self.docs: dict[CodeType, Sequence[str]] = {}
        self._calls: dict[FrameType, _Call] = {}
        self._waiting: dict[FrameType, _Call] = {}  # generators between two values
        self._cache: dict[int, tuple] = {}  # of all calls: one tensor, one summary
        self._turns: dict[tuple, int] = {}
        self._statement, self._once = cache(statement), {}

    def enter(self, frame: FrameType, event: str, arg):
        """A frame begins: follow it or not."""
        code = frame.f_code
        first = code is self.start and not self._calls
        module = f"{frame.f_globals.get('__name__', '')}."
        if not first and not (self._calls and module.startswith(self.follow)):
            return None
        # Neither a lambda nor what a dataclass made for itself.
        if code.co_name.startswith("<") or code.co_filename == "<string>":
            return None
        call = self._waiting.pop(frame, None) or _Call(self._cache)
        call.read(frame)  # arguments, and what happened meanwhile, are no change
        call.line = None
        self._calls[frame] = call
        if code not in self.docs:
            self.docs[code] = docstrings_of(frame)
        return self._inside

    def _inside(self, frame, event, arg):
        """The next line, or the end: the line before has run."""
        call = self._calls.get(frame)
        if call is None or event not in ("line", "return"):
            return self._inside
        lines = self._statement(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and call.line == lines[0]:
            # Another line of the statement that runs, or, from Python 3.12 on, another
            # turn of a comprehension in it.
            return self._inside
        if call.line is not None:
            self._note(call, frame)
        call.line = lines[0]
        if event == "return":
            del self._calls[frame]
            if frame.f_code.co_flags & _GENERATOR:
                self._waiting[frame] = call
        return self._inside

    def _note(self, call, frame):
        path = tuple(
            (active_frame.f_code, active_call.line)
            for active_frame, active_call in self._calls.items()
        )
        path = self._once.setdefault(path, path)  # equal ones are kept once
        turn = self._turns.get(path, 0)
        self._turns[path] = turn + 1
        changed = call.read(frame)
        if turn >= PASSES:
            return
        values = {path: summary for path, (_, _, summary) in call.seen.items()}
        if values.keys() == call.values.keys() and not changed:
            values = call.values
        call.values = values
        self.lines.append(
            LineRun(
                code=frame.f_code,
                line=call.line,
                path=path,
                turn=turn,
                values=values,
                changed=changed,
            )
        )
