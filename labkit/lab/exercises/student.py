"""Student versions: a notebook for each seed, with a step of each paper to complete."""

from collections.abc import Sequence
from random import Random

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.lab.exercises.judging import Exercise
from labkit.lab.exercises.words import ROOMS, exercise, exercises

HEAD = """# Write the missing equation, version {seed}

Each step below is a step of labkit with one equation left out. Write it in the place of
`...`, run the cell, and run the cell below it. `hint("name")` gives the next hint."""
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
IMPORTS = "from labkit.lab import check, done, hint, solution"
GRADED = "assert check({call}).right"


def chosen(seed: int) -> list[str]:
    """Return the names of a version's exercises: one step of each paper.

    Examples
    --------
    >>> len(chosen(7)), chosen(7) == chosen(7)
    (5, True)
    """
    random, names = Random(seed), []
    for room in ROOMS:
        found = exercises(room).items()
        steps = [name for name, each in found if isinstance(each, Exercise)]
        names += [random.choice(steps)] if steps else []
    return names


def cells(
    found: Exercise, seed: int | None = None, *, solve: str = ""
) -> list[NotebookNode]:
    """Return three cells: what is to be written, the step with its blank, the check.

    Parameters
    ----------
    found : Exercise
    seed : int, optional, of the example
    solve : str, optional, the variable that says whether the library's lines are judged
    """
    shapes = ", ".join(f"`{name}` {shape}" for name, shape in found.shapes.items())
    shapes = shapes.replace("`return`", "the result")
    text = f"**{found.title}**\n\n$${found.equation}$$\n\nShapes: {shapes}."
    source = f"check({call(found, seed, solve)})"
    made = [
        new_markdown_cell(text, id=f"{found.name}-text"),
        new_code_cell(
            found.open_text.rstrip("\n"),
            id=f"{found.name}-step",
            metadata={"tags": ["exercise"]},
        ),
        new_code_cell(source, id=f"{found.name}-check", metadata={"tags": ["check"]}),
    ]
    return made


def call(found: Exercise, seed: int | None = None, solve: str = "") -> str:
    """Return the arguments of ``check`` for the learner's function."""
    parts = [f'"{found.name}"', found.function.__name__]
    parts += [f"solve={solve}"] if solve else []
    parts += [] if seed is None else [f"seed={seed}"]
    return ", ".join(parts)


def student_version(
    seed: int, names: Sequence[str] = (), *, nbgrader: bool = False
) -> NotebookNode:
    """Return the notebook of a seed.

    Parameters
    ----------
    seed : int >= 0, of the exercises and their examples
    names : sequence of str, exercises in the place of those that the seed chooses
    nbgrader : bool
        Give the cells nbgrader's metadata: the step is a solution, and a locked cell
        below it, which asserts that it is right, gives a point.
    """
    names = list(names) or chosen(seed)
    book = new_notebook(metadata={"kernelspec": KERNEL})
    book.metadata["labkit"] = {"seed": seed, "exercises": names}
    parameters = "solve: bool = False  # judge the library's lines in place of yours"
    book.cells = [
        new_markdown_cell(HEAD.format(seed=seed), id="head"),
        new_code_cell(parameters, id="parameters", metadata={"tags": ["parameters"]}),
        new_code_cell(IMPORTS, id="imports"),
    ]
    for name in names:
        found = exercise(name, seed)
        made = cells(found, seed, solve="solve")
        if nbgrader:
            made[1].metadata["nbgrader"] = _nbgrader(name, solution=True)
            source = GRADED.format(call=call(found, seed))
            graded = {"tags": ["check"], "nbgrader": _nbgrader(name, solution=False)}
            made.append(new_code_cell(source, id=f"{name}-grade", metadata=graded))
        book.cells += made
    book.cells.append(new_code_cell("done()", id="done", metadata={"tags": ["check"]}))
    return book


def _nbgrader(name: str, *, solution: bool) -> dict:
    """Return nbgrader's metadata of a step, or of the cell that gives its point."""
    made = {"schema_version": 3, "cell_type": "code", "task": False}
    made |= {"solution": solution, "grade": not solution, "locked": not solution}
    if solution:
        return made | {"grade_id": name}
    return made | {"grade_id": f"{name}-grade", "points": 1}
