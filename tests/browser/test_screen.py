"""Panels on one screen: knobs, buttons and the whole figure, and legible."""

import re
from itertools import islice

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.keys import Keys

from labkit.lab.books.broad_functions import FUNCTIONS, FunctionKnobs
from labkit.lab.panels.live.turn import ROWS, direction
from tests.browser.conftest import SCREENS
from tests.browser.page import FOCUS, sized, wait

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
# How far the figure is below the top of its panel.
DOWN = """
const panel = document.querySelector('[data-looked-at]');
const top = (part) => part.getBoundingClientRect().top;
return top(panel.querySelector('.js-plotly-plot')) - top(panel);
"""
ON_TOP = """
const {left, top, width, height} = arguments[0].getBoundingClientRect();
return document.elementFromPoint(left + width / 2, top + height / 2)
  ?.closest('button') === arguments[0];
"""


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
    sized(page.driver, 1280)
    page.toggle_files()
    page.run_all()
    assert page.errors() == []
    wait(lambda: page.script(DRAWN) >= 3 * PANELS, "all figures are drawn")
    for theme in ("Dark", "Light"):
        page.paint(theme)
        for width in (1280, 900):
            sized(page.driver, width)
            measure(page, width)
    sized(page.driver, 1280)
    predict_by_keyboard(page)
    assert page.errors() == []
    page.toggle_files()


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
        page.script(FOCUS).send_keys(Keys.TAB)
    asked = "Which way will the gap between the fits go? up"
    assert page.script(FOCUS).accessible_name == asked
    page.script(FOCUS).send_keys(Keys.SPACE)
    page.key("added", Keys.ARROW_RIGHT)
    count = page.count()
    page.press("step")
    outcome = lambda: page.text(".labkit-outcome")  # noqa: E731
    text = wait(
        lambda: outcome() if "after 1 step" in outcome() else "", "the panel tells"
    )
    values = r"after 1 step: the gap between the fits (\S+) without, (\S+) with: "
    without, turned, verdict = re.match(f"{values}(.*)", text).groups()
    happened, judged = verdict.split(", ")
    assert happened == direction(float(without), float(turned))
    right = "as predicted" if happened == "up" else "not up as predicted"
    assert judged.startswith(right)
    assert page.turned() and page.script(DOWN) == down
    alone = [*islice(FUNCTIONS.rows(FunctionKnobs()), count + 1)][-1]
    assert float(without) == float(f"{alone['apart']:.3g}")

    # It has its answer after ten steps; a knob that is turned without a prediction
    # then waits for one, and the button that skips it lies on top.
    for _ in range(ROWS - 1):
        page.press("step")
    page.wait_for_status(f"step {count + ROWS}, paused")
    wait(lambda: f"after {ROWS} steps" in outcome(), outcome)
    page.key("noise", Keys.ARROW_RIGHT)
    row = ".labkit-knob-row:has(.labkit-knob-noise)"
    wait(lambda: page.within(f"{row}.labkit-waits"), "the knob waits")
    assert "noise" not in page.turned()
    skip = page.within(f"{row} .labkit-predict button:last-child")
    assert skip.text == "skip" and page.script(ON_TOP, skip)
    skip.click()
    wait(lambda: page.turned() == "noise restarts the run", page.turned)


def measure(page, width):
    """Nothing lies over another part, and all can be read, once it fits the width."""
    wait(lambda: problems(page, width) == [], lambda: problems(page, width))


def problems(page, width):
    """What is wrong of the panels, in words."""
    cells, found = page.script(CELLS), page.script(MEASURED, LEAST, CONTRAST)
    wrong = [*page.script(CROSSED), *(f"stairs of {c}" for c in cells if c > 4)]
    wrong += [] if len(found) == PANELS and len(cells) == 2 else ["panels are missing"]
    for number, panel in enumerate(found):
        parts, box, room = panel["parts"], panel["panel"], panel["room"]
        good = inside(box, room) and all(inside(part, box) for part in parts)
        good &= all(apart(a, b) for i, a in enumerate(parts) for b in parts[:i])
        if width == 1280:
            good &= high(box) <= high(room)
        else:  # knobs above
            good &= all(row["bottom"] <= parts[1]["top"] for row in panel["knobs"])
        wrong += [*panel["words"], *([] if good else [(number, box, room, parts)])]
    return wrong
