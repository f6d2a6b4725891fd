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


def enabled(stepper):
    return {name for name, b in stepper._buttons.items() if not b.disabled}


def test_step_and_run_until_exhausted_or_counted(make):
    new = []
    stepper = make(lambda: count(9), on_record=new.append)
    assert stepper.record is None and stepper.position == 0
    assert stepper.step() == 1 and stepper.step(3) == 4
    assert stepper.run(2) == 6 and not stepper.exhausted
    assert new == [1, 2, 3, 4, 5, 6] and stepper.status == "step 6, paused"
    assert stepper.run() == 9 and stepper.exhausted and not stepper.running
    assert stepper.step() == 9 and stepper.run() == 9
    assert stepper.status == "step 9, finished"


def test_a_callback_may_pause_a_run(make):
    stepper = make(count, on_record=lambda r: r == 3 and stepper.pause())
    assert stepper.run() == 3 and not stepper.running


def test_reset_begins_anew(make):
    calls, closed = [], []

    def records():
        calls.append("make")
        try:
            yield from count()
        finally:
            closed.append(True)

    stepper = make(records, on_reset=lambda: calls.append("reset"))
    stepper.step(3)
    stepper.reset()
    assert (stepper.record, stepper.position, closed) == (None, 0, [True])
    assert stepper.step() == 1
    assert calls == ["make", "reset", "make"]


def test_a_bare_generator_runs_once(make):
    stepper = make(count(3))
    assert stepper.run() == 3
    with pytest.raises(RuntimeError, match="function that returns a fresh one"):
        stepper.reset()
    assert stepper.record == 3
    if stepper.interactive:
        assert stepper._buttons["reset"].disabled


def test_an_exception_stops_is_shown_and_raised(make):
    stepper = make(broken)
    with pytest.raises(ArithmeticError, match="loss is nan"):
        stepper.run()
    assert not stepper.running and stepper.record == 1
    assert stepper.status == "step 1, stopped: ArithmeticError: loss is nan"
    assert stepper.error.__traceback__ is not None
    with pytest.raises(RuntimeError, match="reset"):
        stepper.step()
    stepper.reset()
    assert stepper.error is None and stepper.step() == 1


def test_what_cannot_be_is_refused():
    with pytest.raises(TypeError, match="got list"):
        Stepper([1, 2])
    with pytest.raises(RuntimeError, match=r"use run\(\)"):
        Stepper(count).start()  # without an event loop


@in_loop
async def test_an_async_run_pauses_within_one_step(make):
    stepper = make(count)
    task = stepper.start()
    assert stepper.start() is task and stepper.running
    while stepper.position < 5:
        await asyncio.sleep(0)
    stepper.pause()
    at = stepper.position
    assert not stepper.running
    await task
    assert stepper.position == at
    first = stepper.start()  # paused and started again before the old loop awoke
    await asyncio.sleep(0)
    stepper.pause()
    second = stepper.start()
    await first
    assert stepper.running and first is not second
    stepper.pause()
    await second


@in_loop
async def test_an_async_run_gives_way_after_every_step():
    stepper = Stepper(lambda: count(20), on_record=lambda r: log.append(r))
    log = []

    async def other():
        while not stepper.exhausted:
            log.append("other")
            await asyncio.sleep(0)

    await asyncio.gather(stepper.start(), other())
    records = [i for i, entry in enumerate(log) if entry != "other"]
    assert stepper.record == 20 and not stepper.running
    assert all(b - a > 1 for a, b in itertools.pairwise(records))


@in_loop
async def test_an_exception_in_an_async_run_is_kept():
    stepper = Stepper(broken)
    await stepper.start()
    assert isinstance(stepper.error, ArithmeticError) and not stepper.running
    assert "stopped: ArithmeticError" in stepper._label.value


@in_loop
async def test_reset_ends_an_async_run():
    stepper = Stepper(count)
    task = stepper.start()
    await asyncio.sleep(0)
    stepper.reset()
    await task
    assert stepper.position == 0 and not stepper.running


@in_loop
async def test_buttons_do_what_they_say_and_offer_what_is_possible():
    stepper = Stepper(lambda: count(3))
    press = {name: button.click for name, button in stepper._buttons.items()}
    assert enabled(stepper) == {"step", "run", "reset"}
    press["step"]()
    assert stepper._label.value == "step 1, paused"
    press["run"]()
    assert enabled(stepper) == {"pause", "reset"}
    press["pause"]()
    assert enabled(stepper) == {"step", "run", "reset"}
    press["run"]()
    await stepper._task
    assert enabled(stepper) == {"reset"}
    press["reset"]()
    assert stepper._label.value == "step 0, paused"


def test_a_failing_press_shows_in_the_status_line():
    stepper = Stepper(broken)
    stepper._buttons["step"].click()
    stepper._buttons["step"].click()
    assert "stopped: ArithmeticError" in stepper._label.value
    assert enabled(stepper) == {"reset"}


def test_speed_is_steps_per_second():
    stepper = Stepper(count, clock=lambda: 0.0)
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
    button = threading.Thread(target=stepper.step)
    cell = threading.Thread(target=stepper.step)
    button.start()
    inside.wait(10)
    cell.start()
    go_on.set()
    button.join(10)
    cell.join(10)
    assert stepper.error is None and stepper.position == 2


def test_css_classes_for_the_browser():
    stepper = Stepper(count)
    for name, button in stepper._buttons.items():
        assert f"labkit-{name}" in button._dom_classes and button.tooltip
    assert "labkit-status" in stepper._label._dom_classes
    assert "labkit-speed" in stepper._speed._dom_classes


def test_headless_is_one_static_line():
    stepper = Stepper(broken, interactive=False)
    stepper.step()
    assert stepper.widget is None
    bundle = stepper._repr_mimebundle_()
    assert bundle["text/html"] == "<p>step 1, paused</p>"
