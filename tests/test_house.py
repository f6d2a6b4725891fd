"""The house rules: who may import whom, what is declared, what is committed."""

import ast
import re
import runpy
import subprocess
import tomllib
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import labkit
from tests import ROOT

PAPERS = {"rls", "bpls", "hessian_free", "broad", "rtrl"}
CORE = PAPERS | {"instruments", "theorems", "scale"}
TOP = "the top of the package"
# One file a notebook, and what notebooks share; see `room_of`.
BOOKS = {"lab.books"}
SHARED = {"lab.problem", "lab.race", "lab.tuning", "lab.claims", "lab.gauss_newton"}
PARTS = {"lab.panels", "lab.datasets", "lab.colours", "lab.runs", "lab.command"}
PARTS |= {"lab.exercises"}
BELOW = {"lab.panels", "lab.datasets", "lab.colours", TOP}
LAB = BOOKS | SHARED | PARTS | {"lab"}
NO_STUDY = {"lab.panels", "lab.command", "lab.exercises"}
MAY_IMPORT = {
    **{paper: {paper, TOP} for paper in PAPERS},
    "instruments": {"instruments", TOP},
    "theorems": {"theorems", TOP, *PAPERS},
    "scale": {"scale", TOP, *PAPERS},
    "lab": set(),
    "lab.datasets": {"lab.datasets", TOP},
    "lab.colours": {"lab.colours"},
    "lab.panels": {"lab.panels", "lab.colours", "instruments", TOP},
    "lab.exercises": CORE | BELOW | {"lab.exercises"},
    "lab.runs": {"lab.runs", "lab.datasets", TOP},
    **dict.fromkeys(BOOKS, CORE | BOOKS | BELOW | SHARED | {"lab.exercises"}),
    **dict.fromkeys(SHARED, CORE | BELOW | SHARED),
    "lab.command": {"lab.runs", "lab.exercises", "lab.books", TOP},
    TOP: {TOP, "lab.command"},
    "reproduction": CORE | LAB - NO_STUDY | {"reproduction", TOP},
    "notebooks": CORE | LAB - {"lab.runs", "lab.command"} | {TOP},
}
PACKAGES = "labkit", "reproduction"
DRAWING = {"plotly", "ipywidgets", "IPython", "matplotlib"}


def git(*command, **options):
    """Run git at the top of the repository; return the names that it prints."""
    command = ["git", "-c", f"safe.directory={ROOT}", *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **options)
    assert not done.stderr, done.stderr
    return [name for name in done.stdout.split("\0") if name]


def tracked():
    """Return the paths that git holds, from the top of the repository."""
    return [Path(name) for name in git("ls-files", "-z", "--cached")]


# Who may import whom


@cache
def imported(source, module, is_package=False):
    """Return the full name of all that a module's source imports, wherever it does.

    ``from a import b`` gives ``a.b``, since ``b`` may be a module; relative names
    are resolved against ``module``.
    """
    package = module.split(".") if is_package else module.split(".")[:-1]
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            kept = package[: len(package) + 1 - node.level] if node.level else []
            base = [*kept, *([node.module] if node.module else [])]
            found += [".".join([*base, alias.name]) for alias in node.names]
    return found


def room_of(name):
    """Name the room that a dotted name belongs to, such as ``rls`` or ``lab.panels``.

    ``TOP`` is what lies at the top of the package.
    """
    first, *parts = name.split(".")
    if first == "reproduction":
        return first
    if parts[:1] == ["lab"]:
        part = ".".join(parts[:2])
        return part if part in LAB else "lab"
    return parts[0] if parts and parts[0] in CORE else TOP


def violations(source, module, is_package=False, room=None):
    """List the imports in ``source`` that the house rules do not allow."""
    room = room or room_of(module)
    found = []
    for name in imported(source, module, is_package):
        if name.split(".")[0] in DRAWING and room in PAPERS:
            found.append(f"{module}: a paper's room draws nothing, but imports {name}")
        if name.startswith("torch.distributed") and room != "scale":
            found.append(f"{module}: scale alone knows of several processes")
        if name.split(".")[0] not in ("labkit", "reproduction"):
            continue
        if name in ("labkit", "labkit.__version__", "labkit.lab.lazily"):
            continue
        if room_of(name) not in MAY_IMPORT[room]:
            found.append(f"{module}: {room} must not import {name}")
    return found


def modules():
    """Yield the path and dotted name of every module of the package."""
    found = (path for top in PACKAGES for path in (ROOT / top).rglob("*.py"))
    for path in sorted(found):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_module_keeps_to_the_arrows():
    found = []
    for path, module in modules():
        if module != "labkit":
            package = path.name == "__init__.py"
            found += violations(path.read_text("utf-8"), module, package)
    assert not found, "\n".join(found)


def test_the_package_itself_opens_no_room():
    source = (ROOT / "labkit/__init__.py").read_text("utf-8")
    assert not [n for n in imported(source, "labkit", True) if n.startswith("labkit")]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("labkit.rls.update", "from labkit import rtrl"),
        ("labkit.broad.nodes", "from labkit.scale import workers"),
        ("labkit.rtrl.exact", "import plotly.graph_objects as go"),
        ("labkit.rtrl.train", "from torch import distributed"),
        ("labkit.instruments.trace", "from labkit.lab.panels import LivePlot"),
        ("labkit.lab.panels.live.stepper", "from labkit.rtrl import RTRL"),
        ("reproduction.rtrl", "from labkit.lab.panels import LivePlot"),
        ("00_tour", "from labkit.lab.runs import run"),
        ("00_tour", "from reproduction import show"),
    ],
)
def test_a_planted_violation_is_found(module, line):
    room = "notebooks" if module == "00_tour" else None
    assert len(violations(line, module, room=room)) == 1


def test_a_package_resolves_its_relative_imports_from_itself():
    assert violations("from ..rtrl import OK", "labkit.rls", is_package=True)
    assert not violations("from .update import step", "labkit.rls", is_package=True)


def test_every_notebook_keeps_to_the_arrows():
    found = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                lines = cell.source.splitlines()
                source = "\n".join(x for x in lines if not x.lstrip().startswith("%"))
                found += violations(source, path.stem, room="notebooks")
    assert not found, "\n".join(found)


def test_no_two_modules_import_each_other():
    """Inside functions and for type checkers alone too."""
    names, graph = {name for _, name in modules()}, {}
    for path, module in modules():
        source = path.read_text("utf-8")
        found = imported(source, module, path.name == "__init__.py")
        both = {n if n in names else n.rpartition(".")[0] for n in found}
        # a package's own names come from the modules that it imports
        own = f"{module}."
        graph[module] = {n for n in both & names if not own.startswith(f"{n}.")}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


# How much there is to read

LINES = runpy.run_path(str(ROOT / "benchmarks/lines.py"), run_name="lines")
# Tokens of code, as `make lines` prints them: at most, and today. A room that is above
# its bound may not grow; whoever makes one lighter writes down what it weighs now.
WEIGHTS = {
    "labkit/rls": (11_000, 10_997),
    "labkit/bpls": (10_000, 8_697),
    "labkit/hessian_free": (15_500, 15_492),
    "labkit/broad": (17_500, 15_962),
    "labkit/rtrl": (19_500, 19_102),
    "labkit/instruments": (8_500, 8_491),
    "labkit/theorems": (8_000, 7_586),
    "labkit/scale": (5_700, 3_514),
    "labkit/*.py": (2_500, 2_451),
    "= core": (98_000, 92_292),
    "labkit/lab/panels": (30_000, 29_816),
    "labkit/lab/books": (29_000, 28_992),
    "labkit/lab/exercises": (13_000, 7_868),
    "labkit/lab/runs": (10_500, 10_498),
    "labkit/lab/datasets": (6_000, 5_246),
    "labkit/lab": (4_500, 4_276),
    "= lab": (92_000, 86_696),
    "notebooks": (12_000, 7_243),
    "reproduction": (30_000, 29_995),
    "benchmarks": (11_000, 10_992),
    "docs": (2_300, 2_247),
    "tests of core and root": (140_000, 125_349),
    "= tests": (205_000, 204_994),
    "= all": (450_000, 434_459),
}
# Starred arguments in calls, and lambdas bound to a name; they only become fewer.
TRICKS = {"= core": 95, "= lab": 122, "= reproduction": 36, "= benchmarks": 21}
TRICKS |= {"= notebooks": 25, "= tests": 636}
NO_CORE = {"tests/lab", "tests/notebooks", "tests/browser", "tests/reproduction"}


@pytest.fixture(scope="module")
def weighed():
    return LINES["rooms"](ROOT)


@pytest.fixture(scope="module")
def weights(weighed):
    """What each room weighs, and what several do together."""
    tests = {room for room in weighed if room.startswith("tests")} - NO_CORE
    core = sum((weighed[room] for room in tests), Counter())
    return weighed | LINES["sums"](weighed) | {"tests of core and root": core}


@pytest.mark.parametrize("room", WEIGHTS)
def test_a_room_weighs_no_more_than_it_may(room, weights):
    bound, today = WEIGHTS[room]
    tokens, held = weights.get(room, Counter())["tokens"], max(bound, today)
    assert tokens <= held, (
        f"{room} has {tokens:,} tokens, {tokens - held:,} more than the {held:,} "
        f"that it may have, and its bound is {bound:,}; see `make lines`"
    )


def test_every_room_has_a_bound(weighed):
    rooms = {room for room in weighed if not room.startswith("tests")}  # held together
    assert rooms - WEIGHTS.keys() == set()


@pytest.mark.parametrize("top", TRICKS)
def test_tricks_become_fewer(top, weights):
    tricks = weights[top]["tricks"]
    assert tricks <= TRICKS[top], f"{top} has {tricks} tricks, {TRICKS[top]} before"


# What is declared


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def requirements(project):
    extras = project["optional-dependencies"].values()
    return [Requirement(line) for line in sum(extras, start=[*project["dependencies"]])]


@pytest.fixture(scope="module")
def locked():
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_environment_yml_holds_nothing_that_could_drift(project):
    found = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    python = "python" + project["requires-python"]
    assert found == {
        "name": project["name"],
        "channels": ["conda-forge"],
        "dependencies": [python, "pip", {"pip": ["-e ."]}],
    }


def test_every_dependency_has_its_reason_and_a_lower_bound(requirements):
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for requirement in requirements:
        line = rf'^    "{re.escape(requirement.name)}[^"]*>=[^"]*",\s+# \S.+$'
        assert re.search(line, text, re.MULTILINE), f"{requirement}: see the others"


def test_the_lock_gives_exact_versions_and_no_addresses(locked):
    assert locked
    for line in locked:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line), line


def test_the_lock_has_what_is_declared(requirements, locked):
    pins = {
        canonicalize_name(name): Version(version)
        for name, version in (line.split("==") for line in locked)
    }
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{name} is not in requirements.lock; run `make lock`"
        assert requirement.specifier.contains(pins[name], prereleases=True), (
            f"{requirement}, but requirements.lock has {pins[name]}; run `make lock`"
        )


def test_the_version_has_a_heading_in_the_changelog():
    page = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"\n## [{labkit.__version__}]" in page


def test_the_citation_is_of_this_version(project):
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == labkit.__version__
    assert cited["license"] == project["license"]


# What is committed


def test_nothing_large_is_committed():
    sizes = {p: (ROOT / p).stat().st_size for p in tracked() if (ROOT / p).is_file()}
    assert not {path: size for path, size in sizes.items() if size > 600_000}


def test_git_ignores_no_source():
    sources = {path.relative_to(ROOT) for path, _ in modules()} | set(tracked())
    sources |= {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py")}
    listing = "\0".join(map(str, sorted(sources)))
    hidden = git("check-ignore", "--no-index", "-z", "--stdin", input=listing)
    assert not hidden, f".gitignore hides {hidden}"
