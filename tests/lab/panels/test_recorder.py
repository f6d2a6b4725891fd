"""Recording lines: order, changes, folding; test_walks compares the bits."""

import sys

import numpy as np
import pytest
import torch

from labkit.lab.panels.lines.tracer import PASSES, follow_lines, summarise
from tests.draws import seeded


def scaled(x, factor):
    y = x * factor
    y.add_(1)
    factor = float(factor)
    return y


def test_lines_come_in_order_with_what_they_changed():
    recording = follow_lines(scaled, torch.ones(3), 2)
    changed = [sorted(line.changed) for line in recording.lines]
    assert changed == [["y"], ["y"], ["factor"], []]
    first = scaled.__code__.co_firstlineno
    assert [line.line - first for line in recording.lines] == [1, 2, 3, 4]
    assert [line.values["y"].greatest for line in recording.lines] == [2, 3, 3, 3]
    assert torch.equal(recording.result, torch.full((3,), 3.0))


def loop(n):
    total = 0
    for i in range(n):
        total = total + i
    return total


def test_a_loop_numbers_its_turns_and_is_cut_at_the_limit():
    recording = follow_lines(loop, PASSES + 50)
    body = [line for line in recording.lines if "total" in line.changed][1:]
    assert [line.turn for line in body] == list(range(1, PASSES))
    assert recording.result == sum(range(PASSES + 50))


def halves(x):
    while x > 1:
        x = x // 2
        yield x


def drains(x):
    total = 0
    for part in halves(
        x,
    ):
        total += part
    return total


def test_a_generator_is_entered_again_when_it_goes_on():
    recording = follow_lines(drains, 8)
    assert recording.result == 7
    inside = [line for line in recording.lines if line.code.co_name == "halves"]
    assert len(inside) == 3 * 3 + 1 and {len(line.path) for line in inside} == {2}
    changed = [line.values["x"].text for line in inside if "x" in line.changed]
    assert changed == ["4", "2", "1"]
    first = drains.__code__.co_firstlineno
    heads = [line for line in recording.lines if line.line == first + 2]
    assert [line.turn for line in heads] == [0, 1, 2, 3]  # two lines, one statement


def helper(x):
    z = x + 1
    return z


def outer(x):
    y = helper(x)
    w = np.linalg.norm(y)
    return [v for v in (y, w)]


def test_helpers_are_followed_and_libraries_are_not():
    ran = [
        (len(line.path), line.code.co_name, *line.changed)
        for line in follow_lines(outer, torch.zeros(2)).lines
    ]
    helped, own = [(2, "helper", "z"), (2, "helper")], (1, "outer")
    assert ran == [*helped, (*own, "y"), (*own, "w"), own]
    alone = follow_lines(outer, torch.zeros(2), follow=())
    assert {line.code.co_name for line in alone.lines} == {"outer"}


def test_an_error_passes_through_and_tracing_ends():
    def fails(x):
        y = x + 1
        raise ValueError(y)

    with pytest.raises(ValueError, match="2"):
        follow_lines(fails, 1)
    assert sys.gettrace() is None
    with pytest.raises(TypeError, match="no Python source to walk"):
        follow_lines(len, [1])
    sys.settrace(lambda *a: None)
    try:
        with pytest.raises(RuntimeError, match="another tracer is at work"):
            follow_lines(helper, 1)
    finally:
        sys.settrace(None)


@pytest.mark.parametrize(("shape", "kept"), [((4, 5), True), ((40, 33), False)])
def test_a_summary_says_what_the_tensor_said(shape, kept):
    x = torch.randn(shape, generator=seeded())
    before, found = x.clone(), summarise(x)
    x.add_(1)  # what is kept stays
    assert found.shape == shape
    assert (found.least, found.greatest) == (before.min(), before.max())
    assert np.array_equal(found.entries, before if kept else None)


def test_a_long_text_is_cut_and_what_is_no_number_has_its_kind_alone():
    assert len(summarise("x" * 500).text) <= 80
    for value in (torch.zeros(0, 3), np.arange(3), object()):
        assert summarise(value).kind == type(value).__name__
