"""The short form of the soak: a fixed number of clicks on a fixed seed."""

import pytest

pytest.importorskip("selenium")

from tests.browser.soak import soak

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("page", ["soak"], indirect=True)
def test_random_clicks_leave_nothing_behind(page):
    """Memory is a matter of the long form; the kernel's widgets can be counted."""
    before, after = soak(page, lambda done: done < 28)
    assert after["widgets"] == before["widgets"] and after["runs"] == 0
