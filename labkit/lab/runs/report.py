"""The HTML index over the runs in a folder."""

import base64
import gzip
import json
import os
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import jinja2

from labkit.lab.runs.jobs import write_atomically
from labkit.lab.runs.parameters import RunRefused
from labkit.lab.runs.run_folder import (
    FIELDS,
    PICTURE,
    count_rows,
    measured,
    read_summary,
    traces,
)

MANIFEST = "sweep.json"  # the file that marks the folder of a sweep

UNREADABLE = {field: other for field, (_, other) in FIELDS.items()}
UNREADABLE |= {"error": "run.json is missing or damaged"}
TRIES = 20  # runs get their names while the index is written
LARGEST = 5_000_000  # bytes of a picture's data
NUMBERS, LABELS = 4, 12  # of a trace, that the index shows


# For the template: a folder under `out`, its first figure packed, and the JSON Lines
# files in it, rows counted; `page` and `link` are relative to `out`. `varied` has the
# parameters in which runs of one notebook differ.
Run = namedtuple("Run", "folder summary page picture traces cut_off varied")
Trace = namedtuple("Trace", "name link rows names lines")


def report(out: str | Path = "runs") -> Path:
    """Write ``index.html`` for all runs in a folder, including those of its sweeps.

    `out` is the folder that the runs were written to, or that of one sweep;
    RunRefused if there is none. Returns the path of the index.
    """
    if not isinstance(out, str | os.PathLike):
        raise RunRefused(f"the folder of runs must be a path, got {out!r}")
    out = Path(out).absolute()
    if not out.is_dir():
        raise RunRefused(f"there is no folder of runs at {out}; 'labkit run' makes one")
    runs = _with_varied(_newest_first(out))
    drawn = any(run.picture for run in runs)
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("labkit.lab.runs", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    html = pages.get_template("report.html.j2").render(
        complete=[run for run in runs if not run.cut_off],
        partial=[run for run in runs if run.cut_off],
        plotly_js=_plotly_js(out) if drawn else "",
    )
    write_atomically(out / "index.html", html)
    return out / "index.html"


def _plotly_js(out: Path) -> str:
    from labkit.lab.runs.page import keep_plotly_js  # nbconvert: only where needed

    return _link(out, keep_plotly_js(out))


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
    found = [_trace(out, folder, path) for path in traces(folder)]
    picture = _packed(folder / PICTURE)
    if not folder.is_dir():  # what was read may be half of it
        raise FileNotFoundError(folder)
    page = _link(out, folder / page) if page in inside else ""
    name = _shown(folder.relative_to(out).as_posix())
    yield Run(name, summary, page, picture, found, cut_off, {})


def _trace(out: Path, folder: Path, path: Path) -> Trace:
    """Read what a trace measured: four numbers of a dozen labels, or a dozen of one."""
    lines = measured(path)
    every = dict.fromkeys(name for numbers in lines.values() for name in numbers)
    names = sorted(every, key=lambda name: name == "seconds")  # seconds come last
    names = names[: NUMBERS if len(lines) > 1 else LABELS]
    shown = [
        (label, [numbers.get(name) for name in names])
        for label, numbers in [*lines.items()][:LABELS]
    ]
    name, link = _shown(str(path.relative_to(folder))), _link(out, path)
    return Trace(name, link, count_rows(path), names, shown)


def _packed(path: Path) -> str:
    """Return a figure's file as text, gzip in base64; empty if there is none."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return ""
        figure = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    return base64.b64encode(gzip.compress(json.dumps(figure).encode())).decode()


def _with_varied(runs: list[Run]) -> list[Run]:
    """Give every run the parameters that are not the same in all of its notebook."""
    values: dict[str, dict[str, set[str]]] = {}
    for run in runs:
        of_notebook = values.setdefault(run.summary["name"].split("-")[0], {})
        for name, value in run.summary["parameters"].items():
            of_notebook.setdefault(name, set()).add(repr(value))
    return [
        run._replace(
            varied={
                name: value
                for name, value in run.summary["parameters"].items()
                if len(values[run.summary["name"].split("-")[0]][name]) > 1
            }
        )
        for run in runs
    ]


def _link(out: Path, path: Path) -> str:
    return quote(os.fsencode(path.relative_to(out).as_posix()))


def _shown(name: str) -> str:
    """Return a file's name as text, whatever its bytes are."""
    return os.fsencode(name).decode("utf-8", "replace")
