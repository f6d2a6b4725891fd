"""A finding: how the error of two sides is measured, and when a property holds."""

import math

import pytest
import torch

from labkit.theorems import Finding

TWO = torch.tensor([3.0, -4.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("found", "wanted", "error"),
    [
        (TWO, TWO, 0.0),
        (2 * TWO, TWO, 1.0),
        (TWO / 100, 2 * TWO / 100, 0.04),  # absolute where all is small
        (TWO[:1], TWO, math.inf),
        (TWO[None], TWO, math.inf),
        (math.nan * TWO, TWO, math.inf),
        (TWO[:0], TWO[:0], 0.0),
    ],
)
def test_an_error_is_relative_to_the_largest_entry(found, wanted, error):
    finding = Finding("It is so.", found, wanted, "two numbers")
    assert finding.error == pytest.approx(error) and finding.holds == (error == 0)


def test_a_finding_reads_as_two_sentences():
    text = str(Finding("It is so.", 2 * TWO, TWO, "two numbers", tolerance=2.0))
    assert text == "It is so. For two numbers the two sides differ by 1."
