"""One picture a paper: the thing itself while its knobs are turned.

Each module declares an :class:`~labkit.panels.Experiment` whose rows hold, beside
numbers, what its ``picture`` draws: all of it out of the papers' own functions.
"""
