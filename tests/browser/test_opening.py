"""An opening as a reader meets it: knobs, a hand, the slider, its setting, its page."""

import time
from functools import partial

import nbformat
import numpy as np
import pytest

pytest.importorskip("selenium")

from nbformat.v4 import new_code_cell, new_notebook, new_output
from selenium.webdriver.common.keys import Keys

from labkit.lab import Opening
from labkit.lab.books import rls
from labkit.lab.panels.figures.shown import embedded
from labkit.lab.panels.live.played import PLAY, packed, played
from labkit.lab.runs.page import write_page
from tests.browser.page import PROMPTS, wait
from tests.browser.still import Played, Still
from tests.browser.test_lab import (
    as_it_opens,
    opens_with_its_picture,
    reach_every_control,
)
from tests.browser.test_screen import let_go, press, pull, view

pytestmark = pytest.mark.browser

RLS, PALE = "RLS", "before the turn"
# The paths that are drawn in a figure, by name.
PATHS = """
const drawn = arguments[0].data.filter(({name, mode}) => name && mode === 'lines');
return Object.fromEntries(drawn.map(({name, x, y}) =>
  [name, [x, y].map((values) => [...(values._inputArray ?? values)])]));
"""
# All numbers of the picture.
NUMBERS = """
const plot = document.querySelector('[data-looked-at] .js-plotly-plot');
return plot?.data && JSON.stringify(plot.data.map(({x, y, z}) => [x, y, z]));
"""
SETTING = """
const [line, address] = document.querySelectorAll('[data-looked-at] details code');
return [line.textContent, address.textContent];
"""
MEASURED = ".labkit-measured"


def path_of(knobs, at=11):
    """The path of RLS, (2, steps + 1), computed here."""
    opening = Opening(rls.ELLIPSE, knobs=knobs, at=at, interactive=False)
    return opening.rows[at]["pictures"].paths[RLS].T


def paths(page):
    plot = page.within(".js-plotly-plot")
    return page.script(PATHS, plot)


def knobs_told(page):
    """The knobs in the line of Python that is offered to be copied."""
    return eval(page.script(SETTING)[0], {"EllipseKnobs": rls.EllipseKnobs})


def answers(page, turn):
    """What is drawn then is of the new knobs, and what was before is pale."""
    before, knobs = paths(page)[RLS], knobs_told(page)
    turn()
    wait(lambda: knobs_told(page) != knobs, "other knobs are told")

    def drawn():
        now = paths(page)
        near = partial(np.allclose, atol=1e-3)
        return near(now[RLS], path_of(knobs_told(page))) and near(now[PALE], before)

    wait(drawn, lambda: f"the path of {knobs_told(page)}; it is {paths(page)}")


def drag(page):
    """Take the start of both paths elsewhere."""
    held = press(page, "start", 0)
    wanted = pull(page, held, -40, 30)
    let_go(page)

    def there():
        start = [float(part) for part in knobs_told(page).start.split()]
        return np.allclose(start, wanted, atol=0.011)

    wait(there, lambda: f"the start comes to {wanted}")


def is_drawn(page, wanted):
    """Wait until this is the path of RLS."""

    def same():
        drawn = np.array(paths(page)[RLS])
        return drawn.shape == wanted.shape and np.allclose(drawn, wanted, atol=1e-3)

    wait(same, lambda: f"{wanted}; it is {paths(page)[RLS]}")


def move(page):
    """Go along the steps, and back to the last."""
    slider, knobs = page.within(".labkit-step-slider .noUi-handle"), knobs_told(page)
    formula, last = page.status(), paths(page)[RLS]
    for key, at in ((Keys.HOME, 0), (Keys.ARROW_RIGHT, 1)):
        slider.send_keys(key)
        is_drawn(page, path_of(knobs, at))
        wait(lambda: page.status() != formula, "the formula is another")
        assert page.script(SETTING)[1].startswith(f"#step={at + 1}&")
    slider.send_keys(Keys.END)
    wait(lambda: paths(page)[RLS] == last and page.status() == formula, "the last step")


@pytest.mark.parametrize("page", ["opening"], indirect=True)
def test_an_opening_answers_while_cells_run_and_after(page):
    turn = partial(page.key, "mean_weight", Keys.ARROW_RIGHT)
    hold = page.server.folder / "hold"
    hold.touch()
    page.begin_all()
    page.look_at(".labkit-opening")
    wait(lambda: paths(page), "it is drawn")
    try:
        answers(page, turn)
        time.sleep(1.5)  # what follows is another turn
        answers(page, partial(drag, page))
        move(page)
        assert page.script(PROMPTS)[-1] == "[*]:"
    finally:
        hold.unlink()
    wait(lambda: "[*]:" not in page.script(PROMPTS), "the cells have run")
    answers(page, turn)
    move(page)
    reach_every_control(page)
    assert page.errors() == []


# `make test` has the first one.
LESSONS = ["02_bpls", "03_hessian_free", "04_broad", "05_rtrl"]
LESSONS = ["01_rls", *(pytest.param(name, marks=pytest.mark.long) for name in LESSONS)]


@pytest.mark.parametrize("page", LESSONS, indirect=True)
def test_a_lesson_opens_with_its_picture(page):
    with as_it_opens(page):
        opens_with_its_picture(page)
        page.begin_all()
        page.look_at(".labkit-opening")
        turn_the_first_knob(page)
        wait(lambda: "[*]:" not in page.script(PROMPTS), "the cells have run")
        assert page.errors() == []
        turn_the_first_knob(page)
        reach_every_control(page)
        for width in (390, 900, 1280):
            view(page, width)
            wait(lambda: page.too_wide() <= 0, lambda w=width: f"it fits {w} pixels")
    if page.name == "01_rls":
        measure(page)


def turn_the_first_knob(page):
    """It is a slider or a choice; the picture is another, and says of which setting."""
    drawn = wait(partial(page.script, NUMBERS), "it is drawn")
    setting = page.script(SETTING)
    handle = page.within(".labkit-controls .noUi-handle")
    handle.send_keys(Keys.ARROW_RIGHT)
    wait(lambda: page.script(SETTING) != setting, "another setting is told")
    wait(lambda: page.script(NUMBERS) != drawn, "another picture is drawn")


def measure(page):
    """A record is shown; a button measures, and other panels answer meanwhile."""
    page.look_at(f"{MEASURED} button")

    def told():
        return page.find(f"[data-looked-at] {MEASURED}").text

    assert "Recorded at commit" in told() and "samples = 2000 and not 256" in told()
    page.within(f"{MEASURED} button").click()
    wait(lambda: "Measured in this run" in told(), told)
    assert "was not measured" not in told() and page.errors() == []


def test_an_opening_is_played_in_a_page(driver, tmp_path):
    """Its slider and two knobs, and its address."""
    opening = Opening(rls.ELLIPSE, interactive=False)
    shown = [opening.figure._repr_mimebundle_()]
    shown.append(
        {
            "text/html": embedded(
                PLAY, packed(played(rls.ELLIPSE, (), rls.EllipseKnobs(), 12, 12))
            )
        }
    )
    cell = new_code_cell(outputs=[new_output("display_data", each) for each in shown])
    (tmp_path / "run").mkdir()
    nbformat.write(new_notebook(cells=[cell]), tmp_path / "run/a.ipynb")
    write_page(tmp_path / "run/a.ipynb", tmp_path / "run/a.html")
    page = Still(driver, (tmp_path / "run/a.html").as_uri())

    def agrees(what, step, **turned):
        wanted = path_of(rls.EllipseKnobs(**turned), step - 1)

        def same():
            drawn = page.script(PATHS, page.find(".plotly-graph-div"))[RLS]
            shape = np.shape(drawn)
            return shape == wanted.shape and np.allclose(drawn, wanted, atol=1e-3)

        wait(same, what)

    play = Played(page)
    agrees("it is drawn", 12)
    play.slider.send_keys(Keys.HOME)
    agrees("the slider moves", 1)
    play.slider.send_keys(Keys.ARROW_RIGHT)
    agrees("it moves on", 2)
    mean_weight, lr = play.knobs
    mean_weight.send_keys(Keys.END)
    lr.send_keys(Keys.END)
    agrees("both knobs turn", 2, mean_weight=10.0, lr=1.0)
    sent, values = driver.current_url, play.values()
    assert sent.endswith("#step=2&mean_weight=10&lr=1")
    driver.get("about:blank")
    page = Still(driver, sent)
    assert Played(page).values() == values
    agrees("an address opens it", 2, mean_weight=10.0, lr=1.0)
