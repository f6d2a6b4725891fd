"""The tables and the verdicts of the notebook on RLS."""

from collections.abc import Iterable, Mapping

import pandas as pd

from labkit.lab.claims import (
    AHEAD,
    BEHIND,
    NO,
    UNDECIDED,
    YES,
    Claim,
    compared,
    duel,
    plus_minus,
)
from labkit.lab.race import Race, View, spread

VIEWS = (
    View("epoch", "loss", "Training loss", "epoch", "mean over the epoch", log_y=True),
    View("epoch", "accuracy", "Test accuracy", "epoch", "%"),
)
# Times of Adam's, of a whole step on a GPU.
PUBLISHED = {"FC": 1.1, "CONV": 1.4, "LSTM": 1.1}
SLACK = 0.05  # of the loss: so near is level, where one vector does the work of P


def race_table(result: Race) -> pd.DataFrame:
    """Return first and last epoch: means over the seeds, sd of the last accuracy."""
    first = spread(result.runs[result.runs.epoch == 1], "accuracy", "loss")
    last = spread(result.last(), "accuracy", "loss", "seconds")
    columns = {"loss, first epoch": first["loss"], "loss, last": last["loss"]}
    columns["accuracy, first epoch [%]"] = first["mean"]
    columns |= {"accuracy, last [%]": last["mean"], "sd [%]": last["sd"]}
    columns["seconds"] = last["seconds"]
    failed = result.last().failed.ne("").groupby(result.last().label)
    columns |= {"failed": failed.sum(), "runs": failed.size()}
    return pd.DataFrame(columns).loc[result.labels].rename_axis("method")


def race_tables(results: Mapping[str, Race]) -> object:
    """Return :func:`race_table` of several races, one below the other, in style."""
    tables = {name: race_table(result) for name, result in results.items()}
    plain = lambda name: f"{name:g}" if isinstance(name, float) else name  # noqa: E731
    shown = pd.concat(tables).style.format(precision=3, na_rep="failed")
    return shown.format_index(plain, level=1)


def duels(
    races: Mapping[str, Race], claims: Iterable[tuple[str, str, str]]
) -> list[Claim]:
    """Judge each claim (text, better, worse) by the last accuracies of each race."""
    judged = []
    for layers, result in races.items():
        kind = "RNN (not in the paper)" if layers == "RNN" else layers
        ends = spread(result.last(), "accuracy")
        for claim, *names in claims:
            a, b = (ends.loc[name] for name in names)
            text = f"{kind}: {claim}"
            unit = "points of accuracy"
            judged.append(duel(text, a, b, tuple(names), result.setting, unit=unit))
    return judged


def suspicions(anatomy: Race) -> list[Claim]:
    """Judge what we suspect of P, by the training losses beside that of RLS."""
    last = race_table(anatomy)["loss, last"]
    vector, averaged = (
        last[f"{name} RLS"] / last["RLS"] for name in ("running-mean", "averaged")
    )
    ours = (
        ("one vector keeps up with P, to 5 % of the loss", vector, SLACK),
        ("the averaged form hardly learns: three times the loss", averaged, None),
    )
    judged = []
    for text, ratio, slack in ours:
        gap = ratio - 3 if slack is None else slack - abs(ratio - 1)
        found = f"{ratio:.2f} times the loss of RLS"
        said = YES if gap > 0 else NO
        judged.append(
            Claim(text, found, anatomy.setting, said, gap, unit="losses of RLS")
        )
    return judged


def step_costs(races: Mapping[str, Race]) -> list[Claim]:
    """Return the published ratios of a step's seconds beside those of this machine."""
    rows = []
    for layers, published in PUBLISHED.items():
        seconds = spread(races[layers].last(), "seconds")["mean"]
        claim = f"{layers}: a step takes {published} times Adam's, on a GPU"
        found = f"{seconds['RLS'] / seconds['Adam']:.1f} times"
        setting = f"{races[layers].setting}, whole steps on this machine"
        rows.append(Claim(claim, found, setting, "a clock, not a test"))
    return rows


def best(claim: str, result: Race, value: float) -> Claim:
    """Judge whether one value of a sweep ends ahead of all others."""
    ends = spread(result.last(), "accuracy")
    one, rest = ends.loc[value], ends.drop(index=value)
    against = {compared(one, row) for _, row in rest.iterrows()}
    level = NO if BEHIND in against else UNDECIDED
    said = YES if against == {AHEAD} else level
    rival = rest.loc[rest["mean"].idxmax()]
    shown = ", ".join(f"{v:g}: {_end(row)}" for v, row in ends.iterrows())
    gap, error = one["mean"] - rival["mean"], one["sd"] + rival["sd"]
    return Claim(claim, shown, result.setting, said, gap, error, "points of accuracy")


def sweeps(ratios: Race, etas: Race) -> list[Claim]:
    """Judge the paper's figures 4 and 5, sweeps over k and over eta."""
    spans = [spread(r.last(), "accuracy")["mean"].fillna(10.0) for r in (ratios, etas)]
    k_span, eta_span = (means.max() - means.min() for means in spans)  # 10 is chance
    span = f"last accuracies span {k_span:.1f} and {eta_span:.1f} points"
    more = YES if eta_span > 2 * k_span else NO
    failed, runs = race_table(etas)["failed"], etas.seeds
    large = YES if failed[10.0] == runs and not failed[:1.0].any() else NO
    count = (
        f"{failed[10.0]} of {runs} diverge at 10, {failed[:1.0].sum()} at 1 or below"
    )
    return [
        best("k = 0.1 is best (fig. 4)", ratios, 0.1),
        best("eta = 1 is best (fig. 5)", etas, 1.0),
        Claim("a large eta explodes", count, etas.setting, large),
        Claim("more sensitive to eta than to k", span, ratios.setting, more),
    ]


def _end(row: Mapping[str, float]) -> str:
    return "diverged" if pd.isna(row["mean"]) else plus_minus(row)
