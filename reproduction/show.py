"""Tables and verdicts in words: our results beside the paper's."""

import math
from functools import cache
from pathlib import Path

import pandas as pd

from reproduction import results
from reproduction.criteria import IDENTITY, OURS, PAPER, READING, Compared, whose
from reproduction.studies import Study, studies

CLAIM = "paper's claim"
WHOSE = {PAPER: "paper's", READING: "of a reading", IDENTITY: "identities"}
WHOSE |= {OURS: "ours"}


def counted(table: pd.DataFrame) -> str:
    """Return in words how many claims hold, fail and are open, by whose they are."""
    words = []
    for owner, title in WHOSE.items():
        mine = table.loc[table["whose"] == owner, "verdict"].value_counts(sort=False)
        if len(mine):
            words.append(f"{title}: " + ", ".join(f"{n} {v}" for v, n in mine.items()))
    return "; ".join(words) or "none yet"


def state_of(study: Study, folder: Path) -> tuple[int, dict[str, dict]]:
    """Return the number of units, and how those that are done were run."""
    headers, _ = results.read(results.path_of(study, folder))
    return len(study.units), headers


def judged(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each claim of a study, with its verdict and whose it is.

    ``p`` is that of a comparison of two means, and nan of other criteria.
    """
    claims = study.claims(rows) if len(rows) else ()
    table = pd.DataFrame(claims, columns=[CLAIM, "measured here", "verdict"])
    p = [x.p if isinstance(x, Compared) else math.nan for x in table["verdict"]]
    table = table.assign(p=p, whose=[whose(claim) for claim in table[CLAIM]])
    return table.assign(verdict=[str(held) for held in table["verdict"]])


def p_values(folder: Path, paper: str) -> pd.DataFrame:
    """Return ``p`` of a paper's comparisons, and ``holm``, corrected for their number.

    The index is the name of the study and the place of the claim in it.
    """
    mine = [each for each in studies().values() if each.paper == paper]
    p = pd.concat({each.name: judged_in(folder, each)["p"] for each in mine}).dropna()
    ordered = p.sort_values()
    corrected = ordered * pd.Series(range(len(p), 0, -1), ordered.index)
    return pd.DataFrame({"p": p, "holm": corrected.cummax().clip(upper=1.0)})


def judged_in(folder: Path, study: Study) -> pd.DataFrame:
    """Return a row for each claim of a study that the results in a folder decide.

    Several pages have it; a file that stays as it is is judged once.
    """
    path = results.path_of(study, folder)
    written = path.stat().st_mtime_ns if path.is_file() else None
    return _judged_at(path, written, study.name)


@cache
def _judged_at(path: Path, written: int | None, name: str) -> pd.DataFrame:
    return judged(studies()[name], results.frame(path))


def command(study: Study) -> str:
    """Return the command that runs all units of a study."""
    return f"labkit reproduce run {study.name}"


def estimate(study: Study) -> str:
    """Return the time and memory that a study takes, in words."""
    units = len(study.units)
    every = f"{units} units of " if units > 1 else ""
    return f"{every}about {study.minutes:g} minutes and {study.memory:g} GB"


def text(study: Study, folder: Path) -> str:
    """Return one study as ``labkit reproduce show`` prints it."""
    units, done = state_of(study, folder)
    lines = [f"{study.name}: {study.shows}; {len(done)} of {units} units"]
    lines += [f"  claim    {study.claim}"]
    lines += [f"  data     {study.data}", f"  setting  {study.setting}"]
    lines += [f"  differs  {study.differs}", f"  command  {command(study)}"]
    if not done:
        return "\n".join([*lines, f"  not run  {estimate(study)}"])
    rows = results.frame(results.path_of(study, folder))
    lines += ["", study.table(rows).to_string(), ""]
    found = judged(study, rows)
    for row in found.to_dict("records"):
        lines.append(f"  {row['verdict']}: {row[CLAIM]}; here {row['measured here']}")
    lines.append(f"  verdicts: {counted(found)}")
    return "\n".join([*lines, f"  criterion: {study.criterion}"])
