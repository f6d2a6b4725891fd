"""Ask two hidden neurons to mend one output: each alone by (5), or both by (5')."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from labkit.bpls import activation, targets
from labkit.bpls.activations import clamp_targets
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
from labkit.lab.panels.figures.theme import COLOURS, GRID, INK

NOW, ALONE, BOTH, CLAMPED = STAGES = "now", "alone (5)", "both (5')", "clamped (7)"
TINTS = dict(zip(STAGES, (INK, COLOURS[2], COLOURS[1], COLOURS[4]), strict=True))
SQUARE = (0, 0), (1, 0), (1, 1), (0, 1), (0, 0)  # what a sigmoid can give
LIMITS = (-0.25, 1.75), (-0.25, 1.5)
REST = np.array([1.4, 0.0])  # the line's handle is the line's point nearest to it
LEAST, MOST = -1.0, 6.0  # of the wanted output
NOWHERE = np.full(2, np.nan)  # of what is not drawn: a page plays the same traces
WORKED = (0.2, 0.6), (1.0, 2.0), 2.4  # values, weights and output, by hand


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
    clamp: float = knob(
        1e-2, low=1e-6, high=0.4, log=True, unit="of the range",
        help="distance to the ends of the sigmoid's range",
        look_for="From which clamp on does it undo what (5') has repaired?")
    sample: str = knob(
        "0.3 0.4", help="values of the two neurons; drag the dot",
        look_for="In a corner of the square: what is then asked of the neurons?")
    guess: str = knob(
        "", label="your cross", help="two values, such as '0.5 0.5'; then drag it",
        look_for="Is there a shorter move than (5') that leaves nothing missing?")
    # fmt: on

    def __post_init__(self):
        values_of(self.sample), values_of(self.guess or self.sample)


class Pair(NamedTuple):
    """One correction, as far as the stages have come."""

    weights: np.ndarray  # (2,)
    wanted: float
    guess: np.ndarray  # (2,), nan where there is none
    values: dict[str, np.ndarray]  # by stage, (2,) of both neurons; later ones are nan

    def missing(self, values: np.ndarray) -> float:
        """Return what the output lacks with these values."""
        return self.wanted - float(self.weights @ values)


def values_of(text: str) -> np.ndarray:
    """Parse the values of two neurons (2,), a ValueError if this fails."""
    try:
        first, second = map(float, text.split())
        if max(abs(first), abs(second)) <= 2:
            return np.array([first, second])
    except ValueError:
        pass
    raise ValueError(f"needs two numbers from -2 to 2, such as '0.5 0.5', got {text!r}")


def corrected(
    values: Sequence[float], weights: Sequence[float], wanted: float
) -> dict[str, np.ndarray]:
    """Return what two neurons (2,) give, and what (5) and (5') ask of them."""
    H, W = (torch.tensor([part], dtype=torch.float64) for part in (values, weights))
    B = torch.full((1, 1), wanted, dtype=torch.float64)
    made = {NOW: H}
    for stage, interpretation in ((ALONE, 0), (BOTH, "min_norm")):
        made[stage] = targets.hidden_targets(H, W.mT, B, interpretation)
    return {stage: found.numpy()[0] for stage, found in made.items()}


def pair_rows(knobs: PairKnobs) -> Iterator[dict]:
    """Yield the stages of one correction."""
    weights = np.array([knobs.first, knobs.second])
    values = corrected(values_of(knobs.sample).tolist(), weights.tolist(), knobs.wanted)
    clamped = clamp_targets(
        torch.from_numpy(values[BOTH]), activation("sigmoid"), knobs.clamp
    )
    values[CLAMPED] = clamped.numpy()
    guess = values_of(knobs.guess) if knobs.guess else NOWHERE
    for step, stage in enumerate(STAGES, start=1):
        later = dict.fromkeys(STAGES[step:], NOWHERE)
        now = Pair(weights, knobs.wanted, guess, values | later)
        said = f"{FORMULAS[stage]}, here {', '.join(map(short, values[stage]))}"
        missing = now.missing(values[stage])
        said += f": the output is {short(now.wanted - missing)}, "
        said += f"and {short(missing)} is missing"
        if knobs.guess:
            off = np.linalg.norm(guess - values[BOTH])
            said += f". Your cross leaves {short(now.missing(guess))} missing, "
            said += f"and is {short(off)} away from (5')"
        yield {"step": step, "missing": missing, "said": said, "pictures": now}


FORMULAS = {
    NOW: r"The values $h$",
    ALONE: r"(5) $\hat h_i = h_i + r / \hat w_i$",
    BOTH: r"(5') $\hat h = h + r\,\hat w / \lVert\hat w\rVert^2$",
    CLAMPED: r"(7) $\hat h$ of (5') in $[\varepsilon, 1 - \varepsilon]$",
}


def short(number: float) -> str:
    """Write a number to two digits after the point, and no zero as -0."""
    return f"{round(float(number), 2) + 0.0:g}"


def dragged(
    now: Pair, _knobs: PairKnobs, name: str, _index: int, point: Sequence[float]
) -> dict[str, float | str]:
    """Return the knob of what a hand dragged: the sample, the line, or the cross."""
    if name == "wanted":
        wanted = np.clip(now.weights @ np.asarray(point), LEAST, MOST)
        return {"wanted": round(float(wanted), 2)}
    ends = (0.0, 1.0) if name == "sample" else (-0.25, 1.5)
    first, second = np.clip(point, *ends)
    return {name: f"{first:.2f} {second:.2f}"}


CAPTION = (
    "Each neuron alone could make the output right: both thin arrows end on the line. "
    "But (5) moves both at once, and they go twice as far: what is missing turns its "
    "sign and keeps its size. (5') is the shortest move of both together after which "
    "nothing is missing. A sigmoid cannot give values outside of the square."
)


def plane(weights: Sequence[float], wanted: float, values: ArrayLike) -> list[dict]:
    """Draw the sigmoid's square, the line where the output is right, and the values."""
    return [
        path(SQUARE, INK, "a sigmoid's range", width=1),
        path(right(weights, wanted), INK, "output is right", dash="dot"),
        dots(values, INK, "values now", size=11),
    ]


def right(weights: Sequence[float], wanted: float) -> np.ndarray:
    """Return the ends (2, 2) of the line on which the output is right."""
    ends = np.array(LIMITS[0])
    return np.c_[ends, (wanted - weights[0] * ends) / weights[1]]


def picture(now: Pair | None, before: Pair | None) -> dict:
    """Draw the two neurons' values on the left and what is missing on the right."""
    r = rounded_up(abs(now.missing(now.values[NOW])) if now else 1.0, 0.1)
    figure = planes(
        ["Values of the two hidden neurons", "Missing from the output"],
        ["first neuron", ""],
        ["second neuron", ""],
        [LIMITS, ((-0.5, 3.5), (-1.2 * r, 1.2 * r))],
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
    h, w = now.values[NOW], now.weights
    drawn = plane(w, now.wanted, h)
    rest = REST + now.missing(REST) / (w @ w) * w
    drawn.append(dots(rest, INK, size=10, symbol="diamond"))
    drawn += [handles(h, "sample"), handles(rest, "wanted")]
    name = "your cross" if np.isfinite(now.guess).all() else ""
    drawn.append(dots(now.guess, COLOURS[0], name, symbol="x", size=11))
    drawn.append(handles(now.guess, "guess"))
    for stage, end in now.values.items():
        if stage == ALONE:
            corners = [(end[0], h[1]), (h[0], end[1])]
            drawn.append(arrow([h, h], corners, TINTS[stage], width=1, head=9))
        if stage in (ALONE, BOTH):
            drawn.append(arrow(h, end, TINTS[stage], stage))
        if stage == CLAMPED:
            drawn.append(dots(end, TINTS[stage], stage, size=10, symbol="square-open"))
    return drawn


def _missing(now: Pair) -> list[dict]:
    drawn = [path([(-0.5, 0), (3.5, 0)], GRID)]
    for place, (stage, values) in enumerate(now.values.items()):
        end = place, now.missing(values)
        drawn.append(path([(place, 0), end], TINTS[stage], width=8))
        drawn.append(dots(end, TINTS[stage], size=10))
    return drawn


PAIR = Experiment(
    "pair",
    PairKnobs,
    pair_rows,
    (),
    CAPTION,
    lambda row: row["said"],
    front=("wanted", "first", "second"),
    playable={"wanted": (0.5, 1.0, 2.0, 2.5), "second": (0.5, 1.0, 2.0, 3.0)},
    picture=picture,
    drag=dragged,
)


def answers() -> dict[str, float]:
    """Return what is filled in by hand: the residual, and both neurons' values."""
    h, weights, wanted = WORKED
    found, boxes = corrected(*WORKED), {"r": wanted - float(np.dot(h, weights))}
    for stage, word in ((ALONE, "alone"), (BOTH, "together")):
        boxes |= {f"ĥ{i}, {word}": x for i, x in zip("₁₂", found[stage], strict=True)}
    return boxes


def worked(values: Sequence[float]) -> dict:
    """Draw the worked example, and the two corrections as they are filled in.

    ``values`` are those of :func:`answers`, nan where nothing is filled in.
    """
    h, weights, wanted = WORKED
    figure = planes(
        ["Values of the two hidden neurons"],
        ["first neuron"],
        ["second neuron"],
        [LIMITS],
        caption="On the line the output is right. (5') goes straight to it; where each "
        "neuron repairs the whole residual, both together go twice as far.",
    )
    put(figure, 0, plane(weights, wanted, h))
    for stage, end in ((ALONE, values[1:3]), (BOTH, values[3:5])):
        if np.isfinite(end).all():
            put(figure, 0, [arrow(h, np.array(end), TINTS[stage], stage)])
    return figure
