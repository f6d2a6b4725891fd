"""Compute the golden numbers of a room, and write or compare them.

    PYTHONPATH=TREE python tests/golden/record.py rls

writes ``tests/golden/rls.npz`` from the labkit of a source tree; those that are
committed come from commit 8a1e143. ``test_golden.py`` compares the labkit of today with
them. A room's cases stand in ``of_<room>.py``: `CASES` maps a name to a function that
returns a mapping from names to tensors, arrays or numbers, computed in float64 from
seeds by the public functions of that commit. Where a public name has changed since, the
case says how the same is called today.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def cases(room):
    """Return the cases of a room by name."""
    spec = importlib.util.spec_from_file_location(f"of_{room}", HERE / f"of_{room}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CASES


def computed(case):
    """Return the numbers of a case as arrays."""
    return {
        name: np.asarray(getattr(value, "detach", lambda value=value: value)())
        for name, value in case().items()
    }


def main(room):
    """Write the golden numbers of a room."""
    numbers = {
        f"{case}/{name}": value
        for case, function in cases(room).items()
        for name, value in computed(function).items()
    }
    np.savez_compressed(HERE / f"{room}.npz", **numbers)
    print(f"{room}: {len(numbers)} arrays")


if __name__ == "__main__":
    main(sys.argv[1])
