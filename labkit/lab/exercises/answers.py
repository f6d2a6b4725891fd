"""Exercises that ask for a number, a word or a curve, judged by a run on the spot."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from labkit.lab.exercises.judging import Judgement


@dataclass(frozen=True, eq=False)
class Question:
    """An exercise whose answer is no function: a number, a word, or a curve.

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
        try:
            right, said = self.verdict(answer, _run(self))
        except (TypeError, ValueError) as error:
            told = f"The answer has to be {self.wants}: {error}."
            return Judgement(self.name, "shape", told)
        return Judgement(self.name, "right" if right else "wrong", said)


@cache
def _run(question: Question) -> Any:
    return question.measured()
