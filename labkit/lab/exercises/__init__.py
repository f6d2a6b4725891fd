"""Exercises: a step of the library with a line left out, judged by theorems.

A learner finds the step in a cell, with ``...`` where the line was. She writes the
line, runs the cell, and ``check(name, function)`` judges her function, which then runs
inside the library in the place of the library's own.

An exercise is one :class:`~labkit.lab.exercises.judging.Exercise` in the tuple
``TASKS`` of its paper's module here, such as ``exercises/rls.py``. Its theorems are
functions of :mod:`labkit.theorems`, the same that the paper's tests call. A question
whose answer is a function, a word or a class is a
:class:`~labkit.lab.exercises.judging.Question` in the same tuple.

Modules: ``running`` puts a function into the library, limits it, and puts errors into
words; ``judging`` decides; ``words`` has ``check``, and ``panel`` lets a live panel run
with a learner's step.
"""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "judging": ("Exercise", "Judgement", "Question"),
        "panel": ("trying",),
        "words": ("check", "exercise", "exercises"),
    },
)
