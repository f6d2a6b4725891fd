"""What the papers claim, item by item, and which evidence there is of each.

The items stand in ``coverage.csv``. An item has the number that the paper prints, the
size at which it can be shown and what that size is (``scale``), the studies that show
it (with patterns of units after a colon, parted by commas), a regular expression that
finds its claims among those of these studies, and the cost of what is missing.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd

from labkit.lab.claims import NO, YES
from reproduction import results, show
from reproduction.criteria import NOT_CONTRADICTED, READING, SEEDS
from reproduction.studies import Study, studies

ITEMS = Path(__file__).with_name("coverage.csv")
SIZES = ("full", "reduced", "exact", "notebook", "missing")
OPEN = "open"
MIXED = "in part"
MARKS = {YES: "✔", NO: "✘", NOT_CONTRADICTED: "≈", OPEN: "○", MIXED: "◐"}
SHOWN = 3  # rows of an item that are all in the table; of more one stands there


def table(folder: Path) -> pd.DataFrame:
    """Return the table of all papers: a row for each claim, with its evidence.

    Parameters
    ----------
    folder : path, of the results

    Returns
    -------
    DataFrame
        ``paper``; ``claim``, with the place in the paper; ``number``, which it prints;
        ``ours``, mean and standard deviation; ``runs``; ``size`` (of :data:`SIZES`, or
        reading) and ``scale``; ``verdict`` (yes, no, not contradicted, open, or their
        counts), ``kind`` (of :data:`MARKS`); ``study``, their names; ``to decide``,
        what a decision of what is open would cost. The race of all rules has no paper,
        and its claims are ours.
    """
    every = pd.read_csv(ITEMS, dtype=str, keep_default_na=False).to_dict("records")
    return pd.DataFrame([judged(item, folder) for item in every])


def judged(item: Mapping[str, str], folder: Path) -> dict:
    """Return the row of an item."""
    rows, headers, runs = [], [], set()
    for name, patterns in meant(item).items():
        study = studies()[name]
        done, _ = results.read(study, folder)
        units = {
            unit
            for unit in done
            if any(fnmatchcase(unit, pattern) for pattern in patterns)
        }
        if units:
            found = show.judged(name, folder)
            rows += found[found[show.CLAIM].str.contains(item["match"])].to_dict(
                "records"
            )
            counts, fewest = runs_of(study, units, folder)
            runs |= counts
            headers += [done[unit] for unit in fewest]
    few = re.findall(r"\((\d+) run", " ".join(row["verdict"] for row in rows))
    runs = set(map(int, few)) or runs
    fixed = item["size"] in ("exact", "notebook")
    size = item["size"] if fixed or headers else "missing"
    kind, verdict = found_of(row["verdict"] for row in rows)
    if size == "exact":
        kind, verdict = kind or YES, f"{verdict or YES}, exactly"
    where = f" ({item['where']})" if item["where"] else ""
    return {
        "paper": item["paper"],
        "claim": item["claim"] + where,
        "number": item["number"],
        "ours": ours(rows),
        "runs": " to ".join(map(str, sorted({min(runs), max(runs)}))) if rows else "",
        "size": size,
        "scale": item["scale"],
        "verdict": verdict,
        "kind": kind,
        "study": ", ".join(meant(item)),
        "to decide": cost_of(headers, runs)
        if OPEN in verdict or NOT_CONTRADICTED in verdict
        else item["cost"],
    }


def meant(item: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the patterns of units by study."""
    found, name = {}, ""
    for part in filter(None, item["study"].split(",")):
        if "/" in part:
            name, _, pattern = part.partition(":")
            found[name] = [pattern or "*"]
        else:
            found[name].append(part)
    return found


def runs_of(study: Study, units: set[str], folder: Path) -> tuple[set[int], set[str]]:
    """Return how many runs methods in these units have, and the units of the fewest."""
    rows = study.read(results.frame(study, folder))
    rows = rows[rows["unit"].isin(units)]
    if ("look" in rows and rows["look"].isna().all()) or "seed" not in rows:
        return {1}, units
    # Networks that are trained from other weights are runs, whatever a label names.
    labels = rows["label"].str.split(", weights").str[0]
    groups = rows.groupby([labels, rows.get("units", labels)])
    counts = groups["seed"].transform("nunique")
    return set(counts), set(rows["unit"][counts == counts.min()])


def ours(rows: list[dict]) -> str:
    """Return what was measured, of many rows one that is not yes if there is one."""
    if len(rows) <= SHOWN:
        return "; ".join(row["measured here"] for row in rows)
    row = min(rows, key=lambda row: (row["verdict"] != NO, row["verdict"] == YES))
    claim = row[show.CLAIM].removeprefix("reading: ").removeprefix("identity: ")
    return f"{claim}: {row['measured here']} (the worst verdict of {len(rows)} rows)"


def found_of(verdicts: Iterator[str]) -> tuple[str, str]:
    """Return what verdicts come to: their kind, and the kind or the counts in words.

    Not contradicted is not counted with yes. No more "no" than open ones, and no yes,
    are open.
    """
    kinds = (each.partition(" (")[0] for each in verdicts)
    every = Counter(kind if kind in MARKS else OPEN for kind in kinds)
    if len(every) < 2:
        kind = next(iter(every), "")
        return kind, kind
    words = ", ".join(f"{kind} {every[kind]}" for kind in MARKS if every[kind])
    left = every.keys() - {OPEN, NO, NOT_CONTRADICTED}
    return (MIXED if left or every[NO] > every[OPEN] else OPEN), words


def cost_of(headers: list[Mapping], runs: set[int]) -> str:
    """Return the recorded time of the runs that are lacking, or of as many again.

    ``headers`` are of the methods with the fewest runs, ``runs`` the numbers of all.
    """
    least = min(runs, default=1)
    again = max(SEEDS / least - 1, 0) or 1  # times what was spent
    minutes = math.ceil(again * sum(each["cpu_seconds"] for each in headers) / 60)
    device = "GPU" if any("cuda" in each["device"] for each in headers) else "core"
    cut = "at least " if any("processes" in each for each in headers) else ""
    long = f"{minutes / 60:.1f} h" if minutes > 60 else f"{minutes} min"
    return f"{cut}{long} of a {device}"


def counts(items: pd.DataFrame) -> pd.DataFrame:
    """Return the number of claims by the size of their evidence and their verdict."""
    items = items[(items["size"] != READING) & (items["paper"] != "compare")]
    kinds = items["kind"].replace({"": "none"})
    found = pd.crosstab(items["size"], kinds, margins=True, margins_name="all")
    order = [*MARKS, "none", "all"]
    return found.reindex([*SIZES, "all"], columns=order, fill_value=0).rename_axis(
        columns=None
    )


def marked(items: pd.DataFrame) -> list[str]:
    """Return the verdicts with their marks."""
    pairs = zip(items["kind"], items["verdict"], strict=True)
    return [f"{MARKS.get(kind, '–')} {verdict}".strip() for kind, verdict in pairs]
