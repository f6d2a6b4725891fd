"""Every step function on the strict device: the CPU's numbers, and its waits."""

from collections import defaultdict

import pytest
import torch

from tests.device import docs, strict_device  # noqa: F401  (before any backward pass)
from tests.device.rows import counted, on_the_cpu
from tests.device.table import TABLE, markdown

CASES = {f"{room}: {row.step}": row for room, rows in TABLE.items() for row in rows}


@pytest.mark.parametrize("case", CASES)
def test_a_step_on_the_strict_device(case):
    row = CASES[case]
    tally, found = counted(row.make)
    close = {"rtol": 1e-6, "atol": 1e-9, "equal_nan": True}
    torch.testing.assert_close(found, on_the_cpu(row.make), **close)
    assert tally.waits.total() == row.waits, tally.waits.most_common()
    assert tally.drains == row.drains
    assert bool(row.waits) == bool(row.why), "a wait has its reason"


def test_the_docs_show_the_table():
    """But for the kernels, which are counted when the page is written."""
    said = "write it by python -m tests.device --docs"
    assert plain(docs.shown()) == plain(markdown(defaultdict(int))), said


def plain(page):
    """Return a table without its two columns of kernels."""
    rows = (line.split(" | ") for line in page.splitlines())
    return [row[:1] + row[3:] for row in rows]


def test_no_two_rows_have_one_name():
    assert len(CASES) == sum(map(len, TABLE.values()))
