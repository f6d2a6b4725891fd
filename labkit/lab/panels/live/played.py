"""A headless panel's run as plain data that a page plays, at several knobs."""

import base64
import contextlib
import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product, zip_longest
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from labkit.lab.panels.live.experiment import knobs_of

MOST = 60  # steps of a run
LEAST = 20  # of a picture's, which opens a notebook at one of the first
LARGEST = 400_000  # letters of a page, where one of two or more frames is enough
FEWER = 4  # one of so many is kept at least


def played(lab: Any) -> dict | None:
    """Return a headless panel's run, and its runs at its experiment's playable values.

    Parameters
    ----------
    lab : LiveLab that has run; it and torch's random state stay as they are

    Returns
    -------
    dict or None
        ``knobs``: ``name``, ``title`` and ``values`` of each, and ``at`` which of them
        the page begins. ``runs``, in the order of `itertools.product` of the values:
        the ``steps``, and over the steps the ``layout`` and each of the ``traces``, see
        `changes`. ``step``: where the page begins. None if the panel has not run.

    Notes
    -----
    A run has as many steps as the panel has made, at least 20 if it has a picture, at
    most 60; of large figures only one of two, three or four is kept. A run at other
    values that fails ends where it failed.
    """
    done = [row["step"] for row in lab.trace.rows if row.get("measured", True)]
    if not done:
        return None
    least = LEAST if lab.experiment.picture else 1
    steps = min(max(len(done), least), MOST)
    given, asked = lab.controls.value, lab.experiment.playable
    values = {k: sorted({*v, getattr(given, k)}) for k, v in asked.items()}
    own, runs = lab.stepper.records, []
    if len(done) < steps or own[0]["step"] != lab.trace.rows[0]["step"]:
        own = None  # it is to go on, or its beginning is no more kept
    with torch.random.fork_rng():
        for chosen in product(*values.values()):
            knobs = replace(given, **dict(zip(values, chosen, strict=True)))
            rows = own if knobs == given else None
            if rows is None:
                settings = SimpleNamespace(**vars(knobs))
                rows = lab.experiment.rows(settings, *lab.problem)
            runs.append(_frames(lab, _until(rows, steps)))
    knobs, said = knobs_of(given), []
    for name, each in values.items():
        begin = {"name": name, "values": each, "at": each.index(getattr(given, name))}
        said.append({"title": knobs[name].title} | begin)
    for every in range(1, FEWER + 1):
        thin = encoded(runs, every)
        if every == FEWER or len(packed(thin)) <= LARGEST:
            return {"knobs": said, "runs": thin, "step": done[-1]}


def packed(data: Any) -> str:
    """Return plain data as text: JSON, gzip, base64.

    Examples
    --------
    >>> gzip.decompress(base64.b64decode(packed([1, None])))
    b'[1,null]'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _until(rows: Iterable[dict], steps: int) -> Iterator[dict]:
    """Yield rows until as many as ``steps`` are measured, or one fails."""
    with contextlib.suppress(ArithmeticError, RuntimeError):
        for row in rows:
            yield row
            steps -= row.get("measured", True)
            if not steps:
                return


def _frames(lab: Any, rows: Iterable[dict]) -> tuple[list[int], list[dict]]:
    """Return the steps of those rows that have a figure, and the figures."""
    frames = (_pictures if lab.experiment.picture else _plots)(lab, rows)
    steps, figures = [], []
    for step, figure in frames:
        steps.append(step)
        figures.append(figure)
    return steps, figures


def encoded(runs: Iterable[tuple[list[int], list[dict]]], every: int = 1) -> list[dict]:
    """Return runs as what changes from each frame to the next, also between runs.

    Of each run one of ``every`` frames is kept, counted from its last.
    """
    memory, made = defaultdict(dict), []
    for steps, figures in runs:
        kept = slice(None, None, -every)
        steps, figures = steps[kept][::-1], figures[kept][::-1]
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


def _pictures(lab, rows) -> Iterator[tuple[int, dict]]:
    for row in rows:
        if "pictures" in row:
            picture = lab.experiment.picture(row["pictures"], None)
            yield row["step"], plain(picture, digits=4)  # a pixel is no less


def _plots(lab, rows) -> Iterator[tuple[int, dict]]:
    figure, drawing, seen = plain(lab.figure), lab.plot.drawing, []
    for row in rows:
        seen.append({k: v for k, v in row.items() if k != "pictures"})
        if row.get("measured", True):
            points = [{"x": plain(x), "y": plain(y)} for x, y in drawing.values(seen)]
            data = [a | b for a, b in zip(figure["data"], points, strict=True)]
            yield row["step"], figure | {"data": data}


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
