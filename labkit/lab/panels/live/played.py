"""An experiment's picture over its steps, at several knobs, as a page plays it."""

import base64
import contextlib
import gzip
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.display import display

from labkit.lab.panels.figures.captions import jsonable
from labkit.lab.panels.figures.shown import Table, embedded
from labkit.lab.panels.live.experiment import knobs_of
from labkit.lab.panels.live.run import Run

if TYPE_CHECKING:
    from labkit.lab.panels.live.experiment import Experiment

PLAY = Path(__file__).with_name("play.js")


def played(
    experiment: "Experiment", problem: Sequence[Any], given: Any, steps: int, step: int
) -> dict:
    """Return an experiment's pictures at its playable values.

    Parameters
    ----------
    experiment : Experiment with a ``picture``
    problem : what its ``rows`` are handed after the settings
    given : dataclass, the knobs at which the page begins
    steps : int, measured rows of each run; one that fails ends there
    step : int, where the page begins

    Returns
    -------
    dict
        ``knobs``: ``name``, ``title`` and ``values`` of each, and ``at`` which of them
        the page begins. ``runs``, in the order of `itertools.product` of the values:
        the ``steps``, and ``frames`` with, of each step, the numbers of its layout and
        of its traces among ``parts``, as JSON. ``step``, as given.
    """
    knobs, choices, runs, parts = knobs_of(given), [], [], Table()
    for name, offered in experiment.playable.items():
        now = getattr(given, name)
        values = sorted({*offered, now})
        choices.append({"name": name, "title": knobs[name].title})
        choices[-1] |= {"values": values, "at": values.index(now)}
    for chosen in product(*(each["values"] for each in choices)):
        turned = dict(zip(experiment.playable, chosen, strict=True))
        run, frames = Run(experiment, problem, vars(given) | turned), {}
        with contextlib.suppress(StopIteration, ArithmeticError, RuntimeError):
            while run.count < steps:
                row = next(run)
                if "pictures" in row:
                    figure = experiment.picture(row["pictures"], None)
                    nodes = jsonable([figure["layout"], *figure["data"]], "f4")
                    frames[row["step"]] = [parts(json.dumps(node)) for node in nodes]
        runs.append({"steps": list(frames), "frames": list(frames.values())})
    return {"knobs": choices, "runs": runs, "parts": list(parts), "step": step}


def play(
    experiment: "Experiment", problem: Sequence[Any], given: Any, steps: int, step: int
) -> None:
    """Display what plays the picture before it, see :func:`played`."""
    page = embedded(PLAY, packed(played(experiment, problem, given, steps, step)))
    display({"text/html": page, "text/plain": ""}, raw=True)


def packed(data: Any) -> str:
    """Return plain data as text: JSON, gzip, base64.

    Examples
    --------
    >>> gzip.decompress(base64.b64decode(packed([1, None])))
    b'[1,null]'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
