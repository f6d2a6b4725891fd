"""Random clicks on live panels: the page answers, runs stay few, memory stays flat.

    python -m tests.browser.soak MINUTES

Every action of a fixed seed is followed by a question that goes from the page to the
kernel and back. A line a minute tells what was done and what memory it takes. It ends
with the panels at rest, as it began, and fails if they then take more.
"""

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import psutil
from selenium.webdriver.common.keys import Keys

from tests.browser.page import Page, wait
from tests.browser.serve import chromium, jupyterlab, write_notebook

# Named and shown, as in the notebooks: what a cell ends with IPython keeps for good.
CELLS = [
    """import json, os, threading
from ipywidgets.widgets.widget import _instances
from labkit.lab.datasets import load
from labkit.lab import hessian_free
from labkit.lab import rls, rtrl
from labkit.lab.problem import load_problem
from labkit.lab.panels import LiveLab
from labkit.lab.panels.live import cells
from labkit.lab.panels.figures.plot import Plot

samples = None

def state():
    owed = [plot._owed for plot in [*_instances.values()] if isinstance(plot, Plot)]
    told = {"pid": os.getpid(), "runs": len(cells._shares), "in flight": max(owed)}
    told |= {"widgets": len(_instances), "threads": threading.active_count()}
    return json.dumps(told)""",
    """first = LiveLab(rls.TRAINING, {"FC": load_problem(samples=samples)}, 64)
display(first)""",
    """images = hessian_free.load_images(samples=samples)
second = LiveLab(
    hessian_free.TRAINING,
    images,
    knobs=hessian_free.knobs_of(images),
    pictures=hessian_free.reconstructions(images, interactive=True),
)
display(second)""",
    """knobs = rtrl.NoiseKnobs(method="OK", rank=2, hidden=16, trained=True)
third = LiveLab(rtrl.NOISE, load("text"), {}, 50, 5, knobs=knobs)
display(third)""",
]
# Of fewer rows, for the short form in `make test`.
FEW = [cell.replace("samples = None", "samples = 300") for cell in CELLS]
LABS = range(1, len(CELLS))  # each by the number of its cell
ACTIONS = {  # name to how often, of all
    **{"run": 6, "pause": 4, "step": 6, "back": 3, "reset": 2},
    **{"knob": 6, "again": 2, "reload": 1},
}
# Goes through the kernel and back by the page.
ASK = """
const done = arguments[arguments.length - 1];
const context = window.jupyterapp.shell.currentWidget.sessionContext;
const asked = {code: '', silent: true, user_expressions: {state: 'state()'}};
context.session.kernel.requestExecute(asked).done
  .then((reply) => done(reply.content.user_expressions.state));
"""
PART = """
const cell = document.querySelectorAll('.jp-CodeCell')[arguments[0]];
const found = [...cell.querySelectorAll(arguments[1])]
  .filter((part) => !part.disabled && part.checkVisibility());
const part = found[arguments[2] % found.length];
part?.scrollIntoView({block: 'center'});
return part ?? null;
"""
# A button that the page has greyed out since it was found is clicked in vain.
LISTEN = """
arguments[0].dataset.heard = '';
arguments[0].addEventListener('click', ({ target }) =>
  target.closest('button').dataset.heard = 'yes', { once: true });
"""
LOST = """
const cell = document.querySelectorAll('.jp-CodeCell')[arguments[0]];
return cell.textContent.includes('model not found');
"""
# Above what was taken at rest before, in MB. The page: plotly keeps drawings of figures
# that have gone until it draws again. The kernel: the allocator keeps what was freed,
# and each lab a thousand records; a run that was left behind would add this a minute.
MORE = {"page": 40, "kernel": 80}
WARM = 120  # actions before it measures for the first time
IN_FLIGHT = 8  # drawings on their way to a page that loads, see panels/plot.py


class Soak:
    """A notebook of live panels, and what is clicked in it."""

    def __init__(self, page, seed=0):
        self.page, self.random = page, random.Random(seed)
        self.done = dict.fromkeys([*ACTIONS, "lost"], 0)
        self.may_run = set()
        page.driver.execute_cdp_cmd("Performance.enable", {})
        page.run_all()

    def act(self):
        """Do one thing, and have the page and the kernel answer."""
        name = self.random.choices(list(ACTIONS), list(ACTIONS.values()))[0]
        lab, which = self.random.choice(LABS), self.random.randrange(1000)
        if name == "reload":
            self.load_again()
        elif name == "again":
            self.page.run_cell(lab)
            self.may_run.discard(lab)
        elif name == "knob":
            if handle := self.part(lab, ".labkit-knob-row .noUi-handle", which):
                handle.send_keys(self.random.choice([Keys.LEFT, Keys.RIGHT]))
                self.may_run.add(lab)  # one that had ended begins anew
        elif button := self.part(lab, f".labkit-{name}"):
            self.page.script(LISTEN, button)
            button.click()
            if button.get_attribute("data-heard"):
                (self.may_run.add if name == "run" else self.may_run.discard)(lab)
        self.done[name] += 1
        self.check(f"{name} of panel {lab}")

    def check(self, what):
        """Have page and kernel answer; no more goes on than was begun."""

        def few():
            state = self.state()
            return state["runs"] <= len(self.may_run) and state

        state = wait(few, lambda: f"{self.state()} after {what}, {self.may_run}")
        assert state["in flight"] <= IN_FLIGHT, f"{state} after {what}"
        assert not (errors := self.page.errors()), f"after {what}: {errors}"

    def part(self, lab, css, which=0):
        return self.page.script(PART, lab, css, which)

    def wait_for_panel(self, lab):
        """Have a panel there again, doing what the page says if it is lost.

        JupyterLab may place an output before it has all widgets from the kernel, and
        then does not try again.
        """
        there = lambda: self.part(lab, ".labkit-reset")  # noqa: E731
        wait(lambda: there() or self.page.script(LOST, lab), f"panel {lab} is there")
        if not there():
            self.page.run_cell(lab)
            self.may_run.discard(lab)
            self.done["lost"] += 1

    def load_again(self):
        self.page.load_again()
        for lab in LABS:
            self.wait_for_panel(lab)

    def state(self):
        answer = self.page.driver.execute_async_script(ASK)
        assert answer["status"] == "ok", answer
        return json.loads(answer["data"]["text/plain"][1:-1])

    def renew(self):
        """Have all panels made anew; return the kernel's state when nothing runs."""
        for lab in LABS:
            self.page.run_cell(lab)
        self.may_run.clear()
        self.check("rest")
        return self.state()

    def rest(self):
        """Have all panels made anew and nothing drawn, on a page loaded again."""
        self.renew()
        self.load_again()
        self.check("rest")
        return self.measure()

    def measure(self):
        """What is taken, in MB where no other is said."""
        cdp = self.page.driver.execute_cdp_cmd
        cdp("HeapProfiler.collectGarbage", {})
        metrics = cdp("Performance.getMetrics", {})["metrics"]
        metrics = {one["name"]: one["value"] for one in metrics}
        state = self.state()
        browser = psutil.Process(self.page.driver.service.process.pid)
        memory = {
            "page": metrics["JSHeapUsedSize"],
            "kernel": psutil.Process(state.pop("pid")).memory_info().rss,
            "browser": sum(
                one.memory_info().rss for one in browser.children(recursive=True)
            ),
        }
        memory = {name: round(taken / 2**20) for name, taken in memory.items()}
        return memory | {"nodes": int(metrics["Nodes"])} | state


def soak(page, go_on, say=print):
    """Click as long as ``go_on()`` says; return what rest took, twice.

    First there are `WARM` actions, which make what is made once: a kernel grows by 80
    MB at the first step of an optimiser, for which torch loads its compiler.
    """
    clicks, begun = Soak(page), time.monotonic()
    for _ in range(WARM):
        clicks.act()
    before, told = clicks.rest(), 0
    say(f"at rest before: {before}")
    while go_on():
        clicks.act()
        if (minute := int((time.monotonic() - begun) / 60)) > told:
            told = minute
            load = f"load {os.getloadavg()[0]:.1f}"
            say(f"{minute:3} min, {load}: {clicks.done} {clicks.measure()}")
    after = clicks.rest()
    say(f"at rest after: {after} {clicks.done}")
    return before, after


def grown(before, after):
    """Name what takes more at rest than before; widgets are counted one by one."""
    more = {name: after[name] - before[name] for name in (*MORE, "widgets")}
    return {name: by for name, by in more.items() if by > MORE.get(name, 0)}


def main(minutes):
    """Soak for so many minutes; return the exit status."""
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_notebook(home / "notebooks", "00_soak", CELLS)  # as `labkit lab` finds it
        with jupyterlab(home) as server, chromium(home / "chromium") as driver:
            page = Page(driver, server, "00_soak")
            say = lambda line: print(line, flush=True)  # noqa: E731
            before, after = soak(page, lambda: time.monotonic() < end, say)
    print(f"grown: {more}" if (more := grown(before, after)) else "flat")
    return int(bool(more))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
