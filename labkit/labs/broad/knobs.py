"""The knobs of the live growth, and what each of them shows."""

from dataclasses import dataclass

import torch

from labkit.broad import SOLVERS
from labkit.panels import knob

EXACT = tuple(name for name, solver in SOLVERS.items() if solver.exact)
GREVILLE = tuple(name for name, solver in SOLVERS.items() if not solver.exact)
PRECISIONS = {"float64": torch.float64, "float32": torch.float32}
LARGEST = 80  # nodes in an update at most


@dataclass(frozen=True)
class GrowthKnobs:
    """What can be turned in the live experiment; looked for are the digits.

    A growing factor allows other updates at any time. What it was made of, ridge,
    images, labels and arithmetic, is inside it and cannot be exchanged.
    """

    ridge: float = knob(
        1e-4,
        low=1e-12,
        high=100.0,
        log=True,
        help="lambda, inside the factor",
        look_for="The curves part between 1e-8 and 1; at 1e-12 and at 100, ten points "
        "lower, they do not.",
    )
    precision: str = knob(
        "float64",
        choices=tuple(PRECISIONS),
        help="of nodes and solvers",
        look_for="float32, ridge 1e-2: a pivot below the ridge, a fall in accuracy, "
        "the end of chol-1.",
    )
    exact: str = knob(
        "chol-1",
        choices=EXACT,
        label="ridge solver",
        help="each keeps a state of its own",
        look_for="float32, ridge 1e-3: chol-1, d-rdg and bordered lose a pivot, chol-2 "
        "and r-inv grow on.",
    )
    greville: str = knob(
        "orig",
        choices=GREVILLE,
        label="Greville solver",
        help="each keeps a state of its own",
        look_for="float32, ridge 1e-3: orig ends seven times as far from the ridge "
        "solution as exg-e.",
    )
    budget: int = knob(
        50,
        low=10,
        high=LARGEST,
        step=5,
        unit="nodes",
        label="per update",
        help="of the updates to come",
        look_for="Twelve updates of 80 nodes cost the Greville solver 33 points, "
        "twelve of 10 still 15.",
        restart=False,
    )
    features: int = knob(
        4,
        low=0,
        high=9,
        unit="nodes",
        label="features of it",
        help="of the updates to come",
        look_for="At 0 nodes only mix known features: the ridge solver hardly climbs, "
        "at 1e-2 not at all.",
        restart=False,
    )
    input_noise: float = knob(
        0.0,
        low=0.0,
        high=1.0,
        step=0.05,
        unit="sd",
        help="on training pixels, under all columns",
        look_for="What the nodes still bring: at 0.5 nine points, from 79 % on.",
    )
    label_noise: float = knob(
        0.0,
        low=0.0,
        high=0.8,
        step=0.05,
        unit="share",
        help="labels drawn at random; solvers keep A'Y",
        look_for="From 0.5 on more nodes harm the ridge solver too: they fit the "
        "noise.",
    )
    seed: int = knob(
        0,
        low=0,
        high=99,
        help="of nodes and noise",
        look_for="Chance: both ends move by less than two points.",
    )
