"""Stochastic Hessian-free training with LSMR, and LSMR and CG for general use.

I. Emirahmetoglu, D. E. Stewart, *Training Autoencoders Using Stochastic Hessian-Free
Optimization with LSMR*; the baseline is J. Martens, *Deep learning via Hessian-free
optimization*, ICML 2010.
"""

from labkit.hessian_free.cg import CGResult, CGStep, cg, cg_steps
from labkit.hessian_free.lsmr import (
    LSMRResult,
    LSMRStats,
    LSMRStep,
    lsmr,
    lsmr_steps,
)
from labkit.hessian_free.system import System, build_system

__all__ = [
    "CGResult",
    "CGStep",
    "LSMRResult",
    "LSMRStats",
    "LSMRStep",
    "System",
    "build_system",
    "cg",
    "cg_steps",
    "lsmr",
    "lsmr_steps",
]
