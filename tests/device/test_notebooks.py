"""A whole notebook of each room on the strict device, on the smallest of settings.

The check cells assert what they always do; only loops of a fixed length are cut.
"""

from pathlib import Path

import nbformat
import pytest

from tests.device.strict_device import NAME, strict

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
SETTINGS = {
    "00_tour": {"steps": 10},
    "01_rls": {"samples": 24, "hidden": 4, "epochs": 1, "seeds": 1, "batch": 24}
    | {"live_steps": 2},
    "02_bpls": {"samples": 60, "hidden": 5, "seeds": 1, "epochs": 1, "epochs_128": 1}
    | {"sweeps": 1, "runs": 4, "toy_epochs": 1, "live_steps": 2},
    "03_hessian_free": {"samples": 40, "live_steps": 3, "iterations": 8, "seeds": 1}
    | {"race_seconds": 1e-6, "patience": 0, "scene_steps": 2},
    "04_broad": {"samples": 60, "enhancement": 10, "updates": 1, "added": 2}
    | {"live_samples": 60, "cost_samples": 60, "cost_start": 20, "cost_added": 2}
    | {"cost_updates": 1},
    "05_rtrl": {"hidden": 8, "rank": 1, "updates": 1, "measured": 3, "repeats": 2}
    | {"race_hidden": 4, "race_batch": 1, "race_rank": 2, "race_steps": 20}
    | {"text_steps": 25},
    "06_compare": {"samples": 40, "hidden": 4, "passes": 1, "trials": 1, "seeds": 1}
    | {"noise_seeds": 1, "other_samples": 40, "other_passes": 1, "other_trials": 1}
    | {"live_steps": 4},
}
UNTRAINED = "knobs=lab.InfluenceKnobs(trained=False)"
CUT = {  # of a notebook: what stands in its cells, and what is run instead
    "00_tour": {"trained=True": "trained=False", "text, {}": "text, {}, 1, 4"}
    | {'"text"), {}': '"text"), {}, 1, 4'},
    "01_rls": {"run(60)": "run(2)", 'check("rls-2", largest_step)': ""},
    "02_bpls": {'"max_walks": 8': '"max_walks": 1', "range(5)": "range(1)"}
    | {"run(40)": "run(2)"},
    "03_hessian_free": {"maxiter=700": "maxiter=20", "level)": "level, 5)"}
    | {"range(400)": "range(2)", "/ 400 /": "/ 2 /", 'maxiter": 60': 'maxiter": 6'}
    | {"chunks=20, steps=scene_steps + 15": "chunks=2, steps=2"}
    | {"batch_size=300": "batch_size=300, maxiter=2", "range(4000)": "range(1500)"}
    | {"range(40)": "range(5)"},
    "05_rtrl": {"40, 100)": "0, 2)", "yours, *opening": "yours, *opening, 1, 4"}
    | {"NOISE, *opening": "NOISE, *opening, 1, 4"}
    | {"INFLUENCE, *opening": f"INFLUENCE, *opening, {UNTRAINED}"},
    "06_compare": {"(top / 2, top)": "(top,)", "range(15)": "range(2)"}
    | {"run(20)": "run(2)"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_notebook_runs(name, monkeypatch):
    monkeypatch.setattr("labkit.lab.hessian_free.krylov.EXACT", 20)
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    known, given = {}, SETTINGS[name] | {"device": NAME, "interactive": False}
    with strict(counting=False) as tally:
        for cell in (cell for cell in book.cells if cell.cell_type == "code"):
            source = cell.source
            for text, short in CUT.get(name, {}).items():
                source = source.replace(text, short)
            exec(source, known)  # the cells share their names, as in a kernel
            if "parameters" in cell.metadata.get("tags", []):
                known |= given
        assert tally.waits.total() > 100  # it did go to the device
