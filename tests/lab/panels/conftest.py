"""What tests of panels share: an event loop, as a notebook has one."""

import asyncio
import functools


def in_loop(test):
    """Run an async test in an event loop of its own, for a minute at most."""

    @functools.wraps(test)
    def run(*args, **options):
        return asyncio.run(asyncio.wait_for(test(*args, **options), 60))

    return run
