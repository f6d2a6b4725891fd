"""What every committed notebook must be, so that it runs, compares and stays small."""

import ast
import re
from importlib.util import find_spec

import nbformat
import pytest

from tests import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def tagged(book, tag):
    """Return the code cells that carry a tag."""
    code = (cell for cell in book.cells if cell.cell_type == "code")
    return [cell for cell in code if tag in cell.metadata.get("tags", [])]


def plain(source):
    """Return Python code without a notebook's own commands."""
    lines = source.splitlines()
    return "\n".join(line for line in lines if not line.startswith(("%", "!")))


def beside_exercises(book):
    """Return the code cells that stand under no heading of exercises."""
    cells, exercise = [], False
    for cell in book.cells:
        if cell.cell_type != "code" and cell.source.startswith("## "):
            exercise = cell.source.startswith("## Exercise")
        elif cell.cell_type == "code" and not exercise:
            cells.append(cell)
    return cells


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def book(request):
    return nbformat.read(request.param, as_version=4)


def test_is_valid_python_with_one_cell_of_parameters(book):
    nbformat.validate(book)
    kernel = book.metadata.kernelspec
    assert (kernel.name, kernel.language) == ("python3", "python")
    assert len(tagged(book, "parameters")) == 1
    assert not tagged(book, "injected-parameters"), "this is the copy of a run"


def folded(cell):
    """Whether JupyterLab shows a heading's cell with all below it folded."""
    return cell.metadata.get("jp-MarkdownHeadingCollapsed", False)


def out_of_order(book):
    """Say what is not where a reader looks for it."""
    first, title, picture, *rest = book.cells
    hidden = [
        c.metadata.get("jupyter", {}).get("source_hidden") for c in (first, picture)
    ]
    heads = [c for c in rest if c.source.startswith("## ")]
    below = heads[[*map(folded, heads), True].index(True) :]
    wrong = {
        "the parameters come first": "parameters" in first.metadata.get("tags", []),
        "then the title": title.source.startswith("# "),
        "which names the keys": "**Alt** and **R**" in title.source,
        "then the picture": "still" in picture.metadata.get("tags", []),
        "both folded": all(hidden),
        "nothing runs before Run": "Opening(" in picture.source
        or "\nif not interactive:\n    picture.run(" in picture.source,
        "what stands below the story is folded": below and all(map(folded, below)),
        # JupyterLab's Run All goes to the last cell, and to the top where it is hidden.
        "the last cell is text that is folded": rest[-1].cell_type == "markdown"
        and not rest[-1].source.startswith("#"),
    }
    return [what for what, holds in wrong.items() if not holds]


def test_opens_with_its_picture_and_folds_what_stands_below_the_story(book):
    assert out_of_order(book) == []


def statements(body):
    """Yield the statements of a live notebook, those of its functions included."""
    for node in body:
        yield node
        live = isinstance(node, ast.If) and ast.unparse(node.test) == "interactive"
        if live or isinstance(node, ast.FunctionDef):
            yield from statements(node.body)


def run_unseen(book):
    """Name the panels that run in a live notebook before they are displayed.

    An exercise shows at once what some steps with the reader's own lines come to.
    """
    seen, made, found = set(), set(), []
    trees = (ast.parse(plain(cell.source)) for cell in beside_exercises(book))
    for node in (each for tree in trees for each in statements(tree.body)):
        call = getattr(node, "value", None)
        if not isinstance(call, ast.Call):
            continue
        name, _, asked = ast.unparse(call.func).partition(".")
        if name == "display":
            seen.update(map(ast.unparse, call.args))
        elif "LiveLab" in (name, asked):
            made.update(map(ast.unparse, node.targets))
        elif asked == "run" and name in made - seen:
            found.append(name)
    return found


def test_a_panel_is_displayed_before_it_runs(book):
    assert run_unseen(book) == []


def test_a_still_is_one_small_picture(book):
    for cell in tagged(book, "still"):  # `make stills`; gone as soon as the cell runs
        (output,) = cell.outputs
        assert cell.execution_count is not None, "nbval asks for one"
        assert len(output.data["image/png"]) < 200_000
        assert output.data["text/plain"], "said to those who do not see it"


def test_kept_cells_have_run_and_are_compared(book):
    stills = tagged(book, "still")
    kept = [c for c in tagged(book, "keep_output") if c not in stills]
    assert any("assert" in c.source for c in kept), "nbval would compare nothing"
    for cell in kept:
        # Under --nbval-lax only this second tag makes nbval compare the output.
        assert cell in tagged(book, "nbval-check-output"), cell.source
        assert cell.outputs, f"nothing stored for: {cell.source}"
        assert cell.execution_count is not None, f"no count for: {cell.source}"


def test_keeps_no_other_output(book):
    kept = tagged(book, "keep_output")
    others = [c for c in book.cells if c.cell_type == "code" and c not in kept]
    assert not [cell.source for cell in others if cell.outputs]


def test_keeps_no_widget_state(book):
    assert "widgets" not in book.metadata
    kinds = {
        kind
        for cell in tagged(book, "keep_output")
        for output in cell.outputs
        for kind in output.get("data", {})
    }
    assert "application/vnd.jupyter.widget-view+json" not in kinds


def shows(cell):
    """Whether a cell's code ends in something to look at, or displays it."""
    body = ast.parse(plain(cell.source)).body
    if body and isinstance(body[-1], ast.Expr):
        return True
    inside = [n for each in body if isinstance(each, ast.If) for n in each.body]
    called = [n.value for n in [*body, *inside] if isinstance(n, ast.Expr)]
    names = {getattr(c.func, "id", "") for c in called if isinstance(c, ast.Call)}
    return not names.isdisjoint({"display", "print"})


def in_a_row(book):
    """Return the most lines of code in sight between two things to look at.

    A text is such a thing, and what a cell shows; exercises and walks count apart.
    """
    most = lines = 0
    apart = beside_exercises(book)
    for cell in book.cells:
        if cell.cell_type != "code":
            lines = 0
        elif cell in apart:
            hidden = cell.metadata.get("jupyter", {}).get("source_hidden", False)
            lines += 0 if hidden else len(cell.source.splitlines())
            walked = "LineStepper(" in cell.source
            most = most if walked else max(most, lines)
            lines = 0 if shows(cell) else lines
    return most


def test_a_lesson_has_few_cells_and_little_code_between_two_things_to_look_at(book):
    assert len(book.cells) <= 40 and in_a_row(book) <= 15


def named_modules(book):
    """Return the modules that a notebook names in strings, as the walks' ``follow``."""
    code = "\n".join(c.source for c in book.cells if c.cell_type == "code")
    return re.findall(r"""["'](labkit(?:\.\w+)+)["']""", code)


def test_every_module_that_is_named_as_a_string_is_there(book):
    assert [name for name in named_modules(book) if find_spec(name) is None] == []
