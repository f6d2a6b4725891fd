"""What the results say of a study: how far it is, and how its claims are judged."""

import math
from functools import cache
from pathlib import Path

import pandas as pd

from reproduction import results
from reproduction.criteria import whose
from reproduction.studies import Study, find_study

CLAIM = "paper's claim"


@cache
def judged(name: str, folder: Path) -> pd.DataFrame:
    """Return a row for each claim of a study that the results in a folder decide.

    It has the verdict, whose the claim is, and the p-value of a comparison of means.
    """
    study = find_study(name)
    rows = results.frame(study, folder)
    found = list(study.claims(rows)) if len(rows) else []
    table = pd.DataFrame(found, columns=[CLAIM, "measured here", "verdict"])
    owners = [whose(claim) for claim in table[CLAIM]]
    p = [getattr(held, "p", math.nan) for _, _, held in found]
    return table.assign(whose=owners, p=p)


def estimate(study: Study) -> str:
    """Return the time and memory that a study takes, in words."""
    units = len(study.units)
    every = f"{units} units of " if units > 1 else ""
    return f"{every}about {study.minutes:g} minutes and {study.memory:g} GB"
