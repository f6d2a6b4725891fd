"""An experiment's picture over its steps, at several knobs, as a page plays it."""

import base64
import contextlib
import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.lab.panels.live.experiment import knobs_of
from labkit.lab.panels.live.run import Run

if TYPE_CHECKING:
    from labkit.lab.panels.live.experiment import Experiment


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
        the ``steps``, and over the steps the ``layout`` and each of the ``traces``, see
        `changes`. ``step``, as given.
    """
    knobs, said, runs = knobs_of(given), [], []
    for name, offered in experiment.playable.items():
        now = getattr(given, name)
        values = sorted({*offered, now})
        said.append({"name": name, "title": knobs[name].title})
        said[-1] |= {"values": values, "at": values.index(now)}
    for chosen in product(*(each["values"] for each in said)):
        turned = dict(zip(experiment.playable, chosen, strict=True))
        run, drawn = Run(experiment, problem, vars(given) | turned), {}
        with contextlib.suppress(StopIteration, ArithmeticError, RuntimeError):
            while run.count < steps:
                row = next(run)
                if "pictures" in row:
                    figure = experiment.picture(row["pictures"], None)
                    drawn[row["step"]] = plain(figure, digits=4)  # a pixel is no less
        runs.append((list(drawn), list(drawn.values())))
    return {"knobs": said, "runs": encoded(runs), "step": step}


def packed(data: Any) -> str:
    """Return plain data as text: JSON, gzip, base64.

    Examples
    --------
    >>> gzip.decompress(base64.b64decode(packed([1, None])))
    b'[1,null]'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def encoded(runs: Iterable[tuple[list[int], list[dict]]]) -> list[dict]:
    """Return runs as what changes from each frame to the next, also between runs."""
    memory, made = defaultdict(dict), []
    for steps, figures in runs:
        layouts = (figure["layout"] for figure in figures)
        # By traces, not by steps: what repeats is close together, where gzip finds it.
        traces = zip_longest(*(figure["data"] for figure in figures))
        drawn = [changes(nodes, memory[place]) for place, nodes in enumerate(traces)]
        layout = changes(layouts, memory["layout"])
        made.append({"steps": steps, "layout": layout, "traces": drawn})
    return made


def changes(
    nodes: Iterable[dict | None], last: dict | None = None
) -> list[dict | None]:
    """Return what differs in each node from the one before; a None is passed over.

    ``last`` is the node before the first, and becomes the last.

    Examples
    --------
    >>> changes([{"a": 1, "b": 2}, None, {"a": 1, "c": 3}])
    [{'a': 1, 'b': 2}, None, {'b': None, 'c': 3}]
    """
    last, made = {} if last is None else last, []
    for now in nodes:
        if now is None:
            made.append(None)
            continue
        new = {k: v for k, v in now.items() if k not in last or last[k] != v}
        made.append(dict.fromkeys(last.keys() - now.keys()) | new)
        last.clear()
        last.update(now)
    return made


def plain(value: Any, digits: int = 5) -> Any:
    """Return plain data that JSON has: numbers of so many digits, None for nan.

    Examples
    --------
    >>> plain({"x": np.array([1.0, np.nan, 1234.5678])})
    {'x': [1.0, None, 1234.6]}
    """
    if isinstance(value, dict):
        return {key: plain(inside, digits) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inside, digits) for inside in value]
    if isinstance(value, np.ndarray | np.generic | float):
        return _rounded(np.asarray(value), digits)
    return value


def _rounded(values: np.ndarray, digits: int):
    """Return numbers with so many digits, and None for what is not finite."""
    if values.dtype.kind != "f":
        return values.tolist()
    with np.errstate(all="ignore"):
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(values))))
        near = np.where(np.abs(values) < 1e-300, 0.0, np.round(values * scale) / scale)
    gaps = ~np.isfinite(near)
    return (np.where(gaps, None, near) if gaps.any() else near).tolist()
