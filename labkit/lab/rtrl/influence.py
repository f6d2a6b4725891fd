"""The influence on the state of the characters read, exact and estimated."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from labkit.lab.datasets import Text
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.planes import dots, planes, put
from labkit.lab.panels.figures.theme import COLOURS, axis
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
        "OK", choices=METHODS, help="how the influence is carried", about="noise",
        look_for="Who smears the estimate over characters that were never read?")
    rank: int = knob(
        2, low=1, high=8, unit="terms", help="terms or copies; TBPTT: steps",
        about="noise", look_for="With how many terms is the difference dark?")
    trained: bool = knob(
        True, help="on the text, before", about="noise",
        look_for="Untrained: how many characters back does any colour reach?")
    seed: int = knob(0, low=0, high=99, label="draw the signs again",
                     look_for="Where does the difference move, and is it smaller?")
    unit: int = knob(
        1, low=1, high=UNITS, label="unit marked", help="row of the marked cell",
        restart=False, look_for="Is another unit's memory as short?")
    character: str = knob(
        "e", label="character marked", help="column of the marked cell", restart=False,
        look_for="How far back in the text does it still colour the state?")
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


def afresh(now: Influence, knobs: InfluenceKnobs) -> Influence:
    """Return the same picture with another cell marked."""
    return now._replace(unit=knobs.unit, character=knobs.character)


def dragged(
    now: Influence,
    _knobs: InfluenceKnobs,
    _name: str,
    _index: int | None,
    point: tuple[float, float],
) -> dict:
    """Return the knobs of the cell that the pointer is on."""
    names = dict(enumerate(now.names, start=1))
    return {"character": names[round(point[0])], "unit": round(point[1])}


CAPTION = (
    "Rows are hidden units, columns the weights of a character, the newest read on the "
    "right: light where the state still hangs on them. The exact influence fades to "
    "the left as characters are forgotten; the estimate is right on average alone. "
    "A step of colour is a factor: from dark to light it is a thousand. The line below "
    "is the text: light where a character still acts on the marked cell."
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
        look[f"yaxis{k}"]["domain"] = [0.36, 1]
    strip = axis("text read", limits=(0.5, READ + 0.5)) | {"anchor": "y4"}
    strip["tickfont"] = {"size": 18}
    flat = axis("", limits=(0, 2)) | {"anchor": "x4", "domain": [0, 0.12]}
    look |= {"xaxis4": strip, "yaxis4": flat | {"ticks": "", "showticklabels": False}}
    if now:
        heat = {"type": "heatmap", "colorscale": "Viridis", "showscale": False}
        heat |= {"zmin": -DECADES, "zmax": 0, "name": ""}
        top = float(now.exact.max()) or 1.0
        at = np.arange(1, count + 1)
        part = heat | {"x": at, "y": np.arange(1, ends[1][1])}
        for i, k in enumerate(("", "2", "3")):
            look[f"xaxis{k}"] |= {"tickvals": at, "ticktext": _legible(now.names)}
            put(
                figure,
                i,
                [part | {"z": shade(now[2 + i], top), "meta": {"touch": "cells"}}],
            )
        there = np.arange(READ - len(now.read), READ)
        look["xaxis4"] |= {"tickvals": there + 1, "ticktext": _legible(now.read)}
        coloured = np.zeros(READ)
        if now.character in now.names:
            k, unit = now.names.index(now.character), min(now.unit, len(now.exact))
            coloured = now.parts[:, unit - 1, k]
            put(
                figure,
                0,
                [
                    dots(
                        [(k + 1, unit)],
                        COLOURS[1],
                        symbol="square-open",
                        size=16,
                        line={"width": 3},
                    )
                ],
            )
        line = {"x": np.arange(1, READ + 1), "y": [1], "z": [shade(coloured, top)]}
        put(figure, 3, [heat | line])
    return figure


def shade(sizes: np.ndarray, top: float) -> np.ndarray:
    """Return sizes as logarithms of their share of the largest one, down to 10^-3."""
    return np.log10(np.maximum(sizes / top, 10.0**-DECADES))


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
    drag=dragged,
    afresh=afresh,
)
