"""Notebooks run headless, with typed parameters: single runs, sweeps, reports."""

from labkit.lab.runs.execute import RunResult, notebooks, run
from labkit.lab.runs.parameters import (
    Parameter,
    ParameterError,
    RunRefused,
    read_parameters,
    resolve,
)
from labkit.lab.runs.report import report
from labkit.lab.runs.sweep import SweepResult, sweep

__all__ = [
    "Parameter",
    "ParameterError",
    "RunRefused",
    "RunResult",
    "SweepResult",
    "notebooks",
    "read_parameters",
    "report",
    "resolve",
    "run",
    "sweep",
]
