"""Random numbers that the tests draw, the same at every call."""

import numpy as np
import torch


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0, dtype=torch.float64):
    """Normal numbers, drawn in float64 whatever the dtype."""
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64).to(dtype)


def close(x, y, tolerance=1e-10):
    """Whether no entry differs by more than that."""
    return np.allclose(x, y, rtol=0, atol=tolerance)
