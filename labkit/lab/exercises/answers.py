"""Exercises that ask for a number, a word or a function, judged by a run."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from labkit.lab.exercises.blank import is_open
from labkit.lab.exercises.guard import Stopped, described, in_words, limited, source_of
from labkit.lab.exercises.judging import Judgement


@dataclass(frozen=True, eq=False)
class Question:
    """An exercise whose answer is no step: a number, a word, a curve or a function.

    Attributes
    ----------
    name : str, the room and a number, such as ``"rls-3"``
    title : str, the question, as a whole sentence
    wants : str, what an answer is, such as "a number between 0 and 90"
    measured : callable without arguments
        Makes the run that decides, once, and returns what ``verdict`` needs.
    right : callable, from ``measured()`` to an answer that is accepted
    verdict : callable
        ``verdict(answer, measured)`` returns whether the answer is right, and a
        sentence with the numbers of the run. A TypeError or ValueError that it raises
        is shown as what is wrong with the answer's form.
    hints : three str
    because : str, why it is so; a part of the solution
    """

    name: str
    title: str
    wants: str
    measured: Callable[[], Any]
    right: Callable[[Any], Any]
    verdict: Callable[[Any, Any], tuple[bool, str]]
    hints: tuple[str, str, str]
    because: str

    def own(self) -> Any:
        """Return an answer that is right, from the run."""
        return self.right(_run(self))

    @property
    def solution(self) -> str:
        """The right answer in words; makes the run if it was not made before."""
        return self.because

    def judge(self, answer: Any) -> Judgement:
        """Judge an answer by the run, which is made now if it was not made before."""
        if isinstance(answer, torch.Tensor) and not answer.ndim:
            answer = answer.item()
        if _is_open(answer):
            return Judgement(self.name, "open", f"This exercise is open. {self.title}")
        try:
            right, said = self.verdict(answer, _run(self))
        except (TypeError, ValueError) as error:
            why = str(error).removesuffix(".")
            told = f"The answer has to be {self.wants}: {why}."
            return Judgement(self.name, "shape", told)
        return Judgement(self.name, "right" if right else "wrong", said)


def _is_open(answer: Any) -> bool:
    """Return whether a function's text still has a ``...`` where a value is wanted."""
    try:
        return inspect.isfunction(answer) and is_open(source_of(answer))
    except SyntaxError:  # of a lambda inside another statement
        return False


def called(answer: Callable, *args: Any) -> Any:
    """Call a function that a learner wrote, within the limits of a check.

    TypeError if it is no function written in Python; ValueError, with her line in
    words, if it fails or is stopped.
    """
    if not hasattr(answer, "__code__"):
        raise TypeError(f"this is {described(answer)}")
    try:
        with limited(answer):
            return answer(*args)
    except (Exception, Stopped) as error:
        raise ValueError(in_words(error, answer)) from error


def tensor_of(value: Any, *shape: int) -> Tensor:
    """Return what a learner's function gave as a tensor in float64.

    TypeError if it is none of numbers; ValueError if it has not this shape.
    """
    try:
        found = torch.as_tensor(value, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"what it returns is {described(value)}") from error
    if found.shape != shape:
        what = described(found if found.ndim else value)
        wanted = described(found.new_empty(shape))
        raise ValueError(f"what it returns is {what}, in place of {wanted}")
    return found


@cache
def _run(question: Question) -> Any:
    return question.measured()
