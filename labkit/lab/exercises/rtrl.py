"""Exercises of labkit.rtrl."""

EXERCISES = ()
