"""The short form of the soak: a fixed number of clicks on a fixed seed."""

import pytest

pytest.importorskip("selenium")

from tests.browser.soak import ACTIONS, Soak

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("page", ["soak"], indirect=True)
def test_random_clicks_leave_nothing_behind(page):
    """Memory is a matter of the long form; the kernel's widgets can be counted."""
    clicks = Soak(page, seed=22)  # all kinds of clicks are among the later twelve
    for _ in range(6):
        clicks.act()
    before = clicks.renew()
    for _ in range(12):
        clicks.act()
    assert all(clicks.done[kind] for kind in ACTIONS)
    after = clicks.renew()
    assert after["widgets"] == before["widgets"] and after["runs"] == 0
