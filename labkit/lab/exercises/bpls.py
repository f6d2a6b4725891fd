"""Exercises of labkit.bpls."""

EXERCISES = ()
