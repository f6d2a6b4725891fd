"""Settings that hold for every test."""

import torch
from hypothesis import HealthCheck, settings

# One thread: the tests run side by side, and sums keep their order.
torch.set_num_threads(1)

# No test judges time, so neither may hypothesis on a busy machine.
settings.register_profile(
    "labkit", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("labkit")
