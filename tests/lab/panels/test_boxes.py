"""Boxes of a worked example, as a reader fills them."""

import json
import math

import pytest

from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.live.boxes import Boxes, number


def drawn(values):
    return Figure(data=[{"x": values}], layout={"meta": {"caption": "", "alt": "x."}})


@pytest.mark.parametrize(
    ("text", "said"),
    [("2.5", "right"), ("5/2", "right"), ("2.6", "too large"), ("-1", "too small")],
)
def test_a_box_is_judged_when_it_is_filled(text, said):
    boxes = Boxes({"h": 2.5, "u": 1.0})
    boxes.boxes[0].value = text
    assert [mark.value for mark in boxes.marks] == [said, ""]
    boxes.boxes[1].value = "1"
    assert ("All right" in boxes.line.value) == (said == "right")


def test_what_is_no_number_is_said_and_an_emptied_box_is_open_again():
    boxes = Boxes({"h": 2.5})
    for text, said in (("half", "not a number"), ("1/0", "not a number"), (" ", "")):
        boxes.boxes[0].value = text
        assert boxes.marks[0].value == said
    assert math.isnan(number("nan"))


def test_what_is_filled_in_is_drawn():
    boxes = Boxes({"h": 2.5, "u": 1.0}, drawn)
    assert json.loads(boxes.plot.figure)["data"][0]["x"] == [None, None]
    boxes.boxes[1].value = "7"
    assert json.loads(boxes.plot.figure)["data"][0]["x"] == [None, 7.0]


def test_headless_the_answers_stand_there():
    boxes = Boxes({"h₁": 2.5, "u": 1.0}, drawn, interactive=False)
    assert boxes.widget is None
    assert "h₁ = 2.5, u = 1" in boxes.figure.html
