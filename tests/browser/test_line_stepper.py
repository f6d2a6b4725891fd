"""The line stepper in JupyterLab: with the mouse, by keyboard alone, light and dark."""

import re

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.keys import Keys

from tests.browser.page import sized, wait
from tests.browser.still import Still, cell, exported
from tests.lab.panels.test_line_stepper import rls_walk

pytestmark = pytest.mark.browser

CONTRAST = 4.5  # to 1, of text (WCAG 2, level AA)

# What the panel shows: the lit line and its number of all, the table of values.
SHOWN = """
const panel = document.querySelector('.labkit-walk');
return [
  panel.querySelector('[role="status"]')?.textContent,
  panel.querySelector('[aria-current="step"]')?.textContent,
  panel.querySelector('.labkit-values')?.textContent,
];
"""
IN_VIEW = """
const line = document.querySelector('.labkit-walk [aria-current="step"]');
const [a, b] = [line, line.parentElement].map((part) => part.getBoundingClientRect());
return b.top <= a.top + 1 && a.bottom <= b.bottom + 1;
"""
RENDERED = """
const place = document.querySelector('.labkit-walk .labkit-line-equation');
return [place.querySelectorAll('math').length, place.textContent];
"""
FOCUS = """
const own = [...(document.activeElement?.classList ?? [])];
return own
  .filter((name) => name.startsWith('labkit-'));
"""
CONTROLS = """
const panel = document.querySelector('.labkit-walk');
return [...panel.querySelectorAll('button, select, input, [tabindex="0"]')]
  .map((control) => [
    control.className,
    control.getAttribute('aria-label') || control.innerText.trim()
      || [...(control.labels ?? [])].map((label) => label.innerText).join(' '),
  ]);
"""
# Text of the panel that stands out too little, with its contrast; opacity counts.
FAINT = """
const parse = (text) => {
  const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
  const unit = text.startsWith('color(') ? 255 : 1;
  return [r * unit, g * unit, b * unit, a];
};
const over = (top, below, share) =>
  [0, 1, 2].map((i) => top[i] * top[3] * share + below[i] * (1 - top[3] * share));
const light = (rgb) => {
  const [r, g, b] = rgb.map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const faint = [];
for (const element of document.querySelectorAll('.labkit-walk *')) {
  const own = [...element.childNodes]
    .filter((node) => node.nodeType === 3 && node.textContent.trim());
  const shown = element.checkVisibility() && element.getBoundingClientRect().width > 1;
  const style = getComputedStyle(element);
  if (!own.length || !shown || element.closest('style')) continue;
  if (element.closest('button:disabled')) continue;
  let around = [], share = 1;
  for (let e = element; e; e = e.parentElement) around.unshift(e);
  let back = [255, 255, 255];
  for (const e of around) {
    const style = getComputedStyle(e);
    share *= Number(style.opacity);
    back = over(parse(style.backgroundColor), back, share);
  }
  const front = over(parse(style.color), back, share);
  const [a, b] = [light(front), light(back)];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < arguments[0]) faint.push([ratio.toFixed(2), element.textContent.trim()]);
}
return faint;
"""
WIDER = """
const cell = document.querySelector('.labkit-walk').closest('.jp-OutputArea-output');
return [cell.scrollWidth - cell.clientWidth, document.body.scrollWidth - innerWidth];
"""


class Walk:
    """The panel, and what is done to it."""

    def __init__(self, page):
        self.page = page
        self.seen = [wait(self.shown, "a line is lit")]
        page.script("document.querySelector('.labkit-walk').scrollIntoView();")

    def shown(self):
        """Where it says it is, which it says last, and the lit line; the values."""
        place, lit, values = self.page.script(SHOWN)
        return place and lit and values and ((place, lit), values)

    def find(self, name):
        return self.page.find(f".labkit-walk .labkit-line-{name}")

    def moved(self, what):
        """Wait until another line is lit; return it with its values."""
        before = self.seen[-1]
        now = wait(lambda: (s := self.shown()) and s[0][0] != before[0][0] and s, what)
        assert self.page.script(IN_VIEW), f"the lit line can be seen: {now[0]}"
        self.seen.append(now)
        return now


@pytest.mark.parametrize("page", ["walk"], indirect=True)
def test_line_stepper(page):
    page.run_all()
    assert page.errors() == []
    walk = Walk(page)
    walk_by_mouse(page, walk)
    walk_where_one_clicks(page, walk)
    home(walk)
    walk_by_keyboard(page, walk)
    for theme in ("Dark", "Light"):  # its text stands out, and it fits
        page.paint(theme)
        for width in (900, 1280):
            sized(page.driver, width, 1000)
            wait(lambda: max(page.script(WIDER)) <= 1, "it fits")
            assert page.script(FAINT, CONTRAST) == [], f"{theme}, {width} px"
    assert page.script(FAINT, 99), "some text was looked at"
    assert page.errors() == []


def home(walk):
    """Go to the first line, wherever the walk stands, the first line included."""
    walk.page.find(".labkit-walk .labkit-line").send_keys(Keys.HOME)
    first = lambda: (s := walk.shown()) and s[0][0].startswith("stop 1 ") and s  # noqa: E731
    walk.seen.append(wait(first, "Home goes to the first line"))


def test_line_stepper_in_the_page_of_a_run(driver, tmp_path):
    shown = cell("", {"text/html": rls_walk()._repr_html_()})
    page = Still(driver, exported(tmp_path / "run", shown))
    walk = Walk(page)
    walk_from_equation_to_equation(page, walk)
    home(walk)
    walk_by_mouse(page, walk)
    assert page.script(FAINT, CONTRAST) == [] and page.script(FAINT, 99)


def walk_from_equation_to_equation(page, walk):
    """Every stop has its equation, until all lines are wished for; a line is a door."""
    stops = int(re.search(r"of (\d+)", walk.seen[-1][0][0])[1])
    for _ in range(stops - 1):
        assert page.script(RENDERED)[0], walk.seen[-1]
        walk.find("next").click()
        walk.moved("Next moves on")
    assert page.script(RENDERED)[0]
    (place, lit), _ = walk.seen[-1]
    walk.find("every").click()
    walk.seen.append(walk.shown())
    (now, still), _ = walk.seen[-1]
    assert still == lit and int(re.search(r"of (\d+)", now)[1]) > stops
    assert now.partition(": ")[2] == place.partition(": ")[2]
    home(walk)

    there = page.find(".labkit-source .ran:not(.lit)")
    text = there.text.lstrip("· ")
    there.click()
    assert text in walk.moved("a click on a line goes there")[0][1]
    walk.find("every").click()
    walk.seen.append(walk.shown())


def walk_by_mouse(page, walk):
    """Buttons, slider and keys on the slider move the lit line; values change."""
    start = walk.seen[-1]
    walk.find("next").click()
    second = walk.moved("Next moves the lit line")
    walk.find("back").click()
    assert walk.moved("Back moves it back") == start
    handle = page.find(".labkit-walk .labkit-line")
    handle.send_keys(Keys.ARROW_RIGHT)
    assert walk.moved("an arrow key on the slider moves it") == second
    handle.send_keys(Keys.END)
    last = walk.moved("End on the slider goes to the last line")
    handle.send_keys(Keys.HOME)
    assert walk.moved("Home goes to the first") == start
    assert len({values for _, values in (start, second, last)}) == 3


def walk_where_one_clicks(page, walk):
    """Arrow keys walk on, however often, wherever in the panel one has clicked."""
    for part in (".labkit-source .lit", ".labkit-values", "[role='status']"):
        page.find(f".labkit-walk {part}").click()
        for key in (Keys.ARROW_RIGHT, Keys.ARROW_LEFT, Keys.ARROW_RIGHT):
            page.driver.switch_to.active_element.send_keys(key)
            walk.moved(f"an arrow key after a click on {part}")


def walk_by_keyboard(page, walk):
    """Tab reaches every control, Enter and Space press it, arrows walk anywhere."""
    wait(
        lambda: all(name for _, name in page.script(CONTROLS)),
        lambda: f"every control has a name: {page.script(CONTROLS)}",
    )
    focused = lambda: page.driver.switch_to.active_element  # noqa: E731

    def tab_to(name, limit):
        for _ in range(limit + 1):
            if f"labkit-line{name}" in page.script(FOCUS):
                return focused()
            focused().send_keys(Keys.TAB)
        pytest.fail(f"Tab does not reach labkit-line{name}: {page.script(FOCUS)}")

    page.script("document.querySelector('.labkit-walk').closest('.jp-Cell').focus();")
    tab_to("-back", 20)
    tab_to("-next", 1).send_keys(Keys.ENTER)
    second = walk.moved("Enter presses Next")
    for key in (Keys.SPACE, Keys.ARROW_LEFT):
        focused().send_keys(key)
        now = walk.moved(f"{key!r} on a button")
    assert now == second
    tab_to("", 2).send_keys(Keys.ARROW_RIGHT)
    walk.moved("an arrow key on the slider moves on")
