"""Pages of runs as a reader sees them: narrow, folded, and in the report over all."""

import json

import nbformat
import plotly.io
import pytest

pytest.importorskip("selenium")

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from labkit.instruments import Trace
from labkit.lab.books.rls import ELLIPSE
from labkit.lab.panels import Lines, LineStepper, LiveLab, LivePlot, curves
from labkit.lab.panels.figures.captions import CONFIG, Figure
from labkit.lab.panels.figures.shown import embedded
from labkit.lab.panels.live.played import PLAY, packed
from labkit.lab.runs.page import write_page
from labkit.lab.runs.report import report
from tests.browser.page import wait
from tests.browser.still import Played, Still
from tests.browser.test_screen import apart
from tests.browser.test_site import sized
from tests.lab.panels.test_played import record
from tests.lab.test_pictures import PICTURES

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
FAMILY = "return getComputedStyle(document.querySelector('.labkit-source')).fontFamily;"
CODE = """
return [...document.querySelectorAll('.jp-InputArea-editor')]
  .filter((each) => each.checkVisibility()).map((each) => each.innerText.trim());
"""
PICTURE = """
const frame = document.querySelector('.picture').getBoundingClientRect();
const drawn = document.querySelector('.picture .main-svg')?.getBoundingClientRect();
return drawn && [drawn.width / frame.width, drawn.height / frame.height];
"""


# Of the figure of a number: the buttons; the titles, each line by itself.
TITLES = """
const box = (part) => {
  const {left, top, right, bottom} = part.getBoundingClientRect();
  return {left, top, right, bottom};
};
const plot = document.querySelectorAll('.plotly-graph-div')[arguments[0]];
const [bar, titles] = ['.modebar-group', '.annotation-text']
  .map((css) => [...plot.querySelectorAll(css)].map(box));
return bar.length && titles.length && [bar, titles];
"""
# Of the planes of all rules: their titles; how wide they are, and what is seen of it.
PLANES = """
const plot = [...document.querySelectorAll('.plotly-graph-div')].at(-2);
return [...plot.querySelectorAll('.annotation-text')].map((part) => {
  const {left, top, right, bottom} = part.getBoundingClientRect();
  return {left, top, right, bottom};
});
"""
WIDE = """
const plot = [...document.querySelectorAll('.plotly-graph-div')].at(-2);
return [plot.parentElement.scrollWidth, plot.parentElement.clientWidth];
"""
# Of the figure with two legends and of that with one plane: its frame, and its words.
LEGENDS = """
const plots = [...document.querySelectorAll('.plotly-graph-div')].slice(-4, -2);
return plots.map((plot) => {
  const box = (part) => {
    const {left, top, right, bottom} = part.getBoundingClientRect();
    return {left, top, right, bottom, text: part.textContent};
  };
  const words = [...plot.querySelectorAll('.infolayer text')].map(box);
  return {
    frame: box(plot.querySelector('.main-svg')),
    words: words.filter((each) => each.right > each.left),
  };
});
"""
NAMES = """
const plot = [...document.querySelectorAll('.plotly-graph-div')].at(-1);
return [...plot.querySelectorAll('text')].map((text) => {
  const { left, right } = text.getBoundingClientRect();
  return [text.textContent.trim(), left, right];
});
"""

LONG = "a name too long to stand at its curve"
TITLE = "Right, under a title that is too long for a line of a narrow page"


def doubled(x):
    y = 2 * x
    return y


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A folder of one run: a picture that plays, folded code, and a walk."""
    lab = LiveLab(ELLIPSE, interactive=False)
    lab.run(12)
    shown = [lab.figure._repr_mimebundle_()]
    shown.append({"text/html": embedded(PLAY, packed(record(lab, 12)))})
    cells = [
        new_markdown_cell("# A run"),
        new_code_cell("plumbing", metadata={"jupyter": {"source_hidden": True}}),
        new_code_cell(
            "the_step", outputs=[new_output("display_data", s) for s in shown]
        ),
        new_code_cell(
            "walk",
            outputs=[
                new_output(
                    "display_data",
                    {"text/html": LineStepper(doubled, 3)._repr_html_()},
                )
            ],
        ),
    ]
    rules = {f"a rule of {name}": ([1, 2], [3, 4]) for name in "abcdef"}
    many = curves({"Left": rules, "Right": rules}, "step", "error")
    planes = Figure(PICTURES["regions"][0].picture(None, None))
    left, right = (
        Lines({"a": f"{which}: {LONG}", "b": "two", "c": "three"}, title, "error")
        for which, title in (("Left", "Left"), ("Right", TITLE))
    )
    trace = Trace()
    for step in range(3):
        trace.log(step, a=step, b=2 * step, c=3 * step)
    plots = (LivePlot(trace, p, interactive=False) for p in ([left, right], [left]))
    drawn = dict(zip(("few", "one"), (plot.figure for plot in plots), strict=True))
    drawn["planes"] = planes
    fold = {"jupyter": {"source_hidden": True}}
    for name, figure in (drawn | {"many": many}).items():
        drawn = new_output("display_data", figure._repr_mimebundle_())
        cells.append(new_code_cell(name, metadata=fold, outputs=[drawn]))
    out = tmp_path_factory.mktemp("runs")
    folder = out / "20300102-030405-rls"
    folder.mkdir()
    nbformat.write(new_notebook(cells=cells), folder / "rls.ipynb")
    write_page(folder / "rls.ipynb", folder / "rls.html")
    about = {"name": "rls", "status": "finished", "parameters": {"hidden": 7}}
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "fc.jsonl").write_text('{"step": 1, "label": "RLS", "loss": 0.25}\n')
    return out


@pytest.fixture
def page(driver, out):
    """The run's page, loaded once for all tests that follow each other here."""
    address = (out / "20300102-030405-rls/rls.html").as_uri()
    return Still(driver, address, again=False)


@pytest.fixture(scope="module", autouse=True)
def usual_window(driver):
    """Leave the window as it was."""
    yield
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_planes_stand_one_below_another_where_it_is_narrow(driver, page):
    """At 390 pixels: no title cut, no axis over the data, no caption over a figure."""
    sized(driver, 390, 844)
    Played(page)
    wait(lambda: page.script(FIGURE)["plot"][1] <= 390, "the figure fits")
    found = page.script(FIGURE)
    assert found["wide"] <= 390
    assert found["plot"][3] <= found["below"][2] + 1
    first, *rest = sorted(found["planes"], key=lambda box: box[2])
    assert rest and all(box[2] >= first[3] - 1 for box in rest)
    for text, (left, right, _, bottom) in found["words"]:
        assert 0 <= left and right <= 390 and bottom <= found["plot"][3], text


def test_many_planes_keep_their_width_and_are_scrolled_where_it_is_narrow(driver, page):
    sized(driver, 390, 844)
    titles = wait(lambda: page.script(PLANES), "the planes are drawn")
    assert len(titles) == 10
    wait(lambda: page.script(WIDE)[0] > page.script(WIDE)[1], "they can be scrolled")
    titles = page.script(PLANES)
    assert all(apart(a, b) for i, a in enumerate(titles) for b in titles[:i])
    assert page.script(FIGURE)["wide"] <= 390  # the page itself is not


def test_legends_have_their_rows_and_one_plane_shrinks_where_it_is_narrow(driver, page):
    sized(driver, 390, 844)
    fits = lambda: all(each["frame"]["right"] <= 390 for each in page.script(LEGENDS))  # noqa: E731
    wait(fits, "both figures fit")
    few, one = page.script(LEGENDS)
    told = [each["text"] for each in few["words"]]
    assert {"Left", f"Left: {LONG}", f"Right: {LONG}", "two", "three"} <= {*told}
    assert one["words"]
    for found in few, one:
        words, frame = found["words"], found["frame"]
        assert all(apart(a, b) for i, a in enumerate(words) for b in words[:i])
        assert all(each["right"] <= frame["right"] for each in words)
    assert TITLE.replace(" ", "") in "".join(told).replace(" ", "")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_names_of_a_legend_are_whole(driver, page, width):
    sized(driver, width, 844)
    names = wait(lambda: page.script(NAMES), "it is drawn")
    wait(lambda: all(right <= width for _, _, right in page.script(NAMES)), names)
    told = [name for name, left, _ in names if name.startswith("a rule of") and left]
    assert sorted(told) == [f"a rule of {name}" for name in "abcdef"]


def test_a_wide_page_has_them_side_by_side_again(driver, page):
    sized(driver, 390, 844)
    Played(page)
    wait(lambda: page.script(FIGURE)["plot"][1] <= 390, "the figure fits")
    sized(driver, 1280, 844)
    beside = lambda: len({box[2] for box in page.script(FIGURE)["planes"]}) == 1  # noqa: E731
    wait(lambda: page.script(FIGURE)["plot"][1] > 700 and beside(), "side by side")


def test_only_the_code_that_the_notebook_shows_is_seen(page):
    assert page.script(CODE) == ["the_step", "walk"]


def test_the_code_that_is_walked_has_letters_of_one_width(page):
    assert "monospace" in page.script(FAMILY)


def test_the_report_draws_the_picture_and_prints_the_numbers(driver, out):
    sized(driver, 1280, 844)
    page = Still(driver, report(out).as_uri())
    across, down = wait(lambda: page.script(PICTURE), "the picture is drawn")
    assert 0.95 < across <= 1.01 and 0.95 < down <= 1.01
    seen = page.find("main").text
    assert "RLS 0.25" in seen and "hidden=7" not in seen


@pytest.fixture(scope="module")
def pictures(driver, tmp_path_factory):
    """A page of all pictures, one below another."""
    sized(driver, 640, 844)  # as wide as beside its knobs
    figures = [dict(each[0].picture(None, None)) for each in PICTURES.values()]
    path = tmp_path_factory.mktemp("pictures") / "all.html"
    told = {"config": CONFIG, "validate": False, "full_html": False}
    with path.open("w") as file:
        for number, figure in enumerate(figures):
            once = {"include_plotlyjs": number == 0}
            file.write(plotly.io.to_html(figure, **told, **once))
    return Still(driver, path.as_uri())


@pytest.mark.parametrize("name", PICTURES)
def test_no_title_of_a_picture_lies_under_the_buttons_of_plotly(pictures, name):
    number = [*PICTURES].index(name)
    drawn = lambda: pictures.script(TITLES, number)  # noqa: E731
    (bar, *_), titles = wait(drawn, "it is drawn")
    assert bar["bottom"] - bar["top"] > 10 and titles
    assert all(apart(bar, title) for title in titles)
