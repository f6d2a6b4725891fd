"""The page of a run, without a kernel: figures, and a dark system."""

import html
import json
import re

import nbformat
import pytest
from nbformat.v4 import (
    new_code_cell,
    new_markdown_cell,
    new_notebook,
    new_output,
)

from labkit.lab.panels.figures.curves import curves
from labkit.lab.runs import notebooks
from labkit.lab.runs.page import markdown, write_page


def written(folder, *cells, **values):
    """The page of an executed notebook of these cells, with its parameters' values."""
    (folder / "run").mkdir()
    source, made = folder / "run/a.ipynb", folder / "run/a.html"
    about = {"papermill": {"parameters": values}}
    about["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    nbformat.write(new_notebook(cells=cells, metadata=about), source)
    write_page(source, made)
    return made.read_text()


def shown(kind, output):
    return new_code_cell(outputs=[new_output(kind, output)])


@pytest.fixture
def page(tmp_path):
    figure = curves({"A": {"one": ([1, 2], [3, 4])}}, "x", "y", caption="It rises.")
    text = new_markdown_cell("## A head\n\nIn a line $x_1 * y * z$ and\n\n$$a < b$$")
    return written(tmp_path, text, shown("display_data", figure._repr_mimebundle_()))


def test_where_the_system_is_dark_the_page_is_and_tells_its_figures(page):
    begin = page.index('<style media="(prefers-color-scheme: dark)">')
    dark = page[begin : page.index("</style>", begin)]
    assert "--jp-layout-color0:" in dark and "&" not in dark  # nothing was escaped
    assert "document.body.dataset.jpThemeLight = !dark.matches" in page
    assert '"responsive": true' in page and "dispatchEvent(new Event('resize'))" in page
    assert page.count("<math") == 2 and "<mi>a</mi><mo>&lt;</mo><mi>b</mi>" in page


def test_markdown_that_a_cell_shows_brings_no_tags(tmp_path):
    """It may hold a parameter's text; a markdown cell may have tags of its own."""
    text = "**a** $x_1$ <script>evil()</script> `<b>`"
    own = new_markdown_cell('<span class="mine">own</span>')
    page = written(tmp_path, own, shown("display_data", {"text/markdown": text}))
    assert "<script>evil" not in page and "&lt;script&gt;evil()" in page
    assert "<strong>a</strong>" in page and "<math" in page
    assert "<code>&lt;b&gt;</code>" in page and '<span class="mine">' in page


def test_nothing_is_loaded_from_elsewhere_and_words_say_what_is_lacking(page, tmp_path):
    assert "<noscript>A: y against x; one. It rises.</noscript>" in page
    far = re.findall(r"""(?:src|href|url|import)\s*[=(]\s*["']?(https?:[^"']+)""", page)
    assert far == []
    assert "This page was run without JupyterLab" in page
    assert ".labkit-live { display: none; }" in page  # words on buttons that it lacks
    # the first figure lies beside the page
    held = json.loads((tmp_path / "run/picture.json").read_text())
    assert held["data"][0]["name"] == "one"


def test_every_formula_of_the_notebooks_becomes_mathml():
    books = [nbformat.read(path, as_version=4) for path in notebooks().values()]
    cells = [cell for book in books for cell in book.cells]
    html = "".join(markdown(c.source) for c in cells if c.cell_type == "markdown")
    formulas = re.findall(r"<math.*?</math>", html, re.S)
    assert len(formulas) > 200
    assert [formula for formula in formulas if re.search(r"\\|>&<", formula)] == []


PARAMETERS = """\
rank: int = 8  # terms; 1..64
text: str = "a"  # read
interactive: bool = True  # widgets
run_dir: str = ""  # where traces are written"""
VALUES = {"rank": 2, "text": "c", "interactive": False, "run_dir": "/me/x"}
CLOSED = {"jp-MarkdownHeadingCollapsed": True}


def test_code_is_folded_and_parameters_stand_once_without_a_path(tmp_path):
    """Below the title, and without what the run itself sets."""
    own = new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
    set_ = new_code_cell("rank = 2", metadata={"tags": ["injected-parameters"]})
    title = new_markdown_cell("# The title")
    hidden = new_code_cell("x = 1", metadata={"jupyter": {"source_hidden": True}})
    cells = own, set_, title, hidden, new_code_cell("y = 2")
    page = written(tmp_path, *cells, **VALUES)
    body = page[page.index("<main") :]
    text = html.unescape(re.sub(r"<[^>]*>", "", body))
    assert text.index("The title") < text.index("rank")
    assert text.count("rank") == 1 and "int = 2  # terms; 1..64" in text
    assert "'c'  # read" in text
    assert "/me/x" not in page and "run_dir" not in text and "interactive" not in text
    folds = re.findall(r'<details class="labkit-code">\s*<summary>(\w+)', body)
    assert folds == ["Parameters", "Code"]
    assert "In&nbsp;[" not in page


def test_a_page_folds_the_sections_that_its_notebook_shows_closed(tmp_path):
    page = written(
        tmp_path,
        new_markdown_cell("## One\n\nseen", metadata=CLOSED),
        new_markdown_cell("within"),
        new_markdown_cell("### Deeper"),
        new_markdown_cell("deep"),
        new_markdown_cell("## Two"),
        new_markdown_cell("## Three", metadata=CLOSED),
        new_markdown_cell("last"),
    )
    marks = "<details |seen|within|deep|</details>|>Two|last"
    found = re.findall(marks, page[page.index("<main") :])
    order = "seen <details within deep </details> >Two <details last </details>"
    assert [mark.strip() for mark in found] == order.split()


def test_what_a_fold_holds_stands_inside_it():
    """A paragraph round a tag of it would end before its text."""
    text = "<details><summary>Solution</summary>\n\n`P @ x`\n\n</details>"
    tags = re.findall(r"<[^>]*>", markdown(text, escape=True))
    wanted = "<details> <summary> </summary> <p> <code> </code> </p> </details>"
    assert tags == wanted.split()
