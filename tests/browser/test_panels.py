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


@pytest.mark.parametrize("page", ["panels_again"], indirect=True)
def test_a_page_that_is_loaded_again(page):
    """A paused figure is there as it was; one whose kernel is gone says what to do."""
    page.run_all()
    page.look_at()
    for _ in range(3):
        page.press("step")
    page.wait_for_status("step 3 of 3, paused")
    drawn = page.wait_for_figure(lambda now: len(now["points"]) == 3, "three steps")
    assert page.lost() == []

    page.load_again()
    page.look_at()
    page.wait_for_figure(lambda now: now == drawn, "the same curves", 60)
    assert page.status() == "step 3 of 3, paused" and page.lost() == []
    page.press("step")
    page.wait_for_figure(lambda now: now != drawn, "the next step is drawn")

    page.restart_kernel()
    lost = ["This panel lives in a kernel that is gone: run this cell again."] * 2
    wait(lambda: page.lost() == lost, 30, lambda: f"it is said: {page.lost()}")
    page.load_again()
    wait(lambda: page.lost() == lost, 30, lambda: f"it is said: {page.lost()}")
    page.order_run_all()
    wait(lambda: page.lost() == [], 60, lambda: f"no longer: {page.lost()}")
    page.look_at()
    page.wait_for_status("step 0 of 0, paused", 60)
    assert page.errors() == []
