"""The Makefile's own small programs: the sum of the stages, benchmarks, lines."""

import os
import re
import runpy
import shutil
import subprocess
import sys

import pytest

from tests import ROOT, tally

BENCH = runpy.run_path(str(ROOT / "benchmarks/__main__.py"), run_name="bench")
LINES = runpy.run_path(str(ROOT / "benchmarks/lines.py"), run_name="lines")


def write_report(path, passed=0, failed=0, skipped=0):
    outcomes = {"failure": failed, "skipped": skipped}
    cases = "<testcase/>" * passed
    cases += "".join(f"<testcase><{k}/></testcase>" * n for k, n in outcomes.items())
    tests = passed + failed + skipped
    path.write_text(
        f'<testsuites><testsuite tests="{tests}" failures="{failed}" errors="0" '
        f'skipped="{skipped}">{cases}</testsuite></testsuites>'
    )


def test_stages_are_added_up(tmp_path, capsys):
    write_report(tmp_path / "unit.xml", passed=10, failed=2, skipped=1)
    write_report(tmp_path / "notebooks.xml", passed=5)
    tally.main(tmp_path, "lint=0", "unit=1", "notebooks=0", "browser=0")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["lint", "no", "test", "was", "run"]
    assert lines[1].split(maxsplit=1) == ["unit", "10 passed, 2 failed, 1 skipped"]
    assert lines[-1] == "15 passed, 2 failed, 1 skipped"


@pytest.mark.parametrize(
    ("report", "status", "expected"),
    [
        (None, 1, "0 passed, 1 failed"),  # lint, or nothing was collected
        ({"passed": 3}, 1, "3 passed, 1 failed"),  # pytest itself crashed at the end
        ("<testsuites><testsu", 1, "0 passed, 1 failed"),  # killed as it wrote
    ],
)
def test_a_stage_that_failed_without_a_count_is_one_failure(
    tmp_path, capsys, report, status, expected
):
    if isinstance(report, dict):
        write_report(tmp_path / "unit.xml", **report)
    elif report:
        (tmp_path / "unit.xml").write_text(report)
    tally.main(tmp_path, f"unit={status}")
    assert capsys.readouterr().out.splitlines()[-1] == expected


SCRIPTS = {
    "missing": "from labkit.lab.datasets import fetch\n"
    "raise fetch.DatasetUnavailable('mnist/a.gz is not on this machine. Looked: x')",
    "broken": "1 / 0",
    "right": "print('a ratio')",
}


@pytest.mark.parametrize("names", [("missing speed", "right"), ("broken", "right")])
def test_benchmarks_go_on_without_a_data_set_and_after_an_error(tmp_path, capfd, names):
    for name, lines in SCRIPTS.items():
        (tmp_path / f"{name}.py").write_text(lines)
    broken = "broken" in names
    assert BENCH["main"]((), names, tmp_path) == broken
    output = capfd.readouterr()
    assert ("Traceback" in output.err) == broken
    first, last = output.out.partition("--- summary\n")[2].splitlines()
    outcome = "FAILED" if broken else "left out: mnist/a.gz is not on"
    assert first.removeprefix(names[0]).strip().startswith(outcome)
    assert last.split() == ["right", "done"]


def test_what_has_to_be_read_is_weighed():
    source = (
        'class A:\n    """Two words."""\n\n    def f(self, *, b=f"{0}"):  # a note\n'
        "        return g(*self,\n            **b)\n\n\n_h = lambda: 0\n"
    )
    packed = source.replace(",\n            ", ", ").replace("\n\n", "\n")
    weight, same = (LINES["weigh_python"](text) for text in (source, packed))
    expected = dict(lines=9, tokens=29, words=5, public=1, functions=1)
    assert weight == expected | {"parameters": 2, "tricks": 3, "files": 1}
    assert same["tokens"] == weight["tokens"] and same["lines"] == 6


def test_two_trees_are_weighed_room_by_room(tmp_path, capsys):
    for tree, n in (("before", 3), ("after", 2)):
        room = tmp_path / tree / "labkit" / "rls"
        room.mkdir(parents=True)
        (room / "a.py").write_text("x = 1\n" * n)
        (room / "a.js").write_text("/* a */ x += 1;  // b")
        (room.parent / "b.py").write_text("x = 1\n")
    LINES["main"]([tmp_path / "before", tmp_path / "after"])
    rows = re.findall(r"^(\S+|= \S+) +(\d+) +(\d+)", capsys.readouterr().out, re.M)
    assert rows == [
        ("labkit/*.py", "1", "3"),
        ("labkit/rls", "4", "14"),
        ("= core", "5", "17"),
        ("= all", "5", "17"),
        ("labkit/*.py", "1", "3"),
        ("labkit/rls", "3", "11"),
        ("= core", "4", "14"),
        ("= all", "4", "14"),
    ]


@pytest.fixture
def make(tmp_path):
    """Run make in a folder that has the Makefile and a finished .venv."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    (tmp_path / ".venv/.stamp").touch()
    outer = {"PYTHON", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}  # of a make that runs us
    bare = {k: v for k, v in os.environ.items() if k not in outer}

    def run(*arguments):
        command = ["make", "-C", tmp_path, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=bare)

    return run


def test_make_runs_all_tools_by_the_interpreter_of_the_folder(make):
    """A script of .venv names the folder that it was made in, of a clone the first."""
    output = make("-n", "run", "lab", "lint", "bench", "lines", "test-unit").stdout
    assert output.count(".venv/bin/") == output.count(".venv/bin/python") >= 7


def test_make_lists_its_commands(make):
    output = make().stdout
    for name in ("run", "test", "lab", "lint", "bench", "lines", "lock", "clean"):
        assert re.search(rf"^  make {name} +\S", output, re.M)
