"""A live panel that runs with a learner's step in the place of the library's."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from labkit.lab.exercises.guard import Stopped, in_words, limited
from labkit.lab.exercises.in_place import in_place
from labkit.lab.exercises.judging import still_open
from labkit.lab.exercises.words import exercise
from labkit.lab.panels import Experiment

STEP_SECONDS = 10.0  # for one row of a panel


def trying(experiment: Experiment, name: str, hers: Callable) -> Experiment:
    """Return an experiment whose steps are hers, right or wrong.

    Her function stands in the library's place while a row is computed, and at no other
    time, so that a panel beside it keeps the library's step. While the exercise is
    open, the experiment stays as it is. What goes wrong in her lines is a RuntimeError
    that shows them.

    Parameters
    ----------
    experiment : Experiment
    name : str, of the exercise that her function completes
    hers : callable, the function that she wrote
    """
    found = exercise(name)
    if still_open(hers):
        return experiment

    def rows(*args: Any) -> Iterator[dict]:
        made = experiment.rows(*args)
        while True:
            try:
                with (
                    in_place(found.function, hers),
                    limited(hers, seconds=STEP_SECONDS, lines=10**6),
                ):
                    row = next(made)
            except StopIteration:
                return
            except (Exception, Stopped) as error:
                raise RuntimeError(in_words(error, hers)) from error
            yield row

    return replace(experiment, rows=rows)
