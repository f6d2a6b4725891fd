"""Stochastic Hessian-free training with LSMR.

I. Emirahmetoglu, D. E. Stewart, *Training Autoencoders Using Stochastic Hessian-Free
Optimization with LSMR*; the baseline is J. Martens, *Deep learning via Hessian-free
optimization*, ICML 2010.
"""

from labkit.hessian_free.autoencoder import Autoencoder, mirrored
from labkit.hessian_free.batch_size import batch_gradient_variance, next_batch_size
from labkit.hessian_free.cg import CGResult, cg, cg_steps
from labkit.hessian_free.linearise import linearise, mean_loss, squared_error
from labkit.hessian_free.lsmr import LSMRResult, lsmr, lsmr_steps
from labkit.hessian_free.martens import MartensHF
from labkit.hessian_free.optimizer import (
    HessianFree,
    Subproblem,
)
from labkit.hessian_free.options import LSMROptions
from labkit.hessian_free.preconditioner import (
    diagonal_estimate,
    diagonal_preconditioner,
)
from labkit.hessian_free.step import HFStep
from labkit.hessian_free.train import (
    Record,
    Settings,
    train,
    train_martens,
)

__all__ = [
    "Autoencoder",
    "CGResult",
    "HFStep",
    "HessianFree",
    "LSMROptions",
    "LSMRResult",
    "MartensHF",
    "Record",
    "Settings",
    "Subproblem",
    "batch_gradient_variance",
    "cg",
    "cg_steps",
    "diagonal_estimate",
    "diagonal_preconditioner",
    "linearise",
    "lsmr",
    "lsmr_steps",
    "mean_loss",
    "mirrored",
    "next_batch_size",
    "squared_error",
    "train",
    "train_martens",
]
