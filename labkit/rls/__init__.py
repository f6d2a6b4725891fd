"""Train neural networks by recursive least squares.

Zhang, Song, Zhou, Ou, Deng, Yang, *Revisiting Recursive Least Squares for Training Deep
Neural Networks*, 2021.
"""

from labkit.rls.ablations import AveragedRLS, KailathRLS, RunningMeanRLS
from labkit.rls.block_step import NumericalError
from labkit.rls.hybrid import Hybrid
from labkit.rls.optimizer import RLS
from labkit.rls.train import Record, Settings, train
from labkit.rls.update import Residuals, gain, loss_mse, loss_one_hot, rls_step

__all__ = [
    "RLS",
    "AveragedRLS",
    "Hybrid",
    "KailathRLS",
    "NumericalError",
    "Record",
    "Residuals",
    "RunningMeanRLS",
    "Settings",
    "gain",
    "loss_mse",
    "loss_one_hot",
    "rls_step",
    "train",
]
