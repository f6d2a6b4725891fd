from itertools import combinations

import numpy as np
import pytest

from labkit.lab.colours import NUMBERS
from labkit.lab.panels import curves
from labkit.lab.panels.figures.theme import (
    BUTTON,
    COLOURS,
    GRID,
    INK,
    PAPER,
    TWINS,
    colour_of,
    numbers,
)

# What is left of linear RGB when one kind of cone is missing: Machado, Oliveira and
# Fernandes (2009), "A physiologically-based model for simulation of color vision
# deficiency", severity 1.
MISSING = {
    "none": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
# Linear RGB to CIE XYZ, D65 (IEC 61966-2-1); its second row gives the luminance.
XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)
APART = 20  # CIELAB; about 2.3 is just noticed side by side


def linear(colour):
    s = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(s <= 0.04045, s / 12.92, ((s + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """Ratio of WCAG 2."""
    low, high = sorted(XYZ[1] @ linear(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def cielab(rgb):
    t = XYZ @ np.clip(rgb, 0, 1) / XYZ.sum(axis=1)
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.fixture(params=["light", "dark"])
def as_seen(request):
    """A colour as the theme shows it."""
    return TWINS.get if request.param == "dark" else lambda colour: colour


def test_curves_and_text_stand_out_from_the_background(as_seen):
    paper = as_seen(PAPER)
    assert all(contrast(as_seen(colour), paper) >= 3 for colour in COLOURS)
    # Names at the ends of curves are text, in the colours of the first curves.
    for text in (*COLOURS[:5], INK):
        assert contrast(as_seen(text), paper) >= 4.5
    assert contrast(BUTTON, paper) >= 3
    assert contrast(as_seen(GRID), paper) < contrast(as_seen(COLOURS[5]), paper)


@pytest.mark.parametrize("kind", MISSING)
def test_any_two_curves_are_told_apart_whatever_cone_is_missing(kind, as_seen):
    seen = [cielab(MISSING[kind] @ linear(as_seen(colour))) for colour in COLOURS]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > APART


# What notebooks and panels call a rule, beside other labels.
NAMED = [("Adam", "loss"), ("test", "Adam, rate 1e-2"), ("8-OK", "25-TBPTT", "UORO")]
NAMED += [("BPLS, sigmoid", "Gauss-Newton (ours)", "Adam 128, tanh"), ("LSMR", "CG")]


def lines_of(labels):
    """How the curves with these labels are drawn."""
    figure = curves({"A": {label: ([1], [1.0]) for label in labels}}, "x", "y")
    return [trace["line"] for trace in figure["data"]]


@pytest.mark.parametrize("labels", NAMED)
def test_a_rule_has_one_colour_wherever_it_is_drawn(labels):
    colours = [line["color"] for line in lines_of(labels)]
    assert len(set(colours)) == len(labels)
    for label, colour in zip(labels, colours, strict=True):
        rule = label.split(",")[0].split()[0].rpartition("-")[2]
        assert rule not in NUMBERS or colour == colour_of(rule)


def test_two_of_one_rule_differ_by_dash_and_none_takes_a_rules_colour():
    first, again, other = lines_of(("Adam", "Adam, tuned", "x"))
    assert first["color"] == again["color"] != other["color"]
    assert first["dash"] != again["dash"]
    many = numbers([*NUMBERS, *"abcdefgh"])
    assert len({many[label] for label in "abcdefgh"}) == 8
