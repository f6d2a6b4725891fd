"""A measured experiment: its record, its button, its judgement."""

import asyncio
import json
import math
from dataclasses import replace

import pandas as pd
import pytest
import torch

from labkit.instruments import Trace
from labkit.lab.panels import Finding, Measured, Measurement, curves, measured as module
from labkit.lab.runs import records
from labkit.lab.runs.records import keep_records
from tests.lab.panels.conftest import in_loop


def rows(*, runs: int, shift: float):
    """Yield random numbers with a mean, after a share of what is to be done."""
    for run in range(runs):
        yield run / runs
        yield {"run": run, "value": shift + float(torch.randn(()))}


def judge(rows):
    """Whether the mean is above zero."""
    mean, error = rows["value"].mean(), rows["value"].std() / math.sqrt(len(rows))
    return Finding(f"the mean is {mean:.1f}", mean, error)


def figure(rows):
    """Draw the numbers."""
    return curves({"Value": {"value": (rows["run"], rows["value"])}}, "run", "unit")


LARGE = Measurement("large", "The mean is above zero.", 2, rows, judge, figure)
GIVEN = {"runs": 30, "shift": 3.0}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Records in a folder of the test's own."""
    for place in (module, records):
        monkeypatch.setattr(place, "RECORDS", tmp_path)
    return tmp_path


@pytest.fixture
def recorded(folder):
    Measured(LARGE, interactive=False, run_dir=str(folder), **GIVEN)
    keep_records(folder)


def test_headless_it_measures_at_once_and_writes_a_trace(folder):
    before = torch.get_rng_state()
    measured = Measured(LARGE, interactive=False, run_dir=str(folder), **GIVEN)
    assert torch.equal(torch.get_rng_state(), before)  # its random numbers are its own
    trace = Trace.load(folder / "measured" / "large.jsonl")
    assert trace.header["parameters"] == GIVEN and len(trace.rows) == 30
    pd.testing.assert_frame_equal(measured.rows, trace.frame().reset_index(drop=True))
    assert measured.finding.holds and "Holds: the mean is" in measured._words


def test_a_claim_that_its_record_refutes_fails_and_another_setting_does_not(folder):
    low = GIVEN | {"shift": -3.0}
    measured = Measured(LARGE, interactive=False, run_dir=str(folder), **low)
    assert measured.finding.refuted and "Refuted" in measured._words
    keep_records(folder)
    with pytest.raises(AssertionError, match=r"refuted: .* the mean is -"):
        Measured(LARGE, interactive=False, **low)
    Measured(LARGE, interactive=False, **low | {"runs": 31})


def test_what_is_within_the_noise_is_not_decided():
    finding = Finding("so it is", 1.9, 1.0)
    assert not finding.holds and not finding.refuted
    assert Finding("", 2.1, 1.0).holds and Finding("", -2.1, 1.0).refuted


def test_the_record_is_shown_with_its_commit_and_what_is_apart(recorded):
    shown = Measured(LARGE, **GIVEN)
    commit = json.loads(LARGE.record.read_text().splitlines()[0])["commit"]
    assert len(shown.rows) == 30 and f"commit {commit}." in shown._said.value
    other = Measured(LARGE, **GIVEN | {"runs": 9})
    assert "with runs = 30 and not 9" in other._said.value
    assert "about 2 s" in other._button.description


@in_loop
async def test_the_button_measures_in_slices_that_can_be_paused(recorded, monkeypatch):
    monkeypatch.setattr(module, "SLICE", 0.0)
    torch.manual_seed(5)
    headless = Measured(LARGE, interactive=False, **GIVEN | {"runs": 12})
    torch.manual_seed(5)
    shown = Measured(LARGE, **GIVEN | {"runs": 12})
    shown._button.click()
    while shown.stepper.position < 4:
        await asyncio.sleep(0.01)
    shown._button.click()
    count = shown.stepper.position
    assert shown._button.description == "Go on"
    torch.randn(5)  # what another cell draws changes nothing
    await asyncio.sleep(0.05)
    assert shown.stepper.position == count
    shown._button.click()
    while not shown.stepper.over:
        await asyncio.sleep(0.01)
    pd.testing.assert_frame_equal(shown.rows, headless.rows)
    assert "Measured in this run" in shown._said.value


@in_loop
async def test_an_error_is_told_and_the_record_stays(recorded):
    def fails(**_):
        yield 0.5
        raise ValueError("no such data")

    shown = Measured(replace(LARGE, measure=fails), **GIVEN)
    shown._button.click()
    while not shown.stepper.over:
        await asyncio.sleep(0.01)
    assert "was not measured: no such data" in shown._said.value
    assert len(shown.rows) == 30
