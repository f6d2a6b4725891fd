"""What the results say of a study: how far it is, and how its claims are judged."""

import math
from functools import cache
from pathlib import Path

import pandas as pd

from reproduction import results
from reproduction.criteria import whose
from reproduction.studies import Study, studies

CLAIM = "paper's claim"


def state_of(study: Study, folder: Path) -> tuple[int, dict[str, dict]]:
    """Return the number of units, and how those that are done were run."""
    headers, _ = results.read(results.path_of(study, folder))
    return len(study.units), headers


def judged(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each claim of a study: its verdict, whose it is, its p-value."""
    found = list(study.claims(rows)) if len(rows) else []
    table = pd.DataFrame(found, columns=[CLAIM, "measured here", "verdict"])
    owners = [whose(claim) for claim in table[CLAIM]]
    p = [getattr(held, "p", math.nan) for _, _, held in found]
    return table.assign(whose=owners, p=p)


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
