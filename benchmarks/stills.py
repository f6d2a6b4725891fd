"""The still pictures that stand in the notebooks before anything has run.

    PYTHONPATH=. python benchmarks/stills.py [NAME ...]        (needs Chromium)

Runs the first picture of each notebook headless, at the notebook's own parameters, and
keeps what it shows as the output of the picture's cell: a panel's 40 steps later.
"""

import base64
import io
import sys
import tempfile
from pathlib import Path

import nbformat
import plotly.io
from nbformat.v4 import new_output
from PIL import Image
from selenium.webdriver.common.by import By

from labkit.lab import LiveLab
from tests.browser.page import wait
from tests.browser.serve import chromium

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
STEPS = 40
WIDE = 720  # pixels
HIGH = 330
MOST = 120_000  # bytes
BARE = {"displayModeBar": False}


def tagged(book, tag):
    """Return the cell of a notebook that carries a tag."""
    return next(cell for cell in book.cells if tag in cell.metadata.get("tags", ()))


def picture_of(book):
    """Return a notebook's picture, as it is without widgets."""
    names = {}
    exec(tagged(book, "parameters").source, names)
    names["interactive"] = False
    exec(tagged(book, "still").source, names)
    return names["picture"]


def picture_is_low(figure):
    """Whether a figure has one line of planes: two lines keep their own height."""
    return len({note["y"] for note in figure["layout"]["annotations"]}) == 1


def png_of(figure, driver):
    """Return a figure's pixels, with few colours, as PNG."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "figure.html"
        page.write_text(plotly.io.to_html(dict(figure), config=BARE, validate=False))
        driver.get(page.as_uri())
        find = lambda: driver.find_element(By.CSS_SELECTOR, ".main-svg")  # noqa: E731
        wait(lambda: find().size["width"], "the figure is drawn")
        plot = driver.find_element(By.CSS_SELECTOR, ".plotly-graph-div")
        image = Image.open(io.BytesIO(plot.screenshot_as_png)).convert("RGB")
    image.quantize(128).save(data := io.BytesIO(), "png", optimize=True)
    return data.getvalue()


def put_still(path, driver):
    """Write a notebook's still; return its size in bytes."""
    book = nbformat.read(path, as_version=4)
    cell = tagged(book, "still")
    picture = picture_of(book)
    if isinstance(picture, LiveLab):
        picture.run(STEPS)
    figure = picture.figure
    high = HIGH if picture_is_low(figure) else figure["layout"]["height"]
    figure["layout"] |= {"width": WIDE, "height": high, "autosize": False}
    data = png_of(figure, driver)
    if len(data) > MOST:
        raise SystemExit(
            f"{path.name}: the still has {len(data)} bytes, at most {MOST}"
        )
    shown = {
        "image/png": base64.b64encode(data).decode() + "\n",
        "text/plain": figure["layout"]["meta"]["alt"],
    }
    cell.outputs = [new_output("display_data", shown)]
    cell.execution_count = cell.execution_count or 1  # nbval asks for one
    nbformat.write(book, path)
    return len(data)


def main(names):
    """Write the stills of these notebooks, or of all."""
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as driver:
        for name in names or sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")):
            size = put_still(NOTEBOOKS / f"{name}.ipynb", driver)
            print(f"{name:16}{size:8} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
