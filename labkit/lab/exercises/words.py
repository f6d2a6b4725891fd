"""What a notebook calls: ``check``, which judges an answer to an exercise."""

from importlib import import_module
from typing import Any

from labkit.check import check_kind
from labkit.lab.exercises.judging import Exercise, Judgement, Question

ROOMS = ("rls", "bpls", "hessian_free", "broad", "rtrl", "compare")


def exercises(*rooms: str) -> dict[str, Exercise | Question]:
    """Return the exercises and questions of some papers, or of all, by name."""
    modules = (import_module(f"labkit.lab.exercises.{room}") for room in rooms or ROOMS)
    return {task.name: task for module in modules for task in module.TASKS}


def exercise(name: str) -> Exercise | Question:
    """Return an exercise by its name; KeyError, with the known ones, if there is none.

    Only the module of its paper is imported.
    """
    check_kind("name", name, str, "the name of an exercise")
    room = name.partition("-")[0]
    known = exercises(room) if room in ROOMS else exercises()
    if name not in known:
        raise KeyError(f"there is no exercise {name!r}; known are {', '.join(known)}")
    return known[name]


def check(name: str, answer: Any = ...) -> Judgement:
    """Judge an answer, and say what is wrong with it; ``.right`` is for graders.

    Parameters
    ----------
    name : str, of the exercise
    answer : the function that the learner wrote, or her word or class
        ``...`` is an answer that is not there yet; nothing fails then.

    Examples
    --------
    >>> from labkit.bpls.targets import hidden_targets
    >>> check("bpls-targets", hidden_targets).right
    True
    """
    return exercise(name).check(answer)
