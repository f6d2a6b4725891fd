"""Pages of results, one for each paper, with verdicts and the commands to check."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from labkit.lab.claims import NO, YES
from labkit.lab.runs.jobs import write_atomically
from reproduction import compare, coverage, criteria, drawing, results, show
from reproduction.studies import Study, find_studies, find_study, studies

PAPERS = tomllib.loads(Path(__file__).with_name("papers.toml").read_text("utf-8"))
MADE = "<!-- made by `labkit reproduce pages` from results; not edited by hand -->"
READING = (
    "<details><summary>How to read the tables and figures</summary>\n\n"
    "The column *whose* says whether a claim is the paper's, an identity (true by its "
    "formulas), of one reading of the text, or ours. A verdict judges the claim at the "
    "size that was run, by the criterion under its table; p is the p-value where two "
    "means are compared, and the column *Holm* has it corrected for the number of tests"
    " on this page. A look is what was measured of a run between two of its steps, such"
    " as after an epoch; ± is one standard deviation over the runs unless a table says "
    "otherwise, and so are the bands of the figures; a curve of one run is marked so. "
    "Dashed lines and circles are the paper's numbers. Seconds are of the machine and "
    "load named.\n\n</details>"
)
LEGEND = (
    "✔ yes, ✘ no; ≈ not contradicted: fewer than three runs, too few to decide (a claim"
    " about one network is judged by its draws); ○ open: the runs do not decide, or no "
    "row says yes and no more say no than are open; ◐ in part: some rows say "
    "yes, or more say no than are open, and their verdicts are counted; – no recorded "
    "run (*notebook*: a small one there). *Full* is the paper's setting, often with "
    "fewer runs, *reduced* a smaller one, and *exact* what formulas or counts decide. "
    "What a decision would cost is computed from the recorded seconds: for as many runs"
    " again, or for those missing to three."
)


def pages(folder: Path) -> dict[str, str]:
    """Return all pages and their figures by path below ``docs/reproduction``."""
    found, every, items = {}, studies(), coverage.table(folder)
    for paper, about in PAPERS.items():
        own = [study for study in every.values() if study.paper == paper]
        tests = tested(paper, folder)
        parts = [MADE, f"# {about['title']}"]
        if paper == "compare":
            parts.append(compare.LEGEND)
        else:
            shown = items[items["paper"] == paper]
            parts += [tally(shown), *claimed(shown), chance(tests)]
            parts += [f"**{head}** {about[key]}" for key, head in TOLD.items()]
        parts.append(READING)
        for each in own:
            rows = results.frame(each, folder)
            charts = each.views if len(rows) else ()
            made = drawing.figures(each.drawn(rows), charts) if charts else {}
            drawn = {f"{each.name}-{number}.svg": text for number, text in made.items()}
            parts += section(each, rows, folder, tests, drawn)
            found |= drawn
        found[f"{paper}.md"] = "\n\n".join(filter(None, parts)) + "\n"
    found["README.md"] = "\n\n".join(index(items)) + "\n"
    found["coverage.md"] = "\n\n".join(covered(items)) + "\n"
    return found


TOLD = {
    "easy": "What was easy.",
    "hard": "What was hard.",
    "ask": "What we would ask the authors.",
}


def tally(items: pd.DataFrame) -> str:
    """Return how many claims there are of each kind of verdict, without readings."""
    kept = items[items["size"] != criteria.READING]
    every = kept["kind"].value_counts()
    words = [
        f"{mark} {kind} {every.get(kind, 0)}" for kind, mark in coverage.MARKS.items()
    ]
    return f"{len(kept)} claims: {', '.join(words)}, – not run here {every.get('', 0)}."


HEADS = ["verdict", "claim", "the paper", "ours", "size", "runs", "rows", "to decide"]


def claimed(items: pd.DataFrame) -> Iterator[str]:
    """Yield the table of claims, and apart that of readings, with its legend.

    Parameters
    ----------
    items : DataFrame, rows of :func:`coverage.table`
    """
    reading = items["size"] == criteria.READING
    table = items.assign(verdict=coverage.marked(items))
    named = items["study"].str.split(", ")
    table["rows"] = [", ".join(map(link, filter(None, each))) for each in named]
    scale = items["scale"].where(items["scale"] == "", ": " + items["scale"])
    table["size"] += scale
    table = table.rename(columns={"number": "the paper"})[HEADS]
    yield grid(HEADS, table[~reading].values.tolist())
    if reading.any():
        yield "**A reading that the paper's own numbers contradict, not counted:**"
        yield grid(HEADS, table[reading].values.tolist())
    yield LEGEND


def link(name: str) -> str:
    """Return the link to a study, whose section has its rows and figures."""
    paper, own = name.split("/")
    return f"[{own}]({paper}.md#{anchor(find_study(name))})"


def tested(paper: str, folder: Path) -> pd.DataFrame:
    """Return all that is judged of a paper, by study, with Holm's correction."""
    own = find_studies([paper])
    table = pd.concat({each.name: show.judged(each.name, folder) for each in own})
    return table.assign(Holm=criteria.holm(table["p"].astype(float)))


def chance(tests: pd.DataFrame) -> str:
    """Say how many of the verdicts of a page may be chance."""
    rows = tests[tests["whose"] == criteria.PAPER]
    decided = rows["verdict"].isin([YES, NO])
    known, few = rows["p"].notna().sum(), (rows["p"] < LEVEL).sum()
    kept = (rows["Holm"] < LEVEL).sum()
    return (
        f"{decided.sum()} of {len(rows)} rows about the paper are decided, each by its "
        f"criterion. {known} compare two means of runs at their end: p is below "
        f"{LEVEL} in {few}, by chance alone in about {LEVEL * known:.1f}, and in "
        f"{kept} after Holm's correction."
    )


LEVEL = 0.05


def race_page(folder: Path) -> str:
    """Return the race as HTML that stands alone; see `labkit.lab.claims.show_race`."""
    race = find_study("compare/rivals")
    rows = results.frame(race, folder)
    if rows.empty:
        return ""
    shown = race.table(rows).rename_axis(None)
    table = shown.to_html(na_rep="", border=0, classes="table")
    return f'<div style="overflow-x: auto">{table}</div>\n<p>{compare.LEGEND}</p>\n'


def covered(items: pd.DataFrame) -> Iterator[str]:
    """Yield the parts of the page of all claims and of their evidence."""
    yield MADE
    yield "# What the papers claim, and what was shown"
    yield table_of(coverage.counts(items))
    for paper, own in items.groupby("paper", sort=False):
        if paper != "compare":
            yield f"## {PAPERS[paper]['title']}"
            yield from claimed(own)


def index(items: pd.DataFrame) -> Iterator[str]:
    """Yield the parts of the page that leads to the others."""
    yield MADE
    yield "# The papers, at their size or reduced"
    yield (
        "[Every claim of the papers](coverage.md), and what was found of it, stands in "
        "one table; each paper has a page with the rows and figures. `labkit reproduce "
        "list` shows the studies, `run` carries out units that are not done, `show` "
        "prints what the pages have. The numbers are in `reproduction/results/`."
    )
    yield "\n".join(
        f"- [{PAPERS[paper]['title']}]({paper}.md): {tally(own)}"
        for paper, own in items.groupby("paper", sort=False)
    )


def section(
    each: Study,
    rows: pd.DataFrame,
    folder: Path,
    tests: pd.DataFrame,
    drawn: Iterable[str] = (),
) -> Iterator[str]:
    """Yield the parts of a study's section.

    Parameters
    ----------
    each, rows : Study and DataFrame, all rows of it
    folder : path, of the results
    tests : DataFrame, :func:`tested`
    drawn : iterable of str, the paths of its figures
    """
    done, _ = results.read(each, folder)
    yield f"## {heading(each)}"
    facts = {
        "Claim": each.claim,
        "Data": each.data,
        "Setting": each.setting,
        "Differs from the paper": each.differs,
        "Command": f"`labkit reproduce run {each.name}` ({show.estimate(each)})",
    }
    yield "\n".join(f"- {name}: {words}" for name, words in facts.items())
    if not done:
        yield "**Not run.**"
        return
    left = ", ".join(unit for unit in each.units if unit not in done)
    missing = f"; not run: {left}" if left else ""
    yield f"Units done: {len(done)} of {len(each.units)}{missing}."
    yield table_of(each.table(rows))
    yield " ".join(f"![{each.shows}]({path})" for path in drawn)
    found = tests[tests.index.get_level_values(0) == each.name]
    if len(found):
        names = [show.CLAIM, "measured here", "whose", "verdict", "p", "Holm"]
        shown, columns = found.copy(), ["p", "Holm"]
        shown[columns] = found[columns].map("{:.2g}".format, na_action="ignore")
        yield grid(names, shown[names].values.tolist())
    yield f"Criterion: {each.criterion}."
    yield "<details><summary>How these units were run</summary>"
    yield run_how(done)
    yield "</details>"


def run_how(done: Mapping[str, Mapping]) -> str:
    """Return lines on the commits, versions, devices, time and load of the units."""
    headers = list(done.values())
    parts = [part for each in headers for part in (*each.get("processes", ()), each)]
    loads = [load for header in headers for load in header["load"]]
    clocks = "seconds", "cpu_seconds"
    seconds, spent = (sum(header[key] for header in headers) for key in clocks)
    cut = sum("begun" in header or "processes" in header for header in headers)

    def every(values: Iterable[str], between: str = ", ") -> str:
        return between.join(dict.fromkeys(values))

    return "\n".join(
        [
            f"- commits: {every(str(each['commit']) for each in parts)}",
            f"- torch {every(each['versions']['torch'] for each in headers)}; "
            f"{every((each['device'] for each in headers), ' or ')}; "
            f"threads: {every(str(each['threads']) for each in headers)}; "
            f"denormals: {every(each.get('denormals', 'kept') for each in headers)}",
            f"- {seconds:,.0f} s in all, {spent:,.0f} s of the processor, "
            f"load {min(loads):g} to {max(loads):g}; units that were cut off, and "
            f"count from their last start: {cut}",
        ]
    )


def heading(each: Study) -> str:
    """Return the heading of a study's section."""
    return f"{each.name.split('/')[1]}: {each.shows}"


def text(study: Study, folder: Path) -> str:
    """Return one study as ``labkit reproduce show`` prints it: its section."""
    rows = results.frame(study, folder)
    parts = section(study, rows, folder, tested(study.paper, folder))
    page = "\n\n".join(filter(None, parts))
    return page.replace("## ", f"{study.paper}/", 1)


def anchor(each: Study) -> str:
    """Return the anchor that Markdown makes of a heading."""
    return re.sub(r"[^\w -]", "", heading(each).lower()).replace(" ", "-")


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
    needed = (f"{value:.4g}".partition(".")[2] for value in column.dropna())
    digits = max(map(len, needed), default=0)
    return ["" if value != value else f"{value:.{digits}f}" for value in column]


def grid(names: list, rows: list[list]) -> str:
    """Return a table in Markdown."""
    lines = [[_cell(name) for name in names], ["---"] * len(names)]
    lines += [[_cell(value) for value in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value) -> str:
    return ("" if pd.isna(value) else str(value)).replace("|", "\\|").replace("\n", " ")


def claims(folder: Path) -> str:
    """Return the table of claims as text, which `labkit.lab.claims.recorded` reads."""
    items = coverage.table(folder)
    items["verdict"] = coverage.marked(items)
    return items.drop(columns="kind").to_csv(index=False, lineterminator="\n")


def write(folder: Path, docs: Path, table: Path) -> list[Path]:
    """Write all pages, the table of claims and what lies beside it; return their paths.

    Parameters
    ----------
    folder : path, of the results
    docs : path, of the pages; a figure without results is removed there
    table : path, of the table of claims
    """
    made = {docs / name: text for name, text in pages(folder).items()}
    for figure in {*docs.glob("*/*.svg")} - made.keys():
        figure.unlink()
    made |= {table: claims(folder), table.with_name("race.html"): race_page(folder)}
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    return [*made]
