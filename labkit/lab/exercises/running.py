"""Run a learner's function: in the library's place, not endlessly, errors in words."""

import inspect
import linecache
import re
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from torch import Tensor

SECONDS = 2.0  # of a CPU, for one call of a learner's function
WIDTH = 88
_LOCK = threading.RLock()


class Stopped(BaseException):
    """A function ran for too long; no ``except Exception`` in it can keep this."""


# The text


def text_of(function: Callable) -> str:
    """Return the source of a step without decorators, annotations and docstring."""
    function = inspect.unwrap(function)
    signature = inspect.signature(function)
    bare = [
        parameter.replace(annotation=parameter.empty)
        for parameter in signature.parameters.values()
    ]
    signature = signature.replace(parameters=bare, return_annotation=bare[0].empty)
    arguments = str(signature).replace("'", '"')
    head = f"def {function.__name__}{arguments}:"
    if len(head) > WIDTH:
        lines = textwrap.wrap(arguments[1:-1], WIDTH - 4)
        head = "\n    ".join([f"def {function.__name__}(", *lines])
        head += "\n):  # fmt: skip"
    body = textwrap.dedent(inspect.getsource(function)).split('"""', 2)[2]
    return head + body


def compiled(text: str, function: Callable, name: str) -> FunctionType:
    """Return the function that a text defines, with the globals of the library's one.

    ``name`` stands for a file, from which errors and tracebacks read the text.
    """
    file, function = f"<{name}>", inspect.unwrap(function)
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space = dict(function.__globals__)
    exec(compile(text, file, "exec"), space)
    return space[function.__name__]


def is_open(answer: Any, blank: str) -> bool:
    """Return whether an answer is ``...``, or has a line of a blank with ``...``."""
    if not inspect.isfunction(answer):
        return answer is ...
    try:
        source = inspect.getsource(answer)
    except OSError:  # compiled from a string
        return False
    lines, wanted = (
        {line.strip() for line in re.sub("#.*", "", text).splitlines()}
        for text in (source, blank)
    )
    return any("..." in line for line in lines & wanted)


# In the library's place


@contextmanager
def in_place(function: Callable, other: Callable) -> Iterator[None]:
    """Have ``other`` run wherever this thread calls the library's ``function``.

    The code of the function is changed, since other modules imported it by its name.
    What ``other`` itself calls is the library's, as are calls of other threads, which
    wait before they put something in place.

    Examples
    --------
    >>> import torch
    >>> from labkit.rls import update
    >>> norm = torch.tensor(3.0)
    >>> with in_place(update.clip_factor, lambda norm, limit: "the learner's"):
    ...     update.clip_factor(norm, 3.5)
    "the learner's"
    >>> update.clip_factor(norm, 3.5)
    tensor(1.)
    """
    function = inspect.unwrap(function)
    with _LOCK:
        code, here = function.__code__, threading.get_ident()
        own = FunctionType(code, function.__globals__, argdefs=function.__defaults__)
        own.__kwdefaults__ = function.__kwdefaults__
        inside = False

        def chosen(*args: Any, **options: Any) -> Any:
            nonlocal inside
            if inside or threading.get_ident() != here:
                return own(*args, **options)
            inside = True
            try:
                return other(*args, **options)
            finally:
                inside = False

        function.__code__ = _code_that_calls(chosen)
        try:
            yield
        finally:
            function.__code__ = code


def _code_that_calls(target: Callable) -> CodeType:
    """Return code, without free variables, that passes its arguments to ``target``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a text cannot be called
        made = compile("lambda *a, **k: 'target'(*a, **k)", __file__, "eval")
    (code,) = (each for each in made.co_consts if isinstance(each, CodeType))
    consts = tuple(target if each == "target" else each for each in code.co_consts)
    return code.replace(co_consts=consts)


def limited(function: Callable, seconds: float = SECONDS) -> Callable:
    """Return a function that raises Stopped where one call takes too long.

    The time is that of a CPU in this thread, and it is looked at before each operation
    of ``function`` and of what stands beside it. A call of C that never returns, such
    as the sum over an endless range, cannot be ended from inside its process.
    """

    def each_operation(frame, _event, _value):
        if time.thread_time() > ends:
            raise Stopped(f"it was not done after {seconds:g} seconds")
        return each_operation

    def each_call(frame, _event, _value):
        if frame.f_globals is not function.__globals__:
            return None
        frame.f_trace_opcodes = True  # a loop on one line is no new line
        return each_operation

    def called(*args: Any, **options: Any) -> Any:
        nonlocal ends
        ends, before = time.thread_time() + seconds, sys.gettrace()
        sys.settrace(each_call)
        try:
            return function(*args, **options)
        finally:
            sys.settrace(before)

    ends = 0.0
    return called


# In words


def in_words(error: BaseException, function: Callable) -> str:
    """Say in Markdown which line of a learner's function an error came from.

    Below the line stand the shapes of the variables in it.
    """
    frame, line, traceback = None, 0, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_globals is function.__globals__:
            frame, line = traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next
    reason = str(error).strip().partition("\n")[0] or "no more is known about it"
    if frame is None:
        return (
            "The library cannot go on with your function, or with what it returned: "
            f"{reason} ({type(error).__name__})."
        )
    head = f"This line cannot be executed: {reason} ({type(error).__name__})."
    if isinstance(error, Stopped):
        head = f"Your function was stopped: {reason}. Is there a loop without an end?"
    text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
    names = [name for name in frame.f_locals if re.search(rf"(?<!\.)\b{name}\b", text)]
    values = ", ".join(
        f"`{name}` is {described(frame.f_locals[name])}" for name in names
    )
    parts = [head, text and f"```python\n{text}\n```", values and f"There {values}."]
    return "\n\n".join(filter(None, parts))


def described(value: Any) -> str:
    """Say in words what a value is; of a tensor its shape.

    Examples
    --------
    >>> import torch
    >>> described(torch.zeros(2, 3)), described(2.5)
    ('a tensor of shape (2, 3)', 'the Python float 2.5')
    """
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if value is ...:
        return "still open"
    if isinstance(value, int | float):
        return f"the Python {type(value).__name__} {value:g}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return "None" if value is None else f"of the type {type(value).__name__}"
