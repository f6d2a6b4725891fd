"""Define the live experiment of BPLS on images, with its walks layer by layer."""

from dataclasses import dataclass
from functools import partial

from labkit.lab.bpls.training import INVERTIBLE, NAMES, walk_rows
from labkit.lab.panels import Experiment, Lines, knob

_live = partial(knob, restart=False)


@dataclass(frozen=True)
class WalkKnobs:
    """Knobs that can be turned while BPLS walks.

    The stop rule is off, as in line 18 of Algorithm 2, so that the run is long enough.
    """

    # fmt: off
    sigma: float = _live(
        0.0, low=0.0, high=1.0, step=0.05, label="pixel noise", unit="sd",
        help="sigma of the training images, from the next walk on",
        about="the number of misses: misses",
        look_for="The misses leap and settle higher; the test, on clean images, holds "
        "up to 0.4.")
    label_noise: float = _live(
        0.0, low=0.0, high=0.8, step=0.05, unit="share",
        about="the test accuracy: test",
        help="labels drawn at random, from the next walk on",
        look_for="The test accuracy falls walk by walk; back at 0 a few walks mend it.")
    interpretation: str = _live(
        "min_norm", choices=NAMES, help="of equation (5)", look_for="The overshoot, 1 "
        "for min_norm; a run begun with identity and mean collapses.")
    clamp: float = _live(
        1e-2, low=1e-8, high=0.4, log=True, unit="of the range",
        help="distance to the ends", look_for="The share it moves; a run begun at 1e-6 "
        "starts ten points lower, 1e-8 ends it.")
    ridge: float = _live(
        1e-4, low=1e-10, high=1e-1, log=True, unit="relative",
        help="of the mean diagonal of H'H", look_for="Condition of the input layer: a "
        "hundredfold ridge, a tenth of it.")
    stop: bool = _live(
        False, label="stop rule", help="end at the first walk whose misses do not fall",
        look_for="How soon a run ends, and what more walks gain, or undo under noise.")
    activation: str = knob(
        "sigmoid", choices=INVERTIBLE, help="another network", look_for="Targets moved "
        "by the clamp: none with identity, two thirds at first with softmax.")
    width: int = knob(
        50, low=2, high=200, label="hidden width", unit="neurons",
        about="the test accuracy: test",
        help="another network", look_for="First walk: with identity the same from ten "
        "neurons on, with sigmoid rising to the end.")
    seed: int = knob(
        0, low=0, high=99, help="of weights and noise", look_for="Chance: the first "
        "walks of six seeds differ by four points in the test.")
    # fmt: on


def _status(row) -> str:
    if "note" in row:
        return row["note"]
    text = f"walk {row['walk']}, {row['layer']} layer on {row['rows']:,} rows"
    if "misses" in row:
        fate = "kept" if row["kept"] else "not kept"
        text += f": {row['misses']:,} misses, test {row['test']:.1f} %, {fate}"
    return text


def _panel(columns, title, unit, log=False) -> Lines:
    return Lines(columns, title, unit, x_title="layers solved", log=log)


def _both(quantity) -> dict[str, str]:
    return {f"{quantity} {place}": f"{place} layer" for place in ("output", "input")}


_PERCENT = {"accuracy so far": "layer by layer", "train": "walk done", "test": "test"}
_MISSES = {"misses": "misses", "rows": "rows of the walk"}
_CONDITION, _RATIO = _both("condition"), "largest / smallest"
_PANELS = (
    _panel(_PERCENT, "Accuracy", "%"),
    _panel(_MISSES, "Misses, and the rows of a walk", "samples", log=True),
    _panel(_CONDITION, "Condition of the layer's matrix", _RATIO, log=True),
    _panel(("overshoot",), "Overshoot (1: residual repaired once)", "ratio"),
    _panel(("clamped",), "Targets that the clamp moved", "%"),
    _panel(_both("cosine"), "Weight change and negative gradient", "cosine"),
)
_CAPTION = (
    "The first walk solves on all rows, each later one on the misses of the one "
    "before; accuracy counts only when a walk is done, since halfway the layers do not "
    "fit each other."
)
WALK = Experiment(
    "walk",
    WalkKnobs,
    walk_rows,
    _PANELS,
    _CAPTION,
    _status,
    front=("sigma", "label_noise", "interpretation"),
    playable={"sigma": (0.0, 0.2, 0.4, 0.8)},
)
