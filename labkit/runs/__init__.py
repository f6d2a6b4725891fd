"""Notebooks run headless, with typed parameters: single runs, sweeps, reports."""

from labkit.runs.execute import RunResult, notebooks, run
from labkit.runs.parameters import (
    Parameter,
    ParameterError,
    RunRefused,
    read_parameters,
    resolve,
)
from labkit.runs.report import report
from labkit.runs.sweep import SweepResult, sweep

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
