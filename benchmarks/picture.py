"""README's moving picture: the first picture of notebook 01, as Chromium draws it.

    PYTHONPATH=. python benchmarks/picture.py FILE.webp      (needs Chromium)

Its slider goes along the steps, then a knob is turned and it goes there again; every
frame is a screenshot of what stands there.
"""

import base64
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from selenium.webdriver.common.keys import Keys

from benchmarks.run_all import WINDOW, browser
from tests.browser.page import LOOK_AT, Page, wait
from tests.browser.serve import write_notebook

NAME = "01_picture"
CELL = """from labkit.lab import Opening
from labkit.lab.books.rls import ELLIPSE

Opening(ELLIPSE)"""
KNOB = "mean_weight"
TURN = 10 * Keys.ARROW_RIGHT
STEPS = 11  # of the slider
FRAME = 350  # ms
END = 3000  # ms
SCALE = 0.8  # of a pixel of the page
PART = """
document.querySelector('.jp-Notebook-footer').style.visibility = 'hidden';
const {x, y, width, height} = document.querySelector('.labkit-screen')
  .getBoundingClientRect();
return {x: x - 8, y: y - 8, width: width + 16, height: height + 16};
"""
# The figure has been drawn since the last look, and all of it.
WATCH = (
    "arguments[0].on('plotly_afterplot', () => { arguments[0].dataset.drawn = ''; });"
)
DRAWN = "return 'drawn' in arguments[0].dataset && delete arguments[0].dataset.drawn;"


def frames(page: Page) -> Iterator[tuple[Image.Image, int]]:
    """Go along the steps and turn the knob; yield what is shown, and for how long."""
    clip, plot = page.script(PART) | {"scale": SCALE}, page.within(".js-plotly-plot")
    slider = page.within(".labkit-step-slider .noUi-handle")
    page.script(WATCH, plot)

    def shot() -> Image.Image:
        wait(lambda: page.script(DRAWN, plot), "it is drawn")
        taken = page.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})
        png = io.BytesIO(base64.b64decode(taken["data"]))
        return Image.open(png).convert("RGB")

    for part in range(2):
        slider.send_keys(Keys.HOME)
        yield shot(), FRAME
        for _ in range(STEPS):
            slider.send_keys(Keys.ARROW_RIGHT)
            image = shot()
            yield image, FRAME
        if not part:
            page.within(f".labkit-knob-{KNOB} .noUi-handle").send_keys(TURN)
            page.wait_until_still()
            yield shot(), END
    yield image, END


def main(path: str) -> None:
    """Record the picture, write it, and print how large it is."""
    with browser(lambda to: write_notebook(to, NAME, [CELL])) as (server, driver):
        size = WINDOW | {"height": 1000}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page = Page(driver, server, NAME)
        page.run_all()
        wait(lambda: page.find(".labkit-opening .main-svg"), "the figure is drawn")
        page.script(LOOK_AT, ".labkit-opening")
        page.show_panel()
        images, times = zip(*frames(page), strict=True)
    options = {"duration": times, "loop": 0, "quality": 80, "method": 6}
    images[0].save(path, append_images=images[1:], save_all=True, **options)
    size, seconds = Path(path).stat().st_size / 1e6, sum(times) / 1000
    print(
        f"{path}: {len(images)} frames of {images[0].size}, {seconds} s, {size:.2f} MB"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
