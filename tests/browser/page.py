"""A notebook open in JupyterLab, as the browser tests see and touch it."""

import re
import time
from itertools import pairwise

import pytest

pytest.importorskip("selenium")

from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By

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
