"""The error that training raises, whatever the method."""


class DivergedError(RuntimeError):
    """Raised when training stops because a quantity is no longer finite.

    The message names the step, the quantity and the last finite value. Everything that
    was measured before is kept.
    """
