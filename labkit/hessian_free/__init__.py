"""Stochastic Hessian-free training with LSMR, and LSMR and CG for general use.

I. Emirahmetoglu, D. E. Stewart, *Training Autoencoders Using Stochastic Hessian-Free
Optimization with LSMR*; the baseline is J. Martens, *Deep learning via Hessian-free
optimization*, ICML 2010.
"""

from labkit.hessian_free.autoencoder import Autoencoder, mirrored
from labkit.hessian_free.batch_size import (
    Growth,
    gradient_variance,
    grow,
    next_batch_size,
)
from labkit.hessian_free.cg import CGResult, CGStep, cg, cg_steps
from labkit.hessian_free.linearise import (
    LinearisedLayers,
    LinearisedModule,
    linearise,
    squared_error,
)
from labkit.hessian_free.lsmr import (
    LSMRResult,
    LSMRStats,
    LSMRStep,
    lsmr,
    lsmr_steps,
)
from labkit.hessian_free.martens import MartensHF, gradient_pass
from labkit.hessian_free.optimizer import (
    HessianFree,
    HFStep,
    Subproblem,
    adapted_damping,
    line_search,
)
from labkit.hessian_free.precondition import diagonal_estimate, diagonal_preconditioner
from labkit.hessian_free.system import System, build_system
from labkit.hessian_free.train import (
    PAPER,
    DivergedError,
    Record,
    train,
    train_martens,
)

__all__ = [
    "PAPER",
    "Autoencoder",
    "CGResult",
    "CGStep",
    "DivergedError",
    "Growth",
    "HFStep",
    "HessianFree",
    "LSMRResult",
    "LSMRStats",
    "LSMRStep",
    "LinearisedLayers",
    "LinearisedModule",
    "MartensHF",
    "Record",
    "Subproblem",
    "System",
    "adapted_damping",
    "build_system",
    "cg",
    "cg_steps",
    "diagonal_estimate",
    "diagonal_preconditioner",
    "gradient_pass",
    "gradient_variance",
    "grow",
    "line_search",
    "linearise",
    "lsmr",
    "lsmr_steps",
    "mirrored",
    "next_batch_size",
    "squared_error",
    "train",
    "train_martens",
]
