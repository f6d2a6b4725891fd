"""The pages of the site: their code runs, and every public name has one."""

import pkgutil
import re
import runpy
import shlex
from importlib import import_module
from itertools import pairwise

import pytest

import labkit
from labkit.lab.command import app
from labkit.lab.runs.cli import split_assignments
from labkit.lab.runs.execute import prepare
from labkit.lab.runs.sweep import parse_values
from tests import ROOT

DOCS = ROOT / "docs"
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


def test_the_training_loops_of_the_papers_pages_run():
    rls, rtrl = {}, {}
    for page, names in {"rls": rls, "rtrl": rtrl}.items():
        exec("\n".join(blocks(DOCS / f"{page}.md", "python")), names)
    assert rls["losses"][-1] < 0.5 * rls["losses"][0]
    assert rtrl["record"].step == 10 and rtrl["h"].isfinite().all()
    assert rtrl["readout"][0].weight.grad.any()


def test_the_commands_of_a_page_would_be_taken(tmp_path, monkeypatch):
    """A sweep is prepared."""
    lines = "".join(blocks(DOCS / "howto/sweep.md", "sh")).splitlines()
    assert lines
    monkeypatch.chdir(tmp_path)
    for line in lines:
        name, verb, notebook, *rest = shlex.split(line)
        assert name == "labkit" and verb == "sweep"
        given = [value for flag, value in pairwise(rest) if flag == "-p"]
        for key, text in split_assignments(given).items():
            for value in parse_values(key, text):
                prepare(notebook, {key: value}, "quick", tmp_path)


def test_every_public_name_has_a_page_and_a_docstring(tmp_path):
    gather = runpy.run_path(str(DOCS / "gather.py"))
    gather["names"](tmp_path)
    found = pkgutil.iter_modules(labkit.__path__, "labkit.")
    rooms = [m for m in (import_module(f.name) for f in found) if hasattr(m, "__all__")]
    assert {room.__name__ for room in rooms} == {f"labkit.{r}" for r in gather["ROOMS"]}
    public = {
        f"{r.__name__}.{n}": getattr(r, n) for r in rooms for n in gather["public"](r)
    }
    assert {page.stem for page in tmp_path.glob("api/labkit.*.*.rst")} == {*public}
    assert [name for name, held in public.items() if not held.__doc__] == []


def test_the_code_of_the_readme_runs(capsys):
    """As in an environment without the lab; what it imports is told in the how-to."""
    (code,) = blocks(DOCS.parent / "README.md", "python")
    assert len(code.splitlines()) <= 8
    exec(code.replace("steps=1000", "steps=2"), {})
    assert re.fullmatch(r"(\d \d\.\d+ length 1\n){2}", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["README", "CONTRIBUTING"])
def test_a_page_names_commands_that_there_are(name):
    page = (DOCS.parent / f"{name}.md").read_text("utf-8")
    assert (
        set(re.findall(r"(?:^|`)(?:make|labkit) ([a-z-]+)", page, re.M)) <= commands()
    )


def commands():
    """What `labkit` and `make` know."""
    names = {c.name or c.callback.__name__ for c in app.registered_commands}
    names |= {group.name for group in app.registered_groups}
    make = (DOCS.parent / "Makefile").read_text("utf-8")
    return names | set(re.findall(r"^([a-z-]+):", make, re.M))
