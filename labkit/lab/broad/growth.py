"""The experiment on growth, with an exact ridge solver and a Greville solver."""

from collections.abc import Mapping
from dataclasses import dataclass

from labkit.lab.broad.training import EXACT, GREVILLE, LARGEST, growth_rows
from labkit.lab.panels import Experiment, Lines, knob


@dataclass(frozen=True)
class GrowthKnobs:
    """The knobs; the values to look for were measured on the digits.

    A growing factor allows other updates at any time. The ridge, images, labels and
    precision from which it was made cannot be changed without a new start.
    """

    # fmt: off
    ridge: float = knob(
        1e-4, low=1e-12, high=100.0, log=True, help="lambda, inside the factor",
        about="Greville's distance from the solution: residual greville",
        look_for="The curves part between 1e-8 and 1; not at 1e-12, nor at 100.")
    precision: str = knob(
        "float64", choices=("float64", "float32"), help="of nodes and solvers",
        look_for="float32, ridge 1e-2: a pivot below the ridge; chol-1 falls and ends.")
    exact: str = knob(
        "chol-1", choices=EXACT, label="ridge solver",
        help="each keeps a state of its own",
        look_for="float32, ridge 1e-3: chol-2 and r-inv grow on, the others end.")
    greville: str = knob(
        "orig", choices=GREVILLE, label="Greville solver",
        help="each keeps a state of its own",
        look_for="float32, ridge 1e-3: orig's distance is seven times exg-e's.")
    budget: int = knob(
        50, low=10, high=LARGEST, step=5, unit="nodes", label="per update",
        restart=False, help="of the updates to come",
        about="Greville's accuracy: accuracy greville",
        look_for="Twelve updates of 80 cost the Greville solver 33 points, of 10 15.")
    features: int = knob(
        4, low=0, high=9, unit="nodes", label="features of it", restart=False,
        help="of the updates to come",
        look_for="At 0 nodes only mix known features; at ridge 1e-2 no climb is left.")
    input_noise: float = knob(
        0.0, low=0.0, high=1.0, step=0.05, unit="sd",
        about="the ridge solver's accuracy: accuracy exact",
        help="on training pixels, under all columns",
        look_for="What the nodes still bring: at 0.5 nine points, from 79 % on.")
    label_noise: float = knob(
        0.0, low=0.0, high=0.8, step=0.05, unit="share",
        about="the ridge solver's accuracy: accuracy exact",
        help="labels drawn at random; solvers keep A'Y",
        look_for="From 0.5 on more nodes harm the ridge solver too: they fit noise.")
    seed: int = knob(
        0, low=0, high=99, help="of nodes and noise",
        look_for="Chance: below two points.")
    # fmt: on


_KINDS = {"exact": "ridge solver", "greville": "Greville solver"}


def _status(row: Mapping) -> str:
    scores = {label: row.get(f"accuracy {kind}") for kind, label in _KINDS.items()}
    parts = [f"{label} {x:.1f} %" for label, x in scores.items() if x is not None]
    note = [row["note"]] if "note" in row else []
    return "; ".join([f"{row['step']} columns", *parts, *note])


def _panel(
    drawn: str | Mapping, title: str, y_title: str, *, log: bool = True, **more: str
) -> Lines:
    if isinstance(drawn, str):  # a quantity of both solvers
        drawn = {f"{drawn} {kind}": label for kind, label in _KINDS.items()}
    return Lines(drawn | more, title, y_title, x_title="columns of A", log=log)


_GRADIENT = "|A'(AW - Y) + ridge W| / |A'Y|"
_ERRORS = {"factor error": "measured", "law": "0.04 eps |A|² / ridge"}
GROWTH = Experiment(
    "growth",
    GrowthKnobs,
    growth_rows,
    (
        _panel("accuracy", "Test accuracy", "%", log=False),
        _panel("residual", "Distance from the ridge solution", _GRADIENT),
        _panel(
            "pivot", "Smallest pivot of the update", "pivot", ridge="ridge, its bound"
        ),
        _panel(_ERRORS, "Error of the factor F", "largest |F'RF - I|"),
    ),
    "The ridge solver stays at rounding error from the solution for all its columns; "
    "Greville's recursion leaves it, and as columns come that shows in the accuracy.",
    _status,
    front=("ridge", "label_noise", "budget"),
    playable={"label_noise": (0.0, 0.2, 0.5)},
)
