"""Exercises: a step of the library with one equation left out, judged by theorems.

A learner finds the step in a cell, with ``...`` where the equation was. She writes the
equation, runs the cell, and ``check(name, function)`` judges her function, which then
runs inside the library in the place of the library's own. ``hint(name)`` gives the next
hint, ``solution(name)`` the line.

An exercise is one :class:`~labkit.lab.exercises.judging.Exercise` in the tuple
``EXERCISES`` of its room's module here, such as ``exercises/rls.py``. It names the
function and the tags; text, blank, imports and likely slips are read from the library.
Its theorems are functions without arguments in the paper's room, such as
``labkit/theorems/rls.py``. They return a :class:`labkit.theorems.Finding`, and the
room's tests call the same functions. A question whose answer is a number, a word or a
curve is a :class:`~labkit.lab.exercises.answers.Question` in the same tuple.

Modules: ``blank`` makes the text, ``in_place`` puts a function into the library,
``guard`` limits it and puts errors into words, ``mutants`` makes the likely slips,
``judging`` puts these together, ``words`` has what a notebook calls, and ``panel`` lets
a live panel run with a learner's step.
"""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "answers": ("Question",),
        "judging": ("Exercise", "Judgement", "judge"),
        "panel": ("trying",),
        "words": ("check", "done", "exercise", "exercises", "hint", "solution"),
    },
)
