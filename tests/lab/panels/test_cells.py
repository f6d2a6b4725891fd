"""Panels that run: a cell's earlier ones end when it runs again."""

import asyncio
import gc
import weakref
from collections import Counter
from itertools import count

import pytest
from ipywidgets.widgets.widget import _instances

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


def make_opening():
    return Opening(COLUMNS)


@pytest.mark.parametrize("make", [lambda: Stepper(count), make_lab])
@in_loop
async def test_running_a_cell_again_ends_what_it_had_begun(cell, make):
    cell("a", "1")
    first, beside = make(), make()
    cell("b", "2")
    other = make()
    for each in (first, beside, other):
        getattr(each, "stepper", each).start()
    cell("a", "3")
    make()
    for each, runs in ((first, False), (beside, False), (other, True)):
        stepper = getattr(each, "stepper", each)
        assert stepper.running == runs
        assert (stepper.widget.comm is None) != runs
    with pytest.raises(RuntimeError, match="its cell has run again"):
        getattr(first, "stepper", first).start()
    other.close()


def test_a_lab_that_is_closed_leaves_nothing_behind(cell):
    cell("a", "1")
    lab = make_lab()
    lab.run(2)
    widgets = [lab.plot.widget, *lab.controls.widgets.values(), lab.note, lab.turned]
    lab.close()
    assert all(widget.comm is None for widget in widgets)
    assert lab.trace._subscribers == {}


@pytest.mark.parametrize("make", [make_lab, make_opening])
def test_no_widget_is_left_of_what_a_cell_made_before(cell, make):
    """Not even its layout: a session of re-runs would pile them up."""
    cell("a", "1")
    first = make()
    first.widget._repr_mimebundle_()
    made = len(_instances)
    cell("a", "2")
    second = make()
    second.widget._repr_mimebundle_()
    assert len(_instances) == made and first.widget.comm is None
    second.close()
    second.close()


def made_here():
    """How many objects of labkit's types there are, by type."""
    gc.collect()
    found = Counter()
    for kind, n in Counter(map(type, gc.get_objects())).items():
        if str(kind.__module__).startswith("labkit"):
            found[kind.__name__] += n
    return found


@pytest.mark.parametrize("make", [make_lab, make_opening])
def test_nothing_is_kept_of_what_a_cell_made_before(cell, make):
    """Nor its figure and its trace, which grow with the run."""
    counts = []
    for message in "123":
        cell("a", message)
        panel = make()
        if lab := getattr(panel, "stepper", None):
            lab.step()
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
