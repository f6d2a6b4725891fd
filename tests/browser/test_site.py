"""The site from a plain file server, with no other host to be reached."""

import http.server
import subprocess
import threading
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest

pytest.importorskip("selenium")
pytest.importorskip("sphinx")

from selenium.webdriver.common.keys import Keys

from labkit.lab.runs import notebooks, run
from tests.browser.page import wait
from tests.browser.still import Played, Still
from tests.browser.test_line_stepper import Walk, walk_by_mouse

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
FEW = {"samples": 256, "hidden": 16, "epochs": 1, "seeds": 1, "live_steps": 10}
LESSON = "notebooks/01_rls.html"
PAGES = ("index.html", LESSON, "api/labkit.rls.RLS.html", "docs/howto/sweep.html")
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
WIDE = "return [document.documentElement.scrollWidth, innerWidth];"
DARK = "return getComputedStyle(document.body).backgroundColor;"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the site of one small run, the other notebooks as they are committed."""
    home = tmp_path_factory.mktemp("docs")
    assert run("rls", FEW, out=home / "runs").ok
    for name, path in notebooks().items():
        if name != "rls":
            (home / f"runs/0-{name}").mkdir()
            (home / f"runs/0-{name}/{name}.ipynb").write_bytes(path.read_bytes())
    make = ["make", "-C", ROOT, "--no-print-directory", "site", f"DOCS={home}"]
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
    broken = []
    for page, links in pages.items():
        for link in links.to:
            there, place = urldefrag(urljoin(page, link))
            if urlparse(there).scheme != "file":
                continue
            known = pages.get(there)
            if not Path(unquote(urlparse(there).path)).exists():
                broken.append((page, link))
            elif known and unquote(place) not in known.places:
                broken.append((page, link))
    assert broken == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_asks_nothing_of_another_host(driver, address, path):
    page = Still(driver, address + path)
    asked = page.script(ASKED)
    assert len(asked) > 5 and [each for each in asked if address not in each] == []
    page.script("new Image().src = 'http://elsewhere.test/a.png'")
    wait(lambda: len(page.script(ASKED)) > len(asked), "one that is asked is seen")


def test_formulas_are_drawn(driver, address):
    for path in (LESSON, "api/labkit.rls.rls_step.html"):
        drawn = Still(driver, address + path).script(FORMULAS)
        assert len(drawn) > 3 and min(height for height, _ in drawn) > 5
        assert not [text for _, text in drawn if "\\" in text or "$" in text]


def test_the_lines_of_a_step_are_walked(driver, address):
    page = Still(driver, address + LESSON)
    walk_by_mouse(page, walk := Walk(page))
    page.find(".labkit-walk [role='status']").click()
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_LEFT):
        driver.switch_to.active_element.send_keys(key)
        walk.moved(f"{key} walks")


@pytest.mark.parametrize("number", [0, 2], ids=["picture", "panel"])
def test_a_run_is_played_and_its_knob_turned(driver, address, number):
    page = Still(driver, address + LESSON)
    play = Played(page, number)
    drawn = lambda: page.script(DRAWN, play.root)  # noqa: E731
    play.slider.send_keys(Keys.HOME)
    first, (step, _) = drawn(), play.step()
    play.press()
    wait(lambda: play.step()[0] > step and drawn() != first, "Play plays")
    play.slider.send_keys(Keys.END)
    before, (value,) = drawn(), play.values()
    play.knobs[0].send_keys(Keys.END)
    assert play.values() != [value]
    wait(lambda: drawn() != before, "the knob shows another recording")


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


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_window(driver, address, theme, width, tmp_path):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page = Still(driver, address)
        keep = "localStorage.mode = localStorage.theme = arguments[0]"
        page.script(keep, theme)
        for path in PAGES:
            page = Still(driver, address + path)
            driver.save_screenshot(str(tmp_path / f"{Path(path).stem}.png"))
            has, window = page.script(WIDE)
            assert has <= window == width, path
            assert (page.script(DARK) == "rgb(255, 255, 255)") == (theme == "light")
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
