"""Checks of options and tensors: what is taken, and the words for the rest."""

import math

import pytest
import torch

from labkit import check
from labkit.check import check_finite, check_options, check_tensor, described

x = torch.zeros(2, 3)
TABLE = {"rank": check.COUNT, "rate": check.POSITIVE, "kind": check.one_of("ab")}
RIGHT = [{}, {"shape": ("b", 3)}, {"shape": ("...", 3)}, {"shape": ("...", 2, "n")}]
RIGHT += [{"like": torch.ones(())}, {"dtype": torch.float32}, {"finite": True}]


@pytest.mark.parametrize("options", RIGHT)
def test_what_fits_is_handed_back_itself(options):
    assert check_tensor("x", x, **options) is x


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        (None, {}, "x must be a tensor, got None; see torch.as_tensor"),
        ([1.0], {}, r"x must be a tensor, got list \[1.0\]; "),
        (x.to_sparse(), {}, "x must be dense, got torch.sparse_coo; "),
        (x.long(), {}, "real floating point, got the dtype torch.int64"),
        (x.double(), {"like": x}, "dtype torch.float32, got torch.float64"),
        (x, {"dtype": torch.int64}, "dtype torch.int64, got torch.float32"),
        (x.to("meta"), {}, "x is on the device meta, where it holds no"),
        (x, {"like": x.to("meta")}, "x must be on meta, got cpu"),
        (x, {"shape": ("b", 4)}, r"x must have shape \(b, 4\), got \(2, 3\)"),
        (x, {"shape": ("n", "n")}, r"x must have shape \(n, n\), got \(2, 3\)"),
        (x / 0, {"finite": True}, r"x must be finite, got nan at \(0, 0\)"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(value, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check_tensor("x", value, **options)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_number_that_is_not_finite_is_named(bad):
    for numbers in ([1.0, bad], [1.0, bad, -bad], [1e308, 1e308, bad]):
        value = torch.tensor(numbers, dtype=torch.float64)
        place = numbers.index(bad)
        with pytest.raises(ValueError, match=rf"got {bad} at \({place},\)"):
            check_finite("x", value)
    check_finite("x", torch.tensor([1e308, 1e308], dtype=torch.float64))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank must be an integer >= 1, got 0"),
        ({"rank": True}, "rank must be an integer >= 1, got True"),
        ({"rate": math.nan}, "rate must be > 0 and finite, got nan"),
        ({"kind": "c"}, "kind must be one of a, b, got 'c'"),
        ({"rnk": 1}, "OK: there is no option 'rnk'; there are: rank, rate, kind"),
    ],
)
def test_an_option_out_of_its_range_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        check_options(options, TABLE, "OK")


def test_a_long_value_is_named_by_its_type():
    assert described([0.0] * 100) == "list"
