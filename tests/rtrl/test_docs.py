"""The page docs/rtrl.md runs from top to bottom."""

import re
from pathlib import Path

import torch

PAGE = Path(__file__).parents[2] / "docs/rtrl.md"


def test_the_page_runs():
    known = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    for block in blocks:
        exec(block, known)
    assert known["record"].step == 10 and known["readout"][0].weight.grad.any()
    assert torch.isfinite(known["h"]).all()
