"""Exercises of labkit.broad."""

EXERCISES = ()
