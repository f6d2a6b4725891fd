"""The wheel: what is in it, and what it does in a fresh environment.

That lies far from the source, with the packages of this one behind its own.
"""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import nbformat
import pytest

from labkit.lab import recorded
from labkit.lab.runs import RunRefused, execute
from tests import ROOT
from tests.test_house import tracked

pytest.importorskip("hatchling")
MAX_BYTES = 2_000_000
BEHIND = [path for path in sys.path if path.endswith("site-packages")]
SHARE = os.pathsep.join(str(Path(p).parents[2] / "share/jupyter") for p in BEHIND)


def bare():
    """Return the environment without the source tree."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


def call(*command, cwd, **more):
    """Run a command in which no source tree can be found; return what it prints."""
    env = bare() | more
    env |= {"JUPYTER_PATH": SHARE}  # nbconvert's templates lie outside the packages
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the sdist, and from it the wheel."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
    call(*build, ROOT, cwd=out)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Make an environment with the wheel in it; return its folder of scripts."""
    home = tmp_path_factory.mktemp("fresh")
    call(sys.executable, "-m", "venv", "--without-pip", home / "venv", cwd=home)
    python = home / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index"]
    call(*pip, "--no-deps", "--quiet", wheel, cwd=home)
    own = sysconfig.get_path("purelib", vars={"base": str(home / "venv")})
    (Path(own) / "behind.pth").write_text("\n".join(BEHIND))
    return python.parent


def test_the_wheel_has_all_of_the_package_and_the_notebooks(wheel):
    assert wheel.stat().st_size < MAX_BYTES
    held = {Path(name) for name in zipfile.ZipFile(wheel).namelist()}
    inside = {path for path in tracked() if path.parts[0] in ("labkit", "notebooks")}
    wanted = {p if p.parts[0] == "labkit" else Path("labkit/lab") / p for p in inside}
    assert wanted <= held
    assert {p.parts[0] for p in held - wanted} == {wheel.name[:12] + ".dist-info"}


def test_an_installed_labkit_lists_runs_and_copies_notebooks(installed, tmp_path):
    """Of the notebook that it runs the first cells, up to the live picture."""
    labkit = installed / "labkit"
    assert "tour\n  steps = 40" in call(labkit, "list", cwd=tmp_path)
    (shipped,) = installed.parent.rglob("lab/notebooks/04_broad.ipynb")
    book = nbformat.read(shipped, as_version=4)
    book.cells = book.cells[:3]
    assert "Opening" in book.cells[-1].source
    nbformat.write(book, shipped)
    output = call(labkit, "run", "broad", cwd=tmp_path)
    assert "broad finished in" in output
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    (run,) = (tmp_path / "runs").glob("*-broad")
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert {"broad.ipynb", "broad.html"} <= {path.name for path in run.iterdir()}

    where = "import labkit.lab.runs.execute as e\n"
    where += "print(e.own_copy(e.notebooks()['tour']))"
    own = Path(call(installed / "python", "-c", where, cwd=tmp_path).strip())
    assert own == tmp_path / "notebooks/00_tour.ipynb"
    assert (own.parent / "figures/panel.webp").is_file()
    own.write_text("edited")
    again = call(installed / "python", "-c", where, cwd=tmp_path).strip()
    assert Path(again) == own and own.read_text() == "edited"


def test_an_installed_labkit_has_the_recorded_claims(installed, tmp_path):
    code = "from labkit.lab import recorded; print(*recorded('rtrl').verdict)"
    output = call(installed / "python", "-c", code, cwd=tmp_path)
    assert output.split() == " ".join(recorded("rtrl").verdict).split()
    assert "yes" in output.split()
    for words in (["show", "rtrl"], ["list", "--results", "x"], []):
        command = [installed / "labkit", "reproduce", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=bare(), capture_output=True, text=True
        )
        assert done.returncode == 2 and "works in a clone of the" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_folder_of_other_notebooks_is_left_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/mine.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(execute, "SHIPPED", ROOT / "notebooks")
    with pytest.raises(RunRefused, match="cannot be copied"):
        execute.own_copy(execute.SHIPPED / "00_tour.ipynb")
    assert [path.name for path in tmp_path.rglob("*")] == ["notebooks", "mine.ipynb"]
