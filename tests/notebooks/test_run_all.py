"""Run All in the lab: what it imports before a reader can turn a knob."""

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from labkit.lab.runs.kernel import ThisPython
from tests.notebooks.test_notebooks import FOLDER, NOTEBOOKS

HEAVY = ["sklearn", "torch._dynamo"]  # a second or more each
IMPORTED = f"import sys\n[name for name in {HEAVY} if name in sys.modules]"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_run_all_imports_nothing_that_is_slow(path):
    book = nbformat.read(path, as_version=4)
    book.cells.append(new_code_cell(IMPORTED))
    where = {"metadata": {"path": str(FOLDER)}}
    client = NotebookClient(book, timeout=300, resources=where)
    client.kernel_manager_class = ThisPython
    client.execute()
    assert book.cells[-1].outputs[0]["data"]["text/plain"] == "[]"
