"""An exercise in JupyterLab: a wrong line, hints, the right line, and its picture."""

import math

import pytest

pytest.importorskip("selenium")

from tests.browser.conftest import EXERCISE
from tests.browser.page import PROMPT, shown

pytestmark = pytest.mark.browser

STEP, CHECK, FITS = 1, 2, 3  # cells of the notebook, see conftest
BLANK = "T = ...  # (42b)"
WRONG = "T = -F.T @ V @ G"
RIGHT = "T = -F @ V @ G"

# Puts a text in the place of all that a cell has, as a paste does.
PASTE = f"""
const [number, text] = arguments;
const prompt = document.querySelectorAll('{PROMPT}')[number];
const editor = prompt.closest('.jp-Cell').querySelector('.cm-content');
editor.focus();
document.getSelection().selectAllChildren(editor);
const clipboardData = new DataTransfer();
clipboardData.setData('text/plain', text);
setTimeout(() => editor.dispatchEvent(new ClipboardEvent(
  'paste', {{clipboardData, bubbles: true, cancelable: true}})), 50);
"""
IN_SIGHT = f"""
document.querySelectorAll('{PROMPT}')[arguments[0]].closest('.jp-Cell')
  .scrollIntoView({{block: 'start'}});
"""


def write(page, line):
    """Write a line in the place of the blank, and run the step's cell."""
    page.script(PASTE, STEP, EXERCISE[STEP].replace(BLANK, line))
    shown(page, STEP, lambda seen: line in seen["source"], f"{line} is written")
    page.run_cell(STEP)


def checked(page, words):
    """Run the check; return what it shows, which has some words."""
    page.run_cell(CHECK)
    seen = shown(page, CHECK, lambda seen: words in seen["text"], words)
    page.script(IN_SIGHT, CHECK)
    return seen


@pytest.mark.parametrize("page", ["exercise"], indirect=True)
def test_a_wrong_line_hints_and_the_right_line(page):
    page.run_all()
    seen = shown(page, CHECK, lambda seen: seen["hints"], "what is to be written")
    assert "This is open" in seen["text"]
    assert seen["typeset"] >= 2  # letters of the title
    assert seen["hints"] == ["Hint 1", "", "", ""]

    write(page, WRONG)
    seen = checked(page, "This does not hold with your lines")
    assert "come out if F is transposed" in seen["text"] and seen["typeset"] > 1
    page.run_cell(FITS)
    shown(page, FITS, lambda seen: gap(seen) > 1e-3, "the fits")

    write(page, RIGHT)
    assert checked(page, "This is right")["hints"] == []
    page.run_cell(FITS)
    shown(page, FITS, lambda seen: gap(seen) < 1e-4, "her fit is the library's")
    assert page.errors() == []


def gap(seen):
    """How far her fit is from the library's, nan where they are not drawn."""
    names = "ridge solver", "with the library's step"
    one, other = (seen["curves"].get(name) or [] for name in names)
    pairs = zip(one, other, strict=bool(one and other))
    return max((abs(a - b) for a, b in pairs), default=math.nan)
