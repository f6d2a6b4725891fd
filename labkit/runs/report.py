"""The HTML index over the runs in a folder."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import jinja2

from labkit.runs.parameters import RunRefused

MANIFEST = "sweep.json"  # what makes a folder that of a sweep

UNREADABLE = {
    "started": "",
    "status": "unreadable",
    "profile": "",
    "parameters": {},
    "seconds": "",
    "device": "",
    "error": "run.json is missing or damaged",
}


@dataclass(frozen=True)
class Trace:
    """A JSON Lines file of a run, for the index: name, link, number of rows."""

    name: str
    link: str
    rows: int


@dataclass(frozen=True)
class Run:
    """One folder under ``out`` for the index; links are relative to ``out``."""

    folder: str
    record: dict
    page: str
    traces: tuple[Trace, ...]


def report(out: str | Path = "runs") -> Path:
    """Write ``index.html`` over all runs in a folder, those of its sweeps included.

    Parameters
    ----------
    out : str or Path
        The folder that the runs were written to, or that of one sweep.

    Returns
    -------
    Path
        The index.

    Raises
    ------
    RunRefused
        If there is no such folder.
    """
    from labkit.runs.page import write_atomically  # its imports take a second or two

    out = Path(out).absolute()
    if not out.is_dir():
        raise RunRefused(f"there is no folder of runs at {out}; 'labkit run' makes one")
    sweeps = [path.parent for path in out.glob(f"*/{MANIFEST}")]
    folders = [path for at in (out, *sweeps) for path in at.iterdir() if path.is_dir()]
    partial = [path for path in folders if path.name.endswith(".partial")]
    complete = [path for path in folders if (path / "run.json").exists()]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("labkit.runs", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    html = environment.get_template("report.html.j2").render(
        complete=_newest_first(out, (path for path in complete if path not in partial)),
        partial=_newest_first(out, partial),
    )
    write_atomically(out / "index.html", html)
    return out / "index.html"


def count_rows(path: Path) -> int:
    """Count the whole rows of a trace; the header and a torn last line are none."""
    rows = 0
    with path.open("rb") as file:
        for number, line in enumerate(file):
            whole = line.endswith(b"\n")
            rows += whole and not (number == 0 and _is_header(line))
    return rows


def _is_header(line: bytes) -> bool:
    """Tell a trace's first line (parameters, versions) from a row (has a step)."""
    try:
        first = json.loads(line)
    except ValueError:
        return False
    return isinstance(first, dict) and "step" not in first


def _newest_first(out: Path, folders: Iterable[Path]) -> list[Run]:
    runs = [_read(out, folder) for folder in folders]
    return sorted(runs, key=lambda r: (r.record["started"], r.folder), reverse=True)


def _read(out: Path, folder: Path) -> Run:
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        record = {**UNREADABLE, "error": None, "name": folder.name, **record}
    except (OSError, ValueError, TypeError):
        record = {**UNREADABLE, "name": folder.name}
    page = folder / f"{record['name']}.html"
    return Run(
        folder.relative_to(out).as_posix(),
        record,
        _link(out, page) if page.exists() else "",
        tuple(
            Trace(str(path.relative_to(folder)), _link(out, path), count_rows(path))
            for path in sorted(folder.rglob("*.jsonl"))
        ),
    )


def _link(out: Path, path: Path) -> str:
    return quote(path.relative_to(out).as_posix())
