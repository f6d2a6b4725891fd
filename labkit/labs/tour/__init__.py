"""The tour's lab: each paper's live experiment at a glance."""

from labkit.labs.tour.glances import bpls, broad, hessian_free, rls, rtrl

__all__ = ["bpls", "broad", "hessian_free", "rls", "rtrl"]
