"""Exercises of labkit.compare."""

EXERCISES = ()
