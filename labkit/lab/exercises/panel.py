"""A live panel that runs with a learner's step in the place of the library's."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any, NamedTuple

from labkit.check import check_kind
from labkit.lab.exercises.judging import Exercise
from labkit.lab.exercises.running import Stopped, in_place, in_words, is_open, limited
from labkit.lab.exercises.words import exercise
from labkit.lab.panels import Experiment
from labkit.lab.panels.figures.images import EARLIER
from labkit.lab.panels.live.run import Chance

LIBRARY = "with the library's step"


class StepError(RuntimeError):
    """Say in words what went wrong in a learner's lines, instead of a traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython asks for it
        return [str(self)]


class Both(NamedTuple):
    """What is drawn of one step: of her run, and of the same run with the library's."""

    written: Any
    right: Any = None


def trying(experiment: Experiment, name: str, function: Callable) -> Experiment:
    """Return an experiment whose steps are hers, right or wrong.

    Her function stands in the library's place while a row is computed, and at no other
    time, so that a panel beside it keeps the library's step. A picture has the same run
    with the library's step in grey, where it would have an earlier run; with a right
    function it lies below hers. While the exercise is open, the experiment stays as it
    is. What goes wrong in her lines is a StepError that shows them.

    Parameters
    ----------
    experiment : Experiment
    name : str, of the exercise that her function completes
    function : callable, the one that she wrote
    """
    check_kind("experiment", experiment, Experiment, "an Experiment")
    check_kind("function", function, FunctionType, "a function")
    found = exercise(name)
    check_kind("name", found, Exercise, "of an exercise, which has a step to replace")
    if is_open(function, found.blank):
        return experiment

    def rows(*args: Any) -> Iterator[dict]:
        right, made = experiment.rows(*args), _measured(experiment.rows(*args))
        for reference in _apart(right):
            if not reference.get("measured", True):  # of a training before, not of hers
                row, grey = reference, None
            else:
                grey = reference.get("pictures")
                try:
                    with in_place(found.function, limited(function)):
                        row = next(made)
                except StopIteration:
                    return
                except (Exception, Stopped) as error:
                    raise StepError(in_words(error, function)) from error
            if "pictures" in row:
                row = {**row, "pictures": Both(row["pictures"], grey)}
            yield row

    return replace(experiment, rows=rows, **_drawing_both(experiment))


def _measured(rows: Iterator[dict]) -> Iterator[dict]:
    return (row for row in rows if row.get("measured", True))


def _apart(rows: Iterator[dict]) -> Iterator[dict]:
    """Yield rows whose run shares no random numbers of torch with another one.

    The library's run takes a step before hers: what that imports for the first time,
    such as parts of torch, must not be cut off by the limits of her lines.
    """
    chance = Chance()
    while True:
        with chance:
            row = next(rows, None)
        if row is None:
            return
        yield row


def _drawing_both(experiment: Experiment) -> dict[str, Callable]:
    """Return what an experiment draws by, for pairs in the place of single runs."""

    def picture(now: Both | None, before: Both | None) -> dict:
        grey = now.right if now else None
        if grey is None and before:
            grey = before.written
        figure = experiment.picture(now.written if now else None, grey)
        if now and now.right is not None:
            for trace in figure["data"]:
                if trace.get("name") == EARLIER:
                    trace["name"] = LIBRARY
        return figure

    def opening(*args: Any) -> Both:
        return Both(experiment.opening(*args))

    def drag(now: Both, *args: Any) -> dict:
        return experiment.drag(now.written, *args)

    made = {"picture": picture, "opening": opening, "drag": drag}
    return {name: part for name, part in made.items() if getattr(experiment, name)}
