"""Judge an answer: is it open, can it run, what comes back, do the theorems hold?

The order is that in which a learner can use what she is told. A blank that is still
open is no mistake. An error is told by her line. A wrong type or shape of what comes
back is told in words, whatever her variables are called. Then the theorems decide, so
that every algebraically equal line is right. Only where one fails are her numbers
compared with those of the likely slips.
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from labkit.lab.exercises.running import (
    Stopped,
    compiled,
    described,
    in_place,
    in_words,
    is_open,
    limited,
    text_of,
)
from labkit.theorems import Finding

ALIKE = 1e-9  # relative: two runs of the same formula in float64
CLOSE = 1e-6  # relative: an answer may be computed in float32
HEADS = {
    "open": "✎ This is open, for `...` still stands there.",
    "error": "**Error.**",
    "shape": "**Not yet:**",
    "wrong": "**Not yet.**",
    "right": "✔ This is right.",
}


def call(answer: Any, *args: Any) -> Any:
    """Call a learner's function; TypeError if it is none."""
    if not inspect.isfunction(answer):
        raise TypeError(f"This is {described(answer)}.")
    return limited(answer)(*copy.deepcopy(args))


def run(step: Callable, given: tuple[tuple, dict]) -> tuple[Any, Any]:
    """Return what a step returns, and its arguments as it leaves them."""
    args, options = copy.deepcopy(given)
    return step(*args, **options), (args, options)


def parts(value: Any) -> list[Any] | None:
    """Return what a tuple, a list, a dictionary or a dataclass holds."""
    if isinstance(value, dict):
        return [*value.values()]
    if isinstance(value, tuple | list):
        return [*value]
    return [*vars(value).values()] if is_dataclass(value) else None


def alike(value: Any, other: Any, tolerance: float) -> bool:
    """Return whether all numbers are equal but for rounding."""
    inside = parts(value), parts(other)
    if None not in inside:
        pairs = zip(*inside, strict=False)
        return len(inside[0]) == len(inside[1]) and all(
            alike(one, two, tolerance) for one, two in pairs
        )
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        if value.shape != other.shape:
            return False
        return bool((value - other).norm() <= tolerance * other.norm())
    if isinstance(value, float) and isinstance(other, float):
        return abs(value - other) <= tolerance * abs(other)
    return value is other or value == other


def unlike(name: str, value: Any, wanted: Any) -> str:
    """Say in words how a value differs in type or shape; empty if it does not."""
    inside = parts(wanted)
    if inside is not None:
        found = parts(value)
        if found is None or len(found) != len(inside):
            return f"{name} is {described(value)}, and has to be {described(wanted)}."
        names = vars(wanted) if is_dataclass(wanted) else range(1, len(inside) + 1)
        rows = zip(names, found, inside, strict=True)
        faults = (unlike(f"{name}, part {part},", one, two) for part, one, two in rows)
        return next(filter(None, faults), "")
    same, kind = isinstance(value, type(wanted)), f"of the type {type(wanted).__name__}"
    if isinstance(wanted, Tensor):
        kind = described(wanted)
        if same and value.dtype != wanted.dtype:
            return f"{name} is in {value.dtype}, and has to be in {wanted.dtype}."
        same = same and value.shape == wanted.shape
    return "" if same else f"{name} is {described(value)}, and has to be {kind}."


def tensor_of(value: Any) -> Any:
    """Return numbers as a tensor in float64, and anything else as it is."""
    try:
        return torch.as_tensor(value, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        return value


def in_numbers(finding: Finding) -> str:
    """Say which property fails, by how much and where, on which example."""
    text = (
        f"This does not hold with your lines:\n\n> {finding.claim}\n\n"
        f"The example has {finding.example}. The two sides should be equal up to "
        f"rounding, and they differ by {finding.error:.2g}, relative to the largest "
        "entry."
    )
    return f"{text} {most_apart(finding.found, finding.wanted)}"


def most_apart(found: Tensor, wanted: Tensor) -> str:
    """Say where two tensors differ most, with both numbers."""
    if found.shape != wanted.shape:
        return f"It is {described(found)}, and has to be {described(wanted)}."
    apart = (found - wanted).abs().nan_to_num(nan=torch.inf)
    place = torch.unravel_index(apart.argmax(), apart.shape)
    where = f" at index {[int(index) for index in place]}, from 0" if place else ""
    return f"Most{where}: found {found[place]:.6g}, wanted {wanted[place]:.6g}."


def shown(value: Any) -> str:
    """Write a value of a run, or the arguments that it belongs to."""
    if isinstance(value, tuple):
        return ", ".join(map(shown, value))
    if isinstance(value, Tensor) and value.ndim:
        return f"{described(value)} and norm {value.norm():.6g}"
    return value if isinstance(value, str) else f"{float(value):.6g}"


@dataclass(frozen=True)
class Judgement:
    """What became of an answer; a notebook shows it with the hints folded below.

    Attributes
    ----------
    kind : "open", "error", "shape", "wrong" or "right"
    text : str, in Markdown, what is wrong and by how much
    slip : str, the likely slip; empty where none has the same numbers
    help : str, in Markdown, hints and solution, each folded inside the one before
    """

    kind: str
    text: str
    slip: str = ""
    help: str = ""

    @property
    def right(self) -> bool:
        """Whether the answer is accepted."""
        return self.kind == "right"

    def __repr__(self) -> str:
        slip = self.slip and f"\n\nYour numbers are those that come out if {self.slip}."
        return f"{HEADS[self.kind]} {self.text}{slip}"

    def _repr_markdown_(self) -> str:
        return repr(self) if self.right else f"{self}\n\n{self.help}"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What an exercise and a question share.

    Attributes
    ----------
    name : str, the paper's room and a word, such as ``"rls-clip"``
    title : str, what is to be found, as a sentence
    hints : three str, Markdown, from a nudge to nearly the line
    blank : str, with ``...``, what stands in a notebook where an answer is wanted
    """

    name: str
    title: str
    hints: tuple[str, str, str]
    blank: str = "return ..."

    def check(self, answer: Any) -> Judgement:
        """Judge an answer; ``...`` is one that is not there yet."""
        inside = (
            f"<details><summary>Solution</summary>\n\n{self.solution}\n\n</details>"
        )
        for number, text in reversed([*enumerate(self.hints, 1)]):
            head = f"<details><summary>Hint {number}</summary>\n\n"
            inside = f"{head}{text}\n\n{inside}\n\n</details>"
        kind, text, *slip = (
            ("open", self.title) if is_open(answer, self.blank) else self.judge(answer)
        )
        return Judgement(kind, text, *slip, help=inside)


@dataclass(frozen=True, kw_only=True, eq=False)
class Exercise(Task):
    """A step of the library in which a line is left out.

    Attributes
    ----------
    function : the step, a function of a module or of a class
    imports : str, the lines above the step in a notebook
    line : str, what is left out, as it stands in the library
    answer : str, a right way to fill the blank
    theorems : tuple of callables without arguments, each returns a Finding
        They run the step in the library, and decide. What they call it with is the
        example on which results are compared.
    slips : tuple of a slip in words, a part of ``answer``, and what stands there then
    """

    function: Callable
    imports: str
    line: str
    answer: str
    theorems: tuple[Callable[[], Finding], ...]
    slips: tuple[tuple[str, str, str], ...]

    @property
    def open_text(self) -> str:
        """The cell of a notebook: imports, and the step with its blank."""
        head = f"{self.imports}\n\n\n" if self.imports else ""
        return head + text_of(self.function).replace(self.line, self.blank)

    @property
    def solution(self) -> str:
        """The lines in the form of the blank, and then the library's."""
        lines = "```python\n{}\n```".format
        there = f"\n\nThe library has\n\n{lines(inspect.cleandoc(self.line))}"
        return lines(inspect.cleandoc(self.answer)) + (
            there if self.line != self.answer else ""
        )

    def filled(self, lines: str) -> FunctionType:
        """Return the step with other lines in the place of those left out."""
        text = text_of(self.function).replace(self.line, lines)
        return compiled(text, self.function, f"{self.name}: {lines}")

    def judge(self, answer: Callable) -> tuple[str, ...]:
        """Return kind, text and slip; TypeError if the answer is not a function."""
        if not inspect.isfunction(answer):
            raise TypeError(
                f"check({self.name!r}, ...) needs the function "
                f"{self.function.__name__} that the cell above defines, got {answer!r}"
            )
        calls, own = self.calls, self.own
        step = limited(answer)
        try:
            runs = [run(step, call) for call in calls]
        except (Exception, Stopped) as error:
            return "error", in_words(error, answer)
        for (result, after), (wanted, left), given in zip(
            runs, own, calls, strict=True
        ):
            if wrong := unlike("What your function returns", result, wanted):
                return "shape", wrong
            if changed := self._changed(given, after, left):
                return "shape", f"It changes `{changed}`, which has to stay as it is."
        try:
            with in_place(self.function, step):
                findings = [theorem() for theorem in self.theorems]
            failed = [in_numbers(each) for each in findings if not each.holds]
        except (Exception, Stopped) as error:
            failed = [in_words(error, answer)]
        if failed:
            same = (slip for slip, other in self.mutants if alike(runs, other, ALIKE))
            return "wrong", failed[0], next(same, "")
        return "right", "\n\n" + "\n".join(f"- {each.claim}" for each in findings)

    def _changed(self, before: Any, after: Any, wanted: Any) -> str:
        """Return the argument that is changed though the library leaves it."""
        bind = inspect.signature(self.function).bind
        old, new, right = (
            bind(*args, **options).arguments
            for args, options in (before, after, wanted)
        )
        for name in old:
            if alike(right[name], old[name], 0) and not alike(new[name], old[name], 0):
                return name
        return ""

    @cached_property
    def calls(self) -> list[tuple[tuple, dict]]:
        """With what the theorems call the step."""
        calls = []

        def recorded(*args: Any, **options: Any) -> Any:
            calls.append(copy.deepcopy((args, options)))
            return self.function(*args, **options)

        with in_place(self.function, recorded):
            for theorem in self.theorems:
                theorem()
        return calls

    @cached_property
    def own(self) -> list:
        """What the library's step makes of the calls."""
        return [run(self.function, call) for call in self.calls]

    @cached_property
    def mutants(self) -> list[tuple[str, list]]:
        """What the likely slips make of the calls."""
        found = []
        for slip, part, other in self.slips:
            step = self.filled(self.answer.replace(part, other))
            found.append((slip, [run(step, call) for call in self.calls]))
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Question(Task):
    """A question whose answer is a function, a word or a class, judged by a run.

    Attributes
    ----------
    wants : str, what an answer is, such as "a function of one whole number T"
    measured : callable without arguments, makes the run
        Returns a list of arguments, each with what the run gave for them.
    solution : str, a right answer, and why it is so
    use : callable, from an answer and arguments to what is compared with the run
    """

    wants: str
    measured: Callable[[], list[tuple[tuple, Any]]]
    solution: str
    use: Callable = call

    def judge(self, answer: Any) -> tuple[str, ...]:
        """Return kind and text."""
        right, rows = True, []
        for args, wanted in self.measured():
            try:
                found = self.use(answer, *args)
            except (Exception, Stopped) as error:
                why = in_words(error, answer) if inspect.isfunction(answer) else error
                return "error", f"The answer has to be {self.wants}. {why}"
            if isinstance(wanted, Tensor | float | int):
                found, wanted = tensor_of(found), tensor_of(wanted)
                if wrong := unlike("What your function returns", found, wanted):
                    return "shape", wrong
            row = f"- {shown(args)}: {shown(wanted)}, your answer {shown(found)}"
            if not alike(found, wanted, CLOSE):
                right = False
                if isinstance(wanted, Tensor) and wanted.ndim:
                    row += f". {most_apart(found, wanted)}"
            rows.append(row)
        head = "The run gave"
        if inspect.isfunction(answer):
            head += f", for {', '.join(inspect.signature(answer).parameters)}:"
        text = "\n".join([f"{head}\n", *rows])
        return "right" if right else "wrong", text
