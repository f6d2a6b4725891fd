"""Step, Run, Pause and Reset: one loop, which gives way after each step."""

import asyncio
import itertools
import threading
from functools import partial

import pytest

from labkit.lab.panels import Stepper
from labkit.lab.panels.live.cells import MIN_SLEEP
from tests.lab.panels.conftest import in_loop


def count(n=None):
    """Yield 1, 2, 3, ... up to n."""
    yield from itertools.count(1) if n is None else range(1, n + 1)


def broken():
    yield 1
    raise ArithmeticError("loss is nan")


@pytest.fixture(params=[True, False], ids=["interactive", "headless"])
def make(request):
    return partial(Stepper, interactive=request.param)


def shown(stepper):
    """The status line, and the buttons that can be pressed."""
    enabled = [name for name, b in stepper._buttons.items() if not b.disabled]
    return stepper._label.value, " ".join(enabled)


def test_steps_until_exhausted_and_begins_anew(make):
    new, closed = [], []

    def records():
        try:
            yield from count(2)
        finally:
            closed.append(True)

    stepper = make(records, on_record=new.append, on_reset=lambda: new.append("reset"))
    assert stepper.record is None and stepper.step() == 1
    stepper.reset()
    assert (stepper.record, stepper.position, closed) == (None, 0, [True])
    assert [stepper.step() for _ in range(3)] == [1, 2, 2]
    assert new == [1, "reset", 1, 2] and stepper.status == "step 2, finished"


def test_an_exception_stops_is_shown_and_raised(make):
    stepper = make(broken)
    stepper.step()
    with pytest.raises(ArithmeticError, match="loss is nan"):
        stepper.step()
    assert stepper.status == "step 1, stopped: ArithmeticError: loss is nan"
    with pytest.raises(RuntimeError, match="reset"):
        stepper.step()
    stepper.reset()
    assert stepper.error is None and stepper.step() == 1
    with pytest.raises(RuntimeError, match=r"use step\(\)"):
        stepper.start()  # without an event loop


@in_loop
async def test_an_async_run_pauses_within_one_step_and_gives_way(make):
    stepper = make(count)
    task = stepper.start()
    assert stepper.start() is task and stepper.running
    seen = set()
    while stepper.position < 5:
        seen.add(stepper.position)
        await asyncio.sleep(0)
    assert seen == {0, 1, 2, 3, 4}  # after every step
    stepper.pause()
    at = stepper.position
    await task
    assert stepper.position == at and not stepper.running
    first = stepper.start()  # paused and started again before the old loop awoke
    await asyncio.sleep(0)
    stepper.pause()
    second = stepper.start()
    await first
    assert stepper.running and first is not second
    stepper.reset()
    await second
    assert stepper.position == 0 and not stepper.running


@in_loop
async def test_buttons_do_what_they_say_and_offer_what_is_possible():
    stepper = Stepper(lambda: count(3))
    assert shown(stepper) == ("step 0, paused", "step run reset")
    for name, status, enabled in (
        ("step", "step 1, paused", "step run reset"),
        ("run", "step 1, running", "pause reset"),
        ("pause", "step 1, paused", "step run reset"),
        ("run", "step 1, running", "pause reset"),
    ):
        stepper._buttons[name].click()
        assert shown(stepper) == (status, enabled)
    await stepper._task
    assert shown(stepper) == ("step 3, finished", "reset")
    stepper._buttons["reset"].click()
    assert shown(stepper) == ("step 0, paused", "step run reset")


@in_loop
async def test_what_fails_shows_in_the_status_line():
    ran, pressed = Stepper(broken), Stepper(broken)
    await ran.start()
    for _ in range(2):
        pressed._buttons["step"].click()
    for each in (ran, pressed):
        status = "step 1, stopped: ArithmeticError: loss is nan"
        assert shown(each) == (status, "reset") and not each.running


def test_speed_is_steps_per_second(monkeypatch):
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    stepper = Stepper(count)
    stepper._turn = turn = object()
    assert stepper.take(turn) == MIN_SLEEP
    stepper._speed.value = 20
    assert stepper.take(turn) == pytest.approx(0.05)


def test_two_threads_never_enter_the_generator_at_once():
    inside, go_on = threading.Event(), threading.Event()

    def records():
        inside.set()
        go_on.wait(10)
        yield from count()

    stepper = Stepper(records, interactive=False)
    threads = [threading.Thread(target=stepper.step) for _ in range(2)]
    threads[0].start()
    inside.wait(10)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert stepper.error is None and stepper.position == 2
