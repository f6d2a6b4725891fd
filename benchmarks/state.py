"""What a saved notebook keeps of its widgets: megabytes of each panel.

    PYTHONPATH=. python benchmarks/state.py [NAME ...]

Each notebook runs in a kernel of its own with its widgets on, as JupyterLab runs it and
saves their state. A panel is an output that shows a widget; it counts with all that it
refers to. The exit status is 1 where one has 1 MB or more, or a cell fails.
"""

import json
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parents[1]
NAMES = sorted(path.stem for path in (HERE / "notebooks").glob("0[1-6]_*.ipynb"))
STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
MOST = 1.0  # MB of a panel
REFERENCE = re.compile(r'"IPY_MODEL_(\w+)"')


def executed(name):
    """The notebook after all of its cells, widgets and their state included."""
    book = nbformat.read(HERE / "notebooks" / f"{name}.ipynb", as_version=4)
    where = {"metadata": {"path": HERE / "notebooks"}}
    NotebookClient(book, timeout=None, resources=where).execute()
    return book


def panels(book):
    """Megabytes of each widget that an output shows, by the number of its cell."""
    models = book.metadata.get("widgets", {}).get(STATE, {"state": {}})["state"]
    models = {key: json.dumps(model) for key, model in models.items()}
    for number, cell in enumerate(book.cells):
        for output in cell.get("outputs", ()):
            if view := output.get("data", {}).get(VIEW):
                yield number, size(models, view["model_id"]) / 1e6


def size(models, root):
    """Bytes of a model and of all that it refers to, each counted once."""
    seen, left = set(), [root]
    while left:
        if (key := left.pop()) not in seen and key in models:
            seen.add(key)
            left += REFERENCE.findall(models[key])
    return sum(len(models[key]) for key in seen)


def main(names):
    """Print a line a notebook; return the exit status."""
    large = False
    for name in names or NAMES:
        book = executed(name)
        found = list(panels(book))
        whole = len(json.dumps(book.metadata.get("widgets", {}))) / 1e6
        told = "  ".join(f"cell {number}: {mb:.2f}" for number, mb in found)
        print(f"{name:16}{whole:6.2f} MB in all; {told}", flush=True)
        large |= any(mb >= MOST for _, mb in found)
    return int(large)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
