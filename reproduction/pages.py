"""Pages of results, one for each paper, with verdicts and the commands to check."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from labkit.lab.runs.jobs import write_atomically
from reproduction import compare, coverage, drawing, results, show
from reproduction.studies import PAPERS, Study, find_study, studies

TITLES = {
    "broad": "Broad learning (Zhu, arXiv 1911.04872)",
    "bpls": "Back-propagated least squares (Tomic et al., arXiv 2401.06699)",
    "rls": "Recursive least squares (Zhang et al., arXiv 2109.03220)",
    "rtrl": "Kronecker sums for RTRL (Benzing et al., ICML 2019)",
    "hessian_free": "Stochastic Hessian-free with LSMR (Emirahmetoglu and Stewart)",
    "compare": "Which rule still pays",
}
MADE = "<!-- made by `labkit reproduce pages` from results; not edited by hand -->"
READING = (
    "A claim is the paper's, an identity (its formulas make it true) or ours, and the "
    "three are counted apart. A verdict judges the claim at the size that was run, by "
    "the criterion under its table. A look is what was measured of a run between two "
    "of its steps, such as after an epoch; ± is one standard deviation over the runs "
    "unless a table says otherwise, and so are the bands of the figures, whose dashed "
    "lines are the paper's numbers. Seconds are of the machine named, at the load "
    "named; seconds of the processor are those that the unit itself took."
)
GLANCE = (
    "The race at full size: each rule but Adam (default) is tuned by "
    f"{compare.TRIALS} trials, then there are "
    f"{compare.SEEDS} seeds. A dot is the mean of the last scores on test data, with "
    "one standard deviation; left is better, and the axis is logarithmic. Orange: the "
    "papers' rules. The seconds are those of one processor that the rule itself took; "
    "a rule that was stopped had not made all of its passes by then."
)
HOW_TO_READ = (
    "<details><summary>How to read the tables and figures</summary>",
    READING,
    "</details>",
)


def pages(folder: Path) -> dict[str, str]:
    """Return all pages and their figures by path below ``docs/reproduction``."""
    found, every, items = {}, studies(), coverage.coverage(folder)
    for paper in PAPERS:
        mine = [e for name, e in every.items() if name.startswith(f"{paper}/")]
        told = paragraph(paper, items, folder)
        parts = [MADE, f"# {TITLES[paper]}", *([told] if told else []), *HOW_TO_READ]
        if paper == "compare" and (charts := race_of(folder)):
            found |= {f"compare/{data}.svg": svg for data, svg in charts.items()}
            drawn = (f"![{data}](compare/{data}.svg)" for data in charts)
            parts += [f"{GLANCE} {so_far(folder)}", " ".join(drawn)]
        for each in mine:
            rows = results.frame(results.path_of(each, folder))
            drawn = figures_of(each, rows)
            parts += section(each, folder, rows, drawn)
            found |= drawn
        found[f"{paper}.md"] = "\n\n".join(parts) + "\n"
    found["README.md"] = "\n\n".join(index(every, folder)) + "\n"
    found["coverage.md"] = "\n\n".join(covered(items)) + "\n"
    return found


def paragraph(paper: str, items: pd.DataFrame, folder: Path) -> str:
    """Return the paragraph on a paper, or on the comparison of all."""
    if paper == "compare":
        return compare.conclusions(raced(folder))
    return coverage.paragraph(paper, items)


def raced(folder: Path) -> pd.DataFrame:
    """Return the rows of the race at full size."""
    return results.frame(results.path_of(find_study("compare/rivals"), Path(folder)))


def race_of(folder: Path) -> dict[str, str]:
    """Return how the race at full size ended, an SVG for each data set."""
    return compare.at_a_glance(raced(folder))


def race_page(folder: Path) -> str:
    """Return the race as HTML that stands alone; see `labkit.lab.claims.show_race`."""
    charts = race_of(folder)
    if not charts:
        return "<p>The race at full size was not run.</p>\n"
    style = (
        ".labkit-race { display: flex; flex-wrap: wrap; gap: 1em;\n"
        "  align-items: flex-start }\n"
        ".labkit-race svg { max-width: 100%; height: auto }"
    )
    drawn = f'<div class="labkit-race">\n{"".join(charts.values())}</div>'
    told = f"{GLANCE} {so_far(folder)}"
    return f"<style>\n{style}\n</style>\n{drawn}\n<p>{told}</p>\n"


def so_far(folder: Path) -> str:
    """Say how much of the race was run."""
    units, done = show.state_of(find_study("compare/rivals"), folder)
    left = "" if len(done) == units else "; the others are not run yet"
    return f"Of {units} pairs of a rule and a data set {len(done)} are recorded{left}."


def figures_of(each: Study, rows: pd.DataFrame) -> dict[str, str]:
    """Return the figures of a study by path, one for each panel that has curves."""
    if not (each.views and len(rows)):
        return {}
    made = drawing.figures(each.drawn(rows), each.views)
    return {f"{each.name}-{number}.svg": text for number, text in made.items()}


def covered(items: pd.DataFrame) -> Iterator[str]:
    """Yield the parts of the page of all claims and of their evidence."""
    yield MADE
    yield "# What the papers claim, and what was shown"
    yield (
        "Each row is a claim of a paper, and the evidence of it that the results hold: "
        "at the paper's size (often with fewer runs), at a reduced size, in a notebook "
        "only, or none; what holds exactly holds by its formulas. Where verdicts "
        "differ "
        "they are counted; not contradicted means that too few runs could have said "
        "no. "
        "Each verdict stands on an interval of 95 %, without a correction for their "
        "number, so that one in twenty of those near a margin may be chance. `labkit "
        "reproduce coverage` prints the same."
    )
    yield table_of(coverage.counts(items))
    for paper, mine in items.groupby("paper", sort=False):
        yield f"## {TITLES[paper]}"
        rows = mine.assign(now=mine["now"].map(coverage.SIZES))
        names = ["where", "claim", "studies", "now", "found", "cost"]
        heads = ["in the paper", "claim", "study", "evidence", "found", "would take"]
        reading = mine["now"] == coverage.READING
        yield grid(heads, rows.loc[~reading, names].values.tolist())
        if reading.any():
            yield "### A reading of ours, which the paper's own numbers contradict"
            yield grid(heads[:3] + heads[4:5], _read(mine[reading]))


def _read(mine: pd.DataFrame) -> list[list]:
    """Return the rows of items of a reading, which are not counted as the paper's."""
    return mine[["where", "claim", "studies", "found"]].values.tolist()


def index(every: Mapping[str, Study], folder: Path) -> Iterator[str]:
    """Yield the parts of the page of all studies."""
    yield MADE
    yield "# The papers at their size"
    yield (
        "What `labkit reproduce` found: `labkit reproduce list` shows the studies, "
        "`run` carries out units that are not done, `show` prints what the pages below "
        "have. The numbers are in `reproduction/results/`. "
        "[Every claim of the papers](coverage.md) has its own list."
    )
    rows = []
    for name, each in every.items():
        units, done = show.state_of(each, folder)
        page = f"[{name}]({name.split('/')[0]}.md#{anchor(each)})"
        told = verdicts(each, folder) if done else "not run"
        rows.append([page, each.shows, f"{len(done)} of {units}", told])
    yield grid(["study", "in the paper", "units done", "verdicts"], rows)


def verdicts(each: Study, folder: Path) -> str:
    """Return in words how many claims hold, fail and are open, by whose they are."""
    return show.counted(show.judged_in(folder, each))


def section(
    each: Study, folder: Path, rows: pd.DataFrame, drawn: Iterable[str]
) -> Iterator[str]:
    """Yield the parts of a study's section on its page; `drawn` are its figures."""
    units, done = show.state_of(each, folder)
    yield f"## {heading(each)}"
    facts = {"Claim": each.claim, "Data": each.data, "Setting": each.setting}
    facts |= {"Differs from the paper": each.differs}
    facts |= {"Command": f"`{show.command(each)}` ({show.estimate(each)})"}
    yield "\n".join(f"- {name}: {words}" for name, words in facts.items())
    if not done:
        yield "**Not run.**"
        return
    left = ", ".join(unit for unit in each.units if unit not in done)
    missing = f"; not run: {left}" if left else ""
    yield f"{len(done)} of {units} units are done{missing}."
    yield table_of(each.table(rows))
    if each.views:
        yield " ".join(f"![{each.shows}]({path})" for path in drawn)
    found = show.judged_in(folder, each)
    if len(found):
        names = [show.CLAIM, "measured here", "whose", "verdict"]
        yield grid(names, found[names].values.tolist())
        yield f"Criterion: {each.criterion}."
    head = "<details><summary>How these units were run</summary>"
    yield "\n\n".join([head, run_how(done), "</details>"])


def run_how(done: Mapping[str, Mapping]) -> str:
    """Return lines on the commits, versions, devices, time and load of the units."""
    headers = list(done.values())

    def all_of(value, between: str = ", ") -> str:
        return between.join(dict.fromkeys(map(value, headers)))

    loads = [load for header in headers for load in header["load"]]
    memory = [each["memory_gb"] for each in headers if "memory_gb" in each]
    seconds, spent = (
        sum(each[name] for each in headers) for name in ("seconds", "cpu_seconds")
    )
    again = sum("begun" in each or "processes" in each for each in headers)
    cut = f"; units that were cut off count from their last start: {again}"
    commits = dict.fromkeys(
        str(process["commit"])
        for header in headers
        for process in (*header.get("processes", ()), header)
    )
    lines = [
        f"- commits: {', '.join(commits)}",
        f"- torch {all_of(lambda h: h['versions']['torch'])}; "
        f"{all_of(lambda h: h['device'], ' or ')}; "
        f"threads: {all_of(lambda h: str(h['threads']))}; "
        f"denormals: {all_of(lambda h: h.get('denormals', 'kept'))}",
        f"- {seconds:,.0f} s in all, {spent:,.0f} s of the processor, "
        f"load {min(loads):g} to {max(loads):g}"
        + (f", at most {max(memory):.1f} GB" if memory else "")
        + (cut if again else ""),
    ]
    return "\n".join(lines)


def heading(each: Study) -> str:
    """Return the heading of a study's section."""
    return f"{each.name.split('/')[1]}: {each.shows}"


def anchor(each: Study) -> str:
    """Return the anchor that Markdown makes of a heading."""
    kept = "".join(c for c in heading(each).lower() if c.isalnum() or c in " -")
    return kept.replace(" ", "-")


def table_of(frame: pd.DataFrame) -> str:
    """Return a Markdown table of numbers, with equal decimals within each column."""
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    columns = [decimals(column) for _, column in frame.items()]
    names = ["" if name in ("index", "label") else name for name in frame.columns]
    return grid(names, [list(row) for row in zip(*columns, strict=True)])


def decimals(column: pd.Series) -> list:
    """Return the values of a column, with fractions as text of equal decimals."""
    if column.dtype.kind != "f":
        return column.tolist()
    needed = (f"{v:.7g}".partition(".")[2] for v in column.dropna())
    digits = max(map(len, needed), default=0)
    return ["" if v != v else f"{v:.{digits}f}" for v in column]


def grid(names: list, rows: list[list]) -> str:
    """Return a table in Markdown."""
    lines = [[_cell(name) for name in names], ["---"] * len(names)]
    lines += [[_cell(value) for value in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value) -> str:
    return ("" if pd.isna(value) else str(value)).replace("|", "\\|").replace("\n", " ")


def claims(folder: Path) -> str:
    """Return the table of claims as text; see :func:`reproduction.show.recorded`."""
    return show.recorded(folder).to_csv(index=False, lineterminator="\n")


def summaries(folder: Path) -> str:
    """Return the paragraphs of all papers as JSON; see `labkit.lab.claims.summary`."""
    items = coverage.coverage(folder)
    told = {paper: paragraph(paper, items, folder) for paper in PAPERS}
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def write(folder: Path, docs: Path, table: Path) -> list[Path]:
    """Write all pages, the table of claims and what lies beside it; return their paths.

    Parameters
    ----------
    folder : path, of the results
    docs : path, of the pages; a figure without results is removed there
    table : path, of the table of claims
    """
    made, paths = pages(folder), []
    beside = {
        Path(table): claims(folder),
        Path(table).with_name("summaries.json"): summaries(folder),
        Path(table).with_name("race.html"): race_page(folder),
    }
    for path, text in beside.items():
        write_atomically(path, text)
    for figure in sorted(Path(docs).glob("*/*.svg")):
        if figure.relative_to(docs).as_posix() not in made:
            figure.unlink()
    for name, text in made.items():
        path = Path(docs) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text("utf-8") != text:
            write_atomically(path, text)
        paths.append(path)
    return [*paths, *beside]
