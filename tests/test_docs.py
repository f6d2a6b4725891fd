"""The pages of the site: their code runs, and every public name has one."""

import pkgutil
import re
import runpy
import shlex
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import one_hot

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
    """All blocks in one script, as in an environment without the lab."""
    code = blocks(DOCS.parent / "README.md", "python")
    assert len(code) == 3
    X, y = load_digits(return_X_y=True)
    x, classes = torch.tensor(X[:64] / 16).float(), torch.tensor(y[:64])
    names = {"X": X[:300], "y": y[:300], "x": x, "classes": classes}
    names["model"] = nn.Sequential(nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 10))
    names["targets"] = one_hot(classes, 10).float()
    exec("\n".join(code).replace("steps=1000", "steps=100"), names)
    assert re.fullmatch(r"100 \d\.\d{3} bits length 1\n", capsys.readouterr().out)
