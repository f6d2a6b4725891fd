"""The notebooks in JupyterLab, with keyboard and mouse: what a reader would do."""

import os
import shutil
import time

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.keys import Keys

from tests.browser.page import NOTE_STATUS, wait

pytestmark = pytest.mark.browser

PAUSE_WITHIN = 1.0  # seconds that a reader waits for Pause at most


@pytest.mark.parametrize("page", ["05_rtrl"], indirect=True)
def test_noise_lab(page, tmp_path):
    page.run_all()
    assert page.errors() == []
    page.show_panel()
    first = page.wait_for_figure(
        lambda d: d["curves"] and d["points"] and d["bars"], "the noise figure is drawn"
    )
    page.wait_for_status(r"step 10 of 10, paused")

    # Paused: a knob begins anew, Step and Back walk.
    assert page.key("rank", Keys.ARROW_RIGHT) == "5"
    page.wait_for_status(r"step 0 of 0, paused")
    page.wait_for_figure(lambda d: d != first, "rank changes the figure")
    page.press("step")
    page.wait_for_status(r"step 1 of 1, paused")
    page.press("step")
    page.wait_for_status(r"step 2 of 2, paused")
    page.press("back")
    page.wait_for_status(r"step 1 of 2, paused")

    # Running: the count grows, and a knob begins anew without stopping.
    page.press("run")
    page.wait_for_status(r"step (\d+) of \1, running")
    count = page.count()
    wait(lambda: page.count() > count + 5, 15, "the count grows")
    before = page.wait_for_figure(lambda d: d["curves"], "curves")["bars"]
    page.script(NOTE_STATUS)
    assert page.key("rank", Keys.ARROW_RIGHT) == "6"
    wait(page.begun_anew, 15, "rank begins anew")
    page.wait_for_figure(
        lambda d: d["curves"] and d["bars"] != before, "rank changes the running figure"
    )
    page.wait_for_status(r"step (\d+) of \1, running")
    count = page.count()
    wait(lambda: page.count() > count + 5, 15, "the count grows after rank")

    clicked = page.press("pause")
    page.wait_for_status(r"step (\d+) of \1, paused")
    took = time.monotonic() - clicked
    assert took < PAUSE_WITHIN, f"Pause was heard after {took:.2f} s"
    count = page.count()
    time.sleep(0.5)
    still = page.drawn()
    time.sleep(0.5)
    assert page.count() == count
    assert page.drawn() == still
    assert page.errors() == []
    save_screenshot(page, tmp_path)


def save_screenshot(page, folder):
    """Keep a picture of the panel, also where LABKIT_SCREENSHOT says."""
    page.show_panel()
    picture = folder / "noise.png"
    assert page.driver.save_screenshot(str(picture))
    if wanted := os.environ.get("LABKIT_SCREENSHOT"):
        shutil.copy(picture, wanted)


@pytest.mark.parametrize("page", ["00_tour"], indirect=True)
def test_tour(page):
    page.run_all()
    assert page.errors() == []
    page.show_panel()
    first = page.wait_for_figure(
        lambda d: d["curves"], "the tour's first figure is drawn"
    )
    page.wait_for_status(r"step 10 of 10, paused")
    page.press("step")
    page.wait_for_status(r"step 11 of 11, paused")
    page.wait_for_figure(lambda d: d != first, "a step changes the figure")
    page.press("back")
    page.wait_for_status(r"step 10 of 11, paused")
    page.wait_for_figure(lambda d: d == first, "back shows the figure of before")


@pytest.mark.parametrize(
    "page", ["01_rls", "02_bpls", "03_hessian_free", "04_broad"], indirect=True
)
def test_live_experiment(page, tmp_path):
    """Run the notebook, walk its first live experiment, let it run and pause."""
    page.run_all()
    assert page.errors() == []
    page.show_panel()
    first = page.wait_for_figure(lambda d: d["curves"], "the figure is drawn")
    page.wait_for_status(r"step (\d+) of \1, (paused|finished)")
    page.press("reset")
    page.wait_for_status(r"step 0 of 0, paused")
    for step in (1, 2, 3):
        page.press("step")
        page.wait_for_status(rf"step {step} of {step}, paused")
    page.wait_for_figure(lambda d: d != first, "three steps draw another figure")
    page.press("back")
    page.wait_for_status(r"step 2 of 3, paused")
    page.press("run")
    page.wait_for_status(r"step (\d+) of \1, (running|finished)")
    wait(lambda: page.count() > 4, 15, "the count grows")
    if page.find(".labkit-pause").is_enabled():
        page.find(".labkit-pause").click()
    page.wait_for_status(r"step (\d+) of \1, (paused|finished)")
    assert page.errors() == []
    save_screenshot(page, tmp_path)
