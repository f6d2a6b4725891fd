"""What the core and the parts of the lab need in order to be imported."""

import pkgutil
import subprocess
import sys
import tomllib

import labkit
from tests import ROOT
from tests.test_house import PAPERS

BESIDE = [m.name for m in pkgutil.iter_modules(labkit.__path__) if not m.ispkg]
CORE = [f"labkit.{name}" for name in (*PAPERS, "instruments", *BESIDE)]
CORE.remove("labkit.__main__")
# What trains, loads, judges and reproduces without a figure or a notebook.
PLAIN = [f"labkit.lab.{name}" for name in ("claims", "problem", "race", "tuning")]
PLAIN += [f"labkit.lab.{name}" for name in ("datasets", "runs", "runs.jobs", "command")]
PLAIN += ["reproduction.command", "reproduction.pages", "reproduction.units"]
BOOKS = "rls_training", "rtrl_training", "hessian_free_training", "rules"
PLAIN += [f"labkit.lab.books.{name}" for name in BOOKS]
PLAIN += [f"reproduction.{paper}" for paper in (*PAPERS, "rtrl_noise")]
# pandas and typer are the lab's; torch brings the other two
NEEDED = {"pandas", "typer", "filelock", "jinja2"}
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LAB = {
    line.split(">")[0].replace("jupyterlab", "jupyterlab IPython").split()[0]
    for line in DECLARED["optional-dependencies"]["lab"]
}
OTHERS = {"IPython", "nbformat", "nbclient", "traitlets", "dask", "distributed"}
OTHERS |= {"matplotlib", "pyarrow"}
BLOCK = """
import importlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

{before}
sys.meta_path.insert(0, Blocked())
for blocked, modules in {phases!r}:
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            print(f"{{module}}: {{type(error).__name__}}: {{error}}")
"""
# As in a torch that was built without it: the module is there, with one function.
NO_GROUPS = """
import torch, torch.distributed
for name in [n for n in vars(torch.distributed) if not n.startswith("__")]:
    if name != "is_available":
        delattr(torch.distributed, name)
sys.modules["torch.distributed.device_mesh"] = None
"""


def failures(*phases, before=""):
    """Import in a fresh process; return a line for each module that cannot be.

    A phase is what is blocked, and the modules that are imported while it is.
    """
    code = BLOCK.format(phases=phases, before=before)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


NO_LAB = (LAB | OTHERS) - {"filelock", "jinja2"}  # torch's own


def test_only_the_estimators_need_scikit_learn_and_nothing_a_figure_or_a_notebook():
    """Nor what looks for files before a run a torch, whose import takes seconds."""
    estimators = ["labkit.bpls.estimators", "labkit.broad.estimators"]
    found = failures(
        ({"torch"}, ["labkit.lab.command", "labkit.lab.datasets.fetch"]),
        (NO_LAB | {"sklearn"}, [*CORE, *estimators]),
        ((LAB | OTHERS) - NEEDED, PLAIN),
    )
    assert [line.partition(":")[0] for line in found] == estimators
    assert all(line.endswith("sklearn is blocked") for line in found)


def test_the_core_needs_no_groups_of_processes():
    """A torch may be built without ``torch.distributed.ProcessGroup``."""
    assert failures((NO_LAB, CORE), before=NO_GROUPS) == []
