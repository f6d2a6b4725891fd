"""Pages of runs as a reader sees them: narrow, folded, and in the report over all."""

import json

import pytest

pytest.importorskip("selenium")

from labkit.lab.books.compare import RACE
from labkit.lab.books.rls import ELLIPSE, EllipseKnobs
from labkit.lab.panels import LineStepper, Opening, curves
from labkit.lab.panels.figures.captions import Figure
from labkit.lab.panels.figures.shown import embedded
from labkit.lab.panels.live.played import PLAY, packed, played
from labkit.lab.runs.report import report
from tests.browser.page import sized, wait
from tests.browser.still import Played, Still, cell, exported
from tests.browser.test_screen import apart

pytestmark = pytest.mark.browser

FIGURE = """
const box = (part) => {
  const { left, right, top, bottom } = part.getBoundingClientRect();
  return [left, right, top, bottom].map(Math.round);
};
const plot = document.querySelector('.plotly-graph-div');
const boxes = (css) => [...plot.querySelectorAll(css)].map(box);
return {
  wide: document.documentElement.scrollWidth,
  plot: box(plot.querySelector('.main-svg')),
  below: box(document.querySelector('.labkit-play')),
  planes: boxes('.cartesianlayer .subplot .gridlayer'),
  words: [...plot.querySelectorAll('text')].map((t) => [t.textContent, box(t)]),
};
"""
CODE = """
return [...document.querySelectorAll('.jp-InputArea-editor')]
  .filter((each) => each.checkVisibility()).map((each) => each.innerText.trim());
"""
PICTURE = """
const frame = document.querySelector('.picture').getBoundingClientRect();
const drawn = document.querySelector('.picture .main-svg')?.getBoundingClientRect();
return drawn && [drawn.width / frame.width, drawn.height / frame.height];
"""


# The planes of all rules can be scrolled, and the page itself not.
WIDE = """
const plot = [...document.querySelectorAll('.plotly-graph-div')].at(-1);
const {scrollWidth, clientWidth, scrollHeight, clientHeight} = plot.parentElement;
return [scrollHeight > clientHeight ? 0 : scrollWidth, clientWidth];  // not down, too
"""
# Of the figure of curves: its frame, and its words.
LEGEND = """
const plot = [...document.querySelectorAll('.plotly-graph-div')].at(-2);
const box = (part) => {
  const {left, top, right, bottom} = part.getBoundingClientRect();
  return {left, top, right, bottom, text: part.textContent};
};
const words = [...plot.querySelectorAll('.infolayer text')].map(box);
return [box(plot.querySelector('.main-svg')), words.filter((w) => w.right > w.left)];
"""


def doubled(x):
    y = 2 * x
    return y


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A folder of one run: a picture that plays, folded code, a walk, two figures."""
    knobs = EllipseKnobs()
    opening = Opening(ELLIPSE, interactive=False).figure._repr_mimebundle_()
    play = {"text/html": embedded(PLAY, packed(played(ELLIPSE, (), knobs, 12, 12)))}
    walk = {"text/html": LineStepper(doubled, 3)._repr_html_()}
    rules = {f"a rule of {name}": ([1, 2], [3, 4]) for name in "abcdef"}
    many = curves({"Left": rules, "Right": rules}, "step", "error")
    planes = Figure(RACE.picture(None, None))
    cells = [cell("plumbing", folded=True), cell("the_step", opening, play)]
    cells += [cell("walk", walk), cell("many", many._repr_mimebundle_(), folded=True)]
    cells += [cell("planes", planes._repr_mimebundle_(), folded=True)]
    out = tmp_path_factory.mktemp("runs")
    folder = out / "20300102-030405-rls"
    exported(folder, *cells)
    about = {"name": "rls", "status": "finished", "parameters": {"hidden": 7}}
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "fc.jsonl").write_text('{"step": 1, "label": "RLS", "loss": 0.25}\n')
    return out


def test_a_page_of_a_run_can_be_read_where_it_is_narrow(driver, out):
    """No title cut, no words over others, no caption over a figure."""
    sized(driver, 390, 844)
    page = Still(driver, (out / "20300102-030405-rls/rls.html").as_uri())
    assert page.script(CODE) == ["the_step", "walk"]
    Played(page)
    wait(lambda: page.script(FIGURE)["plot"][1] <= 390, "the figure fits")
    found = page.script(FIGURE)
    assert found["wide"] <= 390 and found["plot"][3] <= found["below"][2] + 1
    first, *rest = sorted(found["planes"], key=lambda box: box[2])
    assert rest and all(box[2] >= first[3] - 1 for box in rest)
    for text, (left, right, _, bottom) in found["words"]:
        assert 0 <= left and right <= 390 and bottom <= found["plot"][3], text

    wait(lambda: page.script(LEGEND)[0]["right"] <= 390, "the curves fit")
    frame, words = page.script(LEGEND)
    assert {f"a rule of {name}" for name in "abcdef"} <= {
        each["text"] for each in words
    }
    assert all(apart(a, b) for i, a in enumerate(words) for b in words[:i])
    assert all(each["right"] <= frame["right"] for each in words)
    wait(lambda: page.script(WIDE)[0] > page.script(WIDE)[1], "many planes scroll")

    sized(driver, 1280, 844)
    in_a_row = lambda: len({box[2] for box in page.script(FIGURE)["planes"]}) == 1  # noqa: E731
    wait(in_a_row, "in a wide page they are side by side again")


def test_the_report_draws_the_picture_and_prints_the_numbers(driver, out):
    sized(driver, 1280, 844)
    page = Still(driver, report(out).as_uri())
    across, down = wait(lambda: page.script(PICTURE), "the picture is drawn")
    assert 0.95 < across <= 1.01 and 0.95 < down <= 1.01
    seen = page.find("main").text
    assert "RLS 0.25" in seen and "hidden=7" not in seen
