"""Run a learner's lines: a limit on their number and their time, errors in words.

An error is told by her own line, with the shapes of what stands in it, and not by a
traceback through the library.
"""

import ast
import inspect
import linecache
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch

LINES = 100_000  # of hers, in one check
SECONDS = 2.0  # of a CPU, for one check
# By the clock it may be so many times as long: a machine is busy, or a line waits.
PATIENCE = 5
AROUND = 2  # lines shown before and after the marked one


class Stopped(BaseException):
    """Her lines ran for too long; no ``except Exception`` of hers can keep this."""


def codes_of(function: Callable) -> set[CodeType]:
    """Return the code of a function and of all functions written inside it."""
    found, left = set(), [function.__code__]
    while left:
        code = left.pop()
        found.add(code)
        left += [each for each in code.co_consts if isinstance(each, CodeType)]
    return found


@contextmanager
def limited(
    function: Callable,
    *,
    lines: int = LINES,
    seconds: float = SECONDS,
    on_return: Callable[[FrameType, Any], None] | None = None,
) -> Iterator[None]:
    """Raise Stopped once the lines of ``function`` are too many, or take too long.

    Only her lines are counted, so that the library runs at nearly its own speed. The
    seconds are those of a CPU in this thread: what else the machine does is not her
    fault. In the main thread a clock also ends a line that waits. A call of C that
    never looks up, such as the sum over an endless range, cannot be ended from inside
    its process.

    Parameters
    ----------
    function : the learner's function
    lines : limit on her executed lines
    seconds : limit on the seconds of a CPU; by the clock they may be `PATIENCE` times
        as many
    on_return : callable, is given the frame and the result at each return of hers
    """
    codes, own = codes_of(function), function.__code__
    left, spent = [lines], time.thread_time() + seconds
    ends = time.monotonic() + PATIENCE * seconds

    def look_at_clocks():
        if time.thread_time() > spent or time.monotonic() > ends:
            raise Stopped(f"it was not done after {seconds:g} seconds")

    def each_line(frame, event, value):
        if event == "line":
            left[0] -= 1
            if left[0] < 0:
                raise Stopped(f"more than {lines:,} of its lines were executed")
            look_at_clocks()
        elif event == "return" and on_return and frame.f_code is own:
            on_return(frame, value)
        return each_line

    def each_call(frame, _event, _value):
        return each_line if frame.f_code in codes else None

    before = sys.gettrace()
    sys.settrace(each_call)
    try:
        with _every(seconds / 2, look_at_clocks):
            yield
    finally:
        sys.settrace(before)


@contextmanager
def _every(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """Call a function again and again in the main thread; do nothing in another one."""
    here = threading.current_thread() is threading.main_thread()
    if not here or not hasattr(signal, "setitimer"):
        yield
        return
    handler = signal.signal(signal.SIGALRM, lambda _number, _frame: call())
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def in_words(error: BaseException, function: Callable) -> str:
    """Say which of her lines an error came from, in Markdown.

    The line is shown between its neighbours with an arrow before it, and below it the
    shapes of the variables that stand in it.
    """
    kind, frame, line = type(error).__name__, *line_of(error.__traceback__, function)
    said = str(error).strip().partition("\n")[0] or "no more is said about it"
    if isinstance(error, Stopped):
        head = (
            f"Your function was stopped, since {said}. Is there a loop without an end?"
        )
    elif frame is None:
        head = (
            "Your function runs, but the library cannot go on with what it returned: "
            f"{said} ({kind})."
        )
    else:
        head = f"This line of yours cannot be executed: {said} ({kind})."
    if frame is None:
        return head
    return "\n\n".join(filter(None, [head, _marked(frame, line), _values(frame, line)]))


def line_of(traceback: TracebackType | None, function: Callable) -> tuple:
    """Return the innermost frame and line that are hers; None and 0 without one."""
    codes, found = codes_of(function), (None, 0)
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            found = traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def _marked(frame: FrameType, line: int) -> str:
    name, first = frame.f_code.co_filename, frame.f_code.co_firstlineno
    numbers = range(max(first, line - AROUND), line + AROUND + 1)
    texts = {i: linecache.getline(name, i, frame.f_globals).rstrip() for i in numbers}
    if not texts[line]:
        return ""
    rows = [("→ " if i == line else "  ") + text for i, text in texts.items() if text]
    return "```python\n" + "\n".join(rows) + "\n```"


def _values(frame: FrameType, line: int) -> str:
    """Return the shapes of the variables in a line, in words."""
    text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals)
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:  # a part of a statement
        names = [name for name in frame.f_locals if name in text]
    else:
        loaded = (n for n in ast.walk(tree) if isinstance(n, ast.Name))
        names = [n.id for n in loaded if n.id in frame.f_locals]
    said = (f"`{n}` is {described(frame.f_locals[n])}" for n in dict.fromkeys(names))
    text = ", ".join(said)
    return f"There {text}." if text else ""


def described(value: Any) -> str:
    """Say in words what a value is; of a tensor its shape.

    Examples
    --------
    >>> described(torch.zeros(2, 3)), described(...), described(torch.tensor(1.0))
    ('a tensor of shape (2, 3)', 'still open', 'a single number in a tensor')
    """
    if isinstance(value, torch.Tensor):
        shape = tuple(value.shape)
        return f"a tensor of shape {shape}" if shape else "a single number in a tensor"
    if value is None:
        return "None"
    if value is Ellipsis:
        return "still open"
    if isinstance(value, int | float | bool):
        return f"the number {value:g}, a Python {type(value).__name__}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"of the type {type(value).__name__}"


def source_of(function: Callable) -> str:
    """Return the source of a learner's function, empty where there is none."""
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
