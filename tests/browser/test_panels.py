"""Panels in JupyterLab, without any lab: what a cell leaves behind, and keys."""

import re

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


BUSY = """
return [...document.querySelectorAll('.labkit-busy')].map((line) => line.textContent);
"""
QUEUED = """
return [...document.querySelectorAll('.labkit-queued')]
  .map((button) => button.textContent.trim());
"""
# What a busy page does to widgets with a script: they are given up before it has come.
GIVEN_UP = """
AbortSignal.timeout = () => {
  const soon = new AbortController();
  queueMicrotask(() => soon.abort());
  return soon.signal;
};
"""
CELLS, STEP = "Waits for cells that still run", "The kernel is at work"
NOTHING = "What you do here comes after"


@pytest.mark.parametrize("page", ["panels"], indirect=True)
def test_panels_alone(page):
    page.script(GIVEN_UP)
    wait_for_the_cells(page)
    say_that_a_step_is_long(page)
    assert page.errors() == []
    run_a_cell_again(page)
    walk_where_one_clicks(page, Walk(page))
    load_the_page_again(page)
    lose_the_kernel(page)
    assert page.errors() == []


def says(page, *wanted):
    """Wait until the live panel says this, a pattern."""

    def said():
        told = page.script(BUSY)
        return len(told) == len(wanted) and all(map(re.fullmatch, wanted, told))

    wait(said, lambda: f"{wanted}; it says {page.script(BUSY)}")


def wait_for_the_cells(page):
    """Panels that are shown while other cells run say so, and what they will do."""
    hold = page.server.folder / "hold"
    hold.touch()
    page.begin_all()
    page.look_at()
    says(page, f"{CELLS}. {NOTHING}.")
    page.press("step")
    page.press("step")
    says(page, f"{CELLS}. Then: Step, Step.")
    assert page.status() == "step 0 of 0, paused" and page.script(QUEUED) == ["Step"]
    hold.unlink()
    page.wait_for_status("step 2 of 2, paused")
    says(page, "")
    assert page.script(QUEUED) == []


def say_that_a_step_is_long(page):
    """A step is seen to go on, asked for by itself or in a run."""
    hold = page.server.folder / "hold"
    hold.touch()
    before = page.count()
    page.press("step")
    says(page, f"{STEP}. Then: (Step, )?Step.")
    hold.unlink()
    page.wait_for_status(rf"step {before + 1} of {before + 1}, paused")
    says(page, "")
    page.press("run")
    wait(lambda: page.count() > before + 5, "the run goes on")
    hold.touch()
    # The page knows that Run was heard when the kernel has answered twice since, which
    # a run of short steps may not have let it do yet.
    says(page, f"{STEP}. (Then: Run|{NOTHING}).")
    hold.unlink()
    page.press("pause")
    page.wait_for_status(r"step (\d+) of \1, paused")
    says(page, "")


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
    page.wait_for_status("step 3 of 3, paused")
    drawn = page.wait_for_figure(lambda now: len(now["points"]) == 3, "three steps")
    assert page.lost() == []

    page.load_again()
    page.look_at()
    page.wait_for_figure(lambda now: now == drawn, "the same curves")
    assert page.status() == "step 3 of 3, paused" and page.lost() == []
    page.press("step")
    page.wait_for_figure(lambda now: now != drawn, "the next step is drawn")
    page.wait_for_status("step 4 of 4, paused")
    say_that_a_step_is_long(page)


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
    page.wait_for_status("step 0 of 0, paused")
