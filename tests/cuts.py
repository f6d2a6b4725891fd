"""Cut a call off at a line of labkit, as an interrupt or a lack of memory may."""

import sys
from pathlib import Path

import labkit

HOME = str(Path(labkit.__file__).parent)


class Cut(BaseException):
    """Stands for an interrupt and for a lack of memory: it may come anywhere."""


def lines_of(call, at=None, error=Cut, passes=(), cut=None):
    """Count the lines of labkit that a call passes; raise before number ``at``.

    ``passes`` are errors that may come out of the call in the place of ``error``, and
    ``cut`` is called to raise it, if it is given.
    """
    passed = 0

    def trace(frame, event, _):
        nonlocal passed
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        if event == "line":
            passed += 1
            if passed == at and cut:
                cut()
            elif passed == at:
                raise error
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except (error, *passes) as stop:
        # only as, or because of, the error that was raised here
        assert at and error in (type(stop), type(stop.__cause__)), stop
    finally:
        sys.settrace(before)
    return passed
