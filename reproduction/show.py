"""What was found beside what the paper has: tables and verdicts, in words."""

from pathlib import Path

import pandas as pd

from labkit.lab.claims import UNDECIDED, claim_table
from reproduction import results
from reproduction.experiments import Experiment, experiments

RECORDED = Path(__file__).resolve().parent / "results"


def state_of(experiment: Experiment, folder: Path) -> tuple[int, dict[str, dict]]:
    """How many units there are, and how those that are done were run."""
    headers, _ = results.read(results.path_of(experiment, folder))
    return len(experiment.units), headers


def judged(experiment: Experiment, rows: pd.DataFrame) -> pd.DataFrame:
    """The verdicts; a row a claim."""
    setting = f"{experiment.data}; {experiment.setting}"
    found = experiment.claims(rows) if len(rows) else ()
    return claim_table((said, here, setting, verdict) for said, here, verdict in found)


def recorded(paper: str, folder: Path = RECORDED) -> pd.DataFrame:
    """A paper's claims at its size, from the recorded results; a row a claim.

    Parameters
    ----------
    paper : str, as in the names of ``labkit reproduce list``
    folder : path, of the results; those of the repository if not given
    """
    found = []
    for name, each in experiments().items():
        if name.startswith(f"{paper}/"):
            units, done = state_of(each, folder)
            rows = judged(each, results.frame(results.path_of(each, folder)))
            if not len(rows):
                told = f"{len(done)} of {units} units are done" if done else "Not run"
                rows = claim_table([(each.claim, told, each.data, UNDECIDED)])
            found.append(rows.assign(command=command(each)))
    columns = {"measured here": "recorded", "setting": "data and scale"}
    return pd.concat(found, ignore_index=True).rename(columns=columns)


def command(experiment: Experiment) -> str:
    """What does all of it."""
    return f"labkit reproduce run {experiment.name}"


def estimate(experiment: Experiment) -> str:
    """Time and memory, in words."""
    units = len(experiment.units)
    every = f"{units} units of " if units > 1 else ""
    return f"{every}about {experiment.minutes:g} minutes and {experiment.memory:g} GB"


def text(experiment: Experiment, folder: Path) -> str:
    """One experiment, as ``labkit reproduce show`` prints it."""
    units, done = state_of(experiment, folder)
    lines = [f"{experiment.name}: {experiment.shows}; {len(done)} of {units} units"]
    lines += [f"  claim    {experiment.claim}"]
    lines += [f"  data     {experiment.data}", f"  setting  {experiment.setting}"]
    lines += [f"  differs  {experiment.differs}", f"  command  {command(experiment)}"]
    if not done:
        return "\n".join([*lines, f"  not run  {estimate(experiment)}"])
    rows = results.frame(results.path_of(experiment, folder))
    lines += ["", experiment.table(rows).to_string(), ""]
    for row in judged(experiment, rows).to_dict("records"):
        lines.append(f"  {row['verdict']}: {row[CLAIM]}; here {row['measured here']}")
    return "\n".join([*lines, f"  criterion: {experiment.criterion}"])


CLAIM = "paper's claim"
