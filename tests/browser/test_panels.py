"""Panels in JupyterLab, without any lab: what a cell leaves behind, and keys."""

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.keys import Keys

from tests.browser.page import wait
from tests.browser.test_line_stepper import Walk, walk_where_one_clicks

pytestmark = pytest.mark.browser

PRINTED = """
return [...document.querySelectorAll('.jp-OutputArea-output[data-mime-type$="stdout"]')]
  .map((output) => output.textContent).join('');
"""


@pytest.mark.parametrize("page", ["panels"], indirect=True)
def test_panels_alone(page):
    page.run_all()
    assert page.errors() == []
    run_a_cell_again(page)
    walk_where_one_clicks(page, Walk(page))
    assert page.errors() == []


def run_a_cell_again(page):
    """The run that its panel had begun ends, and the new panel works."""
    for begun in range(1, 3):
        page.look_at()
        page.press("run")
        wait(lambda: page.count() >= 5, 60, "the run goes on")
        page.run_cell(1)
        page.run_cell(3)
        ended = str([False] * (begun + 1))
        wait(lambda e=ended: e in page.script(PRINTED), 60, f"all have ended: {ended}")
    page.look_at()
    page.wait_for_figure(lambda drawn: True, "the new panel has a figure", 60)
    before = page.status()
    page.press("step")
    wait(lambda: page.status() != before, 60, "Step is heard")
    page.key("gain", Keys.ARROW_RIGHT)
    wait(lambda: "gain" in page.turned(), 60, "the knob is heard")
