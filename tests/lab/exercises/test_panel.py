"""A panel with a learner's step: hers runs in it, and nowhere else."""

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pytest
import torch
from IPython.utils.capture import capture_output

from labkit.lab.bpls import CURVE
from labkit.lab.broad import FUNCTIONS, FunctionKnobs
from labkit.lab.exercises import exercise, trying
from labkit.lab.exercises.blank import compiled
from labkit.lab.panels import Experiment, Lines, LiveLab, Opening
from labkit.lab.rls import ELLIPSE
from labkit.lab.rtrl import NOISE, NoiseKnobs
from labkit.rls import update

NAME = "rls-gain"


@dataclass(frozen=True)
class Knobs:
    """No knobs."""


def rows(_knobs):
    """Yield the sum of the gain, step by step."""
    P = torch.eye(3).double()
    for step in range(1, 100):
        x = torch.arange(3).double() + step
        yield {"step": step, "gain": float(update.gain(P, x)[0].sum())}


PLAIN = Experiment("gains", Knobs, rows, [Lines(("gain",), "gain", "sum")], "", str)


def hers(u):
    found = exercise(NAME)
    text = found.text.replace("P @ x_mean", u, 1)
    return compiled(text, found.function, f"hers, {u}")


def gains(made, count=4):
    return [row["gain"] for row in islice(made, count)]


def test_two_panels_side_by_side_keep_their_own_steps():
    wrong = trying(PLAIN, NAME, hers("-P @ x_mean")).rows(Knobs())
    right, mixed = PLAIN.rows(Knobs()), []
    for _ in range(4):
        mixed.append((next(wrong)["gain"], next(right)["gain"]))
    assert all(a == -b and b for a, b in mixed)
    assert gains(trying(PLAIN, NAME, hers("x_mean @ P")).rows(Knobs())) == [
        b for _, b in mixed
    ]


def test_it_is_taken_out_where_her_lines_fail():
    code = update.gain.__code__
    made = trying(PLAIN, NAME, hers("P @ x_mean[:2]")).rows(Knobs())
    with pytest.raises(RuntimeError, match="This line of yours cannot be executed"):
        next(made)
    assert update.gain.__code__ is code


def test_a_cell_shows_her_line_and_no_traceback():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.user_ns["made"] = trying(PLAIN, NAME, hers("P @ x_mean[:2]")).rows(Knobs())
    with capture_output() as shown:
        shell.run_cell("next(made)")
    assert "This line of yours cannot be executed" in shown.stdout
    assert "Traceback" not in shown.stdout and "panel.py" not in shown.stdout


def test_an_open_exercise_leaves_the_experiment_as_it_is():
    found = exercise(NAME)
    opened = compiled(found.open_text, found.function, "open")
    assert trying(PLAIN, NAME, opened) is PLAIN


def drawn(experiment, steps=3):
    """Return what an experiment's picture has after some steps, the first by a name."""
    panel = LiveLab(experiment, interactive=False)
    panel.run(steps)
    return {trace["name"]: trace for trace in reversed(panel.figure["data"])}


WRONG = {
    "rls-gain": ("P @ x_mean", "2 * P @ x_mean", ELLIPSE, "RLS"),
    "rls-P": ("torch.outer(u, u)", "torch.outer(x_mean, u)", ELLIPSE, "RLS"),
    "bpls-ridge": ("A.T @ B", "A.T @ (0.7 * B)", CURVE, "fit"),
    "bpls-targets": ("H + R @", "H - R @", CURVE, "fit"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_picture_has_the_librarys_step_in_grey(name):
    """It is the library's own run, and hers lies on it where her lines are right."""
    right, wrong, experiment, curve = WRONG[name]
    found = exercise(name)
    plain, other = found.plain_text, found.plain_text.replace(right, wrong)
    assert plain != other
    own = drawn(experiment)[curve]
    for text, same in ((plain, True), (other, False)):
        seen = drawn(trying(experiment, name, compiled(text, found.function, text)))
        assert list(seen["with the library's step"]["y"]) == list(own["y"])
        hers_y = torch.as_tensor(list(seen[curve]["y"]))
        close = torch.allclose(hers_y, torch.as_tensor(list(own["y"])), atol=1e-4)
        assert close == same


def test_without_its_second_term_chol_2_makes_grevilles_fit():
    found = exercise("broad-chol2")
    text = found.plain_text.replace("D.T @ D + ", "")
    wrong = trying(FUNCTIONS, found.name, compiled(text, found.function, "wrong"))
    knobs = FunctionKnobs(ridge=0.01, exact="chol-2")
    panel = LiveLab(wrong, knobs=knobs, interactive=False)
    panel.run(12)
    hers, right = (each.fits for each in panel.pictures.now)
    assert np.allclose(hers["chol-2"], hers["orig"], rtol=1e-6)
    assert np.allclose(right["orig"], hers["orig"])
    assert np.abs(right["chol-2"] - hers["chol-2"]).max() > 1


def rows_with_a_training(_knobs):
    """Yield a row of a training, and then random numbers of torch."""
    yield {"step": 0, "measured": False}
    for step in range(1, 9):
        gain = float(update.gain(torch.eye(2), torch.ones(2))[0].sum())
        yield {"step": step, "pictures": gain * float(torch.rand(()))}


def test_the_librarys_run_keeps_pace_and_draws_the_same_random_numbers():
    by_chance = replace(PLAIN, rows=rows_with_a_training, picture=lambda *_: {})
    tried = trying(by_chance, NAME, hers("2 * P @ x_mean"))
    training, *found = islice(tried.rows(Knobs()), 5)
    assert not training["measured"] and len(found) == 4
    for both in (row["pictures"] for row in found):
        assert both.hers == pytest.approx(2 * both.right)


def test_a_picture_with_her_step_can_be_dragged():
    panel = Opening(trying(ELLIPSE, NAME, hers("P @ x_mean")), interactive=True)
    panel.plot.touched = {"name": "points", "index": 0, "x": 2, "y": 1}
    assert "1 2.00 1.00" in panel.controls.value.moved
    for both in panel.rows:
        assert both["pictures"].hers.inputs[0].tolist() == [2, 1]


def test_the_picture_of_a_paper_runs_with_her_factors():
    """Wrong factors leave the cloud of UORO right on average, and make it wider."""
    found = exercise("rtrl-uoro-factors")
    text = found.text.replace("balance(norm(v, 2)", "30 * balance(norm(v, 2)")
    wide = compiled(text, found.function, "wide factors")
    seen = []
    for experiment in (NOISE, trying(NOISE, found.name, wide)):
        knobs = NoiseKnobs(trained=False, method="UORO", hidden=8)
        panel = LiveLab(experiment, *problem(), knobs=knobs, interactive=False)
        seen.append(panel.run(4).relative_variance.iloc[-1])
    assert seen[1] > 3 * seen[0]


def problem():
    from labkit.lab import load

    return load("text"), {}
