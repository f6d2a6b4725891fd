"""The notebooks in JupyterLab, with keyboard and mouse: what a reader would do."""

import contextlib
import os
import shutil
import time
from dataclasses import dataclass

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.page import same_to_a_pixel, wait
from tests.browser.test_screen import view

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


@dataclass(frozen=True)
class Live:
    """The live panel of a notebook, and sliders in it that are turned."""

    live: str  # holds from the next step on
    restarts: str  # begins the run anew
    speed: int = 0  # notches below "max", where the run would end too soon

    @property
    def knob(self):
        """Where the live knob is: the picture before may have one of this name."""
        panel = ".labkit-screen:not(.labkit-pictured):has(.labkit-all-plots)"
        return f"{panel} .labkit-knob-{self.live}"


LABS = {
    "01_rls": Live("lr", "seed"),
    "02_bpls": Live("ridge", "width", speed=5),
    "03_hessian_free": Live("theta", "seed"),
    "04_broad": Live("budget", "seed", speed=6),
    "05_rtrl": Live("rank", "batch"),
    "06_compare": Live("batch", "seed"),
}


# The one that `make test` has.
FEW = ("01_rls",)
PAGES = [
    name if name in FEW else pytest.param(name, marks=pytest.mark.long) for name in LABS
]


@pytest.mark.parametrize("page", PAGES, indirect=True)
def test_live_panel(page, tmp_path, request):
    lab = LABS[request.node.callspec.params["page"]]
    page.run_all()
    assert page.errors() == []
    stands_at_its_picture(page)
    page.look_at(lab.knob)
    page.wait_for_status(r"step \d+, (paused|finished)")

    walk(page)
    turn_while_paused(page, lab)
    turn_while_running(page, lab)
    reach_every_control(page)
    assert page.errors() == []
    save_screenshots(page, tmp_path)


@contextlib.contextmanager
def as_it_opens(page):
    """A window of 1280 x 720 without the file browser, as `labkit lab` opens it."""

    def press_files():
        keys = ActionChains(page.driver).key_down(Keys.CONTROL).send_keys("b")
        keys.key_up(Keys.CONTROL).perform()

    view(page, 1280)
    press_files()
    yield
    press_files()
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def opens_with_its_picture(page):
    """Before anything runs the still is seen, and no cell has the number of a run."""
    found = wait(lambda: (f := page.script(FIRST))["top"] and f, "the still is seen")
    assert found["numbers"] == []
    assert found["whole"]


def stands_at_its_picture(page):
    """After Run All a notebook shows its picture."""
    assert page.script(AT_THE_PICTURE)


def walk(page):
    """Step forwards."""
    page.press("reset")
    page.wait_for_status(r"step 0, paused")
    empty = page.drawn()
    for step in (1, 2, 3):
        page.press("step")
        page.wait_for_status(rf"step {step}, paused")
    page.wait_for_figure(lambda d: d != empty, "three steps draw another figure")


def turn_while_paused(page, lab):
    """A live knob loses nothing; another begins anew."""
    page.seconds_to_mark(lab.live, Keys.ARROW_RIGHT)
    assert page.status() == "step 3, paused"
    page.skip(lab.restarts)
    page.key(lab.restarts, Keys.ARROW_RIGHT)
    page.wait_for_status(r"step 0, paused")
    assert page.turned().endswith("the run")
    page.press("knobs-reset")
    page.wait_for_status(r"step 0, paused")


def turn_while_running(page, lab):
    """The figure follows the knobs, and Pause is heard."""
    for _ in range(lab.speed):
        page.within(".labkit-speed .noUi-handle").send_keys(Keys.ARROW_LEFT)
    page.press("run")
    page.wait_for_status(r"step \d+, running")
    wait(lambda: page.count() >= 3, "the count grows")
    page.seconds_to_mark(lab.live, Keys.ARROW_RIGHT)  # to the left the rank is at 1
    page.seconds_to_restart(lab.restarts, Keys.ARROW_RIGHT)
    page.wait_for_status(r"step \d+, running")
    page.press("pause")
    page.wait_for_status(r"step \d+, paused")
    count = page.count()
    page.wait_until_still()
    assert page.count() == count


def reach_every_control(page):
    """Each has a name for assistive technology, and Tab comes by."""
    reached = page.walk_by_tab()
    names = list(reached.values())
    assert all(names), names
    assert len(set(names)) > len(names) / 2  # they tell the controls apart
    missed = [control for control in page.controls() if control not in reached]
    assert missed == []


def save_screenshots(page, folder):
    """Keep pictures of the panel at two widths, also where LABKIT_SCREENSHOT says."""
    for width in (1280, 900):
        page.driver.set_window_size(width, 1400)
        page.show_panel()
        time.sleep(0.3)
        assert page.too_wide() <= 0, width
        picture = folder / f"{page.name}-{width}.png"
        assert page.driver.save_screenshot(str(picture))
        if wanted := os.environ.get("LABKIT_SCREENSHOT"):
            shutil.copy(picture, wanted)
    page.driver.set_window_size(1400, 1400)


@pytest.mark.parametrize("page", ["00_tour"], indirect=True)
def test_tour(page):
    with as_it_opens(page):
        opens_with_its_picture(page)
        page.run_all()
        assert page.errors() == []
        stands_at_its_picture(page)
    page.look_at()
    page.wait_for_status("step 0, paused")  # it opens before its first step
    page.press("step")
    page.wait_for_status("step 1, paused")
    count = page.count()
    page.wait_for_figure(lambda d: d["curves"], "the picture is drawn")
    page.wait_until_still()
    first = page.drawn()
    page.press("step")
    page.wait_for_status(rf"step {count + 1}, paused")
    page.wait_for_figure(lambda d: not same_to_a_pixel(d, first), "a step is drawn")
    page.wait_until_still()
