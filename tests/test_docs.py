"""The pages of the site: their code runs, and every public name has one."""

import pkgutil
import re
import runpy
import shlex
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

import labkit
from labkit.lab.runs.cli import split_assignments
from labkit.lab.runs.execute import prepare
from labkit.lab.runs.sweep_plan import parse_values

DOCS = Path(__file__).parents[1] / "docs"
HOWTO = DOCS / "howto"
PAGES = [page for page in sorted(HOWTO.glob("*.md")) if page.stem != "index"]
SCREEN = 60  # lines


def blocks(page, language):
    """Code of a page, in order."""
    fence = re.compile(rf"^```{language}\n(.*?)^```$", re.M | re.S)
    return fence.findall(page.read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_and_fits_a_screen(page, tmp_path, monkeypatch):
    text = page.read_text("utf-8")
    assert len(text.splitlines()) <= SCREEN
    code = blocks(page, "python")
    assert code or "{include}" in text
    monkeypatch.chdir(tmp_path)
    exec("\n".join(code), {"__name__": "howto"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_would_be_taken(page, tmp_path):
    lines = "".join(blocks(page, "sh")).splitlines()
    for line in lines:
        name, verb, notebook, *rest = shlex.split(line)
        assert (name, verb) == ("labkit", "sweep")
        given = [value for flag, value in pairwise(rest) if flag == "-p"]
        for key, text in split_assignments(given).items():
            for value in parse_values(key, text):
                prepare(notebook, {key: value}, "quick", None, tmp_path, None)


def test_every_public_name_has_a_page_and_a_docstring(tmp_path):
    found = pkgutil.iter_modules(labkit.__path__, "labkit.")
    rooms = [import_module(each.name) for each in found]
    public = {
        f"{r.__name__}.{n}": getattr(r, n)
        for r in rooms
        for n in vars(r).get("__all__", ())
    }
    runpy.run_path(str(DOCS / "gather.py"))["names"](tmp_path)
    assert {page.stem for page in tmp_path.glob("api/labkit.*.*.rst")} == {*public}
    assert [name for name, held in public.items() if not held.__doc__] == []
