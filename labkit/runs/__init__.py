"""Notebooks run headless, with typed parameters, and reports over the runs."""

from .execute import RunResult, notebooks, run
from .parameters import (
    Parameter,
    ParameterError,
    RunRefused,
    read_parameters,
    resolve,
)
from .report import report

__all__ = [
    "Parameter",
    "ParameterError",
    "RunRefused",
    "RunResult",
    "notebooks",
    "read_parameters",
    "report",
    "resolve",
    "run",
]
