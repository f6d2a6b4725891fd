"""The page of a run, without a kernel: figures, and a dark system."""

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


@pytest.fixture
def page(tmp_path):
    figure = curves({"A": {"one": ([1, 2], [3, 4])}}, "x", "y", caption="It rises.")
    cell = new_code_cell(
        outputs=[new_output("display_data", figure._repr_mimebundle_())]
    )
    told = new_markdown_cell("## A head\n\nIn a line $x_1 * y * z$ and\n\n$$a < b$$")
    (tmp_path / "run").mkdir()
    source, made = tmp_path / "run/a.ipynb", tmp_path / "run/a.html"
    states = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    book = new_notebook(cells=[told, cell], metadata={"widgets": states})
    nbformat.write(book, source)
    write_page(source, made)
    return made.read_text()


def test_where_the_system_is_dark_the_page_is_and_tells_its_figures(page):
    begin = page.index('<style media="(prefers-color-scheme: dark)">')
    dark = page[begin : page.index("</style>", begin)]
    assert "--jp-layout-color0:" in dark and "&" not in dark  # nothing was escaped
    assert "document.body.dataset.jpThemeLight = !dark.matches" in page


def test_figures_take_the_width_of_the_page(page):
    assert '"responsive": true' in page and "dispatchEvent(new Event('resize'))" in page


def test_where_no_script_runs_a_figure_is_told_in_words(page):
    assert "<noscript>A: y against x; one. It rises.</noscript>" in page


def test_nothing_is_loaded_from_elsewhere(page):
    far = re.findall(r"""(?:src|href|url|import)\s*[=(]\s*["']?(https?:[^"']+)""", page)
    assert far == []


def test_formulas_are_drawn_by_the_browser(page):
    pytest.importorskip("latex2mathml")
    assert page.count("<math") == 2 and "<em>" not in page
    assert "<mi>a</mi><mo>&lt;</mo><mi>b</mi>" in page


def test_every_formula_of_the_notebooks_becomes_mathml():
    pytest.importorskip("latex2mathml")
    books = [nbformat.read(path, as_version=4) for path in notebooks().values()]
    cells = [cell for book in books for cell in book.cells]
    html = "".join(markdown(c.source) for c in cells if c.cell_type == "markdown")
    formulas = re.findall(r"<math.*?</math>", html, re.S)
    assert len(formulas) > 200
    assert [formula for formula in formulas if re.search(r"\\|>&<", formula)] == []


def test_words_on_buttons_that_a_page_lacks_can_be_left_out(page):
    assert ".labkit-live { display: none; }" in page
    for path in notebooks().values():
        cells = nbformat.read(path, as_version=4).cells
        text = "\n".join(c.source for c in cells if c.cell_type == "markdown")
        kept = re.sub(r'<span class="labkit-live">.*?</span>', "", text)
        named = r"\*\*(Step|Run|Pause)\*\*|\bReset\b|\*choose\*|\*next step\*"
        assert re.findall(named, kept) == [], path.name
