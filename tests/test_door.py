"""The door for arrays: what is taken, and the words with which the rest is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from labkit.check import check_finite, check_tensor, described

x = torch.zeros(2, 3)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shape": ("b", 3)},
        {"shape": ("...", 3)},
        {"shape": ("...", 2, "n")},
        {"shape": ("...",)},
        {"like": torch.ones(())},
        {"dtype": torch.float32},
        {"dtype": (torch.float64, torch.float32)},
        {"finite": True},
    ],
)
def test_what_fits_is_handed_back_itself(options):
    assert check_tensor("x", x, **options) is x


@pytest.mark.parametrize(
    ("value", "options", "error", "words"),
    [
        (None, {}, TypeError, "x must be a tensor, got None; see torch.as_tensor"),
        ([1.0], {}, TypeError, "x must be a tensor, got list [1.0]; "),
        ("ten", {}, TypeError, "x must be a tensor, got str 'ten'; "),
        (np.zeros(99), {}, TypeError, "x must be a tensor, got ndarray; "),
        (x.to_sparse(), {}, TypeError, "x must be dense, got torch.sparse_coo; "),
        (x.long(), {}, TypeError, "real floating point, got the dtype torch.int64"),
        (x.cfloat(), {}, TypeError, "real floating point, got the dtype torch.complex"),
        (x.double(), {"like": x}, TypeError, "dtype torch.float32, got torch.float64"),
        (x, {"dtype": torch.int64}, TypeError, "dtype torch.int64, got torch.float32"),
        (x.to("meta"), {}, ValueError, "x is on the device meta, where it holds no"),
        (x, {"like": x.to("meta")}, ValueError, "x must be on meta, got cpu"),
        (x, {"shape": ("b", 4)}, ValueError, "x must have shape (b, 4), got (2, 3)"),
        (x, {"shape": ("n", "n")}, ValueError, "x must have shape (n, n), got (2, 3)"),
        (x, {"shape": (6,)}, ValueError, "x must have shape (6,), got (2, 3)"),
        (x, {"shape": ("...", 1, 2, 3)}, ValueError, "(..., 1, 2, 3), got (2, 3)"),
        (x / 0, {"finite": True}, ValueError, "x must be finite, got nan at (0, 0)"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(value, options, error, words):
    with pytest.raises(error) as caught:
        check_tensor("x", value, **options)
    assert words in str(caught.value)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1))
def test_numbers_are_refused_exactly_where_one_is_not_finite(numbers):
    value = torch.tensor(numbers, dtype=torch.float64)
    if value.isfinite().all():
        check_finite("x", value)
    else:
        first = int((~value.isfinite()).nonzero()[0])
        with pytest.raises(ValueError, match=rf"at \({first},\)"):
            check_finite("x", value)


def test_a_long_value_is_named_by_its_type():
    assert described([0.0] * 100) == "list"
    assert described(lambda: 0) == "function"
