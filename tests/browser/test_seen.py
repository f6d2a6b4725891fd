"""What a person sees of a panel in the lab that ``labkit lab`` opens, and can hit."""

import re
import time

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from labkit.lab.panels.figures.theme import colour_of
from tests.browser.page import Page, wait
from tests.browser.test_screen import high, inside, paint, view

pytestmark = pytest.mark.browser

# What lies under the middle of each button of the question that is seen, if not itself.
COVERED = """
const seen = (part) => part.checkVisibility({visibilityProperty: true});
const buttons = [...document.querySelectorAll('.labkit-predict button')].filter(seen);
return [buttons.map((button) => button.textContent), buttons.filter((button) => {
  const {left, top, width, height} = button.getBoundingClientRect();
  return document.elementFromPoint(left + width / 2, top + height / 2)
    ?.closest('button') !== button;
}).map((button) => button.textContent)];
"""
BOXES = """
const box = (part) => {
  const {left, top, right, bottom, width, height} = part.getBoundingClientRect();
  return {left, top, right, bottom, width, height};
};
const [screen] = document.querySelectorAll('.labkit-screen');
const plot = screen.querySelector('.js-plotly-plot');
return {
  panel: box(screen), room: box(screen.closest('.jp-WindowedPanel-outer')),
  side: box(screen.querySelector('.labkit-side')), plot: box(plot),
  drawn: box(plot.querySelector('.main-svg')), wanted: plot._fullLayout.height,
  below: box(screen.querySelector('.labkit-caption')),
  title: box(plot.querySelector('.annotation-text')),
  bar: getComputedStyle(plot.querySelector('.modebar')).opacity,
};
"""
# Pixels from the last button of the knobs to the first of the run.
BLANK = """
const screen = document.querySelector('.labkit-screen:has(.labkit-step)');
const [knobs, step] = ['.labkit-knobs-reset', '.labkit-step']
  .map((css) => screen.querySelector(css).getBoundingClientRect());
return step.top - knobs.bottom;
"""
ANSWERS = ["up", "down", "nothing", "skip"]
FILES = ".jp-SideBar [data-id='filebrowser']"
OPEN = "return document.querySelector('#filebrowser')?.checkVisibility() ?? false;"
TOP = "document.querySelector('.labkit-screen').scrollIntoView({block: 'start'});"
ICONS = """
return [...document.querySelectorAll('.jupyter-widgets-disconnected')]
  .filter((part) => part.checkVisibility()
    && !['none', 'normal'].includes(getComputedStyle(part, '::before').content)).length;
"""
EQUATION = """
const around = document.querySelector('.labkit-line-equation');
const {top, bottom} = around.getBoundingClientRect();
return [...around.querySelectorAll('math, math *')].every((part) => {
  const own = part.getBoundingClientRect();
  return own.height === 0 || own.top >= top && own.bottom <= bottom;
});
"""
# Its box, and some pixels more, with what its box hides or without. Exponents stand
# higher in a font that is not made for formulas.
AROUND = """
const around = document.querySelector('.labkit-line-equation');
around.style.overflow = arguments[0];
for (const math of around.querySelectorAll('math'))
  math.style.fontFamily = 'DejaVu Sans';
const {left, top, right, bottom} = around.getBoundingClientRect();
return {left, top: top - 12, right, bottom: bottom + 12};
"""
CUT = """
return [...document.querySelectorAll('.labkit-line-both > div, .labkit-source')]
  .filter((part) => part.scrollWidth > part.clientWidth + 1)
  .map((part) => part.className);
"""
INKED = """
const [shown, {left, top, right, bottom}, done] = arguments;
const image = new Image();
image.onload = () => {
  const [wide, high] = [right - left, Math.min(bottom, innerHeight) - top];
  const canvas = new OffscreenCanvas(wide, high);
  const context = canvas.getContext('2d');
  context.drawImage(image, -left, -top);
  const counts = new Map();
  for (const pixel of new Uint32Array(
    context.getImageData(0, 0, canvas.width, canvas.height).data.buffer))
    counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  done(canvas.width * canvas.height - Math.max(...counts.values()));
};
image.src = `data:image/png;base64,${shown}`;
"""
# The figure that is no panel.
STILL = """
const plot = [...document.querySelectorAll('.js-plotly-plot')]
  .find((each) => !each.closest('.labkit-screen'));
plot.scrollIntoView({block: 'center'});
const {left, top, right, bottom} = plot.getBoundingClientRect();
const drawn = plot.querySelector('.main-svg').getBoundingClientRect().height;
return {left, top, right, bottom, drawn, wanted: plot._fullLayout.height};
"""
# Of its panels: their titles' boxes, and where they begin.
# How many pixels of a box have nearly a colour, as a person sees it.
OF_COLOUR = """
const [shown, {left, top, right, bottom}, colour, done] = arguments;
const image = new Image();
image.onload = () => {
  const canvas = new OffscreenCanvas(right - left, Math.min(bottom, innerHeight) - top);
  const context = canvas.getContext('2d');
  context.drawImage(image, -left, -top);
  const {data} = context.getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4)
    count += colour.every((part, k) => Math.abs(data[i + k] - part) < 24);
  done(count);
};
image.src = `data:image/png;base64,${shown}`;
"""
COLUMNS = """
const title = document.querySelector('[data-looked-at] .annotation-text');
return title.textContent.match(/Columns: (\\d+)/)?.[1];
"""
POINTS = """
const plot = document.querySelector('.labkit-screen .js-plotly-plot');
return [...plot.querySelectorAll('.points path')]
  .map((point) => getComputedStyle(point).fill);
"""


def inked(page, box):
    """How many pixels of a box, as a person sees it, have not its commonest colour."""
    shown = page.driver.get_screenshot_as_base64()
    return page.driver.execute_async_script(INKED, shown, box)


def check_figure(page):
    """The figure has its height and the width of its place, and is not blank."""
    page.script(TOP)

    def fits():
        boxes = page.script(BOXES)
        plot, drawn = boxes["plot"], boxes["drawn"]
        near = abs(plot["width"] - drawn["width"]) < 2
        return near and abs(drawn["height"] - boxes["wanted"]) < 2 and boxes

    boxes = wait(fits, lambda: f"the figure fits: {page.script(BOXES)}")
    assert boxes["plot"]["height"] == pytest.approx(boxes["wanted"], abs=2)
    assert boxes["below"]["top"] >= boxes["drawn"]["bottom"] - 1
    assert inside(boxes["drawn"], boxes["panel"])
    wait(lambda: inked(page, boxes["plot"]) > 2000, "there is something drawn")
    return boxes


def check_still(page):
    """A figure that is no panel fills its place, and is not blank."""

    def fits():
        box = page.script(STILL)
        return abs(box["drawn"] - box["wanted"]) < 2 and box

    box = wait(fits, lambda: f"the figure fits: {page.script(STILL)}")
    assert box["bottom"] - box["top"] == pytest.approx(box["wanted"], abs=2)
    wait(lambda: inked(page, page.script(STILL)) > 1000, "something is drawn")


def pale_path_hides_nothing(page):
    """SGD's path is seen as well as before where the one before the turn is drawn."""
    colour = [int(colour_of("SGD")[i : i + 2], 16) for i in (1, 3, 5)]

    def seen():
        page.script(TOP)
        box = page.script(BOXES)["plot"]
        shown = page.driver.get_screenshot_as_base64()
        return page.driver.execute_async_script(OF_COLOUR, shown, box, colour)

    page.look_at(".labkit-opening")
    page.wait_until_still()
    first = seen()
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_LEFT):
        said = page.text(".labkit-status")
        page.key("mean_weight", key)
        wait(lambda said=said: page.text(".labkit-status") != said, "it is turned")
    page.wait_until_still()
    assert first > 60 and seen() > 0.8 * first


def status_says_what_is_drawn(page):
    """Steps that come fast end with one number in the picture and in the status."""
    page.look_at(".labkit-knob-ridge")
    for _ in range(4):
        page.press("step")
    page.wait_for_status("step 4, paused")
    panel = page.find("[data-looked-at]")
    said = lambda: re.search(r"(\d+) columns;", panel.text)[1]  # noqa: E731
    wait(lambda: page.script(COLUMNS) == said(), "picture and status agree")
    page.wait_until_still()
    assert page.script(COLUMNS) == said()


def check_question(page, knob="ridge"):
    """The question of a knob that has the focus lies on top, whole."""
    page.script("document.activeElement.blur();")
    handle = page.find(f".labkit-knob-{knob} .noUi-handle")
    page.script("arguments[0].scrollIntoView({block: 'center'});", handle)
    page.script("arguments[0].focus({preventScroll: true});", handle)
    asked, covered = wait(lambda: page.script(COVERED), "the question is there")
    assert asked == ANSWERS and covered == []
    page.script("document.activeElement.blur();")


def check_question_under_the_mouse(page, knob="ridge"):
    """It is there as well while the mouse is on the knob, and goes with it."""
    label = page.find(f".labkit-knob-{knob} .widget-label")
    ActionChains(page.driver).move_to_element(label).perform()
    wait(lambda: page.script(COVERED) == [ANSWERS, []], "the question is there")
    ActionChains(page.driver).move_to_element(page.find(FILES)).perform()
    wait(lambda: page.script(COVERED) == [[], []], "the question is gone")


@pytest.fixture
def page(driver, server):
    """The notebook in the workspace that `labkit lab` opens."""
    address = server.address("lab/workspaces/labkit/tree/seen.ipynb")
    yield Page(driver, server, "seen", address)
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_what_is_seen_of_a_panel(page):
    view(page, 1280)
    assert not page.script(OPEN)  # as `labkit lab` leaves it
    page.run_all()
    wait(lambda: page.script("return document.querySelector('.main-svg');"), "drawn")
    files = page.find(FILES)
    ActionChains(page.driver).move_to_element(files).perform()  # off the figure
    boxes = check_figure(page)
    check_question(page)
    check_question_under_the_mouse(page)
    assert boxes["side"]["right"] <= boxes["plot"]["left"]
    assert high(boxes["panel"]) <= high(boxes["room"])
    assert boxes["bar"] == "0"  # plotly's buttons hide no title
    files.click()
    wait(lambda: page.script(OPEN), "the file browser opens")
    boxes = check_figure(page)
    assert boxes["side"]["right"] <= boxes["plot"]["left"]  # still side by side
    check_question(page)
    files.click()
    wait(lambda: not page.script(OPEN), "the file browser closes")
    check_figure(page)
    for width, height in ((390, 844), (900, 720), (1280, 1100), (1280, 720)):
        view(page, width, height)
        check_figure(page)
        check_question(page)
        assert page.script(BLANK) < 60 or width == 1280  # nothing is kept for hints
        check_still(page)
        assert page.too_wide() <= 0
    pale_path_hides_nothing(page)
    status_says_what_is_drawn(page)
    paint(page, "Dark")
    check_figure(page)
    assert all(sum(map(int, fill[4:-1].split(","))) > 150 for fill in dots(page))
    paint(page, "Light")
    walk_is_whole(page)
    page.restart_kernel()
    wait(page.lost, "the panel says that it is lost")
    assert page.script(ICONS) == 0


def dots(page):
    """Colours of points that are drawn in one, as the page shows them."""
    return [fill for fill in page.script(POINTS) if fill.startswith("rgb(")]


def walk_is_whole(page):
    """No equation is cut above, no line and no column at the side; maps are seen."""
    walk = page.driver.find_element(By.CSS_SELECTOR, ".labkit-walk")
    page.script("arguments[0].scrollIntoView({block: 'start'});", walk)
    time.sleep(0.5)
    whole, seen = (inked(page, page.script(AROUND, css)) for css in ("visible", ""))
    assert whole == seen > 100 and page.script(EQUATION)
    assert page.script(CUT) == []
