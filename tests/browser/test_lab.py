"""The notebooks in JupyterLab, with keyboard and mouse: what a reader would do."""

import os
import re
import shutil
import time
from itertools import pairwise

import pytest

pytest.importorskip("selenium")

from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.browser

PAUSE_WITHIN = 1.0  # seconds that a reader waits for Pause at most

# The figure under the knobs as it is drawn: outlines of curves, markers and bars.
DRAWN = """
const cell = document.querySelector('.labkit-run')?.closest('.jp-Cell');
const plot = cell?.querySelector('.js-plotly-plot');
if (!plot) return null;
const outlines = (selector) => [...plot.querySelectorAll(selector)]
  .map((path) => path.getAttribute('d') + (path.getAttribute('transform') ?? ''))
  .filter((outline) => outline);
return {
  curves: outlines('.scatterlayer .trace path.js-line'),
  points: outlines('.scatterlayer .trace .points path'),
  bars: outlines('.barlayer .point path'),
};
"""

# Prompts of the cells in the notebook that is looked at, and what went wrong in them.
PROMPTS = """
return [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]
  .map((prompt) => prompt.textContent.trim());
"""
ERRORS = """
const kinds = ['application/vnd.jupyter.error', 'application/vnd.jupyter.stderr'];
return kinds.flatMap((kind) =>
  [...document.querySelectorAll(`.jp-OutputArea [data-mime-type="${kind}"]`)]
    .map((output) => output.textContent));
"""

# Notes every status line from now on, also those too short to be seen from outside.
NOTE_STATUS = """
const line = document.querySelector('.labkit-status');
window.labkitNoted = [];
new MutationObserver(() => window.labkitNoted.push(line.textContent))
  .observe(line, {childList: true, subtree: true, characterData: true});
"""
NOTED = "return window.labkitNoted;"


def wait(condition, seconds, what):
    """Return the condition's first true value; fail with `what` if none comes."""
    end = time.monotonic() + seconds
    while True:
        try:
            value = condition()
        except WebDriverException:  # redrawn meanwhile, or not there yet
            value = None
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)


def count_in(status):
    return int(re.match(r"step \d+ of (\d+)", status)[1])


class Page:
    """A notebook open in JupyterLab."""

    def __init__(self, driver, server, name):
        self.driver, self.server = driver, server
        # "reset" opens this notebook alone, whatever was open before.
        driver.get(server.address(f"lab/tree/{name}.ipynb") + "&reset")
        wait(lambda: self.find(".jp-CodeCell"), 60, "the notebook opens")
        # The mark at the notebook's corner says idle before there is a kernel.
        wait(
            lambda: "| Idle" in self.find("#jp-main-statusbar").text,
            60,
            "its kernel is idle",
        )

    def find(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def run_all(self, seconds=120):
        """Run all cells and wait; JupyterLab now and then loses the first order."""
        for _ in range(3):
            self._order_run_all()
            end = time.monotonic() + 10
            while time.monotonic() < end:
                if any(prompt != "[ ]:" for prompt in self.script(PROMPTS)):
                    return self._wait_for_cells(seconds)
                time.sleep(0.1)
        pytest.fail("'Run All Cells' was ordered three times, and no cell ran")

    def _order_run_all(self):
        def choose(css, text):
            for item in self.driver.find_elements(By.CSS_SELECTOR, css):
                if item.text == text:
                    item.click()
                    return True
            return False

        wait(lambda: choose(".lm-MenuBar-itemLabel", "Run"), 10, "the menu Run")
        wait(
            lambda: choose(".lm-Menu-itemLabel", "Run All Cells"),
            10,
            "the entry Run All Cells",
        )

    def _wait_for_cells(self, seconds):
        def done():
            prompts = self.script(PROMPTS)
            numbered = all(re.fullmatch(r"\[\d+\]:", prompt) for prompt in prompts)
            return numbered or self.script(ERRORS)

        wait(done, seconds, lambda: f"all cells run: {self.script(PROMPTS)}")

    def errors(self):
        return self.script(ERRORS)

    def drawn(self):
        return self.script(DRAWN)

    def status(self):
        return self.find(".labkit-status").text

    def count(self):
        return count_in(self.status())

    def begun_anew(self):
        """Whether the count has fallen since NOTE_STATUS."""
        counts = [count_in(line) for line in self.script(NOTED) if line]
        return any(after < before for before, after in pairwise(counts))

    def wait_for_status(self, pattern, seconds=15):
        """Return the first status that matches."""
        return wait(
            lambda: (text := self.status()) and re.fullmatch(pattern, text) and text,
            seconds,
            lambda: f"status {pattern!r}; it is {self.status()!r}",
        )

    def wait_for_figure(self, condition, what):
        return wait(lambda: (d := self.drawn()) and condition(d) and d, 15, what)

    def press(self, name):
        """Click a button once it can be clicked; return the time of the click."""
        button = f".labkit-{name}"
        wait(lambda: self.find(button).is_enabled(), 10, f"{name} can be pressed")
        found = self.find(button)
        clicked = time.monotonic()
        found.click()
        return clicked

    def key(self, knob, key):
        """Give the slider a key; return the number shown beside it afterwards."""
        shown = f".labkit-knob-{knob} .widget-readout"
        before = self.find(shown).text
        self.find(f".labkit-knob-{knob} .noUi-handle").send_keys(key)
        return wait(
            lambda: (now := self.find(shown).text) != before and now,
            5,
            f"the knob {knob} moves from {before}",
        )

    def show_panel(self):
        """Scroll until the knobs are at the top of the window."""
        self.script(
            "document.querySelector('.labkit-run').closest('.jp-OutputArea-output')"
            ".scrollIntoView({block: 'start'});"
        )


@pytest.fixture
def page(driver, server, tmp_path, request):
    """Open the notebook that the test names; leave a picture behind."""
    opened = Page(driver, server, request.param)
    yield opened
    picture = tmp_path / f"{request.param}.png"
    driver.save_screenshot(str(picture))
    print(f"screenshot: {picture}")


@pytest.mark.parametrize("page", ["05_rtrl"], indirect=True)
def test_noise_lab(page, tmp_path):
    page.run_all()
    assert page.errors() == []
    page.show_panel()
    first = page.wait_for_figure(
        lambda d: d["curves"] and d["points"] and d["bars"], "the noise figure is drawn"
    )
    page.wait_for_status(r"step 10 of 10, paused")

    # Paused: a knob begins anew, Step and Back walk.
    assert page.key("rank", Keys.ARROW_RIGHT) == "5"
    page.wait_for_status(r"step 0 of 0, paused")
    page.wait_for_figure(lambda d: d != first, "rank changes the figure")
    page.press("step")
    page.wait_for_status(r"step 1 of 1, paused")
    page.press("step")
    page.wait_for_status(r"step 2 of 2, paused")
    page.press("back")
    page.wait_for_status(r"step 1 of 2, paused")

    # Running: the count grows, and a knob begins anew without stopping.
    page.press("run")
    page.wait_for_status(r"step (\d+) of \1, running")
    count = page.count()
    wait(lambda: page.count() > count + 5, 15, "the count grows")
    before = page.wait_for_figure(lambda d: d["curves"], "curves")["bars"]
    page.script(NOTE_STATUS)
    assert page.key("rank", Keys.ARROW_RIGHT) == "6"
    wait(page.begun_anew, 15, "rank begins anew")
    page.wait_for_figure(
        lambda d: d["curves"] and d["bars"] != before, "rank changes the running figure"
    )
    page.wait_for_status(r"step (\d+) of \1, running")
    count = page.count()
    wait(lambda: page.count() > count + 5, 15, "the count grows after rank")

    clicked = page.press("pause")
    page.wait_for_status(r"step (\d+) of \1, paused")
    took = time.monotonic() - clicked
    assert took < PAUSE_WITHIN, f"Pause was heard after {took:.2f} s"
    count = page.count()
    time.sleep(0.5)
    still = page.drawn()
    time.sleep(0.5)
    assert page.count() == count
    assert page.drawn() == still
    assert page.errors() == []
    save_screenshot(page, tmp_path)


def save_screenshot(page, folder):
    """Keep a picture of the panel, also where LABKIT_SCREENSHOT says."""
    page.show_panel()
    picture = folder / "noise.png"
    assert page.driver.save_screenshot(str(picture))
    if wanted := os.environ.get("LABKIT_SCREENSHOT"):
        shutil.copy(picture, wanted)


@pytest.mark.parametrize("page", ["00_tour"], indirect=True)
def test_tour(page):
    page.run_all()
    assert page.errors() == []
    page.show_panel()
    first = page.wait_for_figure(
        lambda d: d["curves"] and d["bars"], "the tour's figure is drawn"
    )
    page.wait_for_status(r"step 10 of 10, paused")
    page.press("step")
    page.wait_for_status(r"step 11 of 11, paused")
    page.wait_for_figure(lambda d: d != first, "a step changes the figure")
    page.press("back")
    page.wait_for_status(r"step 10 of 11, paused")
    page.wait_for_figure(lambda d: d == first, "back shows the figure of before")


@pytest.mark.parametrize(
    "page", ["01_rls", "02_bpls", "03_hessian_free", "04_broad"], indirect=True
)
def test_live_experiment(page, tmp_path):
    """Run the notebook, walk its first live experiment, let it run and pause."""
    page.run_all()
    assert page.errors() == []
    page.show_panel()
    first = page.wait_for_figure(lambda d: d["curves"], "the figure is drawn")
    page.wait_for_status(r"step (\d+) of \1, (paused|finished)")
    page.press("reset")
    page.wait_for_status(r"step 0 of 0, paused")
    for step in (1, 2, 3):
        page.press("step")
        page.wait_for_status(rf"step {step} of {step}, paused")
    page.wait_for_figure(lambda d: d != first, "three steps draw another figure")
    page.press("back")
    page.wait_for_status(r"step 2 of 3, paused")
    page.press("run")
    page.wait_for_status(r"step (\d+) of \1, (running|finished)")
    wait(lambda: page.count() > 4, 15, "the count grows")
    if page.find(".labkit-pause").is_enabled():
        page.find(".labkit-pause").click()
    page.wait_for_status(r"step (\d+) of \1, (paused|finished)")
    assert page.errors() == []
    save_screenshot(page, tmp_path)


@pytest.mark.parametrize("page", ["01_rls"], indirect=True)
def test_line_stepper(page):
    """Next, Back and the arrow keys move the lit line; its equation is rendered."""
    page.run_all()
    assert page.errors() == []
    lit = "return document.querySelector('.labkit-source .lit')?.textContent;"
    equation = "return document.querySelector('.labkit-line').closest('.jp-Cell')"
    equation += ".querySelectorAll('mjx-container, .MathJax').length;"
    seen = [wait(lambda: page.script(lit), 10, "a line is lit")]

    def moved(what):
        seen.append(wait(lambda: (s := page.script(lit)) != seen[-1] and s, 10, what))

    page.find(".labkit-line-next").click()
    moved("Next moves the lit line")
    page.find(".labkit-line-back").click()
    moved("Back moves it back")
    assert seen[0] == seen[2]
    wait(lambda: page.script(equation), 10, "the equation is rendered")
    handle = page.find(".labkit-line .noUi-handle")
    handle.send_keys(Keys.ARROW_RIGHT)
    moved("the arrow key moves it")
    assert seen[3] == seen[1]
