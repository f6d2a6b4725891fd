"""The page of a run, without a kernel: figures, and a dark system."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from labkit.panels.curves import curves
from labkit.runs.page import write_page


@pytest.fixture
def page(tmp_path):
    figure = curves({"A": {"one": ([1, 2], [3, 4])}}, "x", "y", caption="It rises.")
    cell = new_code_cell(
        outputs=[new_output("display_data", figure._repr_mimebundle_())]
    )
    (tmp_path / "run").mkdir()
    source, made = tmp_path / "run/a.ipynb", tmp_path / "run/a.html"
    nbformat.write(new_notebook(cells=[cell]), source)
    write_page(source, made)
    return made.read_text()


def test_where_the_system_is_dark_the_page_is_and_tells_its_figures(page):
    begin = page.index('<style media="(prefers-color-scheme: dark)">')
    dark = page[begin : page.index("</style>", begin)]
    assert "--jp-layout-color0:" in dark and "&" not in dark  # nothing was escaped
    assert "document.body.dataset.jpThemeLight = !dark.matches" in page


def test_figures_take_the_width_of_the_page(page):
    assert '"responsive": true' in page and "dispatchEvent(new Event('resize'))" in page
