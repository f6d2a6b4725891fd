"""What a newcomer reads: a symbol is explained where it first stands."""

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LAB = sorted((ROOT / "labkit/lab").rglob("*.py"))
# Of symbols of a notebook, what explains them, at their first place or before it.
EXPLAINED = {
    "03_hessian_free": {
        "theta": r"theta\*\* is the share of noise that is tolerated",
        "rho": r"The ratio \$\\rho\$ \(rho\) of the measured fall",
        "damping": r"A term that grows with the length of the step, the \*damping\*",
    },
    "04_broad": {"pivot": r"A \*pivot\* is the square of a diagonal entry"},
    "06_compare": {"BPLS-GN": r"our Gauss-Newton refinement \(BPLS-GN\)"},
}
# Sentences of the review: clipped, or in words of the house.
CLIPPED = (
    r"one layer a \*\*Step",
    "a row counts whenever it is handed",
    "makes little work of",
    "who mends it first",
    r"\(1 passes\)",
    "noise included; .* which have none",
)


def sources(path: Path, kind: str) -> list[str]:
    """The cells of a kind, such as markdown."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(c["source"]) for c in cells if c["cell_type"] == kind]


def prose(path: Path) -> str:
    """The texts of a notebook, one below the other."""
    return "\n".join(sources(path, "markdown"))


def strings(code: str) -> str:
    """What code can show: its strings, whole where they are written in parts."""
    shown = "\n".join(line for line in code.splitlines() if line[:1] not in "%!")
    nodes = (getattr(node, "value", None) for node in ast.walk(ast.parse(shown)))
    return "\n".join(text for text in nodes if isinstance(text, str))


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_symbol_is_explained_where_it_first_stands(name):
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    text = prose(path)
    for word, explanation in EXPLAINED[name].items():
        first = re.search(rf"\b{re.escape(word)}\b", text)
        told = re.search(explanation, text)
        assert told, f"{word} is not explained"
        assert told.start() <= first.start() <= told.end(), word


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_sentence_is_clipped_as_those_of_the_review(path):
    """Nor any in the code, which captions and tables are made of."""
    text = "\n".join([prose(path), *map(strings, sources(path, "code"))])
    assert [each for each in CLIPPED if re.search(each, text)] == []


def test_no_caption_is_clipped_as_that_of_the_review():
    assert LAB
    texts = {path.name: strings(path.read_text("utf-8")) for path in LAB}
    found = [(name, p) for p in CLIPPED for name in texts if re.search(p, texts[name])]
    assert found == []
