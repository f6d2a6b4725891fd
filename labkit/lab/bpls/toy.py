"""Define the live experiment on the paper's toy, with ever more Monte-Carlo runs."""

from dataclasses import dataclass

from labkit.lab.bpls.training import NAMES, toy_rows
from labkit.lab.panels import Experiment, Lines, knob


@dataclass(frozen=True)
class ToyKnobs:
    """Knobs of the toy, which all restart it because its figure is over all runs."""

    # fmt: off
    kind: str = knob(
        "nonlinear", choices=("linear", "nonlinear"),
        help="hidden and output activation", look_for="Linear: both curves on the "
        "theory; nonlinear: the worst run far above the median.")
    sigma: float = knob(
        0.05, low=0.0, high=1.0, step=0.01, unit="of the outputs",
        help="noise on the training outputs", look_for="Linear: the error in "
        "proportion; nonlinear: a worst run of 2 even at 0.")
    interpretation: str = knob(
        "min_norm", choices=NAMES, help="of equation (5)",
        look_for="Linear: no difference, but for label; nonlinear: as printed, none "
        "has the least error.")
    clamp: float = knob(
        1e-2, low=1e-8, high=0.4, log=True, unit="of the range",
        help="of hidden targets", look_for="As printed the error is least near 1e-2; "
        "solved again it hardly minds what lies above.")
    seed: int = knob(
        0, low=0, high=99, help="of noise and weights",
        look_for="The medians stay; the error as printed moves with the worst runs.")
    # fmt: on


_ALL_RUNS = {"rmse plain": "as printed", "rmse again": "output solved again"}
_ALL_RUNS |= {"theory": "theory (linear)"}
_SINGLE = {"worst plain": "worst", "median plain": "median"}
_SINGLE |= {"worst again": "worst, again", "median again": "median, again"}
_STEP = "step of 20 runs"
_PANELS = (
    Lines(_ALL_RUNS, "Test RMSE over all runs so far", "RMSE", x_title=_STEP),
    Lines(_SINGLE, "Single runs", "test error", x_title=_STEP, log=True),
)
_CAPTION = (
    "In the non-linear toy single bad runs set the RMSE over all: the worst jumps, "
    "while the median hardly moves."
)
TOY = Experiment(
    "toy",
    ToyKnobs,
    toy_rows,
    _PANELS,
    _CAPTION,
    front=("sigma", "kind", "interpretation"),
    playable={"sigma": (0.0, 0.05, 0.2, 0.5)},
)
