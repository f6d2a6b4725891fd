"""Judge a learner's function: is it open, can it run, do shapes and theorems hold?

The order is that in which a learner can use the answers. A blank that is still open is
no mistake. An error is told by her line. A wrong type or shape is told in words. Then
the theorems decide, so that every algebraically equal line is right. Only where one
fails are the numbers compared with those of the likely slips.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from labkit.lab.exercises.blank import (
    blanks,
    compiled,
    imports_of,
    is_open,
    text_of,
    with_blank,
)
from labkit.lab.exercises.guard import (
    Stopped,
    described,
    in_words,
    limited,
    line_of,
    source_of,
)
from labkit.lab.exercises.in_place import in_place, plain
from labkit.lab.exercises.mutants import Mutant, mutants
from labkit.theorems import Finding

ALIKE = 1e-9  # relative: two runs of the same lines in float64
SLIP_SECONDS = 0.5  # for one mutant
FIRST_SECONDS = 600.0  # for the library's own lines, with all that they import


@dataclass(frozen=True, eq=False)
class Exercise:
    r"""A step of the library in which one equation is left out.

    Attributes
    ----------
    name : str, the paper's room and a word, such as ``"rls-gain"``
    title : str, what is to be written, as a sentence
    function : the step of the library, a function of a module, that training calls
    tags : tuple of str
        The equation's tags. All statements with one of them in their trailing comment
        are left out.
    equation : str, LaTeX without ``$``
    shapes : mapping
        Of the variables that the blank assigns to their shapes in symbols, such as
        ``{"u": "(n,)"}``; ``"return"`` stands for the returned value.
    hints : three str, Markdown, from a nudge to nearly the line
    example : callable
        Runs at least two steps of the library on a small problem, and returns all
        tensors that these changed or computed, in float64.
    theorems : tuple of callables without arguments, each returns a Finding
    given : str or more, lines in the place of each blank, see
        :func:`~labkit.lab.exercises.blank.with_blank`
    plain : str or more, a plain expression for the ``...`` of each of ``given``
    stands_for : mapping
        Of variables that ``given`` introduces to those of the library that have their
        values at the end.
    """

    name: str
    title: str
    function: Callable
    tags: tuple[str, ...]
    equation: str
    shapes: Mapping[str, str]
    hints: tuple[str, str, str]
    example: Callable[[], Sequence[Tensor]]
    theorems: tuple[Callable[[], Finding], ...]
    given: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    stands_for: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The library's own lines, without docstring and annotations."""
        return text_of(self.function)

    @property
    def open_text(self) -> str:
        """The same lines with the blank, and before them the imports."""
        return self._cell(with_blank(self.text, self.tags, self.given))

    @property
    def solved_text(self) -> str:
        """The library's own lines, and before them the imports."""
        return self._cell(self.text)

    @property
    def plain_text(self) -> str:
        """The lines with the blank filled by ``plain``, or the library's own."""
        filled = self._filled
        return with_blank(self.text, self.tags, filled) if filled else self.text

    @property
    def _filled(self) -> list[str]:
        both = zip(self.given, self.plain, strict=True)
        return [given.replace("...", plain, 1) for given, plain in both]

    @property
    def line(self) -> str:
        """The statements that are left out, as they stand in the library."""
        lines, groups = self.text.splitlines(), blanks(self.text, self.tags)
        spans = [(group[0].lineno, group[-1].end_lineno) for group in groups]
        parts = (line.strip() for a, b in spans for line in lines[a - 1 : b])
        return "\n".join(parts)

    @property
    def solution(self) -> str:
        """The lines in Markdown, in the form that the blank has, then the library's."""
        shown = f"```python\n{self.line}\n```"
        if self.plain:
            first = "\n".join(self._filled)
            shown = f"```python\n{first}\n```\n\nThe library writes it so:\n\n{shown}"
        return shown

    def own(self) -> Callable:
        """Return the library's function, compiled from its text."""
        return compiled(self.text, self.function, self.name)

    def mutants(self) -> list[Mutant]:
        """Return the likely slips in the lines that are left out, in both writings."""
        texts = dict.fromkeys((self.plain_text, self.text))
        return [mutant for text in texts for mutant in mutants(text, self.tags)]

    def _cell(self, text: str) -> str:
        imports = imports_of(self.function)
        return f"{imports}\n\n\n{text}" if imports else text


@dataclass(frozen=True)
class Judgement:
    """What became of an answer.

    Attributes
    ----------
    exercise : its name
    kind : "open", "error", "shape", "wrong" or "right"
    text : str, in Markdown, what is wrong and by how much
    slip : str, the kind of the likely slip, one of
        :data:`~labkit.lab.exercises.mutants.KINDS`; empty where none is found
    findings : what the theorems said
    pairs : of the variables in the blank, by name: hers and the wanted one
    """

    exercise: str
    kind: str
    text: str
    slip: str = ""
    findings: tuple[Finding, ...] = ()
    pairs: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """Whether the answer is accepted."""
        return self.kind == "right"


@dataclass
class Tried:
    """One run of an exercise's example with some function in the library's place."""

    tensors: Sequence[Tensor] = ()  # what the example returned
    values: dict[str, Any] = field(default_factory=dict)  # of the blank, first return
    called: bool = False
    error: BaseException | None = None

    @property
    def numbers(self) -> list[Tensor]:
        """All tensors and numbers, those of the blank first."""
        values = (
            v for v in self.values.values() if isinstance(v, Tensor | int | float)
        )
        return [*map(torch.as_tensor, values), *self.tensors]


def still_open(hers: Callable) -> bool:
    """Return whether a learner's function has ``...`` where a line is to stand.

    Where its text is not known, as in a script that was compiled from a string, its
    constants are searched.
    """
    text = source_of(hers)
    return is_open(text) if text else Ellipsis in hers.__code__.co_consts


def judge(exercise: Exercise, hers: Callable) -> Judgement:
    """Judge a learner's function, which runs inside the library.

    TypeError if ``hers`` is not a function.
    """
    if not callable(hers) or not hasattr(hers, "__code__"):
        raise TypeError(
            f"check({exercise.name!r}, ...) needs the function "
            f"{exercise.function.__name__} that the cell above defines, got {hers!r}"
        )
    if hers is exercise.function:
        hers = exercise.own()
    told = partial(Judgement, exercise.name)
    if still_open(hers):
        return told("open", f"This exercise is open. {exercise.title}")
    wanted = _wanted(exercise)
    run = run_example(exercise, hers)
    # What the library cannot go on with is told by what it is, and not by the error.
    wrong = _misshapen(exercise, run, wanted)
    if wrong or run.error is not None:
        slip = _slip(exercise, run)
        said = _joined(wrong or in_words(run.error, hers), slip)
        return told("shape" if wrong else "error", said, slip.kind if slip else "")
    pairs = _pairs(exercise, run)
    try:
        findings = _findings(exercise, hers)
    except (Exception, Stopped) as error:
        return told("error", in_words(error, hers), pairs=pairs)
    failed = [finding for finding in findings if not finding.holds]
    if not failed:
        says = "\n".join(f"- {finding.claim}" for finding in findings)
        return told("right", f"This is right:\n\n{says}", "", findings, pairs)
    slip = _slip(exercise, run)
    said = _joined(_failure(failed[0]), slip)
    return told("wrong", said, slip.kind if slip else "", findings, pairs)


def run_example(exercise: Exercise, hers: Callable, **limits: Any) -> Tried:
    """Run the exercise's example with ``hers`` in the library's place."""
    run = Tried()

    def seen(frame, result):
        if not run.called:
            kept = {"return": result, **frame.f_locals}
            for name in exercise.shapes:
                here = name if name in kept else exercise.stands_for.get(name)
                if here in kept:
                    run.values[name] = _copied(kept[here])
        run.called = True

    try:
        with (
            in_place(exercise.function, hers),
            limited(hers, on_return=seen, **limits),
        ):
            run.tensors = [each.detach().clone() for each in exercise.example()]
    except (Exception, Stopped) as error:
        run.error = error
        if line_of(error.__traceback__, hers)[0]:  # and so nothing came back
            run.values, run.called = {}, False
    return run


def _findings(exercise: Exercise, hers: Callable) -> tuple[Finding, ...]:
    with in_place(exercise.function, hers), limited(hers):
        return tuple(theorem() for theorem in exercise.theorems)


@cache
def _wanted(exercise: Exercise) -> Tried:
    """Run the example with the library's own lines.

    Neither this run nor that of the theorems is limited: what they import for the first
    time, such as parts of torch, must not be cut off in the middle.
    """
    run = run_example(exercise, exercise.own(), seconds=FIRST_SECONDS)
    if run.error is not None:
        raise run.error
    for theorem in exercise.theorems:
        theorem()
    return run


def _pairs(exercise: Exercise, run: Tried) -> dict[str, tuple[Tensor, Tensor]]:
    """Return her values and the wanted ones of the variables in the blank.

    The wanted ones are of lines in the form that the blank has. The library may write
    something else to the same memory later.
    """
    found = {}
    for name, wanted in _filled_in(exercise).values.items():
        hers = run.values.get(name)
        if isinstance(wanted, Tensor) and isinstance(hers, Tensor):
            if hers.shape == wanted.shape:
                found[name] = hers, wanted
    return found


@cache
def _filled_in(exercise: Exercise) -> Tried:
    right = compiled(exercise.plain_text, exercise.function, f"{exercise.name}, plain")
    return run_example(exercise, right)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _misshapen(exercise: Exercise, run: Tried, wanted: Tried) -> str:
    """Say in words which variable has a wrong type or shape; empty if none has."""
    name_of_step = plain(exercise.function).__name__
    if not run.called:
        never = f"The library never called your `{name_of_step}`. Has it another name?"
        return "" if run.error else never
    for name, right in wanted.values.items():
        if name not in run.values:
            lost = (
                "is not there any more; please keep the name that stands in the blank."
            )
            return f"`{name}` {lost}"
        value, symbols = run.values[name], exercise.shapes[name]
        subject = "What your function returns" if name == "return" else f"`{name}`"
        if isinstance(right, Tensor):
            if not isinstance(value, Tensor) or value.shape != right.shape:
                return (
                    f"{subject} is {described(value)}, and has to be "
                    f"{described(right)}: {symbols}."
                )
            if value.dtype != right.dtype:
                return f"{subject} is in {value.dtype}, and has to be in {right.dtype}."
        elif isinstance(right, tuple) and (
            not isinstance(value, tuple) or len(value) != len(right)
        ):
            return f"{subject} is {described(value)}, and has to be {described(right)}."
    for value, right in zip(run.tensors, wanted.tensors, strict=not run.error):
        if value.shape != right.shape:
            return (
                f"The step leaves {described(value)} where the library has "
                f"{described(right)}."
            )
    return ""


def _failure(finding: Finding) -> str:
    """Say which property fails, by how much, on which example."""
    rows = [
        "This does not hold with your lines:",
        f"> {finding.claim}",
        f"The example has {finding.example}. The two sides should be equal up to "
        f"rounding, and they differ by {finding.error:.2g}, relative to the largest "
        "entry.",
    ]
    if finding.found.numel() and finding.found.shape == finding.wanted.shape:
        rows.append(_largest(finding))
    return "\n\n".join(rows)


def _largest(finding: Finding) -> str:
    """Say which entry of the two sides differs most, and what it is on each."""
    apart = (finding.found - finding.wanted).abs().nan_to_num(nan=torch.inf)
    i = int(apart.flatten().argmax())
    here, right = (side.flatten()[i] for side in (finding.found, finding.wanted))
    values = f"{here:.6g} on one side and {right:.6g} on the other"
    place = [int(k) for k in torch.unravel_index(torch.tensor(i), apart.shape)]
    size = " × ".join(map(str, apart.shape))
    if not place:
        return f"It is {values}."
    if len(place) == 1:
        return f"Each side has {size} numbers. Number {i + 1} differs most: {values}."
    where = f"at index {place}, counted from 0,"
    if len(place) == 2:
        where = f"in row {place[0] + 1} and column {place[1] + 1}"
    return f"Each side has {size} numbers. The one {where} differs most: {values}."


def _slip(exercise: Exercise, run: Tried) -> Mutant | None:
    """Return the likely slip that gives the same numbers."""
    for mutant, other in _mutant_runs(exercise):
        if run.numbers and _alike(run.numbers, other.numbers):
            return mutant
    return None


@cache
def _mutant_runs(exercise: Exercise) -> list[tuple[Mutant, Tried]]:
    """Run the example with each mutant in the library's place."""
    found = []
    for i, mutant in enumerate(exercise.mutants()):
        function = compiled(mutant.text, exercise.function, f"{exercise.name}, {i}")
        found.append((mutant, run_example(exercise, function, seconds=SLIP_SECONDS)))
    wanted = _wanted(exercise)
    # A mutant with the right numbers is another way to write the line, and no slip.
    return [(m, run) for m, run in found if not _alike(run.tensors, wanted.tensors)]


def _alike(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Return whether all tensors are equal up to rounding; nan equals nan."""
    return len(some) == len(others) and all(
        a.shape == b.shape
        and torch.allclose(a, b.to(a), rtol=ALIKE, atol=ALIKE, equal_nan=True)
        for a, b in zip(some, others, strict=True)
    )


def _joined(said: str, slip: Mutant | None) -> str:
    if slip is None:
        return said
    return f"{said}\n\nLook for the {slip.kind}: it looks as if {slip.change}."
