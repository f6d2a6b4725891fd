"""One table a paper: what it claims, what was found, at which size, at what cost.

The claims stand in ``coverage.csv``. A row names the size at which a claim can be
shown, the studies that show it (with patterns of units after a colon, parted by
commas), a regular expression that finds the verdicts on it among those of these
studies, and, where nothing was run, what a run would take.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd

from labkit.lab.claims import NO, YES
from reproduction import results, show
from reproduction.criteria import IDENTITY, NOT_CONTRADICTED, OURS, READING
from reproduction.studies import PAPERS, Study, studies

ITEMS = Path(__file__).with_name("coverage.csv")
AT_SIZE, REDUCED, NOTEBOOK, MISSING = "paper", "reduced", "notebook", "missing"
EXACT = "exact"
SIZES = {
    AT_SIZE: "full",
    REDUCED: "reduced",
    EXACT: "every",
    NOTEBOOK: "toy",
    READING: "a reading",
    MISSING: "not run",
}
HOLDS, FAILS, OPEN, IS_EXACT = "holds", "does not hold", "open", "holds exactly"
MARKS = {HOLDS: "✓", FAILS: "✗", OPEN: "○", NOT_CONTRADICTED: "≈", IS_EXACT: "="}
COLUMNS = ("paper", "where", "claim", "says", "here", "runs", "size", "verdict")
COLUMNS += ("study", "one run more")


def evidence(folder: Path) -> pd.DataFrame:
    """Return the claims of all papers with the evidence that a folder of results has.

    Parameters
    ----------
    folder : path, of the results

    Returns
    -------
    DataFrame
        A row for each claim: ``paper``; ``where`` and ``claim``; ``says`` and ``here``,
        what the paper says and what was measured, of the verdict that is most in doubt
        where there are several; ``runs``, how many there are of each method; ``size``,
        as in :data:`SIZES`; ``verdict``: holds, does not hold, not contradicted, open,
        holds exactly, or the counts, such as "yes 2, no 1, open 2"; ``study``, their
        names; and ``one run more``, the hours of one core that one more run of each
        method takes by the recorded ones, or what a run of a missing claim would take.
    """
    items = pd.read_csv(ITEMS, dtype=str, keep_default_na=False).to_dict("records")
    for study in (each for each in studies().values() if each.paper == "compare"):
        items += [
            {"paper": "compare", "where": study.shows, "claim": row[show.CLAIM]}
            | {"size": AT_SIZE, "study": study.name, "cost": ""}
            | {"match": f"^{re.escape(row[show.CLAIM])}$"}
            for row in show.judged_in(folder, study).to_dict("records")
        ]
    found = pd.DataFrame([_item(item, folder) for item in items], columns=COLUMNS)
    order = found["paper"].map(PAPERS.index)
    return found.sort_values("paper", key=lambda _: order, kind="stable")


def _item(item: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Return a claim with its evidence, as a row of :func:`evidence`."""
    size, verdicts, runs, seconds = item["size"], [], [], 0.0
    named = {} if size in (NOTEBOOK, EXACT) else _meant(item)
    for name, patterns in named.items():
        study = studies()[name]
        _, done = show.state_of(study, folder)
        of = {u: h for u, h in done.items() if any(fnmatchcase(u, p) for p in patterns)}
        if of:
            judged = show.judged_in(folder, study)
            verdicts += [
                row
                for row in judged.to_dict("records")
                if re.search(item["match"], row[show.CLAIM])
            ]
            runs += _runs(study, folder, of)
            seconds += sum(header["cpu_seconds"] for header in of.values())
    if named and not runs:
        size = MISSING
    row = {key: item[key] for key in ("paper", "where", "claim")}
    row |= {"size": SIZES[size or MISSING], "study": ", ".join(named)}
    row["verdict"] = IS_EXACT if size == EXACT else _found(verdicts)
    if verdicts:
        shown = _doubtful(verdicts)
        says = re.sub(f"^({READING}|{IDENTITY}|{OURS}): ", "", shown[show.CLAIM])
        row |= {"says": says, "here": shown["measured here"]}
        row["runs"] = _range(runs)
    if size in (MISSING, ""):
        row["one run more"] = item["cost"]
    elif OPEN in row["verdict"] or NOT_CONTRADICTED in row["verdict"]:
        row["one run more"] = _time(seconds / max(runs))
    return row


def _runs(study: Study, folder: Path, units: Iterable[str]) -> list[int]:
    """Return the number of runs of each label among these units."""
    rows = results.frame(results.path_of(study, folder))
    rows = rows[rows["unit"].isin([*units])]
    counted = "seed" if "seed" in rows else "unit"
    return rows.groupby("label")[counted].nunique().tolist()


def _time(seconds: float) -> str:
    """Return a time in words: hours, or minutes where it is less than one hour."""
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours >= 1 else f"{max(60 * hours, 1):.0f} min"


def _range(runs: list[int]) -> str:
    low, high = min(runs), max(runs)
    return str(low) if low == high else f"{low} to {high}"


def _doubtful(verdicts: list[dict[str, str]]) -> dict[str, str]:
    """Return the verdict that is most in doubt: a no, else one that is not yes."""
    doubted = [row for row in verdicts if row["verdict"] != YES] or verdicts
    return next((row for row in doubted if row["verdict"] == NO), doubted[0])


def _meant(item: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the patterns of units by study."""
    meant, name = {}, ""
    for part in filter(None, item["study"].split(",")):
        if "/" in part:
            name, _, pattern = part.partition(":")
            meant[name] = [pattern or "*"]
        else:
            meant[name].append(part)
    return meant


def _found(verdicts: list[dict[str, str]]) -> str:
    """Return what the verdicts on a claim come to.

    Not contradicted is not counted with yes, and where there are several kinds they are
    counted; fewer "no" than open ones, and no yes, are open.
    """
    kinds = (YES, NO, NOT_CONTRADICTED)
    words = [row["verdict"].partition(" (")[0] for row in verdicts]
    every = Counter(word if word in kinds else OPEN for word in words)
    if len(every) < 2:
        names = {YES: HOLDS, NO: FAILS}
        return next((names.get(word, word) for word in every), "")
    if every[OPEN] + every[NO] == len(words) and every[NO] <= every[OPEN]:
        return OPEN
    return ", ".join(f"{word} {every[word]}" for word in (*kinds, OPEN) if every[word])


def counted(found: pd.DataFrame) -> str:
    """Return in a sentence how many claims there are by size and by verdict.

    Readings of ours and the comparison of all papers are not counted.
    """
    mine = found[(found["size"] != SIZES[READING]) & (found["paper"] != "compare")]
    kind = mine["verdict"].where(mine["verdict"].isin([*MARKS, ""]), "mixed")
    parts = []
    for column, order in ((mine["size"], SIZES.values()), (kind, (*MARKS, "mixed"))):
        numbers = column.value_counts()
        parts += [", ".join(f"{numbers[x]} {x}" for x in order if x in numbers)]
    return f"{len(mine)} claims. Size: {parts[0]}. Verdict: {parts[1]}."


def chance(found: pd.DataFrame) -> str:
    """Return in a sentence how many of :func:`show.p_values` may be chance."""
    few, kept = ((found[name] <= 0.05).sum() for name in ("p", "holm"))
    return (
        f"{len(found)} verdicts of this page compare two means. Where nothing is, each "
        f"is decided by chance once in twenty times, here {0.05 * len(found):.0f} of "
        f"them: {few} have p of at most 0.05, and after Holm's correction for their "
        f"number {kept}."
    )


def text(folder: Path) -> str:
    """Return the claims and their counts, as ``labkit reproduce coverage`` prints."""
    found = evidence(folder)
    lines: list[str] = []

    def told(rows: pd.DataFrame) -> Iterator[str]:
        for row in rows.to_dict("records"):
            study = f" ({row['study']})" if row["study"] else ""
            ended = f": {row['verdict']}" if row["verdict"] else ""
            yield f"  {row['where']}: {row['claim']}{study}; {row['size']}{ended}"

    for paper, mine in found.groupby("paper", sort=False):
        lines += [str(paper), *told(mine)]
    return "\n".join([*lines, "", counted(found)])
