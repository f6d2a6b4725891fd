"""The lessons in JupyterLab, with keyboard and mouse: what a reader would do."""

from functools import partial

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.keys import Keys

from tests.browser.page import PROMPTS, sized, wait

pytestmark = pytest.mark.browser

# Whether the first panel of the notebook is in the window, whole, and JupyterLab asks
# nothing over it.
AT_THE_PICTURE = """
const box = (css) => document.querySelector(css).getBoundingClientRect();
const [panel, page] = ['.labkit-screen', '.jp-WindowedPanel-outer'].map(box);
return panel.top >= page.top - 1 && panel.bottom <= page.bottom + 1
  && !document.querySelector('.Toastify__toast');
"""


# What is seen of a notebook before anything runs: its picture, and numbers at cells.
FIRST = """
const page = document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect();
const image = document.querySelector('.jp-OutputArea img');
const {top, bottom, left, right} = image.getBoundingClientRect();
const at = (share) => document.elementFromPoint(
  (left + right) / 2, top + share * (Math.min(bottom, page.bottom) - top));
return {
  whole: bottom <= page.bottom + 1,
  top: image.complete && image.naturalWidth > 300 && [0.1, 0.5, 0.9]
    .every((share) => at(share) === image),
  numbers: [...document.querySelectorAll('.jp-InputPrompt, .jp-OutputPrompt')]
    .filter((prompt) => prompt.getBoundingClientRect().top < page.bottom)
    .map((prompt) => prompt.innerText).filter((text) => /\\d/.test(text)),
};
"""


# All numbers of the picture.
NUMBERS = """
const plot = document.querySelector('[data-looked-at] .js-plotly-plot');
return plot?.data && JSON.stringify(plot.data.map(({x, y, z}) => [x, y, z]));
"""
TURNED = "return document.querySelector('[data-looked-at] details code')?.textContent;"
MEASURED = ".labkit-measured"
AT_PAUSE = "return document.activeElement.matches('.labkit-pause');"
# Whether the list has another choice, and the focus; no number can be typed in vain.
CHOSEN = """
const {tagName, value} = document.activeElement;
return tagName === 'SELECT' && value !== 'RLS+M+R'
  && !document.querySelector('.labkit-stops [contenteditable="true"]');
"""
LESSONS = ("00_tour", "01_rls", "02_bpls", "03_hessian_free", "04_broad", "05_rtrl")


@pytest.mark.parametrize("page", LESSONS, indirect=True)
def test_a_lesson_opens_and_answers_while_its_cells_run(page):
    sized(page.driver, 1280)
    page.toggle_files()  # as `labkit lab` opens it
    first = wait(lambda: (f := page.script(FIRST))["top"] and f, "the still is seen")
    assert first["whole"] and first["numbers"] == []
    page.begin_all()
    page.look_at(".labkit-opening")
    turn_the_first_knob(page)
    wait(lambda: "[*]:" not in page.script(PROMPTS), "the cells have run")
    assert page.errors() == []
    turn_the_first_knob(page)
    reach_every_control(page)
    for width in (390, 900, 1280):
        sized(page.driver, width)
        wait(lambda: page.too_wide() <= 0, lambda w=width: f"it fits {w} pixels")
    if page.name == "01_rls":
        measure(page)
    page.toggle_files()


def turn_the_first_knob(page):
    """The picture is another, and says of which setting."""
    drawn = wait(partial(page.script, NUMBERS), "it is drawn")
    setting = page.script(TURNED)
    page.within(".labkit-controls .noUi-handle").send_keys(Keys.ARROW_RIGHT)
    wait(lambda: page.script(TURNED) != setting, "another setting is told")
    wait(lambda: page.script(NUMBERS) != drawn, "another picture is drawn")


def measure(page):
    """A record is shown; a button measures, and other panels answer meanwhile."""
    page.look_at(f"{MEASURED} button")

    def text():
        return page.find(f"[data-looked-at] {MEASURED}").text

    assert "Recorded at commit" in text() and "samples = 2000 and not 256" in text()
    page.within(f"{MEASURED} button").click()
    wait(lambda: "Measured in this run" in text(), text)
    assert "was not measured" not in text() and page.errors() == []


def reach_every_control(page):
    """Each has a name for assistive technology, and Tab comes by."""
    reached = page.walk_by_tab()
    names = list(reached.values())
    assert all(names) and len(set(names)) > len(names) / 2, names
    assert [control for control in page.controls() if control not in reached] == []


@pytest.mark.parametrize("page", ["01_rls"], indirect=True)
def test_a_run_is_stepped_turned_and_paused(page):
    page.run_all()
    assert page.errors() == [] and page.script(AT_THE_PICTURE)
    page.look_at(".labkit-screen:not(.labkit-opening) .labkit-knob-lr")
    empty = page.drawn()
    for step in (1, 2, 3):
        page.press("step")
        page.wait_for_status(rf"step {step}, paused")
    page.wait_for_figure(lambda now: now != empty, "three steps are drawn")
    turn(page, "lr")
    page.wait_for_figure(lambda now: now["notes"], "the turn is marked")
    assert page.status() == "step 3, paused" and "from step 4 on" in page.turned()
    turn(page, "seed")
    page.wait_for_status(r"step 0, paused")
    assert page.turned().endswith("restarts the run")

    slow_down(page)  # else it may end before anybody has looked
    page.press("run")
    wait(lambda: page.count() > 20, "the count grows")
    turn(page, "seed")
    page.wait_for_status(r"step 1?\d, running")  # begun anew, it goes on
    page.press("pause")
    page.wait_for_status(r"step \d+, paused")
    drawn, count = page.wait_until_still(), page.count()
    assert page.drawn() == drawn and page.count() == count
    reach_every_control(page)
    use_keys_alone(page)
    assert page.errors() == []


def use_keys_alone(page):
    """A button that is disabled hands the focus on, a list hears its arrows."""
    page.within(".labkit-run").send_keys(Keys.ENTER)
    wait(lambda: page.script(AT_PAUSE), "the focus is on the next button")
    page.within("select").send_keys(Keys.ARROW_UP)
    wait(lambda: page.script(CHOSEN), "the list hears an arrow")


def slow_down(page):
    """Run takes ten steps a second from now on."""
    handle = page.within(".labkit-speed .noUi-handle")
    handle.send_keys(Keys.HOME, *3 * [Keys.ARROW_RIGHT])
    readout = ".labkit-speed .widget-readout"
    wait(lambda: page.text(readout) == "10", lambda: f"10, not {page.text(readout)}")


def turn(page, knob):
    page.skip(knob)
    page.key(knob, Keys.ARROW_RIGHT)
