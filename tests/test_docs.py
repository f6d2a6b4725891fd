"""The pages of the site: their code runs, and says what it should."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from labkit.runs.cli import split_assignments
from labkit.runs.execute import prepare
from labkit.runs.sweep_plan import parse_values

HOWTO = Path(__file__).parents[1] / "docs/howto"
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
