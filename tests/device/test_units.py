"""Units that are for a GPU find on the strict device what they find on the CPU."""

import pandas as pd
import pytest

from labkit.lab.runs.jobs import Checkpoint
from reproduction.studies import find_study
from tests.device.strict_device import strict


class Nowhere(Checkpoint):
    """Storages of the strict device cannot be written to a file."""

    def save(self, *_, **__):
        pass


def found(study, folder, device):
    rows = study.work(Nowhere(folder, {}), **study.small, device=device)
    return pd.DataFrame(rows).filter(regex="^(?!seconds)")


@pytest.mark.parametrize("name", ["hessian_free/table2-mnist", "rls/fig2b-full"])
def test_a_unit_finds_what_it_finds_on_the_cpu(name, tmp_path):
    study = find_study(name)
    with strict():
        there = found(study, tmp_path, "acc")
    here = found(study, tmp_path, "cpu")
    pd.testing.assert_frame_equal(there, here, rtol=1e-5)
