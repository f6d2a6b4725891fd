"""What a newcomer reads: a symbol is explained where it first stands."""

import json
import re
from pathlib import Path

import pytest

from tests import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Of symbols of a notebook, what explains them, at their first place or before it.
EXPLAINED = {
    "03_hessian_free": {
        "theta": r"\$\\theta\$ \(theta\) is the share of the gradient's length",
        "rho": r"The ratio \$\\rho\$ \(rho\) of the measured fall",
        "damping": r"A term that grows with the length of the step, the \*damping\*",
    },
    "04_broad": {"pivot": r"A \*pivot\* is the square of a diagonal entry"},
    "06_compare": {"BPLS-GN": r"our Gauss-Newton refinement \(BPLS-GN\)"},
}


def prose(path: Path) -> str:
    """The texts of a notebook, one below the other."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    return "\n".join(texts)


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_symbol_is_explained_where_it_first_stands(name):
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    text = prose(path)
    for word, explanation in EXPLAINED[name].items():
        first = re.search(rf"\b{re.escape(word)}\b", text)
        explained = re.search(explanation, text)
        assert explained, f"{word} is not explained"
        assert explained.start() <= first.start() <= explained.end(), word
