"""The three words of a learner: ``check``, ``hint`` and ``solution``."""

from functools import cache
from importlib import import_module
from typing import Any

from labkit.check import YES_OR_NO, check_kind, check_options
from labkit.lab.exercises.answers import Question
from labkit.lab.exercises.judging import Exercise, Judgement, judge
from labkit.lab.exercises.shown import Checked, Words

ROOMS = ("rls", "bpls", "hessian_free", "broad", "rtrl", "compare")
_given: dict[str, int] = {}  # hints that were given, by exercise
_done: dict[str, bool] = {}  # whether the last answer was right, by exercise


def exercise(name: str) -> Exercise | Question:
    """Return an exercise by its name; KeyError, with the known ones, if there is none.

    Only the module of its room is imported.
    """
    check_kind("name", name, str, "the name of an exercise")
    return _exercise(name)


@cache
def _exercise(name):
    room = max((r for r in ROOMS if name.startswith(f"{r}-")), key=len, default="")
    known = exercises(room) if room else exercises()
    if name not in known:
        raise KeyError(f"there is no exercise {name!r}; known are {', '.join(known)}")
    return known[name]


def exercises(*rooms: str) -> dict[str, Exercise | Question]:
    """Return the exercises of some rooms, or of all, by name."""
    modules = (import_module(f"labkit.lab.exercises.{r}") for r in rooms or ROOMS)
    return {each.name: each for module in modules for each in module.EXERCISES}


def check(name: str, answer: Any = ..., *, solve: bool = False) -> Checked:
    """Judge an answer, and say what is wrong with it.

    Parameters
    ----------
    name : str, of the exercise
    answer : the function that the learner wrote, or her number, word or curve
        ``...`` is an answer that is not there yet; nothing fails then.
    solve : bool, judge the library's own lines in the place of the answer

    Examples
    --------
    >>> from labkit.rls.update import gain
    >>> check("rls-gain", gain).right
    True
    """
    found = exercise(name)
    check_options({"solve": solve}, {"solve": YES_OR_NO})
    if solve:
        answer = found.own()
    if answer is ...:
        judged = Judgement(name, "open", f"This exercise is open. {found.title}")
    elif isinstance(found, Exercise):
        judged = judge(found, answer)
    else:
        judged = found.judge(answer)
    _done[name] = judged.right
    return Checked(found, judged)


def hint(name: str) -> Words:
    """Return the next hint of an exercise; after the last one, the last one again."""
    found = exercise(name)
    i = min(_given.get(name, 0), len(found.hints) - 1)
    _given[name] = i + 1
    more = "" if i + 1 < len(found.hints) else f' `solution("{name}")` shows the line.'
    head = f"**Hint {i + 1} of {len(found.hints)}.** "
    return Words(head + found.hints[i] + more)


def solution(name: str) -> Words:
    """Return the lines that an exercise leaves out, as they stand in the library."""
    return Words(exercise(name).solution)


def done() -> dict[str, bool]:
    """Return the exercises that were checked, and whether the last answer was right."""
    return dict(_done)
