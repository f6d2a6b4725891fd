"""One JupyterLab on small copies of the notebooks, and one browser, for all tests."""

import json
from pathlib import Path

import pytest

from labkit.lab.exercises import exercise
from tests import ROOT
from tests.browser.serve import chromium, jupyterlab, write_notebook

NOTEBOOKS = ROOT / "notebooks"

LONGEST = ["site", "lab", "screen", "opening", "panels", "seen", "line_stepper"]
LONGEST += ["wheel", "exercise"]

# What notebooks' own numbers shrink to here; the rest stays.
SMALL = {
    "00_tour": "\nsteps = 10",
    "01_rls": "\nsamples, hidden, epochs, seeds = 256, 16, 1, 2",
}

# A notebook of panels alone: quick to run, and no lab can change it.
PANELS = [
    """import time
from dataclasses import dataclass
from pathlib import Path
import torch
from labkit.lab.panels import Experiment, Lines, LineStepper, LiveLab, knob

@dataclass(frozen=True)
class Knobs:
    gain: float = knob(1.0, low=0.0, high=9.0, restart=False)
    seed: int = knob(0, low=0, high=9)

def held():  # keeps the kernel at work as long as the test says
    while Path("hold").exists():
        time.sleep(0.01)

def rows(settings):
    for step in range(1, 100_000):
        held()
        yield {"step": step, "value": settings.gain * (step % 10)}

LOSS = Experiment("rows", Knobs, rows, [Lines(("value",), "Value", "1")])
labs = []""",
    "labs.append(LiveLab(LOSS))\nlabs[-1]",
    """def scaled(x, factor):
    y = factor * x
    z = y + 1
    w = z * y
    return w

LineStepper(scaled, torch.ones(3, 3), 2.0)""",
    "held()\nprint([lab.stepper.running for lab in labs])",
]


# An opening above a cell that runs as long as the test says.
OPENING = [
    "import time\nfrom pathlib import Path\n\nfrom labkit.lab import Opening\n"
    "from labkit.lab.books import rls",
    "Opening(rls.ELLIPSE)",
    "while Path('hold').exists():\n    time.sleep(0.01)",
]

# Pictures and one walk, to be looked at.
SEEN = [
    "from labkit.lab.panels import LineStepper, LiveLab, Opening\nimport torch\n"
    "from labkit.bpls import activation, layer_step\n"
    "from labkit.lab.books.rls import ELLIPSE",
    "Opening(ELLIPSE)",
    """H, B = torch.randn(8, 5), torch.randn(8, 5)
LineStepper(layer_step, 2, H, B, activation("tanh"), second_solve=True)""",
    """from labkit.lab.panels import curves
crossing = {"one": ([1, 2], [3, 4]), "two": ([1, 2], [4, 3])}
both = {"Two lines": crossing, "The same lines": crossing}
curves(both, "step", "error", caption="They cross.")""",
    """from labkit.lab.books.broad_functions import FUNCTIONS
sums = LiveLab(FUNCTIONS)
display(sums)""",
]

# A step to complete, its check, and the picture that runs with it.
EXERCISE = [
    """from labkit.lab import LiveLab, check, trying
from labkit.lab.books.broad_functions import FUNCTIONS, FunctionKnobs
from labkit.threads import set_threads

set_threads()""",
    exercise("broad-chol1").open_text,
    'check("broad-chol1", chol1_update)',
    """knobs = FunctionKnobs(ridge=0.01)
fits = LiveLab(trying(FUNCTIONS, "broad-chol1", chol1_update), knobs=knobs)
fits.run(12)
fits""",
]

# The RLS notebook's walk alone; its cell is that of the notebook.
WALK = [
    "import torch\nfrom labkit.lab import LineStepper\n"
    "from labkit.lab.books import rls as lab\n"
    "from labkit.rls import rls_step",
]

# All panels, small: what is measured is where things are.
SCREENS = [
    """from labkit.lab.datasets import load
from labkit.lab.books import bpls
from labkit.lab.books.bpls_pair import PAIR
from labkit.lab.books import broad, compare
from labkit.lab.books import hessian_free
from labkit.lab.books.hessian_free_bowl import BOWL
from labkit.lab.books.hessian_free_training import load_images
from labkit.lab.problem import load_problem
from labkit.lab.panels import LiveLab, Opening
from labkit.lab.books import rls, rtrl
from labkit.lab.books import broad_columns as columns, broad_functions as functions

digits, text = load_problem("digits", samples=300), load("text")
images = load_images("digits", samples=300)

def show(experiment, *problem, steps=3, **options):
    global lab  # whatever a cell leaves behind is kept: one is
    lab = LiveLab(experiment, *problem, **options)
    display(lab)
    lab.run(steps)""",
    "show(rls.TRAINING, lambda: digits, 16)",
    "show(bpls.WALK, lambda: digits)",
    """knobs = hessian_free.knobs_of(images.setting)
show(hessian_free.TRAINING, lambda: images, knobs=knobs)""",
    "show(broad.GROWTH, lambda: digits)",
    "show(rtrl.NOISE, lambda: text, {}, 5, 4)",
    "Opening(rtrl.CLOUDS, text)",
    "Opening(rtrl.WATER, steps=40)",
    "Opening(rls.ELLIPSE)",
    "Opening(PAIR)",
    "Opening(BOWL, steps=1)",
    "show(functions.FUNCTIONS)",
    "Opening(columns.COLUMNS)",
    "show(compare.RACE)",
    'show(compare.race_of("RLS", "SGD", "Adam"))',
]


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest, so that two workers end together."""
    files = [Path(__file__).with_name(f"test_{name}.py") for name in LONGEST]
    place = {path: number for number, path in enumerate(files)}
    items.sort(key=lambda item: place.get(item.path, len(files)))


def copy_small(folder: Path) -> None:
    """Copy the notebooks, with small numbers, so that the committed ones stay."""
    folder.mkdir()
    for path in NOTEBOOKS.glob("*.ipynb"):
        notebook = json.loads(path.read_text())
        for cell in notebook["cells"]:
            tags = cell["metadata"].get("tags", ())
            if "parameters" in tags:
                cell["source"] = [*cell["source"], SMALL.get(path.stem, "")]
            if cell["cell_type"] == "code" and "still" not in tags:
                # A number then tells that the cell has run.
                cell |= {"execution_count": None, "outputs": []}
        (folder / path.name).write_text(json.dumps(notebook))


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Yield a JupyterLab on small copies of the notebooks."""
    home = tmp_path_factory.mktemp("jupyter-home")
    copy_small(home / "notebooks")
    write_notebook(home / "notebooks", "panels", PANELS)
    write_notebook(home / "notebooks", "opening", OPENING)
    write_notebook(home / "notebooks", "screens", SCREENS)
    write_notebook(home / "notebooks", "seen", SEEN, folded=(0,))
    write_notebook(home / "notebooks", "exercise", EXERCISE)
    cells = json.loads((NOTEBOOKS / "01_rls.ipynb").read_text())["cells"]
    code = ("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    walk = [*WALK, next(text for text in code if "LineStepper(\n" in text)]
    write_notebook(home / "notebooks", "walk", walk)
    with jupyterlab(home) as made:
        yield made


@pytest.fixture(scope="session")
def chrome(tmp_path_factory):
    """Yield a headless Chromium."""
    with chromium(tmp_path_factory.mktemp("chromium")) as made:
        if made is None:
            pytest.skip("needs chromium and chromedriver on PATH")
        yield made


@pytest.fixture
def driver(chrome):
    """The Chromium; its window is as it was afterwards."""
    yield chrome
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def page(driver, server, tmp_path, request):
    """Open the notebook that the test names; leave a picture behind."""
    from tests.browser.page import Page

    opened = Page(driver, server, request.param)
    yield opened
    picture = tmp_path / f"{request.param}.png"
    driver.save_screenshot(str(picture))
    print(f"screenshot: {picture}")
