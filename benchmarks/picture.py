"""README's moving picture: a live panel in JupyterLab, as Chromium draws it.

PYTHONPATH=. python benchmarks/picture.py FILE.webp      (needs Chromium)

The panel is that of notebook 01. It is stepped through, a knob is turned in between,
and every frame is a screenshot of what stands there.
"""

import base64
import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image
from selenium.webdriver.common.keys import Keys

from tests.browser.page import LOOK_AT, Page, wait
from tests.browser.serve import chromium, jupyterlab, write_notebook

CELL = """from labkit.lab import LiveLab
from labkit.lab.books.rls import ELLIPSE

LiveLab(ELLIPSE)"""
WINDOW = {"width": 1280, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
SCALE = 0.8  # of a pixel of the page
KNOB, ANSWER, STEPS = "noise", "up", (22, 22)  # turned to its end between the two
# ms of a step, of the first of a part, of the question, of the last
FRAME, HOLD, READ, END = 140, 700, 2200, 3000
PART = """
const {x, y, width, height} = document.querySelector('.labkit-screen')
  .getBoundingClientRect();
return {x: x - 8, y: y - 8, width: width + 16, height: height + 16};
"""
# The figure has been drawn since the last look, and all of it.
WATCH = """
document.querySelector('.jp-Notebook-footer').style.visibility = 'hidden';
const plot = document.querySelector('.labkit-screen .js-plotly-plot');
plot.on('plotly_afterplot', () => { plot.dataset.drawn = ''; });
"""
DRAWN = "return 'drawn' in arguments[0].dataset && delete arguments[0].dataset.drawn;"


def frames(page: Page) -> Iterator[tuple[Image.Image, int]]:
    """Step and turn the knob; yield what the panel shows, and for how long."""
    plot = page.within(".js-plotly-plot")
    drawn = lambda: wait(lambda: page.script(DRAWN, plot), "it is drawn")  # noqa: E731
    page.script(WATCH)
    for part, steps in enumerate(STEPS):
        for step in range(steps):
            page.press("step")
            drawn()
            yield shot(page), HOLD if not step else FRAME
        if not part:
            page.key(KNOB, Keys.END)
            wait(lambda: page.within(".labkit-waits button"), "the knob asks")
            yield shot(page), READ
            page.choose(".labkit-waits button", ANSWER)
            drawn()
            yield shot(page), HOLD
    wait(lambda: page.within(".labkit-outcome").text, "the panel has judged")
    yield shot(page), END


def shot(page: Page) -> Image.Image:
    """Return the panel's pixels."""
    clip = page.script(PART) | {"scale": SCALE}
    taken = page.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})
    png = io.BytesIO(base64.b64decode(taken["data"]))
    return Image.open(png).convert("RGB")


def record() -> list[tuple[Image.Image, int]]:
    """Open the panel in a JupyterLab of its own and return its frames."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "profile").mkdir()
        write_notebook(home / "notebooks", "01_picture", [CELL])
        with jupyterlab(home) as server, chromium(home / "profile") as driver:
            if driver is None:
                raise SystemExit("make picture needs chromium and chromedriver on PATH")
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", WINDOW)
            page = Page(driver, server, "01_picture")
            page.run_all()
            wait(lambda: page.find(".labkit-screen .main-svg"), "the figure is drawn")
            page.script(LOOK_AT, ".labkit-run")
            page.show_panel()
            return list(frames(page))


def of_one_size(images: Sequence[Image.Image]) -> list[Image.Image]:
    """Return the pictures on a sheet of the page's colour, as large as the largest."""
    size = tuple(
        max(lengths) for lengths in zip(*(i.size for i in images), strict=True)
    )
    sheets = [Image.new("RGB", size, images[0].getpixel((0, 0))) for _ in images]
    for sheet, image in zip(sheets, images, strict=True):
        sheet.paste(image)
    return sheets


def main(path: str) -> None:
    """Write the picture, and print how large it is."""
    images, times = zip(*record(), strict=True)
    first, *rest = of_one_size(images)
    options = {"duration": times, "loop": 0, "quality": 80, "method": 6}
    first.save(path, append_images=rest, save_all=True, **options)
    size = Path(path).stat().st_size
    print(
        f"{path}: {len(images)} frames of {first.width} x {first.height} pixels, "
        f"{sum(times) / 1000:.1f} s, {size / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
