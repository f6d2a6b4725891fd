"""A headless panel's run as plain data that a page plays, at several knobs."""

import json
import math
from itertools import product

import numpy as np
import torch

from labkit.panels.embedded import Once
from labkit.panels.knobs import knobs_of

MOST = 60  # steps of a run
LEAST = 24  # of a picture's, which opens a notebook at one of the first


def played(lab) -> dict | None:
    """Run a headless panel anew, at all values that its experiment has recorded.

    Parameters
    ----------
    lab : LiveLab, which has run; it and torch's random state stay as they are

    Returns
    -------
    dict or None
        ``knobs``: of each its ``title``, ``values``, and at which of them the page
        begins; ``runs``, in the order of `itertools.product` of these: ``steps`` and
        ``frames``, of each a layout and traces, see `packed`; ``parts`` of these;
        ``step``, at which the page begins. None of a panel that has not run.

    Notes
    -----
    As many steps as the panel has made, at least 24 of a picture, at most 60.
    """
    done = [row["step"] for row in lab.trace.rows if row.get("measured", True)]
    if not done:
        return None
    steps = min(max(len(done), LEAST if lab.experiment.picture else 1), MOST)
    given, asked = lab.controls.value, lab.experiment.recorded
    values = {k: sorted({*v, getattr(given, k)}) for k, v in asked.items()}
    parts, runs = Once(), []
    with torch.random.fork_rng():
        for chosen in product(*values.values()):
            again = lab.afresh(**dict(zip(values, chosen, strict=True)))
            at, frames = recorded(again, steps)
            runs.append({"steps": at, "frames": packed(frames, parts)})
    knobs, said = knobs_of(given), []
    for name, each in values.items():
        begin = {"values": each, "at": each.index(getattr(given, name))}
        said.append({"title": knobs[name].title} | begin)
    return {"knobs": said, "runs": runs, "parts": parts, "step": done[-1]}


def recorded(lab, steps: int) -> tuple[list[int], list[dict]]:
    """Take so many measured steps; return those with something to see, and the figures.

    A figure is plain data, its numbers rounded to four digits.
    """
    done, at, seen = 0, [], []
    while done < steps and not lab.stepper.exhausted:
        before = len(lab.trace)
        row = lab.stepper.step()
        if len(lab.trace) == before:
            break
        done += (measured := row.get("measured", True))
        if lab.experiment.picture and "pictures" in row:
            figure = lab.experiment.picture(row["pictures"], None)
            seen.append(figure if isinstance(figure, dict) else figure.to_plotly_json())
        elif measured and lab.plot:
            seen.append(lab.plot.values())
        else:
            continue
        at.append(row["step"])
    lab.trace.close()
    if lab.experiment.picture:
        return at, plain(seen)
    look = lab.figure.to_plotly_json()
    frames = [
        [t | {"x": x, "y": y} for t, (x, y) in zip(look["data"], values, strict=True)]
        for values in seen
    ]
    return at, plain([{"data": each, "layout": look["layout"]} for each in frames])


def packed(frames: list[dict], parts: Once) -> list[list[dict]]:
    """Of each frame its layout, then its traces, by the numbers of their parts.

    Lists are parts by themselves, the rest of a layout or trace is one, named ``""``. A
    list that is the beginning of one that a later frame has there is written as the
    number of that one and its own length: a curve that grows is kept once.
    """
    longest = {}

    def number(value, place):
        if isinstance(value, list) and place in longest:
            whole = longest[place]
            if len(value) < len(parts[whole]) and parts[whole][: len(value)] == value:
                return [whole, len(value)]
        longest[place] = parts(value, json.dumps(value))
        return longest[place]

    def pack(node, place):
        lists = {k: v for k, v in node.items() if isinstance(v, list)}
        rest = {k: v for k, v in node.items() if k not in lists}
        numbers = {k: number(v, (place, k)) for k, v in lists.items()}
        return {"": number(rest, place)} | numbers

    made = []
    for frame in reversed(frames):
        nodes = [frame["layout"], *frame["data"]]
        made.append([pack(node, place) for place, node in enumerate(nodes)])
    return made[::-1]


def plain(value):
    """Return plain data that JSON has: four digits of a number, None for one like nan.

    Examples
    --------
    >>> plain({"x": np.array([1.0, np.nan, 1234.5678])})
    {'x': [1, None, 1235]}
    """
    if isinstance(value, dict):
        return {key: plain(inside) for key, inside in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(inside) for inside in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    rounded = value if value.is_integer() else float(f"{value:.4g}")
    return int(rounded) if rounded.is_integer() else rounded
