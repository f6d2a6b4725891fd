"""Panels on one screen: knobs, buttons and the whole figure, and legible."""

import os
import re
import time
from itertools import islice

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.keys import Keys

from labkit.lab.books.broad_functions import FUNCTIONS, FunctionKnobs
from labkit.lab.panels.live.turn import direction
from tests.browser.conftest import SCREENS
from tests.browser.page import FOCUS, wait

pytestmark = pytest.mark.browser

PANELS = len(SCREENS) - 1
LEAST = 12  # pixels of a letter
CONTRAST = 3.0  # of it with what is behind: least of WCAG 2 for what is drawn

# Boxes of the parts of each panel, and words that are too small or too pale.
MEASURED = """
const [least, contrast] = arguments;
const NOT_READ = 'style, option, :disabled, mjx-container'; // exponents are small
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
    if (!shown || around.closest(NOT_READ)) continue;
    const look = getComputedStyle(around), size = parseFloat(look.fontSize);
    const drawn = around instanceof SVGElement;
    const ink = light(rgb(drawn ? look.fill : look.color));
    const paper = light(behind(around));
    const apart = Math.max(ink, paper) / Math.min(ink, paper);
    if (size < least || apart < contrast) words.push([text.trim(), size, apart]);
  }
  return {
    panel: box(panel), room: box(panel.closest('.jp-WindowedPanel-outer')),
    parts: ['.labkit-controls', '.labkit-step', '.labkit-speed', '.labkit-step-slider',
            '.labkit-status', '.js-plotly-plot', '.labkit-caption']
      .flatMap((css) => seen(css).map(box)),
    knobs: seen('.labkit-knob-row').map(box), words,
  };
});
"""
# Titles of upright axes that lie over a panel; titles and buttons' names that are cut.
CROSSED = """
const cut = [...document.querySelectorAll('.labkit-screen button')]
  .filter((button) => button.checkVisibility()
    && button.scrollWidth > button.clientWidth + 1)
  .map((button) => button.textContent);
return cut.concat(...[...document.querySelectorAll('.labkit-screen .js-plotly-plot')]
  .filter((plot) => plot.checkVisibility()).map((plot) => {
    const {left, right, top} = plot.getBoundingClientRect();
    const panels = Object.values(plot._fullLayout._plots).map(({xaxis: x, yaxis: y}) =>
      [left + x._offset, left + x._offset + x._length,
       top + y._offset, top + y._offset + y._length]);
    const over = (box) => panels.some(([a, b, c, d]) => box.left < b - 1
      && box.right > a + 1 && box.top < d - 1 && box.bottom > c + 1);
    const outside = (box) => box.left < left - 1 || box.right > right + 1;
    const found = (css, wrong) => [...plot.querySelectorAll(css)]
      .filter((text) => wrong(text.getBoundingClientRect()))
      .map((text) => text.textContent);
    return [...found('.infolayer text[class^="y"]', over),
            ...found('.annotation-text', outside)];
  }));
"""
# Of maps of classes, pixels of a cell.
CELLS = """
return [...document.querySelectorAll('.labkit-screen .js-plotly-plot')]
  .filter((plot) => plot.checkVisibility()).flatMap((plot) => plot._fullData
    .filter(({type, zmin}) => type === 'heatmap' && zmin === -0.5)
    .map(({xaxis, x, z}) => {
      const axis = plot._fullLayout[`xaxis${xaxis.slice(1)}`];
      const [left, right] = x ? [x[0], x[x.length - 1]] : [0, z[0].length - 1];
      return (axis.d2p(right) - axis.d2p(left)) / ((x ?? z[0]).length - 1);
    }));
"""
DRAWN = """
return document.querySelectorAll('.labkit-screen .js-plotly-plot .main-svg').length;
"""
SHOWN = """
const part = document.querySelector(`[data-looked-at] ${arguments[0]}`);
return part.checkVisibility({visibilityProperty: true});
"""
# Of the panel looked at: where a point is that can be held, on its axes and the page,
# and how far a pixel is; what a curve of this name goes through.
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
# How far the figure is below the top of its panel.
DOWN = """
const panel = document.querySelector('[data-looked-at]');
const top = (part) => part.getBoundingClientRect().top;
return top(panel.querySelector('.js-plotly-plot')) - top(panel);
"""
CURVE = """
const plot = document.querySelector('[data-looked-at] .js-plotly-plot');
const {z, y} = plot._fullData.find((trace) => trace.name === arguments[0]);
return JSON.stringify(z ?? y);
"""
ON_TOP = """
const {left, top, width, height} = arguments[0].getBoundingClientRect();
return document.elementFromPoint(left + width / 2, top + height / 2)
  ?.closest('button') === arguments[0];
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
    drag_a_bar(page)
    assert page.errors() == []
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.long
@pytest.mark.parametrize("page", ["screens"], indirect=True)
def test_a_knob_waits_for_a_prediction(page):
    page.run_all()
    page.look_at(".labkit-knob-added")
    page.press("step")
    wait_for_a_prediction(page)


def paint(page, theme):
    page.choose(".lm-MenuBar-itemLabel", "Settings")
    page.choose(".lm-Menu-itemLabel", "Theme")
    page.choose(".lm-Menu-itemLabel", f"JupyterLab {theme}")
    wait(lambda: page.script(DARK) == (theme == "Dark"), f"it is {theme}")


def predict_by_keyboard(page):
    """A knob asks when it is reached, and the panel tells what it did."""
    page.look_at(".labkit-knob-added")
    down = page.script(DOWN)
    row = ".labkit-knob-row:has(.labkit-knob-added)"
    question = f"{row} .labkit-predict"
    assert not page.script(SHOWN, question)
    page.script("arguments[0].focus();", page.within(f"{row} .noUi-handle"))
    assert page.script(SHOWN, question)
    for _ in range(2):  # past the number beside the slider
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
    asked = "Which way will the gap between the fits go? up"
    assert page.script(FOCUS).accessible_name == asked
    ActionChains(page.driver).send_keys(Keys.SPACE).perform()
    page.key("added", Keys.ARROW_RIGHT)
    page.press("step")
    told = lambda: page.text(".labkit-outcome")  # noqa: E731
    said = wait(lambda: told() if "after" in told() else "", "the panel tells")
    values = r"after 1 step: the gap between the fits (\S+) without, (\S+) with: "
    without, turned, verdict = re.match(f"{values}(.*)", said).groups()
    happened, judged = verdict.split(", ")
    assert happened == direction(float(without), float(turned))
    right = "as predicted" if happened == "up" else "not up as predicted"
    assert judged.startswith(right)
    assert page.turned() and page.script(DOWN) == down
    alone = [*islice(FUNCTIONS.rows(FunctionKnobs()), page.count())][-1]
    assert float(without) == float(f"{alone['apart']:.3g}")


def wait_for_a_prediction(page):
    """A knob that is turned without one waits, and the button that skips is on top."""
    page.key("noise", Keys.ARROW_RIGHT)
    row = ".labkit-knob-row:has(.labkit-knob-noise)"
    wait(lambda: page.within(f"{row}.labkit-waits"), "the knob waits")
    said = page.turned()
    page.press("step")
    assert page.turned() == said  # nothing is turned
    skip = page.within(f"{row} .labkit-predict button:last-child")
    assert skip.text == "skip" and page.script(ON_TOP, skip)
    skip.click()
    wait(lambda: page.turned().startswith("noise = "), "the knob is turned")


def hand(page):
    """A pointer that presses, moves and lets go at once, at places of the page."""
    return ActionBuilder(page.driver, duration=30)


def press(page, name, index):
    """Hold a point; returns where it is on the page, on its axes, and a pixel there."""
    held = page.script(HELD, name, index)
    pointer = hand(page)
    pointer.pointer_action.move_to_location(*map(round, held["page"]))
    pointer.pointer_action.pointer_down()
    pointer.perform()
    return held


def pull(page, held, right, down):
    """Move what is held so many pixels, in steps; returns where it is to be."""
    pointer = hand(page)
    for part in range(1, 6):
        x, y = (round(at) for at in held["page"])
        pointer.pointer_action.move_to_location(
            x + right * part // 5, y + down * part // 5
        )
    pointer.perform()
    by = right * held["pixel"][0], -down * held["pixel"][1]
    return [at + off for at, off in zip(held["at"], by, strict=True)]


def let_go(page):
    pointer = hand(page)
    pointer.pointer_action.pointer_up()
    pointer.perform()


def drag_a_bar(page):
    """There is another bar and another level at once."""
    page.look_at(".labkit-knob-fifth")
    level = page.script(CURVE, "water level")
    shown = ".labkit-knob-second .widget-readout"
    held = press(page, "bars", 1)
    wanted = pull(page, held, 0, -40)
    said = lambda: float(page.text(shown))  # noqa: E731
    wait(lambda: abs(said() - wanted[1]) < 0.06, "the knob turns with the bar")
    let_go(page)
    wait(lambda: page.script(CURVE, "water level") != level, "the level moves")
    at = lambda: page.script(HELD, "bars", 1)["at"][1]  # noqa: E731
    wait(lambda: at() == pytest.approx(said()), "the bar stands where the knob does")


def measure(page, theme):
    for width in (1280, 900):
        view(page, width)
        cells = page.script(CELLS)
        assert len(cells) == 2 and max(cells) <= 4  # no stairs
        found = page.script(MEASURED, LEAST, CONTRAST)
        assert len(found) == PANELS
        assert page.script(CROSSED) == [], width
        for number, panel in enumerate(found):
            save(page, f"{number}-{width}-{theme}", number)
            check(panel, width)


def view(page, width, height=720):
    """Have the page, without the browser's own frame, so wide and high."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
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
