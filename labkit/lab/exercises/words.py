"""The three words of a learner: ``check``, ``hint`` and ``solution``."""

import html
import math
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from IPython.display import display
from torch import Tensor

from labkit.lab.exercises.answers import Question
from labkit.lab.exercises.judging import Exercise, Judgement, judge
from labkit.lab.exercises.versions import varied
from labkit.lab.panels import heat_maps

ROOMS = ("rls", "bpls", "hessian_free", "broad", "rtrl", "compare")
LARGEST = 40  # rows or columns of a matrix that is drawn
_given: dict[str, int] = {}  # hints that were given, by exercise
_done: dict[str, bool] = {}  # whether the last answer was right, by exercise


@cache
def exercise(name: str, seed: int | None = None) -> Exercise | Question:
    """Return an exercise by its name; KeyError, with the known ones, if there is none.

    With a seed, the sizes and constants of its example are drawn. Only the module of
    its room is imported.
    """
    room = max((r for r in ROOMS if name.startswith(f"{r}-")), key=len, default="")
    known = exercises(room) if room else exercises()
    if name not in known:
        raise KeyError(f"there is no exercise {name!r}; known are {', '.join(known)}")
    found = known[name]
    if seed is None or isinstance(found, Question):
        return found
    bounds = getattr(import_module(f"labkit.lab.exercises.{room}"), "BOUNDS", {})
    return varied(found, bounds, seed)


def exercises(*rooms: str) -> dict[str, Exercise | Question]:
    """Return the exercises of some rooms, or of all, by name."""
    modules = (import_module(f"labkit.lab.exercises.{r}") for r in rooms or ROOMS)
    return {each.name: each for module in modules for each in module.EXERCISES}


def check(
    name: str, answer: Any = ..., *, solve: bool = False, seed: int | None = None
) -> "Checked":
    """Judge an answer, and say what is wrong with it.

    Parameters
    ----------
    name : str, of the exercise
    answer : the function that the learner wrote, or her number, word or curve
        ``...`` is an answer that is not there yet; nothing fails then.
    solve : bool, judge the library's own lines in the place of the answer
    seed : int, optional, draw the sizes and constants of the example

    Examples
    --------
    >>> from labkit.rls.update import gain
    >>> check("rls-gain", gain).right
    True
    """
    found = exercise(name, seed)
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


def hint(name: str) -> "Words":
    """Return the next hint of an exercise; after the last one, the last one again."""
    found = exercise(name)
    i = min(_given.get(name, 0), len(found.hints) - 1)
    _given[name] = i + 1
    more = "" if i + 1 < len(found.hints) else f' `solution("{name}")` shows the line.'
    head = f"**Hint {i + 1} of {len(found.hints)}.** "
    return Words(head + found.hints[i] + more)


def solution(name: str) -> "Words":
    """Return the lines that an exercise leaves out, as they stand in the library."""
    return Words(exercise(name).solution)


def done() -> dict[str, bool]:
    """Return the exercises that were checked, and whether the last answer was right."""
    return dict(_done)


class Words:
    """A text in Markdown that a notebook typesets."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/markdown": self.text, "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text


class Checked:
    """A judgement as a notebook shows it: words, heat maps, and the folded hints.

    Attributes
    ----------
    judgement : Judgement
    right : bool, whether the answer is accepted
    """

    def __init__(self, found: Exercise | Question, judgement: Judgement) -> None:
        self.exercise, self.judgement = found, judgement

    @property
    def right(self) -> bool:
        """Whether the answer is accepted."""
        return self.judgement.right

    def figure(self) -> dict | None:
        """Return heat maps of her values beside the wanted ones; None without any."""
        maps: dict[str, np.ndarray] = {}
        for name, (hers, wanted) in self.judgement.pairs.items():
            if 0 in wanted.shape or max(map(math.prod, _sides(wanted))) > LARGEST:
                continue
            maps |= {f"your {name}": _matrix(hers), f"wanted {name}": _matrix(wanted)}
        if not maps or self.right:
            return None
        caption = "What your lines gave on the small example, beside what is wanted."
        return heat_maps(maps, "column", "row", caption=caption)

    def _ipython_display_(self) -> None:
        display(Words(f"{HEADS[self.judgement.kind]} {self.judgement.text}"))
        if figure := self.figure():
            display(figure)
        if not self.right:
            page = folded(self.exercise)
            display({"text/html": page, "text/plain": ""}, raw=True)

    def __repr__(self) -> str:
        return self.judgement.text


HEADS = {
    "open": "✎",
    "error": "**Error.**",
    "shape": "**Not yet:**",
    "wrong": "**Not yet.**",
    "right": "✔",
}


def _sides(x: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the dimensions that become rows, and those that become columns."""
    return tuple(x.shape[:-1]), tuple(x.shape[-1:])


def _matrix(x: Tensor) -> np.ndarray:
    rows = x.reshape(1, -1) if x.ndim < 2 else x.flatten(0, -2)
    return rows.detach().cpu().double().numpy()


def folded(found: Exercise | Question) -> str:
    """Return HTML of the hints, each folded inside the one before, and the solution."""
    inside = _details("Solution", _paragraphs(found.solution))
    for i, text in reversed([*enumerate(found.hints, 1)]):
        inside = _details(f"Hint {i}", _paragraphs(text) + inside)
    return inside


def _details(summary: str, inside: str) -> str:
    return f"<details><summary>{summary}</summary>{inside}</details>"


def _paragraphs(markdown: str) -> str:
    """Return HTML of Markdown that has paragraphs, code and formulas, and no more."""
    parts = []
    for part in markdown.split("\n\n"):
        if part.startswith("```"):
            code = "\n".join(part.splitlines()[1:-1])
            parts.append(f"<pre>{html.escape(code)}</pre>")
        else:
            spans = part.split("`")
            text = "".join(
                f"<code>{html.escape(span)}</code>" if i % 2 else html.escape(span)
                for i, span in enumerate(spans)
            )
            parts.append(f"<p>{text}</p>")
    return "".join(parts)
