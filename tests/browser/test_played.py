"""A recorded run in a page without a kernel: Play, the slider, a knob."""

import pytest

pytest.importorskip("selenium")

import nbformat
from nbformat.v4 import new_code_cell, new_notebook, new_output
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from labkit.lab.panels import LiveLab
from labkit.lab.panels.figures.shown import embedded
from labkit.lab.panels.live.played import PLAY, packed
from labkit.lab.runs.page import write_page
from tests.browser.page import wait
from tests.browser.still import Played, Still
from tests.lab.panels.test_played import NOISY, at, record

pytestmark = pytest.mark.browser

NUMBERS = """
return document.querySelector('.plotly-graph-div').data
  .map(({ x, y }) => [x, y].map((values) => [...(values._inputArray ?? values)]));
"""


@pytest.fixture
def lab():
    made = LiveLab(NOISY, interactive=False)
    made.run(10)
    return made


def page_of(lab, folder, driver, change=lambda html: html, steps=10):
    """The page of a run that has shown a panel, opened as a file."""
    shown = [lab.figure._repr_mimebundle_()]
    shown.append({"text/html": change(embedded(PLAY, packed(record(lab, steps))))})
    cell = new_code_cell(outputs=[new_output("display_data", each) for each in shown])
    (folder / "run").mkdir()
    nbformat.write(new_notebook(cells=[cell]), folder / "run/a.ipynb")
    write_page(folder / "run/a.ipynb", folder / "run/a.html")
    return Still(driver, (folder / "run/a.html").as_uri())


def plain(lines):
    """Numbers to four digits."""
    return [[[float(f"{x:.4g}") for x in axis] for axis in line] for line in lines]


def drawn(page):
    return plain(page.script(NUMBERS))


def numbers(lab):
    """What the page is to draw, to four digits."""
    data = lab.figure["data"]
    return plain([[list(trace["x"]), list(trace["y"])] for trace in data])


def test_a_run_is_played_and_its_knob_turned(driver, tmp_path, lab):
    page, end = page_of(lab, tmp_path, driver), numbers(lab)
    run = Played(page)
    assert run.step() == (11, 11) and drawn(page) == end
    run.press()
    wait(lambda: run.step()[0] < 11, "Play begins at the first step")
    assert run.button.text == "Pause"
    wait(lambda: run.button.text == "Play", "and ends by itself")
    wait(lambda: run.step() == (11, 11) and drawn(page) == end, "where it was")

    run.slider.send_keys(Keys.HOME)
    again = at(lab)
    for step in (2, 3):
        again.run(1)
        wanted = numbers(again)
        wait(lambda wanted=wanted: drawn(page) == wanted, f"the slider is at {step}")
        assert run.step() == (step, 11)
        run.slider.send_keys(Keys.ARROW_RIGHT)

    run.slider.send_keys(Keys.ARROW_LEFT)
    gain, start = run.knobs
    assert run.values() == ["1", "1"]
    gain.send_keys(Keys.ARROW_RIGHT)
    start.send_keys(Keys.END)
    assert run.values() == ["2", "6"] and run.step() == (3, 8)
    other = at(lab, gain=2.0, start=6)
    other.run(2)
    wanted = numbers(other)
    wait(lambda: drawn(page) == wanted, "the knobs show the other recording")
    labels = page.driver.find_elements(By.CSS_SELECTOR, ".labkit-play label")
    assert [each.text for each in labels] == ["step", "gain", "start"]


def test_pause_stops_and_play_goes_on(driver, tmp_path, lab):
    run = Played(page_of(lab, tmp_path, driver))
    run.press()
    wait(lambda: 2 < run.step()[0] < 11, "it plays")
    run.press()
    stopped = run.step()
    run.slider.send_keys(Keys.ARROW_LEFT)
    assert run.step()[0] == max(stopped[0] - 1, 2) and run.button.text == "Play"


def test_without_the_module_the_figure_stays(driver, tmp_path, lab):
    page = page_of(
        lab, tmp_path, driver, lambda html: html.replace('type="module"', 'type="none"')
    )
    wanted = numbers(lab)
    wait(lambda: drawn(page) == wanted, "the figure is drawn")
    assert page.script("return document.querySelector('.labkit-play').innerText") == ""


def test_one_step_has_no_slider_and_its_knobs_turn(driver, tmp_path, lab):
    page = page_of(lab, tmp_path, driver, steps=1)
    shown = lambda: page.find(".labkit-play").find_elements(By.TAG_NAME, "label")  # noqa: E731
    wait(shown, "it lives")
    assert [each.text for each in shown()] == ["gain", "start"]
    page.find(".labkit-play-knob").send_keys(Keys.END)
    other = at(lab, gain=2.0)
    other.run(1)
    wanted = numbers(other)
    wait(lambda: drawn(page) == wanted, "the knob shows the other recording")
