"""The influence on the state of the characters read, exact and estimated."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch

from labkit.lab.datasets import Text
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.planes import dots, planes, put
from labkit.lab.panels.figures.theme import COLOURS, INK, axis
from labkit.lab.rtrl.noise import training_status
from labkit.lab.rtrl.training import Network, make_learner, network_for
from labkit.rtrl import RTRL, CharStream
from labkit.rtrl.exact import rtrl_step

UPDATES, SHOWN, READ = 150, 12, 24  # of training; characters that are shown, and read
UNITS = 16
DECADES = 3  # of the colours
METHODS = "OK", "KF-AVG", "UORO", "B-OK", "SNAP-1", "TBPTT"


@dataclass(frozen=True)
class InfluenceKnobs:
    """The knobs of the experiment; most changes read the text from its beginning."""

    # fmt: off
    method: str = knob(
        "OK", choices=METHODS, help="how the influence is carried",
        about="the noise: noise",
        look_for="Who smears the estimate over characters that were never read?")
    rank: int = knob(
        1, low=1, high=8, unit="terms", help="terms or copies; TBPTT: steps",
        about="the noise: noise",
        look_for="With how many terms is the difference dark?")
    trained: bool = knob(
        True, help="on the text, before", about="the noise: noise",
        look_for="Untrained: how many characters back does any colour reach?")
    seed: int = knob(0, low=0, high=99, label="draw the signs again",
                     look_for="Where does the difference move, and is it smaller?")
    unit: int = knob(
        1, low=1, high=UNITS, label="unit marked", help="row of the marked cell",
        restart=False, look_for="Is another unit's memory as short?")
    character: str = knob(
        "e", label="character marked", help="column of the marked cell", restart=False,
        look_for="Where it is read again: is it held as strongly?")
    # fmt: on

    def __post_init__(self) -> None:
        if len(self.character) != 1:
            message = f"character must be a single one, got {self.character!r}"
            raise ValueError(message)


class Influence(NamedTuple):
    """Norms (n, k) of the influence, by unit and by the character whose weights act."""

    read: str  # the newest characters
    names: tuple[str, ...]  # k characters, the newest read last
    exact: np.ndarray
    estimate: np.ndarray
    difference: np.ndarray
    parts: np.ndarray  # (READ, n, k): of the exact one, what each read character made
    unit: int  # the marked cell
    character: str


def of_characters(G: torch.Tensor, symbols: list[int], network: Network) -> np.ndarray:
    """Return |dh_i / d(weights of a character)| (b, n, k) of influences (b, n, P)."""
    weight, n = network.cell.weight, network.cell.hidden_size
    by_input = G.unflatten(2, weight.shape).norm(dim=3)  # those of [h, x, 1]
    return by_input[:, :n, [n + symbol for symbol in symbols]].numpy()


def influence_rows(
    knobs: InfluenceKnobs,
    text: Text,
    networks: dict[int, Network] | None = None,
    hidden: int = UNITS,
) -> Iterator[dict]:
    """Yield a row for each update of the training, if any, then one per character."""
    networks = {} if networks is None else networks
    step, network = yield from network_for(
        knobs.trained, hidden, text, networks, UPDATES
    )
    learner = make_learner(
        knobs.method, knobs.rank, network.cell, batch_size=1, seed=knobs.seed
    )
    exact, read = RTRL(network.cell, batch_size=1), []
    parts = exact.influence().repeat(READ, 1, 1)  # each begins with another character
    last = (torch.arange(READ) == READ - 1)[:, None, None, None]
    for x, _, _ in CharStream(text.tokens, len(text.symbols), 1, reset_every=0):
        step += 1
        read.append(int(x.argmax()))
        _, _, H, h_hat, D = network.cell.step(x, exact.state)
        H, h_hat = H.expand(READ, -1, -1), h_hat.expand(READ, -1)
        parts = rtrl_step(parts.roll(-1, 0) * ~last[..., 0], H, h_hat, last * D)
        for each in (exact, learner):
            each.step(x)
        G, carried = exact.influence(), learner.influence()
        newest = list(dict.fromkeys(reversed(read)))[:SHOWN][::-1]
        sizes = (of_characters(g, newest, network) for g in (G, carried, carried - G))
        names = tuple(text.symbols[symbol] for symbol in newest)
        marked = of_characters(parts, newest, network), knobs.unit, knobs.character
        passage = "".join(text.symbols[symbol] for symbol in read[-READ:])
        row = {"step": step, "measured": True, "read": passage}
        row["noise"] = float((carried - G).square().sum() / G.square().sum())
        row["pictures"] = Influence(
            passage, names, *(size[0] for size in sizes), *marked
        )
        yield row


def opening(
    knobs: InfluenceKnobs, text: Text, _networks: object = None, hidden: int = UNITS
) -> Influence:
    """Return the influence in a network that nothing has trained."""
    fresh = replace(InfluenceKnobs(), **vars(knobs) | {"trained": False})
    rows = influence_rows(fresh, text, None, hidden)
    return [*islice(rows, READ)][-1]["pictures"]


def afresh(now: Influence, knobs: InfluenceKnobs) -> Influence:
    """Return the same picture with another cell marked."""
    return now._replace(unit=knobs.unit, character=knobs.character)


def dragged(
    now: Influence,
    _knobs: InfluenceKnobs,
    name: str,
    _index: int | None,
    point: tuple[float, float],
) -> dict:
    """Return the knobs of the cell, or of the letter, that the pointer is on."""
    if name == "letters":
        place = round(point[0]) - 1 - (READ - len(now.read))
        if not 0 <= place < len(now.read):
            raise ValueError(f"no letter is read at place {point[0]:.3g}")
        return {"character": now.read[place]}
    names = dict(enumerate(now.names, start=1))
    return {"character": names[round(point[0])], "unit": round(point[1])}


CAPTION = (
    "Rows are hidden units, columns the weights of a character, the newest on the "
    "right. Colours are logarithmic: the darkest is a thousandth of the strongest. The "
    "exact influence fades to the left; the estimate is right on average alone. Below: "
    "what the marked unit still holds of each letter. Click a cell or a letter."
)


def picture(now: Influence | None, _before: Influence | None) -> dict:
    """Draw the exact influence, the estimate, and their difference."""
    count = len(now.names) if now else SHOWN
    ends = (0.5, count + 0.5), (0.5, (len(now.exact) if now else 16) + 0.5)
    figure = planes(
        ["Exact", "Estimate", "Difference"],
        ["character"] * 3,
        ["hidden unit", "", ""],
        [ends] * 3,
        caption=CAPTION,
    )
    look = figure["layout"]
    for k in ("", "2", "3"):
        look[f"yaxis{k}"]["domain"] = [0.44, 1]
    bare = {"ticks": "", "showticklabels": False, "showgrid": False, "showline": False}
    strip = axis("text read", limits=(0.5, READ + 0.5)) | bare
    strip |= {"anchor": "y4", "domain": [0, 1]}
    flat = axis("", limits=(0.5, 2.6)) | {"anchor": "x4", "domain": [0, 0.22]} | bare
    look |= {"xaxis4": strip, "yaxis4": flat}
    if not now:
        return figure
    heat = {"type": "heatmap", "colorscale": "Viridis", "showscale": False, "name": ""}
    heat |= {"zmin": -DECADES, "zmax": 0, "hoverinfo": "skip"}
    at, top = np.arange(1, count + 1), max(float(now.exact.max()), 1e-30)
    part = heat | {"x": at, "y": np.arange(1, ends[1][1])}
    letters = {"tickvals": at, "ticktext": _legible(now.names), "tickangle": 0}
    for i, k in enumerate(("", "2", "3")):
        look[f"xaxis{k}"] |= letters | {"tickfont": {"size": 14}}
        z = decades(now[2 + i], top)
        put(figure, i, [part | {"z": z, "meta": {"touch": "cells"}}])
    unit = min(now.unit, len(now.exact))
    if now.character in now.names:
        cell = (now.names.index(now.character) + 1, unit)
        mark = dots(
            [cell], COLOURS[1], symbol="square-open", size=16, line={"width": 3}
        )
        put(figure, 0, [mark])
    z = decades(held(now, unit), top)
    line = heat | {"x": np.arange(1, READ + 1), "y": [1], "z": z[None]}
    put(figure, 3, [line | {"meta": {"touch": "letters"}}, _letters(now)])
    return figure


def decades(sizes: np.ndarray, top: float) -> np.ndarray:
    """Return powers of ten, from that of the largest down to `DECADES` below it."""
    return np.log10(np.clip(sizes / top, 10.0**-DECADES, 1.0))


def held(now: Influence, unit: int) -> np.ndarray:
    """Return what a unit still holds of each character read (READ,).

    That is the influence, by way of that step alone, of the character's own weights.
    Characters that are in no column have none.
    """
    place = {name: k for k, name in enumerate(now.names)}
    sizes, first = np.zeros(READ), READ - len(now.read)
    for t, letter in enumerate(now.read, start=first):
        sizes[t] = now.parts[t, unit - 1, place[letter]] if letter in place else 0.0
    return sizes


def _letters(now: Influence) -> dict:
    """Write the text above its colours."""
    there = np.arange(READ - len(now.read), READ) + 1
    look = {"text": _legible(now.read), "textfont": {"size": 20, "color": INK}}
    return dots(np.c_[there, np.full(len(there), 2.0)], INK) | look | {"mode": "text"}


def _legible(text: Iterable[str]) -> list[str]:
    return [letter.replace(" ", "␣").replace("\n", "⏎") for letter in text]


def _status(row: Mapping) -> str:
    if not row["measured"]:
        return training_status(row)
    return f"read: “{row['read']}”; noise {row['noise']:.2f} of the exact influence"


INFLUENCE = Experiment(
    "influence",
    InfluenceKnobs,
    influence_rows,
    (),
    CAPTION,
    _status,
    front=("method", "rank", "trained"),
    playable={"rank": (1, 2, 4, 8)},
    picture=picture,
    opening=opening,
    drag=dragged,
    afresh=afresh,
)
