"""Notebooks run headless, with typed parameters: single runs, sweeps, reports."""

from .execute import RunResult, notebooks, run
from .parameters import (
    Parameter,
    ParameterError,
    RunRefused,
    read_parameters,
    resolve,
)
from .report import report
from .sweep import SweepResult, sweep

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
