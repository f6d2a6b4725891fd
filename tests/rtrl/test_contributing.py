"""What CONTRIBUTING.md shows of adding an algorithm is what the files say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
SECTION = TEXT.split("## Adding an algorithm\n")[1].split("\n## ")[0]
LISTINGS = re.findall(r"^`(\S+)`:\n\n```python\n(.*?)```", SECTION, re.M | re.S)
DIFFS = re.findall(r"```diff\n(.*?)```", SECTION, re.S)


@pytest.mark.parametrize(("path", "listing"), LISTINGS)
def test_a_listing_is_the_file(path, listing):
    assert (ROOT / path).read_text("utf-8") == listing


@pytest.mark.parametrize("diff", DIFFS)
def test_a_diff_is_in_the_table(diff):
    table = (ROOT / "labkit/rtrl/learners.py").read_text("utf-8")
    lines = diff.splitlines()
    assert any(line.startswith("+") for line in lines)
    assert not any(line.startswith("-") for line in lines)
    assert "\n".join(line[1:] for line in lines) in table


def test_module_test_and_row_are_shown():
    assert [path for path, _ in LISTINGS] == [
        "labkit/rtrl/snap.py",
        "tests/rtrl/test_snap.py",
    ]
    assert len(DIFFS) == 2
