"""What the papers say of their rule beside Adam, and what it is beside tuned Adam."""

import pandas as pd

from labkit.labs.compare.race import Race
from labkit.labs.compare.verdicts import AHEAD, BASELINE, LEVEL, compared, ends

COLUMNS = ["paper", "here", "setting", "verdict"]
UNDECIDED = "not decided by this run"


def claims_table(result: Race) -> pd.DataFrame:
    """Claims that name Adam, on the classification; decided by these runs alone."""
    last, job = ends(result), result.job
    n = len(job.data.fit.targets)
    place = f"{n:,} rows, {job.setting.passes:g} passes, {result.seeds} seeds"
    rows = []
    for claim, label in (
        ("RLS ends better than Adam (at its default rate)", "RLS"),
        ("RLS+M, the same", "RLS+M"),
        ("HRLS ends better than Adam under cross-entropy", "HRLS+M"),
    ):
        found = compared(result, last.loc[label], last.loc[BASELINE])
        said = {AHEAD: "yes", LEVEL: UNDECIDED}.get(found, "no")
        rows.append((claim, _ends(last, label), place, said))
    found = compared(result, last.loc[BASELINE], last.loc["BPLS"])
    said = {AHEAD: "yes", LEVEL: UNDECIDED}.get(found, "no")
    claim = "BPLS stays below Adam, by 1.2 and 2.5 points (Table I)"
    rows.append((claim, _ends(last, "BPLS"), place, said))
    per_pass = (last.seconds / last.passes).astype(float)
    ratio = per_pass[BASELINE] / per_pass["BPLS"]
    rows.append(
        (
            "a pass of BPLS is 1,270 times faster than Adam's, batch 1 (Table II)",
            f"{ratio:.1f} times, batch {job.setting.batch}",
            place,
            "a clock, not a test",
        )
    )
    return pd.DataFrame(rows, columns=COLUMNS)


def _ends(last, label) -> str:
    return ", ".join(
        f"{name} {last.score[name]:.1f} ± {last.sd[name]:.1f} %"
        for name in (label, BASELINE)
    )
