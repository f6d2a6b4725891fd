"""Settings that hold for every test."""

import os
import signal

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.workers import workers  # noqa: F401  (a fixture)

# One thread: the tests run side by side, and sums keep their order. It is what a
# notebook has, so that the tests' kernels are as fast as the lab's.
os.environ["LABKIT_THREADS"] = "1"
torch.set_num_threads(1)

# No test judges time, so neither may hypothesis on a busy machine.
settings.register_profile(
    "labkit", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("labkit")


@pytest.fixture
def interrupts():
    """Have Ctrl-C interrupt processes even below a ``nohup make test &``."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_collection_modifyitems(items):
    """Leave tests on real data out where none is named: they must not download."""
    if not os.environ.get("LABKIT_DATA"):
        skip = pytest.mark.skip(reason="LABKIT_DATA names no folder")
        for item in items:
            if "real_data" in item.keywords:
                item.add_marker(skip)
