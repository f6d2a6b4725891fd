"""A notebook open in JupyterLab, as the browser tests see and touch it."""

import re
import time

import pytest

pytest.importorskip("selenium")

from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.serve import PATIENCE

# Marks the output that holds an element: the panel that is looked at from now on.
LOOK_AT = """
const output = document.querySelector(arguments[0]).closest('.jp-OutputArea-output');
document.querySelectorAll('[data-looked-at]')
  .forEach((other) => delete other.dataset.lookedAt);
output.dataset.lookedAt = '';
"""

# Shows the panel's other knobs, and its curves, where they are folded.
UNFOLD = """
document.querySelector(
  '[data-looked-at] .labkit-more .widget-toggle-button:not(.mod-active)')?.click();
const plots = [...document.querySelectorAll('[data-looked-at] .js-plotly-plot')];
const more = '[data-looked-at] .labkit-all-plots:not(.mod-active)';
if (!plots.at(-1)?.checkVisibility()) document.querySelector(more)?.click();
"""

# Scrolls until the knobs are at the top of the window.
AT_THE_TOP = """
document.querySelector('[data-looked-at]').scrollIntoView({block: 'start'});
"""

# The panel's curves, below its pictures, as they are drawn: outlines of curves, markers
# and bars.
DRAWN = """
const plot = [...document.querySelectorAll('[data-looked-at] .js-plotly-plot')].at(-1);
if (!plot) return null;
const outlines = (selector) => [...plot.querySelectorAll(selector)]
  .map((path) => path.getAttribute('d') + (path.getAttribute('transform') ?? ''))
  .filter((outline) => outline);
return {
  curves: outlines('.trace.scatter path.js-line'),
  points: outlines('.trace.scatter .points path'),
  bars: outlines('.trace.bars .point path'),
  notes: [...plot.querySelectorAll('.shape-label-text')].map((one) => one.textContent),
};
"""

# What can have the focus in the panel, but for what is disabled or not shown.
CONTROLS = """
const css = 'a[href], button, input, select, textarea, [contenteditable="true"], '
  + '[tabindex]:not([tabindex="-1"])';
return [...document.querySelectorAll(`[data-looked-at] :is(${css})`)]
  .filter((control) => !control.disabled && control.checkVisibility());
"""
FOCUS = "return document.activeElement;"
# What a part of the panel says, in one question: a page that draws is slow to answer.
TEXT = """
const part = document.querySelector(`[data-looked-at] ${arguments[0]}`);
return part.checkVisibility() ? part.innerText.trim() : '';
"""

# Of the panel looked at: where a point is that can be held, on its axes and the page,
# and how far a pixel is.
HELD = """
const [name, index] = arguments;
const plot = document.querySelector('[data-looked-at] .js-plotly-plot');
plot.scrollIntoView({block: 'nearest'});
const points = plot.calcdata.find(([{trace}]) => trace.meta?.touch === name);
const {trace} = points[0], {x: a, y: b} = points[index];
const {left, top} = plot.getBoundingClientRect();
const axis = (id) => plot._fullLayout[`${id[0]}axis${id.slice(1)}`];
const [x, y] = [axis(trace.xaxis), axis(trace.yaxis)];
return {
  at: [a, b], page: [left + x._offset + x.d2p(a), top + y._offset + y.d2p(b)],
  pixel: [Math.abs(x.p2d(1) - x.p2d(0)), Math.abs(y.p2d(1) - y.p2d(0))],
};
"""
DARK = "return document.body.dataset.jpThemeLight === 'false';"

# Prompts of the cells in the notebook that is looked at, one a cell: a folded one has
# another. What went wrong in them.
PROMPT = ".jp-CodeCell .jp-InputPrompt:not(.jp-Placeholder-prompt)"
PROMPTS = f"""
return [...document.querySelectorAll('{PROMPT}')]
  .map((prompt) => prompt.textContent.trim());
"""
# What the cell of a number holds and shows.
SHOWN = f"""
const prompt = document.querySelectorAll('{PROMPT}')[arguments[0]];
const cell = prompt.closest('.jp-Cell');
const plots = [...cell.querySelectorAll('.js-plotly-plot')];
return {{
  source: cell.querySelector('.cm-content').textContent,
  text: cell.querySelector('.jp-OutputArea')?.innerText ?? '',
  typeset: cell.querySelectorAll('.jp-OutputArea mjx-container').length,
  hints: [...cell.querySelectorAll('.jp-OutputArea summary')]
    .map((each) => each.checkVisibility() ? each.textContent : ''),
  curves: Object.fromEntries(plots.flatMap((plot) => plot._fullData)
    .filter((curve) => curve.type === 'scatter' && curve.name)
    .map((curve) => [curve.name, [...curve.y ?? []]])),
}};
"""
# Pixels by which the notebook is wider than its page, and scrolls sideways, or a title
# than the panel that is looked at.
TOO_WIDE = """
const page = document.querySelector('.jp-WindowedPanel-outer');
const right = (part) => part.getBoundingClientRect().right;
const cut = [...document.querySelectorAll('[data-looked-at] .annotation-text')]
  .map((title) => right(title) - right(title.closest('.js-plotly-plot')));
return Math.max(page.scrollWidth - page.clientWidth, ...cut);
"""
# What panels say whose kernel is gone, where it can be seen.
LOST = """
return [...document.querySelectorAll('.labkit-lost')]
  .filter((line) => line.checkVisibility()).map((line) => line.textContent);
"""
ERRORS = """
const kinds = ['application/vnd.jupyter.error', 'application/vnd.jupyter.stderr'];
return kinds.flatMap((kind) =>
  [...document.querySelectorAll(`.jp-OutputArea [data-mime-type="${kind}"]`)]
    .map((output) => output.textContent));
"""


def wait(condition, what):
    """Return the condition's first true value; fail with `what` if none comes.

    It is asked less and less often: to answer takes the page's time.
    """
    end, pause = time.monotonic() + PATIENCE, 0.02
    while True:
        try:
            value = condition()
        except WebDriverException:  # redrawn meanwhile, or not there yet
            value = None
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(
                f"not within {PATIENCE} s: {what() if callable(what) else what}"
            )
        time.sleep(pause)
        pause = min(1.3 * pause, 0.3)


def sized(driver, width, height=720):
    """Have the page, without the browser's own frame, so wide and high."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def shown(page, number, condition=bool, what="the cell shows something"):
    """Return what a cell shows, as soon as it fulfils a condition."""
    seen = {}

    def looked():
        seen.update(page.script(SHOWN, number))
        return seen if condition(seen) else None

    return wait(looked, lambda: f"{what}; it shows {seen}")


class Page:
    """A notebook open in JupyterLab."""

    def __init__(self, driver, server, name, address=None):
        self.driver, self.server, self.name = driver, server, name
        # "reset" opens this notebook alone, whatever was open before.
        driver.get(address or server.address(f"lab/tree/{name}.ipynb") + "&reset")
        self._wait_for_kernel()

    def _wait_for_kernel(self):
        wait(lambda: self.find(".jp-CodeCell"), "the notebook opens")
        # The mark at the notebook's corner says idle before there is a kernel.
        wait(
            lambda: "| Idle" in self.find("#jp-main-statusbar").text,
            "its kernel is idle",
        )

    def load_again(self):
        """Save the notebook and load the page again."""
        self.choose(".lm-MenuBar-itemLabel", "File")
        self.choose(".lm-Menu-itemLabel", "Save Notebook")
        saved = "return !document.querySelector('.jp-mod-dirty');"
        wait(lambda: self.script(saved), "the notebook is saved")
        self.driver.refresh()
        self._wait_for_kernel()

    def restart_kernel(self):
        self.choose(".lm-MenuBar-itemLabel", "Kernel")
        self.choose(".lm-Menu-itemLabel", "Restart Kernel…")
        self.choose(".jp-Dialog-button", "Restart")
        self._wait_for_kernel()

    def lost(self):
        return self.script(LOST)

    def paint(self, theme):
        """Choose a theme in the menu, as a reader does."""
        self.choose(".lm-MenuBar-itemLabel", "Settings")
        self.choose(".lm-Menu-itemLabel", "Theme")
        self.choose(".lm-Menu-itemLabel", f"JupyterLab {theme}")
        wait(lambda: self.script(DARK) == (theme == "Dark"), f"it is {theme}")

    def toggle_files(self):
        """Open or close the file browser."""
        self.script(FOCUS).send_keys(Keys.CONTROL, "b")

    def drag(self, name, index, right, down):
        """Take a point so many pixels away; return where it is to be on its axes."""
        held = self.script(HELD, name, index)
        x, y = map(round, held["page"])
        hand = ActionBuilder(self.driver, duration=30)
        hand.pointer_action.move_to_location(x, y)
        hand.pointer_action.pointer_down()
        for part in range(1, 6):
            hand.pointer_action.move_to_location(
                x + right * part // 5, y + down * part // 5
            )
        hand.pointer_action.pointer_up()
        hand.perform()
        by = right * held["pixel"][0], -down * held["pixel"][1]
        return [at + off for at, off in zip(held["at"], by, strict=True)]

    def find(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def look_at(self, css=".labkit-run"):
        """Have all below go by the panel that holds the first element of this kind."""
        wait(lambda: self.find(css), f"{css} is there")
        self.script(LOOK_AT, css)
        self.script(UNFOLD)
        self.script(AT_THE_TOP)

    def within(self, css):
        """Find in the panel that is looked at."""
        return self.find(f"[data-looked-at] {css}")

    def text(self, css):
        """What a part of the panel that is looked at says, if it is seen."""
        return self.script(TEXT, css)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def run_all(self):
        """Run all cells and wait."""
        self.begin_all()

        def done():
            prompts = self.script(PROMPTS)
            numbered = all(re.fullmatch(r"\[\d+\]:", prompt) for prompt in prompts)
            return numbered or self.script(ERRORS)

        wait(done, lambda: f"all cells run: {self.script(PROMPTS)}")

    def begin_all(self):
        """Run all cells; JupyterLab now and then loses the first order."""
        for _ in range(3):
            self.order_run_all()
            end = time.monotonic() + 10
            while time.monotonic() < end:
                if any(prompt != "[ ]:" for prompt in self.script(PROMPTS)):
                    return
                time.sleep(0.1)
        pytest.fail("'Run All Cells' was ordered three times, and no cell ran")

    def order_run_all(self):
        self.choose(".lm-MenuBar-itemLabel", "Run")
        self.choose(".lm-Menu-itemLabel", "Run All Cells")

    def choose(self, css, text):
        """Click the item of a menu, as soon as it is there."""

        def click():
            for item in self.driver.find_elements(By.CSS_SELECTOR, css):
                if item.text == text:
                    item.click()
                    return True
            return False

        wait(click, f"the menu's {text}")

    def run_cell(self, number):
        """Run one cell again, by its keys, and wait until it has."""
        found = self.driver.find_elements(By.CSS_SELECTOR, PROMPT)[number]
        before = found.text
        found.click()
        self.script(FOCUS).send_keys(Keys.CONTROL, Keys.ENTER)

        def done():
            prompt = self.script(PROMPTS)[number]
            return prompt != before and re.fullmatch(r"\[\d+\]:", prompt)

        wait(done, f"cell {number} runs again")

    def too_wide(self):
        return self.script(TOO_WIDE)

    def errors(self):
        return self.script(ERRORS)

    def drawn(self):
        return self.script(DRAWN)

    def status(self):
        return self.text(".labkit-status")

    def count(self):
        return int(re.match(r"step (\d+)", self.status())[1])

    def wait_for_status(self, pattern):
        """Return the first status that matches."""
        return wait(
            lambda: (text := self.status()) and re.fullmatch(pattern, text) and text,
            lambda: f"status {pattern!r}; it is {self.status()!r}",
        )

    def wait_for_figure(self, condition, what):
        return wait(lambda: (d := self.drawn()) and condition(d) and d, what)

    def wait_until_still(self):
        """Wait until the figure shows the same for half a second, and return that."""

        def still():
            before = self.drawn()
            time.sleep(0.5)
            return self.drawn() == before and before

        return wait(still, "the figure stands still")

    def press(self, name):
        """Click a button once it can be clicked."""

        def ready():
            found = self.within(f".labkit-{name}")
            return found.is_enabled() and found

        wait(ready, f"{name} can be pressed").click()

    def key(self, knob, key):
        """Give the slider a key; return the number shown beside it afterwards."""
        shown = f".labkit-knob-{knob} .widget-readout"
        before = self.text(shown)
        self.within(f".labkit-knob-{knob} .noUi-handle").send_keys(key)
        return wait(
            lambda: (now := self.text(shown)) != before and now,
            f"the knob {knob} moves from {before}",
        )

    def skip(self, knob):
        """Say that the knob, if it asks, need not wait for a prediction."""
        row = f"[data-looked-at] .labkit-knob-row:has(.labkit-knob-{knob})"
        question = f"{row} .labkit-predict button:last-child"
        self.script("document.querySelector(arguments[0])?.click();", question)

    def turned(self):
        """What the panel says of the knob turned last."""
        return self.text(".labkit-turned")

    def controls(self):
        """All of the panel that can have the focus now."""
        return self.script(CONTROLS)

    def walk_by_tab(self):
        """Press Tab from the first control on; return what it reaches, and its name.

        A knob's hint is hidden, and has no name, until the knob has the focus.
        """
        left = self.controls()
        self.script("arguments[0].focus()", left[0])
        reached = {}
        for _ in range(len(left) + 10):
            focus = self.script(FOCUS)
            if focus not in left:
                break
            reached[focus] = focus.accessible_name
            focus.send_keys(Keys.TAB)
        return reached
