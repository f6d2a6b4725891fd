"""A plugin of nbval: a last cell of each notebook tells what Run All has imported.

``make test`` loads it; a reader can turn no knob while a slow module is imported.
"""

from collections import defaultdict

from nbformat.v4 import new_code_cell, new_output
from nbval.plugin import IPyNbCell

HEAVY = ["sklearn", "torch._dynamo"]  # a second or more each
IMPORTED = f"import sys\n[name for name in {HEAVY} if name in sys.modules]"


def pytest_collection_modifyitems(items):
    """Add the cell, which is to give an empty list."""
    last = {cell.parent: cell for cell in items}
    for notebook, cell in last.items():
        nothing = new_output("execute_result", {"text/plain": "[]"})
        added = IPyNbCell.from_parent(
            notebook,
            name="Run All imports nothing that is slow",
            cell_num=cell.cell_num + 1,
            cell=new_code_cell(IMPORTED, outputs=[nothing], execution_count=1),
            options=defaultdict(bool, check=True),
        )
        items.insert(items.index(cell) + 1, added)
