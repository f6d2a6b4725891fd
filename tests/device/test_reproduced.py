"""Units of reproduction on the strict device, in one piece and in pieces."""

from functools import partial

import pytest
import torch

from labkit.lab.runs.jobs import Checkpoint
from reproduction import rtrl_online
from reproduction.studies import find_study
from tests.device.strict_device import NAME, strict

TO_RUN = (
    "rtrl/table2-3",
    "rtrl/table2-online",
    "rtrl/fig1-copy",
    "rls/standardised",
)
FEW = {"steps": 20, "every": 10}  # of training online, a chance to save after each 5


class Cut(Checkpoint):
    """Saves each state, and is interrupted after the second."""

    saves = 0

    def save(self, state, *_, **__):
        super().save(state, now=True)
        self.saves += 1
        if self.saves == 2:
            raise KeyboardInterrupt


def told(rows):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


@pytest.mark.parametrize("name", TO_RUN)
def test_a_unit_that_was_cut_off_on_a_device_goes_on_there(name, tmp_path, monkeypatch):
    monkeypatch.setattr(rtrl_online, "CHUNK", 5)
    read_wide = partial(rtrl_online.bits_on, streams=2000)
    monkeypatch.setattr(rtrl_online, "bits_on", read_wide)
    study = find_study(name)
    few = {key: value for key, value in FEW.items() if key in study.small}
    arguments = study.small | few | {"device": NAME}
    with strict():
        whole = study.work(Checkpoint(tmp_path / "whole", {}), **arguments)
        with pytest.raises(KeyboardInterrupt):
            study.work(Cut(tmp_path / "cut", {}), **arguments)
        pieces = Checkpoint(tmp_path / "cut", {})
        assert pieces.load() is not None
        found = study.work(pieces, **arguments)
    assert told(found) == told(whole) and len(whole) > 1
    assert all(not isinstance(v, torch.Tensor) for row in whole for v in row.values())
