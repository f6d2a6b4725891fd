"""Recursive least squares as an optimiser of neural networks.

Zhang, Song, Zhou, Ou, Deng, Yang, *Revisiting Recursive Least Squares for Training Deep
Neural Networks*, 2021.
"""

from labkit.rls.ablations import AveragedRLS, KailathRLS, RunningMeanRLS
from labkit.rls.health import NumericalError
from labkit.rls.hybrid import Hybrid
from labkit.rls.networks import (
    SequenceClassifier,
    accuracy,
    dense_network,
    small_cnn,
    vgg5,
)
from labkit.rls.optimizer import RLS
from labkit.rls.train import DivergedError, Record, squared_error, train
from labkit.rls.update import (
    LayerState,
    clip_factor,
    gain,
    loss_mse,
    rls_step,
    update_inverse_,
)

__all__ = [
    "RLS",
    "AveragedRLS",
    "DivergedError",
    "Hybrid",
    "KailathRLS",
    "LayerState",
    "NumericalError",
    "Record",
    "RunningMeanRLS",
    "SequenceClassifier",
    "accuracy",
    "clip_factor",
    "dense_network",
    "gain",
    "loss_mse",
    "rls_step",
    "small_cnn",
    "squared_error",
    "train",
    "update_inverse_",
    "vgg5",
]
