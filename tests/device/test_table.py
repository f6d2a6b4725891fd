"""Every step function on the strict device: the CPU's numbers, and its waits."""

import pytest
import torch

from tests.device import strict_device  # noqa: F401  (before any backward pass)
from tests.device.rows import counted, on_the_cpu
from tests.device.table import STEPS


@pytest.mark.parametrize("name", STEPS)
def test_a_step_on_the_strict_device(name):
    row = STEPS[name]
    waits, found = counted(row.make)
    close = {"rtol": 1e-6, "atol": 1e-9, "equal_nan": True}
    torch.testing.assert_close(found, on_the_cpu(row.make), **close)
    assert waits.total() == row.waits, waits.most_common()
