"""Cut a call off at a line of labkit, as an interrupt or a lack of memory may.

    python -m tests.cuts [POINTS]

The command cuts estimators, optimisers and learners at so many lines in all, 5,000 if
not told, spread evenly over their updates, and prints for each class at how many it cut
and how many fell: those after which an object was neither as before nor as after.
"""

import sys
from collections.abc import Iterator
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


def cases() -> Iterator[tuple[str, object]]:
    """Yield a class's name and a function from a number of lines to tried and fallen.

    There is one for each update of ``test_cuts`` of each room.
    """
    from functools import partial

    from tests.bpls import test_cuts as bpls
    from tests.broad import test_cuts as broad
    from tests.hessian_free import test_cuts as hessian_free
    from tests.rls import test_cuts as rls
    from tests.rtrl import test_cuts as rtrl

    for make, change in bpls.CHANGES.values():
        yield type(make()).__name__, partial(of_bpls, bpls, make, change)
    for name, (make, _) in broad.CASES.items():
        yield type(make()).__name__, partial(asserted, broad.cuts_of, name)
    for name in hessian_free.CASES:
        yield name.split(",")[0], partial(hessian_free.cut_everywhere, name)
    for name in rls.CASES:
        yield name.split(",")[0], partial(rls.interrupted_everywhere, name)
    for name, call in rtrl.cases():
        yield f"learner {name}", partial(of_rtrl, rtrl, name, call)


def asserted(check, *given):
    """Return how many points a check tried, and what it found torn."""
    try:
        return check(*given), []
    except AssertionError as error:
        return given[-1], [str(error)]


def of_bpls(room, make, change, count):
    net, fallen = make(), []
    passed = lines_of(lambda: change(net))
    lines = range(1, passed + 1, max(1, passed // count))
    for line in lines:
        _, torn = asserted(room.cut_at, [line], make, change, KeyboardInterrupt)
        fallen += torn
    return len(lines), fallen


def of_rtrl(room, name, call, count):
    learner = room.new(name)
    passed = lines_of(lambda: room.CALLS[call](learner))
    return asserted(room.check_cuts, name, call, max(1, passed // count))


def main(points: int = 5000) -> int:
    """Cut at so many points or more, print the counts, and return the exit status."""
    every, found = list(cases()), {}
    for place, (name, tried) in enumerate(every, 1):
        count, fallen = tried(-(-points // len(every)))
        row = found.setdefault(name, [0, 0, 0])
        for i, more in enumerate((1, count, len(fallen))):
            row[i] += more
        if fallen:
            print(f"{name}: {fallen[:3]}", flush=True)
        if place == len(every) or every[place][0] not in found:
            told = "{:26}{:4} updates, cut at {:5} lines, {} fell"
            print(told.format(name, *row), flush=True)
    tried, fell = (sum(row[i] for row in found.values()) for i in (1, 2))
    print(f"all: cut at {tried} lines, {fell} fell")
    return int(fell > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
