"""The line stepper in JupyterLab: with the mouse, by keyboard alone, light and dark."""

import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.page import wait

pytestmark = pytest.mark.browser

CONTRAST = 4.5  # to 1, of text (WCAG 2, level AA)

# What the panel shows: the lit line, the name of its function, the table of values.
SHOWN = """
const panel = document.querySelector('.labkit-walk');
return [
  panel.querySelector('[aria-current="step"]')?.textContent,
  panel.querySelector('.labkit-values')?.textContent,
];
"""
RENDERED = """
const place = document.querySelector('.labkit-walk .labkit-line-equation');
return [place.querySelectorAll('mjx-container').length, place.textContent];
"""
FOCUS = """
const own = [...(document.activeElement?.classList ?? [])];
const slider = document.activeElement?.closest('.labkit-line, .labkit-line-turn');
const choice = document.activeElement?.closest('.labkit-line-name');
return [...own, ...(slider?.classList ?? []), ...(choice?.classList ?? [])]
  .filter((name) => name.startsWith('labkit-'));
"""
CONTROLS = """
const panel = document.querySelector('.labkit-walk');
return [...panel.querySelectorAll('button, select, .noUi-handle, [tabindex="0"]')]
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
  if (!own.length || !shown || element.closest('style, mjx-assistive-mml')) continue;
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
THEME = "return document.body.dataset.jpThemeLight;"


class Walk:
    """The panel, and what is done to it."""

    def __init__(self, page):
        self.page = page
        self.seen = [wait(self.shown, 20, "a line is lit")]
        page.script("document.querySelector('.labkit-walk').scrollIntoView();")

    def shown(self):
        lit, values = self.page.script(SHOWN)
        return lit and values and (lit, values)

    def find(self, name):
        return self.page.find(f".labkit-walk .labkit-line-{name}")

    def moved(self, what):
        """Wait until another line is lit; return it."""
        before = self.seen[-1]
        now = wait(lambda: (s := self.shown()) and s[0] != before[0] and s, 10, what)
        self.seen.append(now)
        return now[0]

    def equation(self, what="the equation is rendered"):
        """Go on to a line with an equation; return its tag once it is rendered."""
        for _ in range(60):
            _, text = self.page.script(RENDERED)
            if text.strip():
                wait(lambda: self.page.script(RENDERED)[0], 10, what)
                return text
            self.find("next").click()
            self.moved("Next moves on")
        pytest.fail("no line with an equation among sixty")


@pytest.mark.parametrize("page", ["01_rls", "05_rtrl"], indirect=True)
def test_mouse_and_keys_walk_the_lines(page):
    page.run_all()
    assert page.errors() == []
    walk = Walk(page)

    walk.find("next").click()
    walk.moved("Next moves the lit line")
    walk.find("back").click()
    walk.moved("Back moves it back")
    assert walk.seen[0] == walk.seen[2]
    handle = page.find(".labkit-walk .labkit-line .noUi-handle")
    handle.send_keys(Keys.ARROW_RIGHT)
    assert walk.moved("an arrow key on the slider moves it") == walk.seen[1][0]
    handle.send_keys(Keys.END)
    last = walk.moved("End on the slider goes to the last line")
    handle.send_keys(Keys.HOME)
    assert walk.moved("Home goes to the first") == walk.seen[0][0]
    walk.find("last").click()
    assert walk.moved("Last goes to the last line") == last
    walk.find("first").click()
    assert walk.moved("First goes to the first") == walk.seen[0][0]

    walk.equation()
    values = {table for _, table in walk.seen}
    assert len(values) > 2, "the values change on the way"
    chosen = walk.find("name").find_element(By.CSS_SELECTOR, "select")
    chosen.send_keys(Keys.END)
    walk.find("change").click()
    walk.moved("Next change goes to the line that changes the value")
    assert "●" in walk.seen[-1][1]
    assert page.errors() == []


@pytest.mark.parametrize("page", ["01_rls", "05_rtrl"], indirect=True)
def test_by_keyboard_alone(page):
    """Tab reaches every control, Enter and Space press it, arrows walk anywhere."""
    page.run_all()
    walk = Walk(page)
    wait(
        lambda: all(name for _, name in page.script(CONTROLS)),
        15,
        lambda: f"every control has a name: {page.script(CONTROLS)}",
    )
    body = page.driver.switch_to

    def tab_to(name, limit=20):
        for _ in range(limit):
            if f"labkit-line{name}" in page.script(FOCUS):
                return body.active_element
            body.active_element.send_keys(Keys.TAB)
        pytest.fail(f"Tab does not reach labkit-line{name}: {page.script(FOCUS)}")

    page.script("document.querySelector('.labkit-walk').closest('.jp-Cell').focus();")
    tab_to("-first")
    tab_to("-back", 1 + 1)
    tab_to("-next", 1 + 1).send_keys(Keys.ENTER)
    walk.moved("Enter presses Next")
    tab_to("-next").send_keys(Keys.SPACE)
    walk.moved("Space presses Next")
    body.active_element.send_keys(Keys.ARROW_LEFT)
    assert walk.moved("an arrow key on a button goes back") == walk.seen[1][0]
    body.active_element.send_keys(Keys.HOME)
    assert walk.moved("Home goes to the first line") == walk.seen[0][0]
    tab_to("-name", 4).send_keys(Keys.END)
    tab_to("-change", 2).send_keys(Keys.ENTER)
    walk.moved("Enter goes to the next change")
    tab_to("", 2).send_keys(Keys.ARROW_RIGHT)
    walk.moved("an arrow key on the slider moves on")
    assert page.errors() == []


@pytest.mark.parametrize("page", ["01_rls", "05_rtrl"], indirect=True)
def test_it_is_readable_light_and_dark_wide_and_narrow(page, tmp_path):
    page.run_all()
    walk = Walk(page)
    walk.equation()
    usual = page.driver.get_window_size()
    try:
        for theme in ("Light", "Dark"):
            choose_theme(page, theme)
            for width in (1280, 900):
                page.driver.set_window_size(width, 1000)
                page.script("document.querySelector('.labkit-walk').scrollIntoView();")
                wait(
                    lambda: max(page.script(WIDER)) <= 1, 5, lambda: page.script(WIDER)
                )
                keep_picture(page, tmp_path, f"{theme}_{width}".lower())
                assert page.script(FAINT, CONTRAST) == [], f"{theme}, {width} px"
    finally:
        choose_theme(page, "Light")
        page.driver.set_window_size(usual["width"], usual["height"])


def choose_theme(page, name):
    """Choose a theme in the menu, as a reader does."""
    wanted = "true" if name == "Light" else "false"
    if page.script(THEME) == wanted:
        return
    page.choose(".lm-MenuBar-itemLabel", "Settings")
    page.choose(".lm-Menu-itemLabel", "Theme")
    page.choose(".lm-Menu-itemLabel", f"JupyterLab {name}")
    wait(lambda: page.script(THEME) == wanted, 10, f"the theme is {name}")


def keep_picture(page, folder, name):
    """Keep a picture of the panel, also in the folder that LABKIT_SCREENSHOTS names."""
    picture = folder / f"line_stepper_{page.name}_{name}.png"
    assert page.driver.save_screenshot(str(picture))
    if wanted := os.environ.get("LABKIT_SCREENSHOTS"):
        shutil.copy(picture, Path(wanted) / picture.name)
