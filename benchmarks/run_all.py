"""How soon a notebook answers after Run All, and how much there is to read.

    PYTHONPATH=. python benchmarks/run_all.py [--cold] [NAME ...]     (needs Chromium)

Opens each notebook in a window of 1280 x 720 pixels, runs all its cells, and turns the
first knob of the first picture to its end as soon as it is there. A row has

- seconds from Run All to the answer: the picture has the numbers that are computed here
  for the new value; a panel that runs has them after a click on Step;
- seconds from Run All until the last cell has run;
- cells; screens of them, all code unfolded, without what cells show; words of texts,
  without formulas; lines of code that is shown.

``--cold`` has Linux forget the files that it has in memory before each notebook.
"""

import argparse
import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import numpy as np
from selenium.webdriver.common.keys import Keys

from benchmarks.stills import NOTEBOOKS, picture_of
from labkit.lab import LiveLab, Opening
from labkit.lab.panels.live.experiment import knobs_of
from tests.browser.page import PROMPTS, Page, wait
from tests.browser.serve import chromium, jupyterlab

WINDOW = {"width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": False}
NUMBERS = """
return document.querySelector('.labkit-screen .js-plotly-plot').data.map(({y}) =>
  [...(y?._inputArray ?? y ?? [])].map((value) => Number(value) || 0));
"""
SCREENS = """
const page = document.querySelector('.jp-WindowedPanel-outer');
return page.scrollHeight / page.clientHeight;
"""
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|<[^>]*>", re.DOTALL)
MENUS = ("View", "Expand All Code"), ("Edit", "Clear Outputs of All Cells")
COLUMNS = "answered", "rest", "cells", "screens", "words", "lines"


@contextlib.contextmanager
def browser(write: Callable[[Path], object]) -> Iterator[tuple]:
    """Yield a JupyterLab on the folder that is written, and a Chromium."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write(home / "notebooks")
        with jupyterlab(home) as server, chromium(home / "profile") as driver:
            if driver is None:
                raise SystemExit("chromium and chromedriver are not on PATH")
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", WINDOW)
            yield server, driver


def numbers(picture: LiveLab | Opening, knob: str, value: float) -> list[np.ndarray]:
    """Return what is drawn where a knob has been turned to a value."""
    if isinstance(picture, LiveLab):
        picture = LiveLab(picture.experiment, *picture.problem, interactive=False)
    picture.controls.set(**{knob: value})
    if isinstance(picture, LiveLab):
        picture.run(1)
    given = (trace.get("y") for trace in picture.figure["data"])
    return [np.nan_to_num(np.asarray([] if y is None else y, float)) for y in given]


def measure(page: Page, path: Path) -> list[float]:
    """Run a notebook that is open; return the row of the table."""
    book = nbformat.read(path, as_version=4)
    picture = picture_of(book)
    knob = (picture.experiment.front or tuple(vars(picture.controls.value)))[0]
    wanted = numbers(picture, knob, knobs_of(picture.controls.value)[knob].high)
    start, done = time.monotonic(), {}
    page.begin_all()
    page.look_at(f".labkit-screen .labkit-knob-{knob}")
    wait(lambda: page.script(NUMBERS), "the picture is drawn")
    page.skip(knob)
    page.key(knob, Keys.END)
    if isinstance(picture, LiveLab):
        page.press("step")

    def over():
        found = page.script(NUMBERS)
        same = [each.shape for each in wanted] == [np.shape(each) for each in found]
        near = same and all(
            np.allclose(one, two, rtol=1e-3, atol=1e-3)
            for one, two in zip(wanted, found, strict=True)
        )
        rest = all(prompt.strip("[]:").isdigit() for prompt in page.script(PROMPTS))
        for name, holds in zip(COLUMNS, (near, rest), strict=False):
            if holds:
                done.setdefault(name, time.monotonic() - start)
        return len(done) == 2

    wait(over, lambda: f"{path.name} answers and rests: {done}")
    for menu, item in MENUS:
        page.choose(".lm-MenuBar-itemLabel", menu)
        page.choose(".lm-Menu-itemLabel", item)
    screens = page.script(SCREENS)
    texts = [cell.source for cell in book.cells if cell.cell_type == "markdown"]
    words = re.findall(r"[A-Za-z][\w'-]*", FORMULA.sub(" ", "\n".join(texts)))
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    shown = [
        cell
        for cell in code
        if not cell.metadata.get("jupyter", {}).get("source_hidden")
    ]
    lines = sum(len(cell.source.splitlines()) for cell in shown)
    times = [done[name] for name in COLUMNS[:2]]
    return [*times, len(book.cells), screens, len(words), lines]


def main() -> None:
    """Print the table, a row a notebook."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="all by default")
    parser.add_argument("--cold", action="store_true", help="as root, on Linux")
    args = parser.parse_args()
    found = sorted(NOTEBOOKS.glob("*.ipynb"))
    paths = [path for path in found if path.stem in (args.names or path.stem)]
    print(f"{'notebook':18}" + "".join(f"{name:>10}" for name in COLUMNS))
    for path in paths:
        with browser(lambda to: shutil.copytree(NOTEBOOKS, to)) as (server, driver):
            page = Page(driver, server, path.stem)
            if args.cold:
                os.sync()
                Path("/proc/sys/vm/drop_caches").write_text("3")
            row = measure(page, path)
        print(
            f"{path.stem:18}" + "".join(f"{number:10.4g}" for number in row), flush=True
        )


if __name__ == "__main__":
    main()
