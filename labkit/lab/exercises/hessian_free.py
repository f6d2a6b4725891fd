"""Exercises of labkit.hessian_free."""

EXERCISES = ()
