"""A panel with a learner's step: hers runs in it, and nowhere else."""

from dataclasses import dataclass
from functools import partial

import pytest
import torch
from IPython.utils.capture import capture_output

from labkit.lab import load
from labkit.lab.books.bpls_pair import PAIR
from labkit.lab.books.broad_functions import FUNCTIONS
from labkit.lab.books.rls import ELLIPSE
from labkit.lab.books.rtrl import NOISE, NoiseKnobs
from labkit.lab.exercises import exercise, trying
from labkit.lab.panels import Experiment, Lines, LiveLab, Opening
from labkit.rls import update

NAME = "rls-clip"


@dataclass(frozen=True)
class Knobs:
    """No knobs."""


def moved():
    """Return how far one clipped step goes."""
    theta, P = torch.zeros(1, 3).double(), torch.eye(3).double()
    x = torch.arange(3).double()
    update.rls_step(theta, P, x, torch.ones(1, 3).double(), clip=torch.tensor(0.5))
    return float(theta.sum())


def rows(_knobs):
    """Yield a step again and again."""
    for step in range(1, 100):
        yield {"step": step, "moved": moved()}


PLAIN = Experiment("steps", Knobs, rows, [Lines(("moved",), "moved", "sum")], "", str)


def written(line):
    return exercise(NAME).filled(f"h_clipped = {line}")


def test_two_panels_side_by_side_keep_their_own_steps():
    wrong = trying(PLAIN, NAME, written("-h / clip")).rows(Knobs())
    right = PLAIN.rows(Knobs())
    mixed = [(next(wrong)["moved"], next(right)["moved"]) for _ in range(4)]
    assert all(a == -b and b for a, b in mixed)
    assert trying(PLAIN, NAME, written("...")) is PLAIN  # an open exercise


def test_a_cell_shows_her_line_and_no_traceback():
    from IPython.core.interactiveshell import InteractiveShell

    shell, code = InteractiveShell.instance(), update.rls_step.__code__
    shell.user_ns["made"] = trying(PLAIN, NAME, written("h / clip[:2]")).rows(Knobs())
    with capture_output() as shown:
        shell.run_cell("next(made)")
    assert "This line cannot be executed" in shown.stdout
    assert "Traceback" not in shown.stdout and "panel.py" not in shown.stdout
    assert update.rls_step.__code__ is code


def drawn(experiment, steps=3):
    """Return what an experiment's picture has after some steps, the first by a name."""
    panel = LiveLab(experiment, interactive=False)
    panel.run(steps)
    return {trace.get("name"): trace for trace in reversed(panel.figure["data"])}


WRONG = {
    "rls-P": ("torch.outer(u, u)", "torch.outer(x_mean, u)", ELLIPSE, "RLS"),
    "bpls-targets": ("H + R @", "H - R @", PAIR, "both (5')"),
    "broad-chol1": ("-F @ V", "-V", FUNCTIONS, "ridge solver"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_picture_has_the_librarys_step_in_grey(name):
    """It is the library's own run, and hers lies on it where her lines are right."""
    right, wrong, experiment, curve = WRONG[name]
    task, own = exercise(name), drawn(experiment)[curve]
    for line, same in ((task.answer, True), (task.answer.replace(right, wrong), False)):
        seen = drawn(trying(experiment, name, task.filled(line)))
        assert list(seen["with the library's step"]["y"]) == list(own["y"])
        hers_y = torch.as_tensor(list(seen[curve]["y"]))
        close = torch.allclose(hers_y, torch.as_tensor(list(own["y"])), atol=1e-4)
        assert close == same


def test_a_picture_with_her_step_can_be_dragged():
    panel = Opening(trying(ELLIPSE, NAME, written("h / clip")), interactive=True)
    panel.plot.touched = {"name": "start", "index": 0, "x": 2, "y": 1}
    assert panel.controls.value.start == "2.00 1.00"
    for both in panel.rows:
        assert both["pictures"].written.paths["RLS"][0].tolist() == [2, 1]


def test_the_picture_of_a_paper_runs_with_her_factors():
    """Wrong factors leave the cloud of UORO right on average, and make it wider."""
    task = exercise("rtrl-uoro-factors")
    wide = task.filled(task.answer.replace("balance(norm(v", "30 * balance(norm(v"))
    seen = []
    for experiment in (NOISE, trying(NOISE, task.name, wide)):
        knobs = NoiseKnobs(trained=False, method="UORO", hidden=8)
        read = partial(load, "text")
        panel = LiveLab(experiment, read, knobs=knobs, interactive=False)
        seen.append(panel.run(4).relative_variance.iloc[-1])
    assert seen[1] > 3 * seen[0]
