"""The site from a plain file server, with no other host to be reached."""

import contextlib
import http.server
import subprocess
import threading
from functools import cache, partial
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest

from tests import ROOT

pytest.importorskip("selenium")
pytest.importorskip("sphinx")

import nbformat
from selenium.webdriver.common.keys import Keys

from labkit.lab.runs import notebooks, run
from tests.browser.page import sized, wait
from tests.browser.still import Played, Still
from tests.browser.test_line_stepper import Walk, walk_by_mouse

pytestmark = pytest.mark.browser

FEW = {"samples": 256, "hidden": 16, "epochs": 1, "seeds": 2, "live_steps": 10}
LESSON = "notebooks/01_rls.html"
PAGES = (
    "index.html",
    "learn.html",
    "api/labkit.rls.RLS.html",
    "docs/howto/sweep.html",
    "docs/reproduction/hessian_free.html",
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
const wide = [document.documentElement, ...document.querySelectorAll('h1')];
return [wide.every((each) => each.scrollWidth <= each.clientWidth), innerWidth,
        getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'];
"""


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
FOLDED = """
return [...document.querySelectorAll('details')].filter((each) => !each.open
  && each.querySelector('.highlight pre')?.checkVisibility() === false).length;
"""
PARAMETERS = """
return [...document.querySelectorAll('.bd-article pre')]
  .map((each) => each.textContent).filter((text) => /^data\\b/m.test(text));
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the site of one small run, the other notebooks as they are committed.

    Of that notebook what is before its exercises; of the API some rooms.
    """
    home = tmp_path_factory.mktemp("docs")
    committed = notebooks()
    own, lesson = home / "notebooks", nbformat.read(committed["rls"], as_version=4)
    titles = [cell.source.partition("\n")[0] for cell in lesson.cells]
    lesson.cells = lesson.cells[: titles.index("## Exercises")]
    own.mkdir()
    nbformat.write(lesson, own / "01_rls.ipynb")
    with contextlib.chdir(home):
        assert run("rls", FEW, out=home / "runs").ok
    for name, path in committed.items():
        if name != "rls":
            (home / f"runs/0-{name}").mkdir()
            (home / f"runs/0-{name}/{name}.ipynb").write_bytes(path.read_bytes())
    make = ["make", "-C", ROOT, "--no-print-directory", "site", f"DOCS={home}"]
    make.append("ROOMS=rls broad instruments")
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
def test_a_page_is_as_wide_as_the_window_and_asks_no_other_host(driver, address, path):
    sized(driver, 390)
    page = Still(driver, address + path)
    asked = page.script(ASKED)
    assert len(asked) > 5 and [each for each in asked if address not in each] == []
    looks = lambda: page.script(LOOK)  # noqa: E731
    for width, theme in product((390, 1280), ("dark", "light")):
        sized(driver, width)
        page.script(PAINT, theme)
        wanted = [True, width, theme == "light"]
        wait(lambda it=wanted: looks() == it, lambda it=wanted: f"{looks()}, not {it}")
    page.script("new Image().src = 'http://elsewhere.test/a.png'")
    wait(lambda: len(page.script(ASKED)) > len(asked), "one that is asked is seen")


def test_a_lesson_is_folded_walked_and_played(driver, address):
    lesson = Still(driver, address + LESSON)
    assert lesson.script(FOLDED) > 2
    (text,) = lesson.script(PARAMETERS)
    assert "run_dir" not in text and "samples: int = 256" in text
    walk_by_mouse(lesson, walk := Walk(lesson))
    lesson.find(".labkit-walk [role='status']").click()
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_LEFT):
        driver.switch_to.active_element.send_keys(key)
        walk.moved(f"{key} walks")

    play = Played(lesson)
    drawn = lambda: lesson.script(DRAWN, play.root)  # noqa: E731
    first = drawn()
    play.knobs[0].send_keys(Keys.END)
    wait(lambda: drawn() != first, "the knob shows another recording")


@pytest.mark.parametrize("path", [LESSON, "api/labkit.rls.rls_step.html"])
def test_formulas_are_drawn(driver, address, path):
    drawn = Still(driver, address + path).script(FORMULAS)
    assert len(drawn) > 3 and min(height for height, _ in drawn) > 5
    assert not [text for _, text in drawn if "\\" in text or "$" in text]


@pytest.mark.parametrize("still", [False, True])
def test_the_front_page_moves_unless_motion_is_unwished(driver, address, still):
    wish = {"name": "prefers-reduced-motion", "value": "reduce" if still else ""}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [wish]})
    sized(driver, 1280)
    play = Played(page := Still(driver, address))
    assert play.button.text == ("Play" if still else "Pause")
    step = play.step()
    if not still:
        wait(lambda: play.step() != step, "the picture moves")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    page.script("scrollTo(0, 0)")  # all of it is above the fold
    assert [css for css, seen in page.script(SEEN) if not seen] == []


def test_the_site_is_small_and_names_no_path_of_this_machine(built, tmp_path_factory):
    sizes = {path: path.stat().st_size for path in built.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 40e6
    pages = [path for path in sizes if path.suffix == ".html"]
    assert [path for path in pages if sizes[path] > 3e6] == []
    own = str(tmp_path_factory.getbasetemp()), str(ROOT)
    texts = {path: path.read_text("utf-8") for path in pages}
    assert [p for p, text in texts.items() if any(each in text for each in own)] == []
