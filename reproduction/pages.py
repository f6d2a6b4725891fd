"""Pages of results, one for each paper, with verdicts and the commands to check."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from labkit.lab.runs.jobs import write_atomically
from reproduction import compare, coverage, drawing, results, show
from reproduction.studies import PAPERS, Study, find_study, studies

PROSE = tomllib.loads(Path(__file__).with_name("pages.toml").read_text("utf-8"))
MADE = "<!-- made by `labkit reproduce pages` from results; not edited by hand -->"
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
    PROSE["reading"],
    "</details>",
)
HEADS = {
    "claim": "claim",
    "says": "the paper says",
    "here": "here",
    "runs": "runs",
    "size": "size",
    "verdict": "verdict",
    "study": "rows and figure",
    "one run more": "one run more",
}


def pages(folder: Path) -> dict[str, str]:
    """Return all pages and their figures by path below ``docs/reproduction``."""
    found, every, items = {}, studies(), coverage.evidence(folder)
    for paper in PAPERS:
        mine = [each for each in every.values() if each.paper == paper]
        corrected = show.p_values(folder, paper)
        parts = [MADE, *head(paper, items, corrected, folder), *HOW_TO_READ]
        if paper == "compare" and (charts := race_of(folder)):
            found |= {f"compare/{data}.svg": svg for data, svg in charts.items()}
            drawn = (f"![{data}](compare/{data}.svg)" for data in charts)
            parts += [f"{GLANCE} {so_far(folder)}", " ".join(drawn)]
        for each in mine:
            rows = results.frame(results.path_of(each, folder))
            drawn = figures_of(each, rows)
            parts += section(each, folder, rows, drawn, corrected)
            found |= drawn
        found[f"{paper}.md"] = "\n\n".join(parts) + "\n"
    found["README.md"] = "\n\n".join(index(every, folder)) + "\n"
    found["coverage.md"] = "\n\n".join(covered(items)) + "\n"
    return found


def head(
    paper: str, items: pd.DataFrame, corrected: pd.DataFrame, folder: Path
) -> Iterator[str]:
    """Yield the title of a paper's page, its table of claims, and what they come to."""
    told, mine = PROSE[paper], items[items["paper"] == paper]
    yield f"# {told['title']}"
    if paper == "compare":
        yield compare.conclusions(raced(folder))
    else:
        yield f"{coverage.counted(mine)} {PROSE['marks']}"
    yield table_of_claims(mine, "")
    if len(corrected):
        yield coverage.chance(corrected)
    for name in ("easy", "hard", "ask"):
        if name in told:
            yield f"**{PROSE['heads'][name]}** {told[name].strip()}"


def table_of_claims(mine: pd.DataFrame, page: str) -> str:
    """Return the claims as a table; `page` is where the sections are, if elsewhere."""
    rows = mine.copy()
    rows["claim"] = rows["where"] + ": " + rows["claim"]
    rows["verdict"] = [
        f"{coverage.MARKS.get(x, '◐' if x else '–')} {x}" for x in rows["verdict"]
    ]
    rows["study"] = [
        ", ".join(
            f"[{n.partition('/')[2]}]({page}#{anchor(find_study(n))})"
            for n in names.split(", ")
            if n
        )
        for names in rows["study"]
    ]
    return grid([*HEADS.values()], rows[[*HEADS]].values.tolist())


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
    question, _, ended = compare.conclusions(raced(folder)).partition("\n\n")
    listed = re.sub(r"- \*\*(.*?)\*\* (.*)", r"<li><b>\1</b> \2</li>", ended)
    told = f"<p>{told}</p>\n<p>{question}</p>\n<ul>{listed}</ul>\n"
    return f"<style>\n{style}\n</style>\n{drawn}\n{told}"


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
    yield f"{coverage.counted(items)} {PROSE['marks']} {PROSE['coverage'].strip()}"
    for paper, mine in items.groupby("paper", sort=False):
        if paper != "compare":
            yield f"## {PROSE[paper]['title']}"
            yield table_of_claims(mine, f"{paper}.md")


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
    each: Study,
    folder: Path,
    rows: pd.DataFrame,
    drawn: Iterable[str],
    corrected: pd.DataFrame,
) -> Iterator[str]:
    """Yield the parts of a study's section on its page.

    Parameters
    ----------
    drawn : iterable of str, its figures
    corrected : DataFrame, :func:`show.p_values` of the paper
    """
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
        if not (p := corrected[corrected.index.get_level_values(0) == each.name]).empty:
            told = p.droplevel(0).map("{:.2g}".format)
            found, names = found.drop(columns="p").join(told), [*names, "p", "holm"]
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
    """Return the table that :func:`labkit.lab.claims.recorded` reads, as text."""
    return coverage.evidence(folder).to_csv(index=False, lineterminator="\n")


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
