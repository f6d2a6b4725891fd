"""The second step of RLS in the worked example, and the picture beside its walk.

The boxes of the notebook ask for the first step. The walk takes the second one, in
which P is an ellipse and no longer a circle.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from labkit.lab.panels.figures.planes import ellipse
from labkit.lab.panels.lines.sketch import Part, Plane, sketch
from labkit.lab.rls.ellipse import RULES, WORKED
from labkit.rls import rls_step

WEIGHT = 0.3  # of the mean, k
START, GRADIENT = (-1.0, 0.6), (-2.0, 0.0)
GREY, GREEN, ORANGE = "#888888", RULES["RLS"], "#C25310"
INPUTS, WEIGHTS = ((-1.4, 3.2), (-1.3, 1.6)), ((-1.6, 1.6), (-0.6, 1.5))
CORNER = -1.5, -0.5  # of the weights' plane


def second_step() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weights (1, 2), P (2, 2), mean input (2,) and gradient (1, 2).

    P is what the worked example's first step has made of the identity.
    """
    like = {"dtype": torch.float64}
    x_mean, gradient = torch.tensor(WORKED, **like), torch.tensor([GRADIENT], **like)
    theta, P = torch.tensor([START], **like), torch.eye(2, **like)
    rls_step(theta.clone(), P, x_mean, gradient, mean_weight=WEIGHT)
    return theta, P, x_mean, gradient


def step_picture(values: Mapping[str, np.ndarray], changed: frozenset[str]) -> str:
    """Draw the inputs with P, and the weights with the step, as far as they are known.

    Parameters
    ----------
    values : mapping of the names in :func:`labkit.rls.rls_step` to arrays
    changed : set of str, the names whose parts are lit
    """
    x_mean = values["x_mean"].ravel()
    left = [
        Part("line", _ellipse(second_step()[1].numpy()), colour=GREY),
        Part("arrow", [(0, 0), x_mean], "mean input"),
        Part("line", _ellipse(values["P"]), "P", GREEN, "P" in changed),
    ]
    if "u" in values:
        u = values["u"].ravel()
        left.append(Part("arrow", [(0, 0), u], "u", ORANGE, "u" in changed))
    gradient = np.array(START) - 0.4 * values["gradient"].ravel()
    right = [Part("arrow", [START, gradient], "minus the gradient")]
    if "velocity" in values and values["velocity"].any():
        end = np.array(START) + values["velocity"].ravel()
        lit = "velocity" in changed
        right.append(Part("arrow", [START, end], "step of RLS", GREEN, lit))
    theta = values["theta"].ravel()
    right.append(Part("dots", [theta], "", GREEN, "theta" in changed))
    if "h" in values:
        h = f"h = {values['h'].item():.3g}"
        right.append(Part("words", [CORNER], h, lit="h" in changed))
    planes = (
        Plane("Inputs; P before in grey", INPUTS, left),
        Plane("Weights", WEIGHTS, right),
    )
    return sketch(planes, "The mean input, P, u, the gradient and the step.")


def _ellipse(P: np.ndarray) -> np.ndarray:
    """Return the edge of P as the other pictures draw it, (n, 2)."""
    drawn = ellipse((0, 0), P, 1.0, GREEN)
    return np.stack([drawn["x"], drawn["y"]], 1)
