"""Panels in JupyterLab, without any lab: what a cell leaves behind, and keys."""

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.keys import Keys

from tests.browser.page import sized, wait
from tests.browser.test_line_stepper import Walk, walk_where_one_clicks

pytestmark = pytest.mark.browser

PRINTED = """
return [...document.querySelectorAll('.jp-OutputArea-output[data-mime-type$="stdout"]')]
  .map((output) => output.textContent).join('');
"""


# What a busy page does to widgets with a script: they are given up before it has come.
GIVEN_UP = """
AbortSignal.timeout = () => {
  const soon = new AbortController();
  queueMicrotask(() => soon.abort());
  return soon.signal;
};
"""


# Of hints that are seen, those that lie over a button.
COVERED = """
const box = (part) => part.getBoundingClientRect();
const over = (a, b) => a.left < b.right && b.left < a.right
  && a.top < b.bottom && b.top < a.bottom;
const buttons = [...document.querySelectorAll('[data-looked-at] button')].map(box);
const hints = [...document.querySelectorAll('[data-looked-at] .labkit-knob-hint')]
  .filter((hint) => hint.checkVisibility({visibilityProperty: true})).map(box);
return hints.map((hint) => buttons.some((button) => over(hint, button)));
"""


@pytest.mark.parametrize("page", ["panels"], indirect=True)
def test_panels_alone(page):
    page.script(GIVEN_UP)
    wait_for_the_cells(page)
    assert page.errors() == []
    a_hint_covers_no_button(page)
    run_a_cell_again(page)
    walk_where_one_clicks(page, Walk(page))
    load_the_page_again(page)
    lose_the_kernel(page)
    assert page.errors() == []


def wait_for_the_cells(page):
    """What is clicked while other cells run is answered after them."""
    hold = page.server.folder / "hold"
    hold.touch()
    page.begin_all()
    page.look_at()
    page.press("step")
    page.press("step")
    assert page.status() == "step 0, paused"
    hold.unlink()
    page.wait_for_status("step 2, paused")


def a_hint_covers_no_button(page):
    """Where the page is enlarged to 150 % the knobs stand above the buttons."""
    for width in (853, 1280):
        sized(page.driver, width)
        page.script("arguments[0].focus()", page.within(".noUi-handle"))
        wait(lambda: page.script(COVERED) == [False], "a hint, beside the buttons")


def run_a_cell_again(page):
    """The run that its panel had begun ends, and the new panel works."""
    for begun in range(1, 3):
        page.look_at()
        page.press("run")
        wait(lambda: page.count() >= 5, "the run goes on")
        page.run_cell(1)
        page.run_cell(3)
        ended = str([False] * (begun + 1))
        wait(lambda e=ended: e in page.script(PRINTED), f"all have ended: {ended}")
    page.look_at()
    page.wait_for_figure(lambda drawn: True, "the new panel has a figure")
    before = page.status()
    page.press("step")
    wait(lambda: page.status() != before, "Step is heard")
    page.key("gain", Keys.ARROW_RIGHT)
    wait(lambda: "gain" in page.turned(), "the knob is heard")


def load_the_page_again(page):
    """A paused figure is there as it was, and goes on."""
    page.run_cell(1)
    page.look_at()
    for _ in range(3):
        page.press("step")
    page.wait_for_status("step 3, paused")
    drawn = page.wait_for_figure(lambda now: len(now["points"]) == 3, "three steps")
    assert page.lost() == []

    page.load_again()
    page.look_at()
    page.wait_for_figure(lambda now: now == drawn, "the same curves")
    assert page.status() == "step 3, paused" and page.lost() == []
    page.press("step")
    page.wait_for_figure(lambda now: now != drawn, "the next step is drawn")
    page.wait_for_status("step 4, paused")


def lose_the_kernel(page):
    """A figure whose kernel is gone says what to do."""
    page.restart_kernel()
    lost = ["No kernel answers for this panel: run this cell again."]
    wait(lambda: page.lost() == lost, lambda: f"it is said: {page.lost()}")
    walk_where_one_clicks(page, Walk(page))
    page.load_again()
    wait(lambda: page.lost() == lost, lambda: f"it is said: {page.lost()}")
    walk_where_one_clicks(page, Walk(page))
    page.order_run_all()
    wait(lambda: page.lost() == [], lambda: f"no longer: {page.lost()}")
    page.look_at()
    page.wait_for_status("step 0, paused")
