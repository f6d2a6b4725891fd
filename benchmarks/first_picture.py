"""What a notebook shows first, and how soon: in JupyterLab as ``labkit lab`` opens it.

    PYTHONPATH=. python benchmarks/first_picture.py [NAME ...] [--tree FOLDER]

Each notebook is opened in a window of 1280 x 720, its kernel is started anew, and all
of its cells run. FOLDER is a checkout with a .venv, for numbers of an earlier state.
Printed for each notebook:

seconds
    from Run All, kernel start included, to a figure in the window that has data in the
    pixels of the screen: colours, which neither axes nor an empty figure have; with a
    star where there was none until all cells had run and the first one was scrolled to
screens
    of 720 pixels: of the story, which ends at the first folded heading, of the
    exercises, and of all with every heading opened
down
    pixels from the top of the notebook to the first panel or figure, and from the end
    of the title's cell
code
    most lines of code in sight between two things to look at (texts, and outputs),
    without exercises, with every heading opened

The load average stands beside, since it decides.
"""

import argparse
import base64
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.browser.page import PROMPTS, Page, wait
from tests.browser.serve import chromium, jupyterlab

ROOT = Path(__file__).parents[1]
SIZE = {"width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": False}
LEAST = 400  # pixels of a strong colour that make a figure: the lines of a curve

# Figures of the live page, their part in the window.
FIGURES = """
const outer = document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect();
return [...document.querySelectorAll('.jp-Notebook .js-plotly-plot')].map((plot) => {
  const {left, top, right, bottom} = plot.getBoundingClientRect();
  return [Math.max(left, outer.left), Math.max(top, outer.top),
          Math.min(right, outer.right), Math.min(bottom, outer.bottom)];
}).filter(([left, top, right, bottom]) => right > left + 100 && bottom > top + 100);
"""
# How many pixels of a box are neither grey nor near to it.
COLOURED = """
const [shown, [left, top, right, bottom], done] = arguments;
const image = new Image();
image.onload = () => {
  const canvas = new OffscreenCanvas(right - left, bottom - top);
  const context = canvas.getContext('2d');
  context.drawImage(image, -left, -top);
  const {data} = context.getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    const [r, g, b] = [data[i], data[i + 1], data[i + 2]];
    count += Math.max(r, g, b) - Math.min(r, g, b) > 60;
  }
  done(count);
};
image.src = `data:image/png;base64,${shown}`;
"""
# Of each cell: its kind, its first heading, its height, and lines of code in sight.
CELLS = """
const notebook = document.querySelector('.jp-Notebook');
const seen = (part) => part && part.checkVisibility() && part.clientHeight > 5;
return [...notebook.querySelectorAll('.jp-Cell')].map((cell) => {
  const heading = cell.querySelector('.jp-MarkdownOutput :is(h1, h2)');
  const code = cell.querySelector('.jp-CodeCell .jp-InputArea-editor, .cm-content');
  const walk = cell.querySelector('.labkit-line-equation') !== null;
  const box = cell.getBoundingClientRect();
  const shown = cell.checkVisibility();
  const isCode = cell.classList.contains('jp-CodeCell');
  return {
    heading: heading?.textContent ?? null, level: heading?.tagName ?? null,
    height: shown ? box.height : 0,
    folded: cell.querySelector('.jp-collapseHeadingButton.jp-mod-collapsed') !== null,
    text: !isCode && shown, walk,
    lines: isCode && shown && seen(code) ? cell.querySelectorAll('.cm-line').length : 0,
    output: [...cell.querySelectorAll('.jp-OutputArea-output')].some(seen),
  };
});
"""
FIRST = """
document.querySelector('.jp-Notebook :is(.labkit-screen, .js-plotly-plot)')
  .scrollIntoView({block: 'start'});
"""
DOWN = """
const shown = '.jp-Notebook :is(.labkit-screen, .js-plotly-plot)';
const first = document.querySelector(shown);
const top = document.querySelector('.jp-Notebook .jp-Cell').getBoundingClientRect().top;
const title = document.querySelector('.jp-Notebook h1').closest('.jp-Cell');
const at = first.getBoundingClientRect().top;
return [at - top, at - title.getBoundingClientRect().bottom];
"""
OPEN_HEADINGS = """
document.querySelectorAll('.jp-collapseHeadingButton.jp-mod-collapsed')
  .forEach((button) => button.click());
"""


def coloured(page):
    """Whether a figure in the window has data in its pixels."""
    boxes = page.script(FIGURES)
    if not boxes:
        return False
    shot = {"format": "png", "optimizeForSpeed": True}
    shown = page.driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]
    count = page.driver.execute_async_script
    return any(count(COLOURED, shown, box) >= LEAST for box in boxes) and shown


def seconds_to_picture(page):
    """Start the kernel anew, run all cells, and wait for the first figure in sight."""
    page.choose(".lm-MenuBar-itemLabel", "Run")
    page.choose(".lm-Menu-itemLabel", "Restart Kernel and Run All Cells…")
    page.choose(".jp-Dialog-button", "Restart")
    begun = time.monotonic()
    begins = lambda: any("*" in prompt for prompt in page.script(PROMPTS))  # noqa: E731
    wait(begins, "cells wait to run")
    shown = wait(lambda: coloured(page) or ended(page), "a figure is in the window")
    if scrolled := shown is True:
        page.script(FIRST)
        shown = wait(lambda: coloured(page), "a figure is drawn")
    return time.monotonic() - begun, scrolled, shown


def ended(page):
    """Whether every cell has run."""
    return all(re.fullmatch(r"\[\d+\]:", prompt) for prompt in page.script(PROMPTS))


def parts(cells):
    """Split the cells into those of the story and those of the exercises."""
    story, exercises, inside = [], [], False
    for cell in cells:
        if cell["heading"] is not None:
            inside = cell["heading"].startswith("Exercise")
        (exercises if inside else story).append(cell)
    return story, exercises


def longest_run(cells):
    """Most lines of code in sight between two things to look at."""
    most = lines = 0
    for cell in cells:
        if cell["text"] or cell["walk"]:
            lines = 0
            continue
        lines += cell["lines"]
        most = max(most, lines)
        if cell["output"]:
            lines = 0
    return most


def before_the_folded(cells):
    """Return the cells above the first folded heading."""
    folded = (i for i, cell in enumerate(cells) if cell["folded"])
    return cells[: next(folded, len(cells))]


def screens(cells):
    """Height of the cells, in windows."""
    return sum(cell["height"] for cell in cells) / SIZE["height"]


def measure(name, tree, pictures):
    """Open a notebook in a lab of its own and print its row."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        shutil.copytree(tree / "notebooks", home / "notebooks")
        python = tree / ".venv/bin/python" if tree != ROOT else sys.executable
        command = [str(python), "-m", "labkit", "lab"]
        if not (tree / "labkit/__main__.py").is_file():  # an earlier state
            command = [str(python), "-m", "labkit.command", "lab", "--allow-root"]
        with jupyterlab(home, command) as server, chromium(home / "chromium") as driver:
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
            own = (home / "workspaces").is_dir()
            at = "lab/workspaces/labkit/tree" if own else "lab/tree"
            page = Page(driver, server, name, server.address(f"{at}/{name}.ipynb"))
            seconds, scrolled, shown = seconds_to_picture(page)
            load = os.getloadavg()[0]
            wait(lambda: ended(page), "all cells have run")
            time.sleep(2)  # so that what they show is drawn
            errors = page.errors()
            cells = before_the_folded(page.script(CELLS))
            story, exercises = map(screens, parts(cells))
            down, below = page.script(DOWN)
            if pictures:
                stills = {"first": shown, "end": driver.get_screenshot_as_base64()}
                for when, still in stills.items():
                    path = pictures / f"{name}-{when}.png"
                    path.write_bytes(base64.b64decode(still))
            page.script(OPEN_HEADINGS)
            time.sleep(2)
            cells = page.script(CELLS)
            code = longest_run(parts(cells)[0])
    print(
        f"{name:16}{seconds:8.1f}{'*' if scrolled else ' '}{down:8.0f}{below:8.0f}"
        f"{story:9.1f}{exercises:11.1f}"
        f"{screens(cells):7.1f}{code:7}   load {load:.1f}"
        + (f"  {len(errors)} outputs of errors" if errors else ""),
        flush=True,
    )


def main():
    """Read the command line; measure one notebook after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--pictures", type=Path, help="a folder for screenshots")
    args = parser.parse_args()
    tree = args.tree.resolve()
    known = sorted(path.stem for path in (tree / "notebooks").glob("*.ipynb"))
    if unknown := set(args.names) - set(known):
        parser.error(f"no {', '.join(unknown)}; there are {', '.join(known)}")
    print(
        f"{'notebook':16}{'seconds':>9}{'down':>8}{'below':>8}{'screens':>9}"
        f"{'exercises':>11}{'all':>7}{'code':>7}"
    )
    for name in args.names or known:
        measure(name, tree, args.pictures)


if __name__ == "__main__":
    main()
