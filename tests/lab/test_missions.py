"""Missions of notebook 06: what counts as done, and what does not."""

import pytest

from labkit.lab.compare import RACE, Missions, live
from labkit.lab.compare.missions import ASK, BACK, HOLDS, NOISY, beats, recovered
from labkit.lab.panels import LiveLab

CLEAN = {"label_noise": 0.0, "input_noise": 0.0}
NOISE = CLEAN | {"label_noise": 0.9}


def steps(*parts):
    """Rows of some lengths, each at these knobs and with these errors."""
    made = []
    for count, knobs, errors in parts:
        for _ in range(count):
            row = {"step": len(made) + 1, "ended": ""} | errors
            made.append((row, knobs))
    return made


def test_a_rule_beats_another_when_it_holds_for_some_minibatches():
    lost = {"Adam": 31.0, "Hessian-free": 58.0}
    won = {"Adam": 31.0, "Hessian-free": 2.0}
    before = (20, CLEAN, won)
    assert not beats(steps(before, (HOLDS - 1, NOISE, lost)), "Adam", "Hessian-free")
    said = beats(steps(before, (HOLDS, NOISE, lost)), "Adam", "Hessian-free")
    assert said.startswith("Adam 31 %, Hessian-free 58 % at minibatch 25")
    assert "label noise 0.9" in said
    assert not beats(steps(before), "Adam", "Hessian-free")
    failed = steps((9, NOISE, {"Adam": 31.0}))  # a rule that has ended has no error
    assert not beats(failed, "Adam", "Hessian-free")


def test_a_rule_has_recovered_that_had_suffered_and_has_few_errors_again():
    lost = {"Hessian-free": 60.0, "RLS": 50.0, "broad": 31.0, "BPLS": 8.0}
    back = {"Hessian-free": 3.0, "RLS": 20.0, "broad": 31.0, "BPLS": 3.0}
    begun = (5, CLEAN, back), (NOISY, NOISE, lost)
    assert recovered(steps(*begun)) == {}  # there still is noise
    assert recovered(steps(*begun, (3, CLEAN, lost))) == {}
    ends = *begun, (6, CLEAN, lost), (4, CLEAN, back), (1, CLEAN, back | {"RLS": 2.0})
    assert recovered(steps(*ends)) == {"Hessian-free": 7, "RLS": 11}
    assert recovered(steps((NOISY - 1, NOISE, lost), (9, CLEAN, back))) == {}


@pytest.fixture
def missions():
    lab = LiveLab(RACE, live.spirals(), None, 4)
    return lab, Missions(lab)


def test_the_list_follows_its_panel_and_keeps_what_was_done(missions):
    lab, board = missions
    assert all("○" in line.value for line in board.lines)
    lab.run(2)
    assert len(board._steps) == 2 and board._steps[0][1]["label_noise"] == 0.0
    for row, knobs in steps((HOLDS, NOISE, {"broad": 30.0, "BPLS": 41.0})):
        board._add(row, knobs)
    assert "✓" in board.lines[1].value and "BPLS 41 %" in board.lines[1].value
    lab.stepper.reset()
    lab.run(1)
    assert len(board._steps) == 1 and "✓" in board.lines[1].value


def test_the_rule_that_is_chosen_is_judged_by_the_run(missions):
    _, board = missions
    board.choice.value = "RLS"
    assert "no rule has suffered and recovered" in board.lines[-1].value
    lost, back = ({"RLS": e, "Hessian-free": e} for e in (60.0, BACK - 1))
    mixed = lost | {"Hessian-free": BACK - 1}
    for row, knobs in steps((NOISY, NOISE, lost), (3, CLEAN, mixed), (3, CLEAN, back)):
        board._add(row, knobs)
    assert "○" in board.lines[-1].value
    assert "no: Hessian-free had less than 10 % after 1" in board.lines[-1].value
    board.choice.value = "Hessian-free"
    assert "✓" in board.lines[-1].value
    board.choice.value = ASK
    assert "minibatches" not in board.lines[-1].value


def test_without_widgets_the_missions_are_a_list():
    lab = LiveLab(RACE, live.spirals(), None, 4, interactive=False)
    shown = Missions(lab, interactive=False)._still
    assert shown.html.count("<li>") == 3 and "Adam" in shown.text
