"""Put the site's source together: pages, executed notebooks, a page for every name.

python docs/gather.py RUNS SOURCE: the newest run of each notebook in RUNS.
"""

import importlib
import inspect
import shutil
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_markdown_cell

from labkit.lab.runs import notebooks
from labkit.lab.runs.page import draw_figures

ROOT = Path(__file__).resolve().parents[1]
ROOMS = "rls bpls hessian_free broad rtrl instruments lab".split()
NOTE = """:::{note}
This page was run without JupyterLab. Under a live panel's figure its run can be played,
and the knobs turned that stand there, to values that were recorded; all others are in
the notebook, which `labkit lab` opens. The lines of a step can be walked here, too.
:::"""
MOVING = "rls"  # the notebook whose picture moves on the front page


def pages(source: Path) -> None:
    """Copy what is written by hand, at the paths that its links name."""
    shutil.copytree(ROOT / "docs", source / "docs")
    for name in ("index", "learn", "use", "extend"):
        (source / f"docs/{name}.md").rename(source / f"{name}.md")
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
        if name == MOVING:
            (source / "moving.html").write_text(moving(book), "utf-8")
        book.cells.insert(1, new_markdown_cell(NOTE))
        for cell in book.cells:
            cell.metadata.pop("papermill", None)
            if "keep_output" in tags(cell):  # a check: folded
                cell.metadata.tags.append("hide-cell")
        book.cells = [c for c in book.cells if "injected-parameters" not in tags(c)]
        nbformat.write(book, source / "notebooks" / path.name)


def moving(book) -> str:
    """HTML of the picture that a notebook opens with, which plays by itself."""
    outputs = [[o.get("data", {}) for o in c.get("outputs", [])] for c in book.cells]
    pages = ("".join(d.get("text/html", "") for d in each) for each in outputs)
    played = '<div class="labkit-play"'
    first = next(page for page in pages if played in page)
    return first.replace(played, f"{played} data-loop")


def tags(cell) -> list[str]:
    """Return a cell's tags."""
    return cell.metadata.get("tags", [])


def names(source: Path) -> None:
    """Write a page for every public name, and one for each room."""
    api = source / "api"
    api.mkdir()
    head = "API\n===\n\n.. toctree::\n\n"
    (api / "index.rst").write_text(head + "".join(f"   labkit.{r}\n" for r in ROOMS))
    for room in ROOMS:
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


def main(runs: Path, source: Path) -> None:
    """Make the folder anew."""
    shutil.rmtree(source, ignore_errors=True)
    pages(source)
    executed(runs, source)
    names(source)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
