"""Walking the lines of a real step: stops, loops, equations, what is shown."""

import ast
import json
from pathlib import Path

import pytest
import torch
from torch import nn

import labkit
from labkit.lab.panels import LineStepper
from labkit.lab.panels.lines.source import equations_of
from labkit.lab.panels.lines.walk import mathml
from labkit.rls import rls_step
from tests.draws import seeded

LABKIT = Path(labkit.__file__).parent


def inner(x):
    return x + 1


def summed(n):
    """Sum of squares.

    (1) $s \\leftarrow s + i^2$
    """
    s = 0
    for i in range(n):
        s = s + i * i  # (1)
        t = inner(s)
    return t


def rls_walk():
    generator = seeded()
    x, gradient, theta = (
        torch.randn(s, generator=generator) for s in (6, (3, 6), (3, 6))
    )
    rule = {"velocity": torch.zeros(3, 6), "momentum": 0.5, "l1": 0.1}
    return LineStepper(rls_step, theta, torch.eye(6), x, gradient, **rule)


def stop_of(walk, name):
    """The first stop that changes a value, as data, and its record."""
    numbers = [name in r.changed for r, *_ in walk.stops].index(True)
    return walk.data["stops"][numbers], walk.stops[numbers][0]


def test_a_loop_is_one_stop_with_turns_also_through_its_helpers():
    walk = LineStepper(summed, 4)
    assert [len(stop["turns"]) for stop in walk.data["stops"]] == [1, 5, 4, 4, 4, 1]
    body, helper = walk.data["stops"][2:4]
    assert walk.stops[2][3].values["s"].text == "14"
    (equation,) = [walk.data["equations"][i] for i in body["equations"]]
    formula = mathml(r"s \leftarrow s + i^2")
    assert equation == f"<div>(1) {formula}</div>"
    assert len(walk.stops[3][2].path) == 2 and walk.stops[3][2].values["x"].text == "5"
    assert walk.data["functions"][helper["function"]]["title"] == "inner"


def test_the_page_has_all_that_it_walks():
    walk = rls_walk()
    page = walk._repr_html_()
    held = page.partition('type="application/json">')[2].partition("</script>")[0]
    assert json.loads(held.replace("<\\/", "</")) == json.loads(json.dumps(walk.data))
    assert "</script>" not in held and page.count('<script type="module">') == 1
    assert repr(walk) == "LineStepper(16 lines, 9 with an equation)"
    stop, record = stop_of(walk, "P")
    rows = [walk.data["rows"][i] for i in stop["turns"][0]["rows"]]
    (own,) = [row for row in rows if "changed" in row]
    low, high = record.values["P"].entries.min(), record.values["P"].entries.max()
    assert own.startswith('<tr class="changed"><td>P</td><td><math')
    assert own.endswith(f"<td>6 × 6</td><td>{low:.4g} … {high:.4g}</td></tr>")
    (source,) = [f for f in walk.data["functions"] if f["title"] == "rls_step"]
    lines = dict(source["lines"])
    assert "".join(lines.values()).count("…") == 1  # of its docstring
    line = "P.div_(forgetting).addcmul_(v[:, None], v, value=-1)  # (37)"
    assert lines[stop["line"]].strip() == line


def test_every_equation_of_a_docstring_becomes_mathml():
    sources = [path.read_text("utf-8") for path in LABKIT.rglob("*.py")]
    nodes = (node for source in sources for node in ast.walk(ast.parse(source)))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = [ast.get_docstring(node) for node in nodes if isinstance(node, documented)]
    found = {latex for doc in docs for latex in equations_of(doc).values()}
    assert len(found) > 200
    assert [latex for latex in found if "\\" in mathml(latex)] == []


def test_what_cannot_be_walked_is_refused():
    def pairs():
        yield 1

    with pytest.raises(ValueError, match=r"no line of .* ran that could be shown"):
        LineStepper(pairs)


def scaled(
    x,
    factor,
):
    """Scale: (1) $y = f x$ with factor : $f$.

    factor : $f$
    """
    y = torch.mul(
        x,
        factor,  # (1)
    )
    return y


def test_a_statement_of_several_lines_is_one_stop():
    walk = LineStepper(scaled, torch.tensor([1.0, 0.5]), 3.0)
    stop, _ = walk.data["stops"]
    assert len(stop["equations"]) == 1 and len(stop["lit"]) == 4
    assert "<td>2</td><td>3 1.5</td></tr>" in "".join(walk.data["rows"])


def used_first(self, b):
    a, used = {"x": b}, 2
    c = used + len(a)
    return c


def test_what_a_line_changes_and_names_stands_first():
    held = nn.Linear(2, 2)
    walk = LineStepper(used_first, held, 7)
    stop, _ = stop_of(walk, "c")
    order = ["c", "used", 'a["x"]', "b", "self.weight", "self.bias"]
    rows = [walk.data["rows"][i] for i in stop["turns"][0]["rows"]]
    assert all(f"<td>{path}</td>" in row for path, row in zip(order, rows, strict=True))
    assert ["changed" in row for row in rows] == [True] + 5 * [False]
