"""The paper's claims beside what a run measured, each with its verdict."""

from collections.abc import Mapping

import pandas as pd

from labkit.labs.rls.race import Race, race_table

COLUMNS = ["paper's claim", "measured here", "setting", "verdict"]


def claims_table(races: Mapping[str, Race], ratios: Race, etas: Race) -> pd.DataFrame:
    """Claims C1 to C7 of the experiments, decided by these runs alone.

    Parameters
    ----------
    races : by layer kind, each with Adam, RLS, RLS+M, RLS+M+R, Adam-CE, HRLS+M.
    ratios, etas : sweeps of k and eta from :func:`sweep`, by value.
    """
    rows = []
    for layers, result in races.items():
        rows += _duels(layers, result)
        rows += _clock(layers, result)
    spans = {label: _span(each) for label, each in (("k", ratios), ("eta", etas))}
    rows += [
        _best("k = 0.1 is best (fig. 6)", ratios, "ratio = 0.1"),
        _best("eta = 1 is best; large explodes, small is slow", etas, "eta = 1"),
        (
            "more sensitive to eta than to k",
            f"last accuracies span {spans['k']:.1f} and {spans['eta']:.1f} points",
            ratios.setting,
            "yes" if spans["eta"] > 2 * spans["k"] else "no",
        ),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _duels(layers, result):
    table = race_table(result)
    place = f"{result.problem}, {result.setting}"
    for claim, left, right in (
        ("RLS ends better than Adam", "RLS", "Adam"),
        ("+M improves RLS", "RLS+M", "RLS"),
        ("+R improves RLS+M", "RLS+M+R", "RLS+M"),
        ("HRLS+M ends better than Adam under cross-entropy", "HRLS+M", "Adam-CE"),
    ):
        a, b = table.loc[left], table.loc[right]
        here = ", ".join(
            f"{name} {row['accuracy, last [%]']:.1f} ± {row['sd [%]']:.1f} %"
            for name, row in ((left, a), (right, b))
        )
        yield (f"{layers}: {claim}", here, place, _verdict(a, b))


# The paper's whole-step ratio to Adam, one GPU; RNNs it did not time.
_RATIOS = {"FC": 1.1, "CONV": 1.4, "LSTM": 1.1}


def _clock(layers, result):
    if layers in _RATIOS:
        seconds = race_table(result)["seconds"].astype(float)
        ratio = seconds["RLS"] / seconds["Adam"]
        claim = f"{layers}: a step takes {_RATIOS[layers]} times Adam's, on a GPU"
        place = f"{result.problem}, whole steps on this machine"
        yield (claim, f"{ratio:.1f} times", place, "a clock, not a test")


def _verdict(a, b) -> str:
    """Yes or no only where the means differ by more than both spreads together."""
    gap = a["accuracy, last [%]"] - b["accuracy, last [%]"]
    spread = a["sd [%]"] + b["sd [%]"]
    if not abs(gap) > spread:  # also nan: diverged, or one seed
        return "not decided by this run"
    return "yes" if gap > 0 else "no"


def _last(result: Race) -> pd.Series:
    return race_table(result)["accuracy, last [%]"].astype(float)


def _span(result: Race) -> float:
    """Best minus worst last accuracy; a diverged run counts as chance, 10 %."""
    last = _last(result).fillna(10.0)
    return last.max() - last.min()


def _best(claim, result, label):
    last = _last(result)
    here = ", ".join(
        f"{name.split(' = ')[1]}: " + ("diverged" if pd.isna(v) else f"{v:.1f} %")
        for name, v in last.items()
    )
    near = last[label] >= last.max() - 0.5
    verdict = (
        "yes" if last.idxmax() == label else "within half a point" if near else "no"
    )
    return (claim, here, result.setting, verdict)
