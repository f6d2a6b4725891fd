"""What docstrings say of a line that ran: its equations, its variables' symbols."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import CodeType

from labkit.panels.equations import equations_of
from labkit.panels.recorder import LineRecord
from labkit.panels.source import tags
from labkit.panels.symbols import symbol

_equations = lru_cache(maxsize=512)(equations_of)


class Docstrings:
    """Docstrings of the function, its class, its module, then of its callers."""

    def __init__(self, functions: Mapping[CodeType, Callable | None]):
        self._functions = functions
        self._known: dict[tuple, str] = {}

    def equations(self, record: LineRecord) -> dict[str, str]:
        """LaTeX by tag; a tag without an equation maps to an empty text."""
        wanted = tags(record.code.co_filename, record.line)
        return {tag: self._equation(tag, record) for tag in wanted}

    def _equation(self, tag, record) -> str:
        for docstring in self._around(record):
            if latex := _equations(docstring).get(tag):
                return latex
        return ""

    def symbol(self, record: LineRecord, path: str) -> str:
        """Symbol of the variable at a path; empty where no docstring has one."""
        name = name_of(path)
        callers = tuple(code for code, _ in record.path)
        if (callers, name) not in self._known:
            found = (symbol(name, text) for text in self._around(record) if name)
            self._known[callers, name] = next(filter(None, found), "")
        return self._known[callers, name]

    def _around(self, record) -> Iterator[str]:
        for code, _ in reversed(record.path):
            yield from filter(None, docstrings_of(self._functions.get(code)))


def docstrings_of(function: Callable | None) -> Iterator[str | None]:
    """The function's own docstring, its class's, its module's."""
    if function is None:
        return
    yield function.__doc__
    module = sys.modules.get(function.__module__)
    owner = function.__qualname__.rpartition(".")[0]
    yield getattr(getattr(module, owner, None), "__doc__", None) if owner else None
    yield getattr(module, "__doc__", None)


def name_of(path: str) -> str:
    """The last name of a path; empty for an entry of a list.

    Examples
    --------
    >>> name_of("self.A"), name_of('state["P"]'), name_of("h"), name_of("W[0]")
    ('A', 'P', 'h', '')
    """
    found = re.search(r'(?:^|\.|\[")([A-Za-z_]\w*)(?:"\])?$', path)
    return found[1] if found else ""
