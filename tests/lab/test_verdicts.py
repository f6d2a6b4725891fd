"""What the notebook on RTRL makes of its measurements."""

import pandas as pd
import pytest

from labkit.lab import rtrl
from labkit.lab.claims import UNDECIDED, YES


def test_noise_is_judged_by_cosine_and_by_variance():
    columns = pd.MultiIndex.from_product(
        [["cosine", "relative variance"], ["mean", "sd"]]
    )
    values = [[0.9, 0.01, 0.2, 0.01], [0.5, 0.01, 0.4, 0.3]]
    table = pd.DataFrame(values, index=["OK", "KF"], columns=columns)
    cosine, variance = rtrl.noise_claims(table, [("OK leads", "OK", "KF")], "x")
    assert cosine.verdict == YES and cosine.gap == pytest.approx(0.4)
    assert variance.verdict == UNDECIDED and variance.gap == pytest.approx(0.5)
    assert rtrl.above_claim(table, "OK", 0.8, "x").verdict == YES
