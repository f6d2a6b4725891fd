"""How quick notebooks are in JupyterLab, driven in headless Chromium.

    PYTHONPATH=. python benchmarks/browser.py run-all [NAME ...]
    PYTHONPATH=. python benchmarks/browser.py latency [NAME ...]
    PYTHONPATH=. python benchmarks/browser.py frames [NAME ...]

``run-all``: Run All of each notebook, at its own settings, beside ``labkit run`` of it,
one after the other. ``latency``: from a key or a click to what the live panel shows.
``frames``: of a notebook's pictures, the first or NAME/CELL, each in a page of its own:
figures drawn in a second of a run, as the page counts them, and the time from a knob's
key to a figure of a later step, and from Pause until it stands.
The load average stands beside each figure, since it decides.
"""

import argparse
import json
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
from tests.browser.serve import chromium, end_kernels, jupyterlab, write_notebook
from tests.browser.test_lab import LABS

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
TRIES = 5
COUNTED = 5  # seconds of a run, or until it ends

# Of each picture: a knob that holds from the next step on, and notches of speed below
# "max" for runs that would end too soon: for its frames, and then for the knob.
PICTURES = {
    "01_rls": ("mean_weight", 0, 0),
    "01_rls/regions": ("label_noise", 0, 0),
    "02_bpls": ("clamp", 3, 3),
    "02_bpls/layers": ("clamp", 3, 3),
    "03_hessian_free": ("n", 0, 0),
    "04_broad": ("added", 3, 4),
    "05_rtrl": ("rank", 0, 0),
    "05_rtrl/influence": ("unit", 3, 3),
    "05_rtrl/water": ("rank", 0, 0),
    "06_compare": ("label_noise", 0, 0),
}

# Notes when figures are drawn, and what the panel then says of a knob.
NOTE_FRAMES = """
const panel = document.querySelector('[data-looked-at]');
const said = () => panel.querySelector('.labkit-turned').textContent;
const noted = window.labkitFrames =
  {key: null, clicked: null, paused: null, said: said(), frames: []};
const now = () => performance.now() / 1000;
panel.querySelector('.js-plotly-plot').on('plotly_afterplot',
  () => noted.frames.push([now(), said()]));
panel.addEventListener('keydown', () => noted.key ??= now(), {capture: true});
panel.querySelector('.labkit-pause').addEventListener('click',
  () => noted.clicked ??= now(), {capture: true});
const status = panel.querySelector('.labkit-status');
new MutationObserver(() => {
  const still = /paused|finished/.test(status.textContent);
  if (still && noted.clicked) noted.paused ??= now();
}).observe(status, {childList: true, characterData: true, subtree: true});
"""
FRAMES = "return window.labkitFrames;"


def load():
    """How many processes wanted a processor in the last minute."""
    return f"load {os.getloadavg()[0]:.1f}"


def run_all(page):
    """Time JupyterLab and the command line on one notebook; print their ratio."""
    begun = time.monotonic()
    page.run_all()
    browser = time.monotonic() - begun
    errors = page.errors()
    command = [sys.executable, "-m", "labkit.lab.runs.cli", "run"]
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
    slow_down(page, lab.speed)
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


def shown(name):
    """The cells that show a picture: that of its notebook's first, and its own."""
    notebook, _, own = name.partition("/")
    cells = json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text())["cells"]
    sources = {cell["id"]: "".join(cell["source"]) for cell in cells}
    if not own:
        return [sources["picture"]]
    return [sources["picture"].replace("display(picture)", ""), sources[own]]


def frames(page, name):
    """Count what a picture draws in a run; time a knob, and Pause."""
    knob, notches, slower = PICTURES[name]
    page.look_at(f".labkit-knob-{knob}")
    page.wait_for_figure(lambda drawn: drawn, "the figure is there")
    slow_down(page, notches)
    rates, delays, pauses = [], [], []
    for _ in range(TRIES):
        begin(page)
        time.sleep(COUNTED)
        drawn = [at for at, _ in page.script(FRAMES)["frames"]]
        rates.append((len(drawn) - 1) / (drawn[-1] - drawn[0]))
        stop(page)
    slow_down(page, slower - notches)
    for n in range(TRIES):
        begin(page)
        page.key(knob, (Keys.ARROW_RIGHT, Keys.ARROW_LEFT)[n % 2])
        delays.append(wait(lambda: told_after(page), "a later step is drawn"))
        if stop(page) and (noted := page.script(FRAMES))["paused"]:
            pauses.append(noted["paused"] - noted["clicked"])
    pause = f"{min(pauses):5.2f} s" if pauses else "  ended"
    print(
        f"{name:18}best of {TRIES}: {max(rates):5.1f} frames a second  "
        f"knob {min(delays):5.2f} s  pause {pause}  {load()}",
        flush=True,
    )


def slow_down(page, notches):
    """Move the slider of speed from where it is."""
    for _ in range(notches):
        page.within(".labkit-speed .noUi-handle").send_keys(Keys.ARROW_LEFT)


def begin(page):
    """Run from the beginning, and note what is drawn."""
    page.press("reset")
    page.press("run")
    wait(lambda: page.count() >= 3, "the count grows")
    page.script(NOTE_FRAMES)


def stop(page):
    """Press Pause; return whether anything ran."""
    if runs := page.within(".labkit-pause").is_enabled():
        page.press("pause")
        page.wait_for_status(r"step (\d+) of \1, (paused|finished)")
    return runs


def told_after(page):
    """Seconds from the key to the second figure after the panel told of the knob.

    The first may have been on its way already, and show the step before.
    """
    noted = page.script(FRAMES)
    later = [at for at, said in noted["frames"] if said != noted["said"]]
    return later[1] - noted["key"] if len(later) > 1 else None


def main():
    """Read the command line; open each notebook in a page of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run-all", "latency", "frames"))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    known = {"run-all": NAMES, "latency": list(LABS), "frames": list(PICTURES)}
    known = known[args.what]
    if unknown := set(args.names) - set(known):
        parser.error(f"no {', '.join(unknown)}; there are {', '.join(known)}")
    if args.what == "run-all":
        print(
            f"{'notebook':16}{'Run All':>9}{'labkit run':>12}{'ratio':>8}   in seconds"
        )
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        shutil.copytree(NOTEBOOKS, home / "notebooks")
        with jupyterlab(home) as server, chromium(home / "chromium") as driver:
            for name in args.names or known:
                if args.what == "frames":
                    cells = ["interactive = True", *shown(name)]
                    own = "picture_" + name.replace("/", "_")
                    write_notebook(home / "notebooks", own, cells)
                    page = Page(driver, server, own)
                    page.run_all()
                    frames(page, name)
                else:
                    page = Page(driver, server, name)
                    (run_all if args.what == "run-all" else latency)(page)
                end_kernels(server)


if __name__ == "__main__":
    main()
