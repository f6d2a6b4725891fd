"""How quick notebooks are in JupyterLab, driven in headless Chromium.

    PYTHONPATH=. python benchmarks/browser.py run-all [NAME ...]
    PYTHONPATH=. python benchmarks/browser.py latency [NAME ...]

``run-all``: Run All of each notebook, at its own settings, beside ``labkit run`` of it,
one after the other. ``latency``: from a key or a click to what the live panel shows.
The load average stands beside each figure, since it decides.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from selenium.webdriver.common.keys import Keys

from tests.browser.page import Page, wait
from tests.browser.serve import chromium, end_kernels, jupyterlab
from tests.browser.test_lab import LABS

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
TRIES = 5


def load():
    """How many processes wanted a processor in the last minute."""
    return f"load {os.getloadavg()[0]:.1f}"


def run_all(page):
    """Time JupyterLab and the command line on one notebook; print their ratio."""
    begun = time.monotonic()
    page.run_all()
    browser = time.monotonic() - begun
    errors = page.errors()
    command = [sys.executable, "-m", "labkit.runs.cli", "run"]
    with tempfile.TemporaryDirectory() as folder:
        command += [page.name.partition("_")[2], "--out", folder]
        done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r" in ([\d.]+) s", done.stdout)
    if errors or not found:
        print(f"{page.name:16}{errors or done.stderr}")
        return
    line = float(found[1])
    print(f"{page.name:16}{browser:9.1f}{line:12.1f}{browser / line:8.2f}   {load()}")


def latency(page):
    """Time a knob's mark, a knob that restarts, and Pause, in a run."""
    lab, taken = LABS[page.name], {"mark": [], "restart": [], "pause": []}
    page.run_all()
    page.look_at(lab.knob)
    page.wait_for_figure(lambda drawn: drawn, "the figure is there")
    for _ in range(lab.speed):
        page.within(".labkit-speed .noUi-handle").send_keys(Keys.ARROW_LEFT)
    for n in range(TRIES):
        page.press("reset")
        page.press("run")
        wait(lambda: page.count() >= 3, "the count grows")
        key = (Keys.ARROW_LEFT, Keys.ARROW_RIGHT)[n % 2]
        taken["mark"].append(page.seconds_to_mark(lab.live, key))
        taken["restart"].append(page.seconds_to_restart(lab.restarts, Keys.ARROW_RIGHT))
        clicked = page.press("pause")
        page.wait_for_status(r"step (\d+) of \1, (paused|finished)")
        taken["pause"].append(time.monotonic() - clicked)
    best = "".join(f"{name} {min(seconds):5.2f} s  " for name, seconds in taken.items())
    print(f"{page.name:16}best of {TRIES}: {best} {load()}")


def main():
    """Read the command line; open each notebook in a page of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run-all", "latency"))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    known = NAMES if args.what == "run-all" else list(LABS)
    if unknown := set(args.names) - set(known):
        parser.error(f"no notebook {', '.join(unknown)}; there are {', '.join(known)}")
    if args.what == "run-all":
        print(
            f"{'notebook':16}{'Run All':>9}{'labkit run':>12}{'ratio':>8}   in seconds"
        )
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        shutil.copytree(NOTEBOOKS, home / "notebooks")
        with jupyterlab(home) as server, chromium(home / "chromium") as driver:
            for name in args.names or known:
                page = Page(driver, server, name)
                (run_all if args.what == "run-all" else latency)(page)
                end_kernels(server)


if __name__ == "__main__":
    main()
