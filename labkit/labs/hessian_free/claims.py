"""The paper's claims beside what a run measured, each with its verdict."""

import pandas as pd

from labkit.hessian_free import PAPER
from labkit.labs.hessian_free.race import (
    ADAM,
    FULL,
    SHF,
    Race,
    levels_table,
    race_table,
)

COLUMNS = ["paper", "here", "setting", "verdict"]
OPEN = "not decided by this run"


def claims_table(
    result: Race,
    levels: tuple[float, ...],
    krylov: pd.DataFrame,
    iterations: pd.DataFrame,
    training: pd.DataFrame,
) -> pd.DataFrame:
    """The claims, decided by these runs alone.

    Parameters
    ----------
    result : of :func:`race`, with SHF, Martens' full variant and Adam.
    levels : of training error at which rows and seconds are compared.
    krylov : trace of the frozen subproblem's lab, identity damping from zero.
    iterations : of :func:`iterations_table`, "none" and "random_signs" among the kinds.
    training : trace of the live training.
    """
    place = f"{result.problem}, {result.setting}"
    table = levels_table(result, levels)
    rows = [
        _fewer("SHF needs less data than Martens' HF", table, "rows / N", place),
        _fewer("training is rapid: against Martens' HF", table, "seconds", place),
        _fewer("the same against tuned Adam", table, "seconds", place, ADAM),
        _generalises(result, place),
        *_published(result, place),
        _values(iterations),
        _gradients(krylov),
        _preconditioner(iterations),
        _growth(training),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _fewer(claim, table, what, place, other=FULL):
    """Compare at the levels that both reach."""
    ratios = (table.loc[other, what] / table.loc[SHF, what]).dropna()
    if not len(ratios):
        return (claim, "no common level reached", place, OPEN)
    here = ", ".join(f"{ratio:.1f} at {level:g}" for level, ratio in ratios.items())
    word = "rows" if what.startswith("rows") else "seconds"
    here = f"{other} takes {here} times the {word}"
    return (claim, here, place, _all(ratios > 1))


def _all(held) -> str:
    return "yes" if all(held) else "no" if not any(held) else "in part"


def _generalises(result, place):
    table = race_table(result)
    a, b = table.loc[SHF], table.loc[FULL]
    here = ", ".join(
        f"{name} {each['test there']:.3f} ± {each['sd']:.3f}"
        for name, each in ((SHF, a), (FULL, b))
    )
    gap = b["test there"] - a["test there"]
    decided = abs(gap) > a["sd"] + b["sd"]  # nan for one seed: not decided
    verdict = ("yes" if gap > 0 else "no") if decided else OPEN
    falling = [name for name in (SHF, FULL) if _still_falling(result, name)]
    if falling:
        verdict = f"open: when time was up {' and '.join(falling)} still improved"
    claim = "better generalisation: test error at the lowest validation error"
    return (claim, here, place, verdict)


def _still_falling(result, label):
    """Whether a seed's validation error was lowest within its last tenth of looks."""
    runs = result.runs[result.runs.label == label]
    for _, each in runs.groupby("seed"):
        if each["validation"].argmin() >= 0.9 * (len(each) - 1):
            return True
    return False


def _published(result, place):
    """Table 2, where the data are the paper's and not a stand-in."""
    if result.problem not in PAPER or result.problem == "curves":
        return
    table = race_table(result)
    for label, key in ((SHF, "shf"), (FULL, "martens")):
        paper = PAPER[result.problem].table2[key]
        here = table.loc[label, "train there"], table.loc[label, "test there"]
        near = all(abs(x / y - 1) < 0.1 for x, y in zip(here, paper, strict=True))
        yield (
            f"Table 2, {label}: train {paper[0]}, test {paper[1]}",
            f"{here[0]:.3f}, {here[1]:.3f}",
            place,
            "within a tenth" if near else "not reached in this time",
        )


def _values(iterations):
    """LSMR against CG by the model value, with the paper's preconditioner."""
    both = iterations["random_signs"].dropna()
    here = ", ".join(
        f"{row['LSMR']:.0f} against {row['CG']:.0f} (step {step}, lambda {lam:g})"
        for (step, lam), row in both.iterrows()
    )
    claim = "LSMR converges faster than CG: iterations to 99 % of the model's fall"
    return (claim, here, "frozen subproblems, cold start", _all(both.LSMR < both.CG))


def _gradients(krylov):
    lower = (krylov["gradient LSMR"] <= krylov["gradient CG"] * (1 + 1e-9)).mean()
    value = (krylov["gradient LSMR"].diff().dropna() <= 0).mean()
    here = (
        f"gradient below CG's in {100 * lower:.0f} % of {len(krylov)} iterations, "
        f"falling in {100 * value:.0f} %"
    )
    claim = "LSMR is safer to stop early: its gradient norm falls steadily"
    verdict = "yes" if min(lower, value) > 0.95 else "mostly" if lower > 0.5 else "no"
    return (claim, here, "frozen subproblem, warm start", verdict)


def _preconditioner(iterations):
    ours, none = iterations["random_signs"]["LSMR"], iterations["none"]["LSMR"]
    saved = (100 * (1 - ours / none)).dropna()
    here = ", ".join(f"{each:.0f} %" for each in saved) + " fewer iterations"
    claim = "the diagonal preconditioner reduces the iterations"
    return (claim, here, "frozen subproblems, cold start", _all(saved > 0))


def _growth(training):
    counts = training["grew"].value_counts()
    here = (
        f"{training['n'].iloc[0]:.0f} to {training['n'].iloc[-1]:.0f} rows, "
        f"{counts.get('variance', 0)} times by variance, "
        f"{counts.get('stalled', 0)} by a stall"
    )
    grows = training["n"].iloc[-1] > training["n"].iloc[0]
    place = f"{len(training)} steps of the live run"
    return ("the batch grows by need", here, place, "yes" if grows else "no")
