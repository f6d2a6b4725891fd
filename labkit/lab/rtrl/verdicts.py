"""The verdicts of the notebook on online gradients."""

from collections.abc import Iterable

import pandas as pd

from labkit.lab.claims import Claim, duel
from labkit.lab.race import Race, spread


def noise_claims(
    table: pd.DataFrame, claims: Iterable[tuple[str, str, str]], setting: str
) -> list[Claim]:
    """Judge each claim (text, better, worse), by cosine and by relative variance.

    Parameters
    ----------
    table : DataFrame, a row for each method
        Columns (measure, ``mean``) and (measure, ``sd``), over the draws.
    claims : iterable of (str, str, str)
    setting : str, on what it was measured
    """
    judged = []
    for text, *names in claims:
        for measure in ("cosine", "relative variance"):
            a, b = (table[measure].loc[name] for name in names)
            claim = duel(
                f"{text}: {measure}",
                a,
                b,
                tuple(names),
                setting,
                higher=measure == "cosine",
                unit=measure,
                digits=3,
            )
            if measure != "cosine":  # of very unlike sizes
                gap, spread = (x / b["mean"] for x in (claim.gap, claim.spread))
                unit = "shares of the other's relative variance"
                claim = claim._replace(gap=gap, spread=spread, unit=unit)
            judged.append(claim)
    return judged


def above_claim(table: pd.DataFrame, name: str, value: float, setting: str) -> Claim:
    """Judge whether a method's cosine is above a value."""
    text = f"{name}, untrained: cosine about 1, above {value} (fig. 6)"
    one, least = table["cosine"].loc[name], {"mean": value, "sd": 0.0}
    names = name, "the least"
    return duel(text, one, least, names, setting, unit="cosine", digits=4)


def copy_claim(copies: Race, ours: str) -> Claim:
    """Judge whether a learner reaches longer strings than all others."""
    levels = spread(copies.last(), "level")
    rival = levels["mean"].drop(ours).idxmax()
    claim = "Copy: OK reaches longer strings than the others (fig. 1)"
    rows = levels.loc[ours], levels.loc[rival]
    return duel(claim, *rows, (ours, rival), copies.setting, unit="symbols of a string")
