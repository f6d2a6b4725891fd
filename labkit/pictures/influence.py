"""Influence: which characters still colour the state, exactly and as estimated."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from labkit.datasets import Text
from labkit.labs.rtrl import Network, make_learner, prepared
from labkit.panels import Experiment, knob
from labkit.pictures.planes import planes, put
from labkit.rtrl import RTRL, CharStream

UPDATES, SHOWN, READ = 150, 12, 24  # of training; characters that are shown, and read
METHODS = "OK", "KF-AVG", "UORO", "B-OK", "SNAP-1", "TBPTT"


@dataclass(frozen=True)
class InfluenceKnobs:
    """What can be turned; every change reads the text from its beginning."""

    # fmt: off
    method: str = knob(
        "OK", choices=METHODS, help="how the influence is carried", about="noise",
        look_for="Who smears the estimate over characters that were never read?")
    rank: int = knob(
        2, low=1, high=8, unit="terms", help="terms or copies; TBPTT: steps",
        about="noise", look_for="How many terms until the difference is dark?")
    trained: bool = knob(
        True, help="on the text, before", about="noise",
        look_for="Untrained: how many characters back does any colour reach?")
    seed: int = knob(0, low=0, high=99, label="draw the signs again",
                     look_for="Where does the difference move, and is it smaller?")
    # fmt: on


class Influence(NamedTuple):
    """Sizes by unit and character, of all weights that a character has: (n, k)."""

    read: str  # the newest characters
    names: tuple[str, ...]  # k characters, the newest read last
    exact: np.ndarray
    estimate: np.ndarray
    difference: np.ndarray


def of_characters(G: torch.Tensor, symbols: list[int], network: Network) -> np.ndarray:
    """|dh_i / d(weights of a character)| out of an influence (1, n, P): (n, k)."""
    weight, n = network.cell.weight, network.cell.hidden_size
    by_input = G[0].unflatten(1, weight.shape).norm(dim=2)  # those of [h, x, 1]
    return by_input[:n, [n + symbol for symbol in symbols]].numpy()


def influence_rows(
    knobs, text: Text, networks: dict[int, Network] | None = None, hidden: int = 16
) -> Iterator[dict]:
    """First the training if asked for, then a row a character."""
    networks = {} if networks is None else networks
    step, network = yield from prepared(knobs.trained, hidden, text, networks, UPDATES)
    made = {"batch_size": 1, "seed": knobs.seed}
    learner = make_learner(knobs.method, knobs.rank, network.cell, **made)
    exact, read = RTRL(network.cell, batch_size=1), []
    for x, _, _ in CharStream(text.tokens, len(text.symbols), 1, reset_every=0):
        step += 1
        read.append(int(x.argmax()))
        for each in (exact, learner):
            each.step(x)
        G, carried = exact.influence(), learner.influence()
        newest = list(dict.fromkeys(reversed(read)))[:SHOWN][::-1]
        parts = (of_characters(g, newest, network) for g in (G, carried, carried - G))
        names = tuple(text.symbols[symbol] for symbol in newest)
        seen = "".join(text.symbols[symbol] for symbol in read[-READ:])
        row = {"step": step, "measured": True, "read": seen}
        row["noise"] = float((carried - G).square().sum() / G.square().sum())
        yield row | {"pictures": Influence(seen, names, *parts)}


CAPTION = (
    "Rows are hidden units, columns the weights of a character, the newest read on the "
    "right: light where the state still hangs on them. The exact influence fades to "
    "the left as characters are forgotten; the estimate is right on average alone."
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
    if now:
        at = np.arange(1, count + 1)
        names = [name.replace(" ", "␣").replace("\n", "⏎") for name in now.names]
        heat = {"type": "heatmap", "colorscale": "Viridis", "showscale": False}
        heat |= {"zmin": 0, "zmax": float(now.exact.max()), "x": at}
        for i, k in enumerate(("", "2", "3")):
            figure["layout"][f"xaxis{k}"] |= {"tickvals": at, "ticktext": names}
            put(figure, i, [heat | {"z": now[2 + i], "y": np.arange(1, ends[1][1])}])
    return figure


def _status(row) -> str:
    if not row["measured"]:
        done = f"training: update {row['step']} of {row['updates']}"
        return f"{done}, {row['bits']:.2f} bits per character"
    return f"read: “{row['read']}”; noise {row['noise']:.2f} of the exact influence"


INFLUENCE = Experiment(
    "influence",
    InfluenceKnobs,
    influence_rows,
    (),
    CAPTION,
    _status,
    front=("method", "rank", "trained"),
    recorded={"rank": (1, 2, 4, 8)},
    picture=picture,
)
