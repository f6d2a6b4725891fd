"""Real-time recurrent learning and its unbiased approximations.

Benzing, Gauy, Mujika, Martinsson, Steger, *Optimal Kronecker-Sum Approximation of Real
Time Recurrent Learning*, ICML 2019.
"""

from labkit.rtrl.cells import Cell, CellStep, LSTMCell, RHNCell, RNNCell
from labkit.rtrl.exact import RTRL
from labkit.rtrl.kronecker import KFRTRL, OK
from labkit.rtrl.ktp import KTP
from labkit.rtrl.learner import Learner
from labkit.rtrl.low_rank import (
    best_low_rank,
    minimum_variance,
    optimal_low_rank,
    water_level,
)
from labkit.rtrl.tasks import CharStream, CopyTask, Symbols
from labkit.rtrl.tbptt import TBPTT
from labkit.rtrl.train import DivergedError, Readout, Record, train
from labkit.rtrl.uoro import UORO

__all__ = [
    "KFRTRL",
    "KTP",
    "OK",
    "RTRL",
    "TBPTT",
    "UORO",
    "Cell",
    "CellStep",
    "CharStream",
    "CopyTask",
    "DivergedError",
    "LSTMCell",
    "Learner",
    "RHNCell",
    "RNNCell",
    "Readout",
    "Record",
    "Symbols",
    "best_low_rank",
    "minimum_variance",
    "optimal_low_rank",
    "train",
    "water_level",
]
