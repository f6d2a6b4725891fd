"""The HTML index over the runs in a folder."""

import os
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import jinja2

from labkit.lab.runs.jobs import write_atomically
from labkit.lab.runs.parameters import RunRefused
from labkit.lab.runs.run_folder import FIELDS, count_rows, read_summary, traces

MANIFEST = "sweep.json"  # the file that marks the folder of a sweep

UNREADABLE = {field: other for field, (_, other) in FIELDS.items()}
UNREADABLE |= {"seconds": "", "error": "run.json is missing or damaged"}
TRIES = 20  # runs get their names while the index is written


# For the template: a folder under `out` and the JSON Lines files in it, rows counted;
# `page` and `link` are relative to `out`.
Run = namedtuple("Run", "folder summary page traces cut_off")
Trace = namedtuple("Trace", "name link rows")


def report(out: str | Path = "runs") -> Path:
    """Write ``index.html`` for all runs in a folder, including those of its sweeps.

    `out` is the folder that the runs were written to, or that of one sweep;
    RunRefused if there is none. Returns the path of the index.
    """
    out = Path(out).absolute()
    if not out.is_dir():
        raise RunRefused(f"there is no folder of runs at {out}; 'labkit run' makes one")
    runs = _newest_first(out)
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("labkit.lab.runs", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    html = pages.get_template("report.html.j2").render(
        complete=[run for run in runs if not run.cut_off],
        partial=[run for run in runs if run.cut_off],
    )
    write_atomically(out / "index.html", html)
    return out / "index.html"


def _newest_first(out: Path) -> list[Run]:
    """Read all runs, and start again if one was renamed meanwhile."""
    for attempt in range(TRIES):
        found, gone = [], False
        sweeps = [path.parent for path in out.glob(f"*/{MANIFEST}")]
        for at in (out, *sweeps):
            for folder in at.iterdir():
                try:
                    found += _read(out, folder)
                except FileNotFoundError:
                    gone = True
        if not gone:
            break
        time.sleep(0.01 * attempt)
    return sorted(found, key=lambda r: (r.summary["started"], r.folder), reverse=True)


def _read(out: Path, folder: Path) -> Iterator[Run]:
    """Read a possible run; raise FileNotFoundError if it is no longer there."""
    if not folder.is_dir():
        return
    inside = {path.name for path in folder.iterdir()}
    cut_off = folder.name.endswith(".partial")
    if not cut_off and "run.json" not in inside:
        return
    summary = read_summary(folder) or UNREADABLE
    summary = summary | {"name": summary["name"] or _shown(folder.name)}
    page = f"{summary['name']}.html"
    found = [
        Trace(_shown(str(path.relative_to(folder))), _link(out, path), count_rows(path))
        for path in traces(folder)
    ]
    if not folder.is_dir():  # what was read may be half of it
        raise FileNotFoundError(folder)
    page = _link(out, folder / page) if page in inside else ""
    yield Run(_shown(folder.relative_to(out).as_posix()), summary, page, found, cut_off)


def _link(out: Path, path: Path) -> str:
    return quote(os.fsencode(path.relative_to(out).as_posix()))


def _shown(name: str) -> str:
    """Return a file's name as text, whatever its bytes are."""
    return os.fsencode(name).decode("utf-8", "replace")
