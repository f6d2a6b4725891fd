"""Put the site's source together: pages, executed notebooks, a page for every name.

python docs/gather.py RUNS SOURCE [ROOM ...]: the newest run of each notebook in RUNS,
and the names of all rooms or of these.
"""

import base64
import contextlib
import importlib
import inspect
import io
import math
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat.v4 import new_markdown_cell

from labkit.lab.runs import notebooks
from labkit.lab.runs.page import (
    collapsed,
    draw_figures,
    escape_markdown,
    for_readers,
    tags,
)

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ["rls", "bpls", "hessian_free", "broad", "rtrl", "instruments", "scale", "lab"]
MOVING = "rls"  # the notebook whose picture moves on the front page


def pages(source: Path) -> None:
    """Copy what is written by hand, at the paths that its links name."""
    shutil.copytree(ROOT / "docs", source / "docs")
    for name in ("index", "learn", "use", "extend"):
        (source / f"docs/{name}.md").rename(source / f"{name}.md")
    shutil.copy(ROOT / "labkit/lab/race.html", source)
    shutil.copytree(ROOT / "notebooks/figures", source / "notebooks/figures")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "data/README.md"):
        (source / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source / name)


def executed(runs: Path, source: Path) -> None:
    """Write each notebook's newest run under the notebook's own name."""
    for name, path in notebooks(ROOT / "notebooks").items():
        found = sorted(runs.glob(f"*-{name}/{name}.ipynb"))
        if not found:
            raise SystemExit(
                f"no run of {name} in {runs}; `labkit run {name}` makes one"
            )
        book = nbformat.read(found[-1], as_version=4)
        draw_figures(book)
        escape_markdown(book)  # with its formulas, which MyST would leave as they are
        if name == MOVING:
            (source / "moving.html").write_text(moving(book), "utf-8")
        fold(book)
        nbformat.write(book, source / "notebooks" / path.name)


def fold(book) -> None:
    """Fold what the notebook folds, by the words of MyST and of `conf.py`."""
    for_readers(book)
    cells = []
    for cell in book.cells:
        cells.append(cell)
        if "note" in tags(cell):
            cell.source = f":::{{container}} about\n{cell.source}\n:::"
        if collapsed(cell):  # all below it up to the next heading of its level
            cells.append(new_markdown_cell("% fold"))
        if cell.cell_type != "code":
            continue
        cell.metadata.setdefault("tags", [])
        if "keep_output" in tags(cell) and "still" not in tags(cell):
            cell.metadata.tags.append("hide-cell")
            words = "The check behind this"
        elif cell.metadata.folded:
            cell.metadata.tags.append("hide-input")
            words = "Parameters" if "parameters" in tags(cell) else "Code"
        else:
            continue
        prompts = {"code_prompt_show": words, "code_prompt_hide": f"Fold: {words}"}
        cell.metadata["mystnb"] = prompts
    book.cells = cells


def moving(book) -> str:
    """HTML of the picture that a notebook opens with, which plays by itself."""
    outputs = [[o.get("data", {}) for o in c.get("outputs", [])] for c in book.cells]
    pages = ("".join(d.get("text/html", "") for d in each) for each in outputs)
    played = '<div class="labkit-play"'
    first = next(page for page in pages if played in page)
    return first.replace(played, f"{played} data-loop")


def minutes(book) -> int:
    """Return the minutes that a notebook takes, to five: an estimate by these rates.

    200 words a minute, two minutes for each panel or walk, five for each exercise.
    """
    text = [cell.source for cell in book.cells if cell.cell_type == "markdown"]
    code = "".join(cell.source for cell in book.cells if cell.cell_type == "code")
    panels = len(re.findall(r"\b(?:LiveLab|LineStepper)\(", code))
    exercises = len(re.findall(r"\bcheck\(", code))
    exercises += sum(len(re.findall(r"^\d+\. ", each, re.M)) for each in text[-3:])
    spent = len(" ".join(text).split()) / 200 + 2 * panels + 5 * exercises
    return 5 * math.ceil(spent / 5)


def told(source: Path) -> None:
    """Write minutes into the page of the lessons, and the stills beside it."""
    page = source / "learn.md"
    text = page.read_text("utf-8")
    for path in notebooks(ROOT / "notebooks").values():
        book = nbformat.read(path, as_version=4)
        spent = minutes(book)
        text = text.replace(f"MINUTES-{path.stem}", f"{spent} minutes")
        print(f"{path.stem}: {spent} minutes")
        shown = [o.data for c in book.cells if "still" in tags(c) for o in c.outputs]
        if shown:
            picture = source / f"notebooks/figures/{path.stem}.png"
            picture.write_bytes(base64.b64decode(shown[0]["image/png"]))
        else:
            text = text.replace(f":img-top: notebooks/figures/{path.stem}.png\n", "")
    page.write_text(text, "utf-8")


def printed(source: Path) -> None:
    """Run the code of the how-to pages, and write below each block what it prints."""
    for page in sorted((source / "docs/howto").glob("*.md")):
        names, text = {"__name__": "howto"}, page.read_text("utf-8")

        def with_output(block, names=names):
            with contextlib.redirect_stdout(io.StringIO()) as told:
                exec(block[1], names)
            output = told.getvalue()
            shown = f"\n\n```{{code-block}} text\n:class: printed\n\n{output}```"
            return block[0] + shown * bool(output)

        made = re.sub(r"^```python\n(.*?)^```$", with_output, text, flags=re.M | re.S)
        page.write_text(made, "utf-8")


# Autosummary was tried: it writes pages of modules, also of those inside a room, a page
# for each name by templates only, and leaves out tables such as SOLVERS.
def names(source: Path, rooms: Sequence[str] = ROOMS) -> None:
    """Write a page for every public name, and one for each room."""
    api = source / "api"
    api.mkdir()
    head = "API\n===\n\n.. toctree::\n\n"
    (api / "index.rst").write_text(head + "".join(f"   labkit.{r}\n" for r in rooms))
    for room in rooms:
        module = importlib.import_module(f"labkit.{room}")
        title, listed = module.__name__, sorted(public(module), key=str.lower)
        lines = "".join(f"   {title}.{name}\n" for name in listed)
        text = f"{title}\n{'=' * len(title)}\n\n.. automodule:: {title}\n\n"
        toctree = ".. toctree::\n   :maxdepth: 1\n\n"
        (api / f"{title}.rst").write_text(text + toctree + lines)
        for name in listed:
            path = f"{title}.{name}"
            held = getattr(module, name)
            kind = "function" if inspect.isroutine(held) else "data"
            kind = "class" if inspect.isclass(held) else kind
            members = "   :members:\n" if kind == "class" else ""
            if kind == "data":  # a table: its names, not all of their values
                members = "   :no-value:\n\n   " + ", ".join(f"``{k}``" for k in held)
            about = f".. auto{kind}:: {path}\n{members}\n"
            (api / f"{path}.rst").write_text(f"{name}\n{'=' * len(name)}\n\n{about}")


def public(module) -> list[str]:
    """Return a room's public names; of ``labkit.lab`` functions and classes alone."""
    held = {name: getattr(module, name) for name in module.__all__}
    if module.__name__ != "labkit.lab":
        return list(held)
    return [n for n, it in held.items() if inspect.isroutine(it) or inspect.isclass(it)]


def main(runs: str, source: str, *rooms: str) -> None:
    """Make the folder anew."""
    runs, source = Path(runs), Path(source)
    shutil.rmtree(source, ignore_errors=True)
    pages(source)
    executed(runs, source)
    told(source)
    printed(source)
    names(source, rooms or ROOMS)


if __name__ == "__main__":
    main(*sys.argv[1:])
