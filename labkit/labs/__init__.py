"""What notebooks share; importing it settles the threads, see :mod:`labkit.threads`."""

from labkit.threads import set_threads

set_threads()
