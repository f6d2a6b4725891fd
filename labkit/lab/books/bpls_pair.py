"""Two hidden neurons mend one output, by (5) or (5')."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from labkit.bpls import activation, targets
from labkit.bpls.activations import clamp_targets
from labkit.lab.books.shared import place_dragged, place_of
from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.images import EARLIER
from labkit.lab.panels.figures.planes import (
    GHOST,
    arrow,
    dots,
    handles,
    path,
    planes,
    put,
    rounded_up,
)
from labkit.lab.panels.figures.theme import COLOURS, INK

NOW, ALONE, BOTH, CLAMPED = STAGES = "now", "alone (5)", "both (5')", "clamped (7)"
TINTS = dict(zip(STAGES, (INK, COLOURS[2], COLOURS[1], COLOURS[4]), strict=True))
SQUARE = (0, 0), (1, 0), (1, 1), (0, 1), (0, 0)  # what a sigmoid can give
LIMITS = (-0.25, 1.75), (-0.25, 1.5)
REST = np.array([1.4, 0.0])  # the line's handle is the line's point nearest to it
LEAST = -1.0  # wanted output
MOST = 6.0
NOWHERE = np.full(2, np.nan)  # of what is not drawn: a page plays the same traces
CLAMP = 1e-2  # distance to the ends of the sigmoid's range


@dataclass(frozen=True)
class PairKnobs:
    """Knobs of the picture, in which nothing is drawn at random."""

    # fmt: off
    wanted: float = knob(
        1.5, low=LEAST, high=MOST, step=0.05, label="wanted output",
        help="or drag the diamond on the line",
        look_for="Below what the output is now, which way do the arrows point?")
    first: float = knob(
        1.0, low=0.2, high=3.0, step=0.1, label="first weight",
        help="from the first neuron to the output",
        look_for="A small weight: how far has this neuron to go alone, and how far "
        "with the other?")
    second: float = knob(
        1.5, low=0.2, high=3.0, step=0.1, label="second weight",
        help="from the second neuron to the output",
        look_for="Both weights large: do the arrows grow, or shrink?")
    sample: str = knob(
        "0.3 0.4", help="values of the two neurons; drag the dot",
        look_for="In a corner of the square: what is then asked of the neurons?")
    guess: str = knob(
        "", label="your cross", help="two values, such as '0.5 0.5'; then drag it",
        look_for="Is there a shorter move than (5') that leaves nothing missing?")
    # fmt: on

    def __post_init__(self):
        place_of("sample", self.sample, 2.0)
        place_of("guess", self.guess or self.sample, 2.0)


class Pair(NamedTuple):
    """One correction, as far as the stages have come."""

    weights: np.ndarray  # (2,)
    wanted: float
    guess: np.ndarray  # (2,), nan where there is none
    values: dict[str, np.ndarray]  # by stage, (2,) of both neurons; later ones are nan

    def missing(self, values: np.ndarray) -> float:
        """Return what the output lacks with these values."""
        return self.wanted - float(self.weights @ values)


def corrected(
    values: np.ndarray, weights: np.ndarray, wanted: float
) -> dict[str, np.ndarray]:
    """Return what two neurons (2,) give, and what (5) and (5') ask of them."""
    given = values, weights, wanted
    H, W, B = (torch.from_numpy(np.atleast_2d(part)) for part in given)
    made = {NOW: H}
    for stage, interpretation in ((ALONE, 0), (BOTH, "min_norm")):
        made[stage] = targets.hidden_targets(H, W.mT, B, interpretation)
    return {stage: found.numpy()[0] for stage, found in made.items()}


def pair_rows(knobs: PairKnobs) -> Iterator[dict]:
    """Yield the stages of one correction."""
    weights = np.array([knobs.first, knobs.second])
    sample = place_of("sample", knobs.sample, 2.0)
    values = corrected(sample, weights, knobs.wanted)
    asked = torch.from_numpy(values[BOTH])
    values[CLAMPED] = clamp_targets(asked, activation("sigmoid"), CLAMP).numpy()
    guess = place_of("guess", knobs.guess, 2.0) if knobs.guess else NOWHERE
    for step, stage in enumerate(STAGES, start=1):
        later = dict.fromkeys(STAGES[step:], NOWHERE)
        now = Pair(weights, knobs.wanted, guess, values | later)
        missing = now.missing(values[stage])
        numbers = [*values[stage], knobs.wanted - missing, missing]
        status = "{}, here {:g} and {:g}: the output is {:g}, and {:g} is missing"
        status = status.format(FORMULAS[stage], *np.round(numbers, 2) + 0.0)  # no -0
        if knobs.guess:
            off = np.linalg.norm(guess - values[BOTH])
            status += f". Your cross leaves {now.missing(guess):.2f} missing, "
            status += f"and is {off:.2f} away from (5')"
        yield {"step": step, "missing": missing, "status": status, "pictures": now}


FORMULAS = {
    NOW: r"The values $h$",
    ALONE: r"(5) $\hat h_i = h_i + r / \hat w_i$",
    BOTH: r"(5') $\hat h = h + r\,\hat w / \lVert\hat w\rVert^2$",
    CLAMPED: r"(7) $\hat h$ of (5') in $[\varepsilon, 1 - \varepsilon]$",
}


def dragged(
    now: Pair, knobs: PairKnobs, name: str, index: int, point: Sequence[float]
) -> dict[str, float | str]:
    """Return the knob of what a hand dragged: the sample, the line, or the cross."""
    if name == "wanted":
        wanted = np.clip(now.weights @ np.asarray(point), LEAST, MOST)
        return {"wanted": round(float(wanted), 2)}
    low, high = (0.0, 1.0) if name == "sample" else (-0.25, 1.5)
    return place_dragged(now, knobs, name, index, point, low=low, high=high)


CAPTION = (
    "Each neuron alone could make the output right: both thin arrows end on the line. "
    "But (5) moves both at once, and they go twice as far: what is missing turns its "
    "sign and keeps its size. (5') is the shortest move of both together after which "
    "nothing is missing. A sigmoid cannot give values outside of the square."
)


def right(weights: Sequence[float], wanted: float) -> np.ndarray:
    """Return the ends (2, 2) of the line on which the output is right."""
    ends = np.array(LIMITS[0])
    return np.c_[ends, (wanted - weights[0] * ends) / weights[1]]


def picture(now: Pair | None, before: Pair | None) -> dict:
    """Draw the two neurons' values on the left and what is missing on the right."""
    reach = rounded_up(abs(now.missing(now.values[NOW])) if now else 1.0, 0.1)
    figure = planes(
        ["Values of the two hidden neurons", "Missing from the output"],
        ["first neuron", ""],
        ["second neuron", ""],
        [LIMITS, ((-0.5, 3.5), (-1.2 * reach, 1.2 * reach))],
        caption=CAPTION,
        widths=[0.58, 0.42],
    )
    ticks = {"tickvals": list(range(len(STAGES))), "ticktext": STAGES}
    figure["layout"]["xaxis2"] |= ticks
    if now:
        put(figure, 0, _neurons(now))
        put(figure, 1, _missing(now))
    if before:
        now_to_both = [before.values[NOW], before.values[BOTH]]
        put(figure, 0, [path(now_to_both, GHOST, EARLIER, width=3)])
        put(figure, 0, [path(right(before.weights, before.wanted), GHOST)])
    return figure


def _neurons(now: Pair) -> list[dict]:
    h, w, asked = now.values[NOW], now.weights, now.values
    rest = REST + now.missing(REST) / (w @ w) * w
    alone = [(asked[ALONE][0], h[1]), (h[0], asked[ALONE][1])]
    named = "your cross" if np.isfinite(now.guess).all() else ""
    square = {"symbol": "square-open", "size": 10}
    return [
        path(SQUARE, INK, "a sigmoid's range", width=1),
        path(right(w, now.wanted), INK, "output is right", dash="dot"),
        dots(h, INK, "values now", size=11),
        dots(rest, INK, size=10, symbol="diamond"),
        handles(h, "sample"),
        handles(rest, "wanted"),
        dots(now.guess, COLOURS[0], named, symbol="x", size=11),
        handles(now.guess, "guess"),
        arrow([h, h], alone, TINTS[ALONE], width=1, head=9),
        arrow(h, asked[ALONE], TINTS[ALONE], ALONE),
        arrow(h, asked[BOTH], TINTS[BOTH], BOTH),
        dots(asked[CLAMPED], TINTS[CLAMPED], CLAMPED, **square),
    ]


def _missing(now: Pair) -> list[dict]:
    bars = {"type": "bar", "x": list(range(len(STAGES))), "width": 0.2}
    bars["y"] = [now.missing(values) for values in now.values.values()]
    colours = list(TINTS.values())
    line = {"color": colours, "width": 3}  # what is seen of a bar of nothing
    return [bars | {"marker": {"color": colours, "line": line}, "hoverinfo": "y"}]


PAIR = Experiment(
    "pair",
    PairKnobs,
    pair_rows,
    (),
    CAPTION,
    lambda row: row["status"],
    front=("wanted", "first", "second"),
    playable={"wanted": (0.5, 1.0, 2.0, 2.5), "second": (0.5, 1.0, 2.0, 3.0)},
    picture=picture,
    drag=dragged,
)
