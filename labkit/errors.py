"""What training raises, in whichever room it runs."""


class DivergedError(RuntimeError):
    """Training stopped because a quantity was no longer finite.

    The message names the step, the quantity and the last finite value. Whatever was
    measured before stays whole.
    """
