"""Today's labkit gives the numbers of commit 8a1e143, up to rounding."""

import numpy as np
import pytest

from tests.golden.record import HERE, cases, computed

ROOMS = sorted(path.stem.removeprefix("of_") for path in HERE.glob("of_*.py"))
CASES = [(room, name) for room in ROOMS for name in cases(room)]


@pytest.mark.parametrize(("room", "name"), CASES)
def test_the_numbers_are_those_of_before(room, name):
    golden = np.load(HERE / f"{room}.npz")
    found = computed(cases(room)[name])
    wanted = {
        key.partition("/")[2]: golden[key]
        for key in golden.files
        if key.partition("/")[0] == name
    }
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_allclose(
            found[key], value, rtol=1e-9, atol=1e-11, err_msg=key
        )
