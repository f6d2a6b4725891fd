"""Tables and verdicts in words: our results beside the paper's."""

from functools import cache
from pathlib import Path

import pandas as pd

from labkit.lab.claims import UNDECIDED, claim_table
from reproduction import results
from reproduction.criteria import IDENTITY, OURS, PAPER, READING, whose
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
    """Return a row for each claim of a study, with its verdict and whose it is."""
    setting = f"{study.data}; {study.setting}"
    claims = study.claims(rows) if len(rows) else ()
    table = claim_table((said, here, setting, held) for said, here, held in claims)
    return table.assign(whose=[whose(claim) for claim in table[CLAIM]])


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


def recorded(folder: Path) -> pd.DataFrame:
    """Return a row for each claim of all papers, with what is recorded of it.

    This is what ``labkit reproduce pages`` writes into the package, where
    :func:`labkit.lab.claims.recorded` reads it.

    Parameters
    ----------
    folder : path, of the results
    """
    tables = []
    for each in studies().values():
        units, done = state_of(each, folder)
        rows = judged_in(folder, each)
        if not len(rows):
            words = f"{len(done)} of {units} units are done" if done else "Not run"
            rows = claim_table([(each.claim, words, each.data, UNDECIDED)])
            rows = rows.assign(whose=PAPER)
        tables.append(rows.assign(command=command(each)).assign(paper=each.paper))
    names = {"measured here": "recorded", "setting": "data and scale"}
    table = pd.concat(tables, ignore_index=True).rename(columns=names)
    return table[["paper", *table.columns.drop("paper")]]


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
