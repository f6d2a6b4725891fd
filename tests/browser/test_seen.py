"""What a person sees of a panel in the lab that ``labkit lab`` opens, and can hit."""

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.action_chains import ActionChains

from tests.browser.page import Page, sized, wait
from tests.browser.test_screen import high, inside

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
CUT = """
return [...document.querySelectorAll('.labkit-line-both > div, .labkit-source')]
  .filter((part) => part.scrollWidth > part.clientWidth + 1)
  .map((part) => part.className);
"""
# How many pixels of a box, as a person sees it, have not its commonest colour.
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


def inked(page, box):
    shown = page.driver.get_screenshot_as_base64()
    return page.driver.execute_async_script(INKED, shown, box)


def check_figure(page):
    """The figure has its height and the width of its place, and is not blank."""
    page.script(TOP)

    def fits():
        boxes = page.script(BOXES)
        plot, drawn = boxes["plot"], boxes["drawn"]
        gaps = plot["width"] - drawn["width"], drawn["height"] - boxes["wanted"]
        gaps += (plot["height"] - boxes["wanted"],)
        return max(map(abs, gaps)) <= 2 and boxes

    boxes = wait(fits, lambda: f"the figure fits: {page.script(BOXES)}")
    assert boxes["below"]["top"] >= boxes["drawn"]["bottom"] - 1
    assert inside(boxes["drawn"], boxes["panel"])
    wait(lambda: inked(page, boxes["plot"]) > 2000, "there is something drawn")
    return boxes


def check_still(page):
    """A figure that is no panel fills its place, and is not blank."""

    def fits():
        box = page.script(STILL)
        high = box["bottom"] - box["top"]
        return max(abs(box["drawn"] - box["wanted"]), abs(high - box["wanted"])) < 2

    wait(fits, lambda: f"the figure fits: {page.script(STILL)}")
    wait(lambda: inked(page, page.script(STILL)) > 1000, "something is drawn")


def check_question(page):
    """The question of a knob that has the focus, or the mouse, lies on top, whole."""
    page.script("document.activeElement.blur();")
    handle = page.find(".labkit-knob-ridge .noUi-handle")
    page.script("arguments[0].scrollIntoView({block: 'center'});", handle)
    page.script("arguments[0].focus({preventScroll: true});", handle)
    wait(lambda: page.script(COVERED) == [ANSWERS, []], "the question is there")
    page.script("document.activeElement.blur();")
    wait(lambda: page.script(COVERED) == [[], []], "the question is gone")
    label = page.find(".labkit-knob-ridge .widget-label")
    ActionChains(page.driver).move_to_element(label).perform()
    wait(lambda: page.script(COVERED) == [ANSWERS, []], "the question is there")
    ActionChains(page.driver).move_to_element(page.find(FILES)).perform()
    wait(lambda: page.script(COVERED) == [[], []], "the question is gone")


@pytest.fixture
def page(driver, server):
    """The notebook in the workspace that `labkit lab` opens."""
    address = server.address("lab/workspaces/labkit/tree/seen.ipynb")
    return Page(driver, server, "seen", address)


def test_what_is_seen_of_a_panel(page):
    sized(page.driver, 1280)
    assert not page.script(OPEN)  # as `labkit lab` leaves it
    page.run_all()
    wait(lambda: page.script("return document.querySelector('.main-svg');"), "drawn")
    files = page.find(FILES)
    ActionChains(page.driver).move_to_element(files).perform()  # off the figure
    boxes = check_figure(page)
    assert high(boxes["panel"]) <= high(boxes["room"])
    assert boxes["bar"] == "0"  # plotly's buttons hide no title
    for opened in (True, False):
        boxes = check_figure(page)
        assert boxes["side"]["right"] <= boxes["plot"]["left"]  # side by side
        files.click()
        wait(lambda o=opened: page.script(OPEN) == o, f"the files are there: {opened}")
    for width, height in ((390, 844), (900, 720), (1280, 1100), (1280, 720)):
        sized(page.driver, width, height)
        check_figure(page)
        check_question(page)
        check_still(page)
        assert page.too_wide() <= 0
    page.paint("Dark")
    check_figure(page)
    page.paint("Light")
    page.script("document.querySelector('.labkit-walk').scrollIntoView();")
    assert page.script(EQUATION) and page.script(CUT) == []  # of a walk
    page.restart_kernel()
    wait(page.lost, "the panel says that it is lost")
    assert page.script(ICONS) == 0
