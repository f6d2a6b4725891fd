"""Real-time recurrent learning and its unbiased approximations.

Benzing, Gauy, Mujika, Martinsson, Steger, *Optimal Kronecker-Sum Approximation of Real
Time Recurrent Learning*, ICML 2019.
"""

from labkit.errors import DivergedError
from labkit.rtrl import learners
from labkit.rtrl.cells import (
    Cell,
    CellStep,
    GRUCell,
    LSTMCell,
    RHNCell,
    RNNCell,
    from_torch,
)
from labkit.rtrl.check_cell import check_cell
from labkit.rtrl.learner import Learner
from labkit.rtrl.learners import *  # noqa: F403 every learner of the table, by its class
from labkit.rtrl.learners import LEARNERS
from labkit.rtrl.low_rank import minimum_variance, optimal_low_rank, water_level
from labkit.rtrl.readout import Readout
from labkit.rtrl.tasks import CharStream, CopyTask, Symbols
from labkit.rtrl.train import Record, train

__all__ = [
    *learners.__all__,
    "LEARNERS",
    "Cell",
    "CellStep",
    "CharStream",
    "CopyTask",
    "DivergedError",
    "GRUCell",
    "LSTMCell",
    "Learner",
    "RHNCell",
    "RNNCell",
    "Readout",
    "Record",
    "Symbols",
    "check_cell",
    "from_torch",
    "minimum_variance",
    "optimal_low_rank",
    "train",
    "water_level",
]
