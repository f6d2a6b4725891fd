"""Panels that run: a cell's earlier ones end when it runs again."""

import asyncio
import gc
import weakref
from collections import Counter
from itertools import count

import pytest

from labkit.lab.books.broad_columns import COLUMNS
from labkit.lab.panels import Opening, Stepper
from labkit.lab.panels.live import cells
from tests.lab.panels.conftest import in_loop
from tests.lab.panels.test_live_lab import make as make_lab


@pytest.fixture
def cell(monkeypatch):
    """A function that says which cell runs, and as which message."""
    parent = {}

    def run(name, message):
        parent.update(metadata={"cellId": name}, header={"msg_id": message})

    monkeypatch.setattr(cells, "_parent", lambda: parent)
    monkeypatch.setattr(cells, "_made", {})
    return run


@pytest.mark.parametrize("make", [lambda: Stepper(count), make_lab])
@in_loop
async def test_running_a_cell_again_ends_what_it_had_begun(cell, make):
    cell("a", "1")
    made = [make(), make()]
    cell("b", "2")
    made.append(make())
    steppers = [getattr(each, "stepper", each) for each in made]
    for each in steppers:
        each.start()
    cell("a", "3")
    make()
    assert [each.running for each in steppers] == [False, False, True]
    assert [each.widget.comm is None for each in steppers] == [True, True, False]
    with pytest.raises(RuntimeError, match="its cell has run again"):
        steppers[0].start()
    made[-1].close()


def made_here():
    """How many objects of labkit's types and widgets there are, by type."""
    gc.collect()
    kinds = map(type, gc.get_objects())
    packages = ("labkit", "ipywidgets")
    return Counter(k.__name__ for k in kinds if str(k.__module__).startswith(packages))


@pytest.mark.parametrize("make", [make_lab, lambda: Opening(COLUMNS)])
def test_nothing_is_kept_of_what_a_cell_made_before(cell, make):
    """Nor its layouts, its figure and its trace, which grow with the run."""
    counts = []
    for message in "123":
        cell("a", message)
        panel = make()
        if stepper := getattr(panel, "stepper", None):
            stepper.step()
        counts.append(made_here())
    assert counts[-1] - counts[0] == Counter()
    panel.close()


@in_loop
async def test_a_stepper_that_nobody_can_reach_ends_its_run():
    stepper = Stepper(count, interactive=False)
    task, gone = stepper.start(), weakref.ref(stepper)
    await asyncio.sleep(0)
    del stepper
    gc.collect()
    await task
    assert gone() is None


@in_loop
async def test_a_run_that_is_interrupted_holds_up_no_other():
    def interrupted():
        yield 1
        raise asyncio.CancelledError

    broken = Stepper(interrupted, interactive=False)
    other = Stepper(lambda: iter(range(9)), interactive=False)
    await asyncio.wait([broken.start(), other.start()])
    assert broken.error is not None and other.exhausted
