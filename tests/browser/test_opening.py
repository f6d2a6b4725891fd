"""An opening as a reader meets it: knobs, a hand, the slider, its setting, its page."""

import time
from functools import partial

import numpy as np
import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.keys import Keys

from labkit.lab import Opening
from labkit.lab.books import rls
from labkit.lab.panels.figures.shown import embedded
from labkit.lab.panels.live.played import PLAY, packed, played
from tests.browser.page import PROMPTS, wait
from tests.browser.still import Played, Still, cell, exported
from tests.browser.test_lab import reach_every_control

pytestmark = pytest.mark.browser

RLS, PALE = "RLS", "before the turn"
# The paths that are drawn in a figure, by name.
PATHS = """
const drawn = arguments[0].data.filter(({name, mode}) => name && mode === 'lines');
return Object.fromEntries(drawn.map(({name, x, y}) =>
  [name, [x, y].map((values) => [...(values._inputArray ?? values)])]));
"""
SETTING = """
return document.querySelector('[data-looked-at] details code').textContent
"""


def path_of(knobs, at=11):
    """The path of RLS, (2, steps + 1), computed here."""
    opening = Opening(rls.ELLIPSE, knobs=knobs, at=at, interactive=False)
    return opening.rows[at]["pictures"].paths[RLS].T


def paths(page):
    plot = page.within(".js-plotly-plot")
    return page.script(PATHS, plot)


def knobs_told(page):
    """The knobs in the line of Python that is offered to be copied."""
    return eval(page.script(SETTING), {"EllipseKnobs": rls.EllipseKnobs})


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
    wanted = page.drag("start", 0, -40, 30)

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


def test_an_opening_is_played_in_a_page(driver, tmp_path):
    """Its button, its slider and two knobs, and its address."""
    opening = Opening(rls.ELLIPSE, interactive=False)
    runs = played(rls.ELLIPSE, (), rls.EllipseKnobs(), 12, 12)
    shown = {"text/html": embedded(PLAY, packed(runs))}
    address = exported(
        tmp_path / "run", cell("", opening.figure._repr_mimebundle_(), shown)
    )
    page = Still(driver, address)

    def agrees(what, step, **turned):
        wanted = path_of(rls.EllipseKnobs(**turned), step - 1)

        def same():
            drawn = page.script(PATHS, page.find(".plotly-graph-div"))[RLS]
            shape = np.shape(drawn)
            return shape == wanted.shape and np.allclose(drawn, wanted, atol=1e-3)

        wait(same, what)

    play = Played(page)
    agrees("it is drawn", 12)
    play.press()
    wait(lambda: 2 < play.step()[0] < 12, "Play begins at the first step")
    play.press()
    stopped, _ = play.step()
    agrees("it stands where it was stopped", stopped)
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
