"""The HTML index over the runs in a folder."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import jinja2

from .parameters import RunRefused

MANIFEST = "sweep.json"  # what makes a folder that of a sweep

TEMPLATE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>labkit runs</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2024; background: #fff;
       max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-bottom: 2rem; }
caption { text-align: left; color: #4a525a; padding-bottom: .5rem; }
th, td { text-align: left; vertical-align: top; padding: .45rem .75rem;
         border-bottom: 1px solid #dde1e5; }
thead th { border-bottom: 2px solid #7b858f; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
code { font-size: .875em; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; font-size: .8125em; background: #f5f6f8;
      padding: .5rem; max-width: 60ch; }
a { color: #0b57a4; }
.finished { color: #146c2e; } .failed, .unreadable { color: #b3261e; }
</style>
</head>
<body>
<main>
<h1>labkit runs</h1>
{% macro parameters(run) %}
{% for name, value in run.record.parameters.items() -%}
<code>{{ name }}={{ value }}</code>{{ ", " if not loop.last }}
{% endfor %}
{% endmacro %}
{% macro traces(run) %}
{% for trace in run.traces -%}
<a href="{{ trace.link }}">{{ trace.name }}</a>
({{ trace.rows }} row{{ "" if trace.rows == 1 else "s" }})
{{- "," if not loop.last }}
{% else %}none{% endfor %}
{% endmacro %}
<h2>Complete</h2>
{% if complete %}
<div class="wide"><table>
<caption>{{ complete | length }} run{{ "" if complete | length == 1 else "s" }},
newest first. Times are UTC.</caption>
<thead><tr>
<th scope="col">Notebook</th><th scope="col">Started</th><th scope="col">Status</th>
<th scope="col">Profile</th><th scope="col">Parameters</th>
<th scope="col">Seconds</th><th scope="col">Device</th><th scope="col">Traces</th>
</tr></thead>
<tbody>
{% for run in complete %}
<tr>
<th scope="row">{% if run.page %}<a href="{{ run.page }}">{{ run.record.name }}</a>
{%- else %}{{ run.record.name }}{% endif %}</th>
<td>{{ run.record.started }}</td>
<td><span class="{{ run.record.status }}">{{ run.record.status }}</span>
{% if run.record.error %}
<details><summary>what failed</summary><pre>{{ run.record.error }}</pre></details>
{% endif %}</td>
<td>{{ run.record.profile }}</td>
<td>{{ parameters(run) }}</td>
<td class="number">{{ run.record.seconds }}</td>
<td>{{ run.record.device }}</td>
<td>{{ traces(run) }}</td>
</tr>
{% endfor %}
</tbody>
</table></div>
{% else %}
<p>No run has been completed here yet.</p>
{% endif %}
{% if partial %}
<h2>Cut off</h2>
<div class="wide"><table>
<caption>{{ partial | length }} run{{ "" if partial | length == 1 else "s" }} without
an end: cut off, or still running when this page was written.</caption>
<thead><tr>
<th scope="col">Notebook</th><th scope="col">Started</th>
<th scope="col">Profile</th><th scope="col">Parameters</th>
<th scope="col">Folder</th><th scope="col">Traces</th>
</tr></thead>
<tbody>
{% for run in partial %}
<tr>
<th scope="row">{{ run.record.name }}</th>
<td>{{ run.record.started }}</td>
<td>{{ run.record.profile }}</td>
<td>{{ parameters(run) }}</td>
<td><code>{{ run.folder }}</code></td>
<td>{{ traces(run) }}</td>
</tr>
{% endfor %}
</tbody>
</table></div>
{% endif %}
</main>
</body>
</html>
"""

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
    from .page import write_atomically  # its imports take a second or two

    out = Path(out).absolute()
    if not out.is_dir():
        raise RunRefused(f"there is no folder of runs at {out}; 'labkit run' makes one")
    sweeps = [path.parent for path in out.glob(f"*/{MANIFEST}")]
    folders = [path for at in (out, *sweeps) for path in at.iterdir() if path.is_dir()]
    partial = [path for path in folders if path.name.endswith(".partial")]
    complete = [path for path in folders if (path / "run.json").exists()]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    html = environment.from_string(TEMPLATE).render(
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
