"""Errors of the whole package: training that stops, and data that will not do."""


class DivergedError(RuntimeError):
    """Raised when training stops because a quantity is no longer finite.

    The message names the step, the quantity and the last finite value. Everything that
    was measured before is kept.
    """


class DataError(ValueError):
    """Raised when a user's own data cannot be learned from.

    The message is one sentence: a headless run that ends with it shows that alone.
    """
