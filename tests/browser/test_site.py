"""The site from a plain file server, with no other host to be reached."""

import contextlib
import http.server
import re
import subprocess
import threading
from functools import cache, partial
from html.parser import HTMLParser
from itertools import pairwise, product
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest

pytest.importorskip("selenium")
pytest.importorskip("sphinx")

import nbformat
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from labkit.lab.runs import notebooks, run
from tests.browser.page import wait
from tests.browser.still import Played, Still
from tests.browser.test_line_stepper import Walk, walk_by_mouse

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
FEW = {"samples": 256, "hidden": 16, "epochs": 1, "seeds": 2, "live_steps": 10}
LESSON = "notebooks/01_rls.html"
PAGES = (
    "index.html",
    "learn.html",
    "api/labkit.rls.RLS.html",
    "docs/howto/sweep.html",
    LESSON,
)
ASKED = "return performance.getEntriesByType('resource').map((each) => each.name);"
FORMULAS = """
return [...document.querySelectorAll('math')].filter((each) => each.checkVisibility())
  .map((each) => [each.getBoundingClientRect().height, each.textContent]);
"""
DRAWN = """
const root = arguments[0];
const before = [...document.querySelectorAll('.plotly-graph-div')]
  .filter((each) => each.compareDocumentPosition(root) & 4).at(-1);
return JSON.stringify(before.data.map(({ x, y, z }) => [x, y, z]));
"""
PAINT = "document.querySelector(`button[data-mode=${arguments[0]}]`).click();"
LOOK = """
return [document.documentElement.scrollWidth <= innerWidth, innerWidth,
        getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'];
"""


WHOLE = pytest.param("whole", marks=pytest.mark.long)


@pytest.fixture(scope="module", params=["part", WHOLE])
def built(request, tmp_path_factory):
    """Build the site of one small run, the other notebooks as they are committed.

    In part: of that notebook what is before its exercises, of the API some rooms.
    """
    home, part = tmp_path_factory.mktemp("docs"), request.param == "part"
    own, lesson = home / "notebooks", nbformat.read(notebooks()["rls"], as_version=4)
    if part:
        titles = [cell.source.partition("\n")[0] for cell in lesson.cells]
        lesson.cells = lesson.cells[: titles.index("## Exercises")]
    own.mkdir()
    nbformat.write(lesson, own / "01_rls.ipynb")
    with contextlib.chdir(home):
        assert run("rls", FEW).ok
    for name, path in notebooks().items():
        if name != "rls":
            (home / f"runs/0-{name}").mkdir()
            (home / f"runs/0-{name}/{name}.ipynb").write_bytes(path.read_bytes())
    make = ["make", "-C", ROOT, "--no-print-directory", "site", f"DOCS={home}"]
    make.append("ROOMS=" + "rls broad instruments" * part)
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return home / "site"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(built):
    """Serve the site's files."""
    handler = partial(Quiet, directory=built)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Links(HTMLParser):
    """What a page refers to, and the names of its places."""

    def __init__(self, path):
        super().__init__()
        self.to, self.places = set(), {""}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.places |= {given.get("id", ""), given.get("name", "")}
        if tag in ("a", "link", "img", "script"):
            self.to |= {v for k, v in attrs if k in ("href", "src") and v}


def test_no_link_inside_the_site_is_broken(built):
    found = [
        page for page in built.rglob("*.html") if built / "_static" not in page.parents
    ]
    pages = {page.as_uri(): Links(page) for page in found}  # there: the theme's parts
    assert len(pages) > 100
    exists = cache(lambda address: Path(unquote(urlparse(address).path)).exists())
    broken = []
    for page, links in pages.items():
        for link in links.to:
            there, place = urldefrag(urljoin(page, link))
            if not there.startswith("file:"):
                continue
            known = pages.get(there)
            if not exists(there):
                broken.append((page, link))
            elif known and unquote(place) not in known.places:
                broken.append((page, link))
    assert broken == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_as_wide_as_the_window_and_asks_no_other_host(
    driver, address, window, path
):
    window(390, 900)
    page = Still(driver, address + path)
    asked = page.script(ASKED)
    assert len(asked) > 5 and [each for each in asked if address not in each] == []
    looks = lambda: page.script(LOOK)  # noqa: E731
    for width, theme in product((390, 1280), ("dark", "light")):
        window(width, 900)
        page.script(PAINT, theme)
        wanted = [True, width, theme == "light"]
        wait(lambda it=wanted: looks() == it, lambda it=wanted: f"{looks()}, not {it}")
    page.script("new Image().src = 'http://elsewhere.test/a.png'")
    wait(lambda: len(page.script(ASKED)) > len(asked), "one that is asked is seen")


def test_a_page_opens_in_the_theme_of_the_one_before(driver, address):
    page = Still(driver, address)
    for theme in ("dark", "light"):
        page.script(PAINT, theme)
        page = Still(driver, address + "learn.html")
        light = lambda p=page: p.script(LOOK)[2]  # noqa: E731
        wait(lambda it=light, t=theme: it() == (t == "light"), f"it opens {theme}")


@pytest.fixture
def lesson(driver, address):
    """The lesson, loaded once for all tests that follow each other here."""
    return Still(driver, address + LESSON, again=False)


def test_a_lesson_folds_as_its_notebook_does(lesson):
    assert lesson.script(FOLDED) > 2
    (text,) = lesson.script(PARAMETERS)
    assert "run_dir" not in text and "samples: int = 256" in text


def test_exponents_stand_where_a_math_font_puts_them(driver, lesson):
    assert driver.execute_async_script(FONT) == ["loaded"]


def test_the_lines_of_a_step_are_walked(driver, lesson):
    walk_by_mouse(lesson, walk := Walk(lesson))
    lesson.find(".labkit-walk [role='status']").click()
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_LEFT):
        driver.switch_to.active_element.send_keys(key)
        walk.moved(f"{key} walks")


def test_a_run_is_played_and_its_knob_turned(lesson):
    play = Played(lesson)
    drawn = lambda: lesson.script(DRAWN, play.root)  # noqa: E731
    play.slider.send_keys(Keys.HOME)
    first, (step, _) = drawn(), play.step()
    play.press()
    wait(lambda: play.step()[0] > step and drawn() != first, "Play plays")
    play.slider.send_keys(Keys.END)
    before, values = drawn(), play.values()
    play.knobs[0].send_keys(Keys.END)
    assert play.values() != values
    wait(lambda: drawn() != before, "the knob shows another recording")


def test_a_step_and_a_knob_are_kept_in_the_address(driver, lesson):
    play = Played(lesson)
    play.slider.send_keys(Keys.HOME)
    play.slider.send_keys(Keys.ARROW_RIGHT)
    play.knobs[0].send_keys(Keys.END)
    state, sent = (play.step(), play.values()), driver.current_url
    drawn = lesson.script(DRAWN, play.root)
    assert sent.partition("#")[2].startswith("step=2&")
    driver.get("about:blank")
    play = Played(page := Still(driver, sent))
    assert (play.step(), play.values()) == state
    wait(lambda: page.script(DRAWN, play.root) == drawn, "the same figure is drawn")


@pytest.mark.parametrize("path", [LESSON, "api/labkit.rls.rls_step.html"])
def test_formulas_are_drawn(driver, address, path):
    drawn = Still(driver, address + path, again=False).script(FORMULAS)
    assert len(drawn) > 3 and min(height for height, _ in drawn) > 5
    assert not [text for _, text in drawn if "\\" in text or "$" in text]


@pytest.mark.parametrize("still", [False, True])
def test_the_front_page_moves_unless_motion_is_unwished(driver, address, still):
    wish = {"name": "prefers-reduced-motion", "value": "reduce" if still else ""}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [wish]})
    play = Played(Still(driver, address))
    assert play.button.text == ("Play" if still else "Pause")
    step = play.step()
    if not still:
        wait(lambda: play.step() != step, "the picture moves")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


# Of each part of the front page: whether all of it is in the window, and on top.
SEEN = """
const cards = [1, 2, 3].map((i) => `.sd-col:nth-child(${i}) .sd-card`);
return ['h1', '.entrances pre', ...cards, '.moving .main-svg'].map((css) => {
  const part = document.querySelector(`.bd-article ${css}`);
  const { left, right, top, bottom } = part.getBoundingClientRect();
  const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  const on = css.startsWith('.moving') ? hit?.closest('.moving') : part.contains(hit);
  return [css, top >= 0 && bottom <= innerHeight && right <= innerWidth && Boolean(on)];
});
"""
# Boxes of what stands one below another, in order, and of the figure's two planes.
STACK = """
const box = (part) => {
  const { left, right, top, bottom } = part.getBoundingClientRect();
  return [Math.round(left), Math.round(right), Math.round(top), Math.round(bottom)];
};
const all = (css) => [...document.querySelectorAll(`.bd-article ${css}`)].map(box);
return { parts: [...all('h1'), ...all('.entrances > p'), ...all('.entrances pre'),
                 ...all('.sd-card'), ...all('.moving .main-svg').slice(0, 1),
                 ...all('.moving .labkit-caption'), ...all('.labkit-play')],
         planes: all('.moving .gridlayer'),
         words: all('.moving text') };
"""
LESSONS = """
return [...document.querySelectorAll('.lessons .sd-card')].map((card) => {
  const image = card.querySelector('img');
  return [card.innerText, image ? image.naturalWidth : 0];
});
"""
FOLDED = """
return [...document.querySelectorAll('details')].filter((each) => !each.open
  && each.querySelector('.highlight pre')?.checkVisibility() === false).length;
"""
PARAMETERS = """
return [...document.querySelectorAll('.bd-article pre')]
  .map((each) => each.textContent).filter((text) => /^data\\b/m.test(text));
"""
# Whether the button that copies the first block is on top, and how well it is seen.
COPY = """
const button = document.querySelector('.highlight .copybtn');
button.scrollIntoView({ block: 'center' });
const { left, top, width, height } = button.getBoundingClientRect();
const hit = document.elementFromPoint(left + width / 2, top + height / 2);
return [button.contains(hit), getComputedStyle(button).opacity];
"""
PRINTED = """
return [...document.querySelectorAll('.printed')].map((each) => {
  const above = each.previousElementSibling.getBoundingClientRect();
  const { top } = each.getBoundingClientRect();
  return [each.innerText.trim(), Math.round(top - above.bottom),
          each.querySelector('.copybtn') === null];
});
"""
# Whether the font for formulas has come.
FONT = """
const done = arguments[0];
document.fonts.ready.then(() => done([...document.fonts]
  .filter((each) => each.family.includes('labkit Math')).map((each) => each.status)));
"""
WIDTHS = """
return [...document.querySelectorAll('.bd-article img')].map((image) =>
  image.getBoundingClientRect().width / image.closest('p, section').clientWidth);
"""
MARKS = """
return [...document.querySelectorAll('td[class^="verdict"] p')].map((each) =>
  [each.textContent, getComputedStyle(each, '::before').content]);
"""


def sized(driver, width, height):
    """Have a window of this size."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.fixture
def window(driver):
    """A window that a test may have at another size."""
    yield lambda width, height: sized(driver, width, height)
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_front_page_is_above_the_fold(driver, address, window):
    window(1280, 720)
    page = Still(driver, address)
    Played(page)
    page.script("scrollTo(0, 0)")
    assert [css for css, seen in page.script(SEEN) if not seen] == []


def test_the_front_page_is_stacked_where_it_is_narrow(driver, address, window):
    window(390, 844)
    page = Still(driver, address)
    Played(page)
    narrow = lambda: page.script(STACK)["parts"][-3][1] <= 390  # noqa: E731
    wait(narrow, "the figure fits")
    found = page.script(STACK)
    for (*_, bottom), (*_, top, _) in pairwise(found["parts"]):
        assert bottom <= top + 1, found["parts"]
    for left, right, *_ in [*found["parts"], *found["words"]]:
        assert 0 <= left and right <= 390, found
    first, *others = sorted(found["planes"], key=lambda box: box[2])
    assert any(box[2] >= first[3] for box in others), "one plane below the other"


def test_lessons_say_how_long_they_take_and_what_they_need(driver, address):
    page = Still(driver, address + "learn.html")
    lessons = page.script(LESSONS)
    assert len(lessons) == 7
    stills = ['"still"' in path.read_text("utf-8") for path in notebooks().values()]
    for number, (text, width) in enumerate(lessons, 1):
        assert re.match(rf"{number}\. [A-Z]", text), text
        assert re.search(r"\d+ minutes\. You need [a-z]", text), text
        assert (width > 300) == stills[number - 1], text


def test_no_page_names_a_path_of_this_machine(built, tmp_path_factory):
    home = str(tmp_path_factory.getbasetemp())
    named = [
        path
        for path in built.rglob("*.html")
        if any(each in path.read_text("utf-8") for each in (home, str(ROOT)))
    ]
    assert named == []


def test_the_site_is_small(built):
    sizes = {path: path.stat().st_size for path in built.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 40e6
    pages = {path: size for path, size in sizes.items() if path.suffix == ".html"}
    assert {path: size for path, size in pages.items() if size > 3e6} == {}


def test_a_how_to_page_shows_what_its_code_prints_and_copies_it(driver, address):
    page = Still(driver, address + "docs/howto/five_papers.html")
    printed = page.script(PRINTED)
    assert [text.partition(":")[0] for text, _, _ in printed[:2]] == [
        "RLS",
        "Hessian-free",
    ]
    assert all(-2 <= gap <= 4 and bare for _, gap, bare in printed)
    wait(lambda: page.find(".highlight .copybtn"), "the button is there")
    ActionChains(driver).move_to_element(page.find(".highlight pre")).perform()
    wait(lambda: page.script(COPY) == [True, "1"], "it is on top, and seen")


def test_figures_of_results_are_as_wide_as_their_column(driver, address):
    page = Still(driver, address + "docs/reproduction/rls.html")
    widths = page.script(WIDTHS)
    assert widths and min(widths) > 0.99
    marks = dict(page.script(MARKS))
    assert set(marks) >= {"yes", "no"} and marks["yes"] != marks["no"] != "none"
