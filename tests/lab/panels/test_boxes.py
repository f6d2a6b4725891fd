"""Boxes of a worked example, as a reader fills them."""

import pytest

from labkit.lab.panels.live.boxes import Boxes


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2.5", "right"),
        ("5/2", "right"),
        ("2.6", "too large"),
        ("-1", "too small"),
        ("half", "not a number"),
        ("1/0", "not a number"),
        (" ", ""),
    ],
)
def test_a_box_is_judged_when_it_is_filled(text, shown):
    boxes = Boxes({"h": 2.5, "u": 1.0})
    boxes.boxes[0].value = text
    assert [mark.value for mark in boxes.marks] == [shown, ""]
    boxes.boxes[1].value = "1"
    assert ("All right" in boxes.line.value) == (shown == "right")


def test_headless_the_answers_stand_there():
    boxes = Boxes({"h₁": 2.5, "u": 1.0}, interactive=False)
    assert boxes.widget is None
    assert "h₁ = 2.5, u = 1" in boxes.figure.html
