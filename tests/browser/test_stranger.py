"""A stranger's optimiser joins the race in a fresh notebook, as the how-to says."""

import pytest

pytest.importorskip("selenium")

from tests.browser.page import shown

pytestmark = pytest.mark.browser

RACE = 2  # the cell; all cells are the page's, see conftest
NAMES = ["Adam", "Muon", "RLS", "mine"]


@pytest.mark.parametrize("page", ["stranger"], indirect=True)
def test_a_strangers_optimiser_has_its_row_among_the_others(page):
    page.run_all()
    assert page.errors() == []
    told = lambda seen: all(name in seen["text"] for name in NAMES)  # noqa: E731
    shown(page, RACE, told, "a row for each")
