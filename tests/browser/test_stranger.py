"""A stranger's optimiser joins the race in a fresh notebook, as the how-to says."""

import pytest

pytest.importorskip("selenium")

from tests.browser.page import PROMPT, shown

pytestmark = pytest.mark.browser

FIGURE = 3  # the cell; all cells are the page's, see conftest
NAMES = ["Adam", "Muon", "RLS", "mine"]
WORDS = f"""
const figure = [...document.querySelectorAll('{PROMPT}')].at(-1).closest('.jp-Cell');
figure.scrollIntoView({{block: 'end'}});
return [...figure.querySelectorAll('.js-plotly-plot text')]
  .filter((word) => word.checkVisibility()).map((word) => word.textContent.trim());
"""


@pytest.mark.parametrize("page", ["stranger"], indirect=True)
def test_a_strangers_optimiser_has_its_curve_beside_the_others(page):
    page.run_all()
    assert page.errors() == []
    seen = shown(page, FIGURE, lambda seen: {*NAMES} <= {*seen["curves"]}, "the curves")
    # A name stands in the legend, or at its curve's end where there is room.
    assert {*NAMES} <= {*page.script(WORDS)}
    for name in NAMES:
        curve = seen["curves"][name]
        assert curve[-1] < curve[0] < 100, name
