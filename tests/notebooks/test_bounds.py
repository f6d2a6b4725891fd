"""Every value within its declared bounds runs through: the notebooks' cells, run here.

``make test`` has two settings far from the least; ``make test-long`` has the least of
every parameter of every notebook, and each data set that is there.
"""

import ast
import linecache

import nbformat
import pytest
from IPython.core.formatters import DisplayFormatter

from labkit.lab.runs.parameters import read_parameters, resolve
from labkit.threads import READ_LATER, set_threads
from tests.notebooks.test_notebooks import NOTEBOOKS

PATHS = {path.stem[3:]: path for path in NOTEBOOKS}
DECLARED = {name: read_parameters(path) for name, path in PATHS.items()}
NUMBERS = {
    name: [p for p in declared if p.type in (int, float)]
    for name, declared in DECLARED.items()
}
LEAST = {name: {p.name: p.type(p.low) for p in of} for name, of in NUMBERS.items()}
# Far from the least, of what takes seconds there.
FAR = {
    "rls": {"batch": 4096, "hidden": 33, "live_steps": 25},
    "bpls": {"hidden": 120, "seeds": 2, "live_steps": 30},
    "compare": {"data": "diabetes", "label_noise": 0.5},
    "broad": {"added": 33, "updates": 3, "seeds": 2, "seed": 99},
}
FEW, LONG = ("rls", "compare"), pytest.mark.long
built = DisplayFormatter().format


def run_cells(name, values, monkeypatch):
    """Run a notebook's code cells here, and return the figures that they show."""
    names, figures = {}, []

    def shown(*things, raw=False, **_):
        for thing in things:
            if isinstance(panel := getattr(thing, "figure", None), dict):
                figures.append(panel)
            data = thing if raw else built(thing)[0]
            if drawn := data.get("application/vnd.plotly.v1+json"):
                figures.append(drawn)

    monkeypatch.setattr("IPython.display.display", shown)
    for cell in nbformat.read(PATHS[name], as_version=4).cells:
        if cell.cell_type != "code":
            continue
        body, place = ast.parse(cell.source).body, f"<{name} {cell.id}>"
        lines = cell.source.splitlines(keepends=True)  # of an exercise, which are read
        linecache.cache[place] = len(cell.source), None, lines, place
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), place, "exec"), names)
        if last:
            shown(eval(compile(ast.Expression(last.value), place, "eval"), names))
        if "parameters" in cell.metadata.get("tags", []):
            names |= values
    return figures


def data_sets():
    """Each data set but the one that is embedded."""
    for name, declared in DECLARED.items():
        for p in declared:
            named = [choice for choice in p.choices[1:] if "*" not in choice]
            yield from ((name, {p.name: choice}) for choice in named)


def settings(rows, marks=()):
    for number, (name, parameters) in enumerate(rows):
        label = f"{name}-{number}-{'-'.join(parameters)}"[:40]
        yield pytest.param(name, parameters, id=label, marks=marks)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Take back what a notebook says of threads."""
    for variable in READ_LATER:
        monkeypatch.setenv(variable, "1")
    yield
    set_threads(1)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *settings([(name, {}) for name in PATHS], LONG),
        *settings(each for each in FAR.items() if each[0] in FEW),
        *settings((each for each in FAR.items() if each[0] not in FEW), LONG),
        *settings(data_sets(), (LONG, pytest.mark.real_data)),
    ],
)
def test_a_notebook_runs_through(name, parameters, tmp_path, capfd, monkeypatch):
    values = resolve(DECLARED[name], LEAST[name] | parameters)
    given = {"interactive": False, "run_dir": str(tmp_path)}
    figures = run_cells(name, values | given, monkeypatch)
    assert len(figures) >= 2
    output = "".join(capfd.readouterr())
    assert "Traceback" not in output, output[output.index("Traceback") :][-2000:]
