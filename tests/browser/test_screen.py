"""Live panels on one screen: knobs, buttons and the whole figure, and legible."""

import os
import re
import time

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import SCREENS
from tests.browser.page import FOCUS, wait

pytestmark = pytest.mark.browser

PANELS = len(SCREENS) - 1
LEAST = 12  # pixels of a letter
CONTRAST = 3.0  # of it with what is behind: least of WCAG 2 for what is drawn

# Boxes of the parts of each panel, and words that are too small or too pale.
MEASURED = """
const [least, contrast] = arguments;
const box = (part) => {
  const {left, top, right, bottom} = part.getBoundingClientRect();
  return {left, top, right, bottom};
};
const rgb = (colour) => colour.match(/[\\d.]+/g).map(
  (x, i) => colour.startsWith('color(') && i < 3 ? 255 * x : Number(x));
const behind = (part) => {
  for (; part; part = part.parentElement) {
    const [r, g, b, opaque = 1] = rgb(getComputedStyle(part).backgroundColor);
    if (opaque) return [r, g, b];
  }
};
const light = ([r, g, b]) => [r, g, b]
  .map((x) => x > 10 ? ((x / 255 + 0.055) / 1.055) ** 2.4 : x / 255 / 12.92)
  .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0.05);
return [...document.querySelectorAll('.labkit-screen')].map((panel) => {
  const seen = (css) =>
    [...panel.querySelectorAll(css)].filter((part) => part.checkVisibility());
  const words = [];
  const texts = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const {parentElement: around, textContent: text} = texts.currentNode;
    const shown = text.trim() && around.checkVisibility({visibilityProperty: true});
    if (!shown || around.closest('style, option, :disabled')) continue;
    const look = getComputedStyle(around), size = parseFloat(look.fontSize);
    const drawn = around instanceof SVGElement;
    const ink = light(rgb(drawn ? look.fill : look.color));
    const paper = light(behind(around));
    const apart = Math.max(ink, paper) / Math.min(ink, paper);
    if (size < least || apart < contrast) words.push([text.trim(), size, apart]);
  }
  return {
    panel: box(panel), room: box(panel.closest('.jp-WindowedPanel-outer')),
    parts: ['.labkit-controls', '.labkit-step', '.labkit-speed', '.labkit-status',
            '.js-plotly-plot', '.labkit-caption'].flatMap((css) => seen(css).map(box)),
    knobs: seen('.labkit-knob-row').map(box), words,
  };
});
"""
DRAWN = """
return document.querySelectorAll('.labkit-screen .js-plotly-plot .main-svg').length;
"""
SHOWN = """
const part = document.querySelector(`[data-looked-at] ${arguments[0]}`);
return part.checkVisibility({visibilityProperty: true});
"""
DARK = "return document.body.dataset.jpThemeLight === 'false';"


def apart(one, other):
    """Whether two boxes do not overlap, but for a hair."""
    across = one["right"] <= other["left"] + 1 or other["right"] <= one["left"] + 1
    return (
        across or one["bottom"] <= other["top"] + 1 or other["bottom"] <= one["top"] + 1
    )


def inside(inner, outer):
    return inner["left"] >= outer["left"] - 1 and inner["right"] <= outer["right"] + 1


def high(box):
    return box["bottom"] - box["top"]


@pytest.mark.parametrize("page", ["screens"], indirect=True)
def test_a_panel_is_one_screen(page):
    view(page, 1280)
    keys = ActionChains(page.driver).key_down(Keys.CONTROL).send_keys("b")
    keys.key_up(Keys.CONTROL).perform()  # closes the file browser
    page.run_all()
    assert page.errors() == []
    wait(lambda: page.script(DRAWN) >= 3 * PANELS, "all figures are drawn")
    measure(page, "light")
    paint(page, "Dark")
    measure(page, "dark")
    paint(page, "Light")
    view(page, 1280)
    predict_by_keyboard(page)
    assert page.errors() == []
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def paint(page, theme):
    page.choose(".lm-MenuBar-itemLabel", "Settings")
    page.choose(".lm-Menu-itemLabel", "Theme")
    page.choose(".lm-Menu-itemLabel", f"JupyterLab {theme}")
    wait(lambda: page.script(DARK) == (theme == "Dark"), f"it is {theme}")


def predict_by_keyboard(page):
    """The ellipse's knob asks when it is reached, and the panel tells what it did."""
    page.look_at(".labkit-knob-others")
    row = ".labkit-knob-row:has(.labkit-knob-mean_weight)"
    question = f"{row} .labkit-predict"
    assert not page.script(SHOWN, question)
    page.script("arguments[0].focus();", page.within(f"{row} .noUi-handle"))
    assert page.script(SHOWN, question)
    for _ in range(2):  # past the number beside the slider
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
    assert page.script(FOCUS).accessible_name == "Predict, thinness of P: up"
    ActionChains(page.driver).send_keys(Keys.SPACE).perform()
    page.key("mean_weight", Keys.ARROW_RIGHT)
    page.press("step")
    said = wait(lambda: page.within(".labkit-outcome").text, "the panel tells")
    means = r"thinness of P: ([\d.e+]+) before, ([\d.e+]+) after \(means of one row\): "
    before, after, verdict = re.fullmatch(f"{means}(.*)", said).groups()
    assert float(after) > float(before) and verdict == "up, as predicted"


def measure(page, theme):
    for width in (1280, 900):
        view(page, width)
        found = page.script(MEASURED, LEAST, CONTRAST)
        assert len(found) == PANELS
        for number, panel in enumerate(found):
            save(page, f"{number}-{width}-{theme}", number)
            check(panel, width)


def view(page, width):
    """Have the page, without the browser's own frame, so wide and 720 high."""
    size = {"width": width, "height": 720, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    time.sleep(1)  # figures follow the size of their cell


def check(panel, width):
    assert panel["words"] == []
    parts = panel["parts"]
    assert all(inside(part, panel["panel"]) for part in parts)
    assert inside(panel["panel"], panel["room"])
    for i, part in enumerate(parts):
        assert all(apart(part, other) for other in parts[:i]), parts
    if width == 1280:
        assert high(panel["panel"]) <= high(panel["room"]), panel
    else:  # knobs above
        assert all(row["bottom"] <= parts[1]["top"] for row in panel["knobs"])


def save(page, name, number):
    """Keep a picture where LABKIT_SCREENSHOT says."""
    if folder := os.environ.get("LABKIT_SCREENSHOT"):
        page.script(
            "document.querySelectorAll('.labkit-screen')[arguments[0]]"
            ".scrollIntoView({block: 'start'});",
            number,
        )
        page.driver.save_screenshot(f"{folder}/screen-{name}.png")
