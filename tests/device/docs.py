"""docs/devices.md, whose table is that of the tests, with kernels counted anew."""

from pathlib import Path

from tests.device.table import counts, markdown

PAGE = Path(__file__).parents[2] / "docs/devices.md"
BEGIN, END = "<!-- table: python -m tests.device --docs -->\n", "<!-- end -->\n"


def shown() -> str:
    """The table on the page."""
    return PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]


def write() -> None:
    """Put the table of the tests on the page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + markdown(counts()) + END + after, "utf-8")
