"""The plan of a sweep, whose runs are read, checked and named beforehand."""

import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labkit.lab.runs.execute import Plan, prepare
from labkit.lab.runs.parameters import ParameterError, RunRefused, Value
from labkit.lab.runs.report import MANIFEST
from labkit.lab.runs.workers import check_scheduler

MAX_RUNS = 10_000
TAKES = f"a sweep takes {MAX_RUNS} runs at most"
MAX_NAME = 150  # characters of a run's name; file systems take 255
OWN_COLUMNS = ("run", "state", "seconds", "error")
RANGE = re.compile(r"(-?\d{1,99}):(-?\d{1,99})")


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that has passed every check and has not begun.

    Attributes
    ----------
    folder : Path, the sweep's own folder
    notebook : str, the notebook's name without its digits
    code : str, the digest of the notebook's code cells
    varied : tuple of str, the parameters that were given lists of values
    runs : tuple of Plan, one per combination, the last parameter varying fastest
    cluster : str, ``local`` or the address of a Dask scheduler
    workers : int or None, processes of the local cluster; None for one per processor
    """

    folder: Path
    notebook: str
    code: str
    varied: tuple[str, ...]
    runs: tuple[Plan, ...]
    cluster: str
    workers: int | None


def parse_values(name: str, text: str) -> list[str | int]:
    """Read the values of one parameter as given to ``-p``.

    Items are parted by commas; ``a:b`` counts from ``a`` to ``b - 1``, as in Python.

    >>> parse_values("rank", "1,2,8"), parse_values("seed", "0:3,7")
    (['1', '2', '8'], [0, 1, 2, '7'])
    """
    found: list[str | int] = []
    for item in text.split(","):
        if not item:
            raise ParameterError(
                f"{name}={text} has an empty item; write {name}=1,2,8 or {name}=0:5"
            )
        match = RANGE.fullmatch(item)
        counted = range(*map(int, match.groups())) if match else [item]
        if not counted:
            raise ParameterError(
                f"{name}={item} is empty; a:b counts from a to b - 1, as in Python"
            )
        if counted[MAX_RUNS - len(found) :]:
            raise ParameterError(f"{name}={text} has too many values; {TAKES}")
        found += counted
    return found


def prepare_sweep(
    name: str,
    values: Mapping[str, Iterable[Value] | Value],
    profile: str = "quick",
    device: str | None = None,
    cluster: str = "local",
    workers: int | None = None,
    resume: bool = False,
    out: str | Path = "runs",
    notebook_dir: str | Path | None = None,
) -> SweepPlan:
    """Check all runs of a sweep before it begins; arguments are those of `sweep`."""
    _check_workers(cluster, workers)
    if not isinstance(values, Mapping):
        raise ParameterError(f"the values of a sweep must be a mapping, got {values!r}")
    if not isinstance(resume, bool):
        raise RunRefused(f"resume must be True or False, got {resume!r}")
    if not values:
        raise ParameterError("a sweep needs values, as in -p rank=1,2,8 -p seed=0:5")
    lists = {key: _as_list(key, items) for key, items in values.items()}
    count = math.prod(map(len, lists.values()))
    if count > MAX_RUNS:
        raise ParameterError(f"this is {count} runs; {TAKES}")

    def check(given: dict[str, Value]) -> Plan:
        return prepare(name, given, profile, device, out, notebook_dir)

    first = {key: items[0] for key, items in lists.items()}
    base = check(first)
    # bounds and types hold for each parameter by itself: with every value every
    # combination of them is checked
    typed = {}
    for key, items in lists.items():
        typed[key] = [check({**first, key: item}).values[key] for item in items]
        twice, times = Counter(typed[key]).most_common(1)[0]
        if times > 1:
            raise ParameterError(f"{key}={twice} is given twice; give it once")
    for key in base.values:
        if key in OWN_COLUMNS:
            raise ParameterError(
                f"{base.notebook.name}: no parameter of a notebook that is swept can "
                f"be called '{key}', as a column of the results is"
            )
    combinations = [
        {**base.values, **dict(zip(typed, chosen, strict=True))}
        for chosen in itertools.product(*typed.values())
    ]
    code = code_digest(base.notebook)
    whole = json.dumps([code, base.profile, combinations], sort_keys=True)
    folder = base.out / f"sweep-{base.name}-{_sha256(whole)[:8]}"
    _check_begun(folder, base.name, resume)
    if cluster != "local":
        check_scheduler(cluster)
    shown = (*typed, *({"seed"} & base.values.keys() - typed.keys()))
    runs = []
    for number, taken in enumerate(combinations):
        run_name = _run_name(base.name, number, count, {k: taken[k] for k in shown})
        runs.append(replace(base, name=run_name, values=taken, out=folder))
    varied = tuple(typed)
    plan = SweepPlan(folder, base.name, code, varied, tuple(runs), cluster, workers)
    read_manifest(plan)
    return plan


def identity(plan: SweepPlan) -> dict[str, Any]:
    """Return what makes a sweep: its notebook and code, and the values of its runs."""
    return {
        "notebook": plan.runs[0].notebook.name,
        "code": plan.code,
        "profile": plan.runs[0].profile,
        "varied": plan.varied,
        "runs": [{"name": run.name, "parameters": run.values} for run in plan.runs],
    }


def read_manifest(plan: SweepPlan) -> dict[str, Any] | None:
    """Return the manifest of a sweep that was begun before, or None.

    Raises
    ------
    RunRefused : if it is damaged or that of another sweep
    """
    path = plan.folder / MANIFEST
    if not path.is_file():
        return None
    remedy = f"remove the folder {plan.folder} to begin this sweep anew"
    try:
        found = json.loads(path.read_text("utf-8"))
        processes = found.get("processes", [])
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise RunRefused(f"{path} is damaged ({error}); {remedy}") from error
    expected = json.loads(json.dumps(identity(plan)))
    for key, value in expected.items():
        if found.get(key) != value:
            raise RunRefused(
                f"{path} belongs to another sweep or is damaged, as its {key!r} shows; "
                f"{remedy}"
            )
    if not isinstance(processes, list):
        raise RunRefused(f"{path} is damaged (its processes are no list); {remedy}")
    return found


def code_digest(notebook: Path) -> str:
    """Return the digest of a notebook's code cells, without outputs."""
    import nbformat

    cells = nbformat.read(notebook, as_version=4).cells
    return _sha256(json.dumps([c.source for c in cells if c.cell_type == "code"]))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _run_name(notebook: str, number: int, count: int, shown: dict[str, Value]) -> str:
    """Return a run's name: its number, which makes it unique, and its parameters."""
    width = len(str(count - 1))
    parts = [f"{notebook}-{number:0{width}}", *(f"{k}={v}" for k, v in shown.items())]
    return re.sub(r"[^A-Za-z0-9._+=-]", "_", "-".join(parts))[:MAX_NAME]


def _check_workers(cluster: str, workers: int | None) -> None:
    if not isinstance(cluster, str):
        raise RunRefused(f"cluster must be local or an address, got {cluster!r}")
    if workers is None:
        return
    if cluster != "local":
        raise RunRefused(
            f"--workers {workers} is for the local cluster; the one at {cluster} "
            "has its own workers"
        )
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise RunRefused(f"workers={workers} is not allowed; give 1 or more")


def _as_list(key: str, items: Iterable[Value] | Value) -> list[Value]:
    if isinstance(items, (str, bool, int, float)):
        return [items]
    if not isinstance(items, Iterable):
        raise ParameterError(f"{key}={items!r} is no value and no list of values")
    taken = list(itertools.islice(items, MAX_RUNS + 1))
    if not taken:
        raise ParameterError(f"{key} is given no values; give one at least")
    if len(taken) > MAX_RUNS:
        raise ParameterError(f"{key} has too many values; {TAKES}")
    return taken


def _check_begun(folder: Path, notebook: str, resume: bool) -> None:
    begun = (folder / MANIFEST).is_file()
    if begun and not resume:
        raise RunRefused(
            f"this sweep was begun before, in {folder}; add --resume to go on with it, "
            "or remove that folder to begin anew"
        )
    if resume and not begun:
        others = sorted(
            p.parent.name for p in folder.parent.glob(f"sweep-*/{MANIFEST}")
        )
        raise RunRefused(
            f"there is nothing to resume: in {folder.parent} no sweep of '{notebook}' "
            "as it is now was begun with these values, profile and device; "
            f"begun were: {', '.join(others) or 'none'}"
        )
