"""The HTML index over the runs in a folder."""

import base64
import gzip
from collections import defaultdict, namedtuple
from pathlib import Path
from urllib.parse import quote

import jinja2

from labkit.lab.runs.jobs import write_atomically
from labkit.lab.runs.parameters import RunRefused
from labkit.lab.runs.run_folder import (
    PICTURE,
    SUMMARY,
    measured,
    read_summary,
    rows,
    traces,
)

UNREADABLE = SUMMARY | {"error": "run.json is missing or damaged"}
LARGEST = 5_000_000  # bytes of a picture's data
NUMBERS = 4  # of a trace that the index shows
LABELS = 12


# For the template: a folder under `out`, its first figure packed, and the JSON Lines
# files in it, rows counted; `page` and `link` are relative to `out`.
Run = namedtuple("Run", "folder summary page picture traces cut_off")
Trace = namedtuple("Trace", "name link rows names lines")


def report(out: str | Path = "runs") -> Path:
    """Write ``index.html`` for all runs in a folder, including those of its sweeps.

    `out` is the folder that the runs were written to, or that of one sweep;
    RunRefused if there is none. Returns the path of the index.
    """
    out = Path(out).absolute()
    if not out.is_dir():
        raise RunRefused(f"there is no folder of runs at {out}; 'labkit run' makes one")
    # of a folder of runs, and of each of its sweeps
    folders = (path for at in (out, *out.glob("sweep-*/")) for path in at.glob("*/"))
    runs = [
        _read(out, folder)
        for folder in folders
        if folder.name.endswith(".partial") or (folder / "run.json").exists()
    ]
    runs.sort(key=lambda run: (run.summary["started"], run.folder), reverse=True)
    values = defaultdict(set)  # of a notebook's parameter, in all of its runs
    for run in runs:
        for name, value in run.summary["parameters"].items():
            values[run.summary["name"], name].add(str(value))
    script = ""
    if any(run.picture for run in runs):
        from labkit.lab.runs.page import keep_plotly_js  # nbconvert: only where needed

        script = _link(out, keep_plotly_js(out))
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("labkit.lab.runs", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    html = pages.get_template("report.html.j2").render(
        complete=[run for run in runs if not run.cut_off],
        partial=[run for run in runs if run.cut_off],
        values=values,
        plotly_js=script,
    )
    write_atomically(out / "index.html", html)
    return out / "index.html"


def _read(out: Path, folder: Path) -> Run:
    summary = read_summary(folder) or UNREADABLE | {"name": folder.name}
    page = folder / f"{summary['name']}.html"
    return Run(
        folder=folder.relative_to(out).as_posix(),
        summary=summary,
        page=_link(out, page) if page.exists() else "",
        picture=_packed(folder / PICTURE),
        traces=[_trace(out, folder, path) for path in traces(folder)],
        cut_off=folder.name.endswith(".partial"),
    )


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
    name, count = path.relative_to(folder).as_posix(), len([*rows(path)])
    return Trace(name, _link(out, path), count, names, shown)


def _packed(path: Path) -> str:
    """Return a figure's file as text, gzip in base64; empty if there is none."""
    if not path.exists() or path.stat().st_size > LARGEST:
        return ""
    return base64.b64encode(gzip.compress(path.read_bytes())).decode()


def _link(out: Path, path: Path) -> str:
    return quote(path.relative_to(out).as_posix())
