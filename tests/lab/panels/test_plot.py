"""The widget of a figure: its state is what is drawn."""

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from labkit.lab.panels import curves
from labkit.lab.panels.figures import plot as module
from labkit.lab.panels.figures.plot import MAX_SHARE, MAX_WAIT, WAIT, Plot
from tests.lab.panels.conftest import in_loop


class Bent:
    """A figure of a power, which a plot shows, and the time."""

    now = 0.0

    def __init__(self, seconds=0.0):
        Bent.now = 0.0
        self.power, self.made, self.seconds = 1, 0, seconds
        self.plot = Plot(self.figure)

    def figure(self):
        self.made += 1
        Bent.now += self.seconds
        x = np.linspace(0, 1, 50)
        both = {"one": (x, x**self.power)}
        return curves({"A": both}, "x", "y", caption=f"It bends {self.power} times.")

    def show(self, power):
        self.power = power
        self.plot.changed()

    def says(self, **content):
        self.plot._hear(self.plot, content, [])

    @property
    def seen(self):
        return int(self.plot.figure.partition("It bends ")[2].partition(" ")[0])


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The time is that of the last figure that was bent."""
    clock = SimpleNamespace(monotonic=lambda: Bent.now)
    monkeypatch.setattr(module, "time", clock)


def test_all_figures_of_a_kernel_name_one_script_of_plotly():
    names = {Bent().plot.library for _ in range(2)}
    assert names == {module.library().model_id}
    assert module.library().script.decode() == get_plotlyjs()


def test_few_figures_are_on_their_way_to_a_page_that_draws_none():
    """A minute of six redraws a second, as in a cell that blocks the kernel."""
    bent = Bent()
    for step in range(360):
        Bent.now = step / 6
        bent.show(step)
    assert 0 < bent.plot.version <= 7
    assert bent.made == 1 + bent.plot.version  # none is made in vain
    Bent.now += WAIT
    bent.says(drawn=bent.plot.version)
    assert bent.seen == 359


@pytest.mark.parametrize("says", ["drawn", "has"])  # late, once connected again
def test_a_page_whose_connection_is_back_sees_the_newest(says):
    bent, page = Bent(), {}
    bent.says(drawn=0)
    for power in (2, 3):
        bent.show(power)
    Bent.now += MAX_WAIT
    bent.show(4)
    bent.plot.send_state = lambda key: page.update(bent.plot.get_state(key))
    bent.says(**{says: bent.plot.version - (says == "has")})
    assert bent.seen == 4 and bent.plot.due <= Bent.now + MAX_WAIT
    assert says == "drawn" or page["version"] == bent.plot.version


@pytest.mark.parametrize("seconds", [0.01, 0.1, 1.0, 3.0])
def test_figures_take_at_most_a_fifth_of_the_time(seconds):
    bent = Bent(seconds)
    begin, made = Bent.now, bent.made
    for step in range(400):
        Bent.now += seconds / 10
        bent.show(step)
        bent.says(drawn=bent.plot.version)
    made = bent.made - made
    assert 1 < made <= (Bent.now - begin) / max(WAIT, seconds / MAX_SHARE) + 1


@in_loop
async def test_a_figure_that_waits_goes_out_by_itself():
    bent = Bent()
    for power in (2, 3):
        bent.show(power)
        bent.says(drawn=1)
    assert bent.plot.version == 1
    Bent.now += WAIT
    while bent.plot.version == 1:
        await asyncio.sleep(0.01)
    assert bent.seen == 3


def test_redraws_and_the_browsers_messages_come_one_at_a_time():
    """A thread that has begun to redraw is waited for."""
    bent, order = Bent(), []

    def message():
        bent.says(drawn=0)
        order.append("message")

    with bent.plot._lock:
        thread = threading.Thread(target=message)
        thread.start()
        thread.join(0.2)
        order.append("redraw")
    thread.join(10)
    assert order == ["redraw", "message"]
