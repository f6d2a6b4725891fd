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
from labkit.lab.rls.ellipse import GREEN
from labkit.rls import rls_step

START = (-1.0, 0.6)  # the weights
GREY, ORANGE = "#888888", "#C25310"
INPUTS, WEIGHTS = ((-1.4, 3.2), (-1.3, 1.6)), ((-1.6, 1.6), (-0.6, 1.5))


def second_step() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weights (1, 2), P (2, 2), mean input (2,) and gradient (1, 2).

    P is what the worked example's first step has made of the identity.
    """
    theta, P = torch.tensor([START], dtype=torch.float64), torch.eye(2).double()
    x_mean, gradient = theta.new_tensor([2, 1]), theta.new_tensor([[-2, 0]])
    rls_step(theta.clone(), P, x_mean, gradient, mean_weight=0.3)
    return theta, P, x_mean, gradient


def step_picture(values: Mapping[str, np.ndarray], changed: frozenset[str]) -> str:
    """Draw the inputs with P, and the weights with the step, as far as they are known.

    Parameters
    ----------
    values : mapping of the names in :func:`labkit.rls.rls_step` to arrays
    changed : set of str, the names whose parts are lit
    """
    uphill = values["gradient"].ravel()
    left = [
        Part("line", _edge(second_step()[1].numpy()), colour=GREY),
        Part("arrow", [(0, 0), values["x_mean"].ravel()], "mean input"),
        Part("line", _edge(values["P"]), "P", GREEN, "P" in changed),
    ]
    if "u" in values:
        u = values["u"].ravel()
        left.append(Part("arrow", [(0, 0), u], "u", ORANGE, "u" in changed))
    moved = [START, values["theta"].ravel()]
    right = [
        Part("arrow", [START, START - 0.4 * uphill], "minus the gradient"),
        Part("arrow", moved, "theta", GREEN, "theta" in changed),
    ]
    planes = (
        Plane("Inputs; P before in grey", INPUTS, left),
        Plane("Weights", WEIGHTS, right),
    )
    return sketch(planes, "The mean input, P, u, the gradient and the step.")


def _edge(P: np.ndarray) -> np.ndarray:
    """Return the ellipse of P as the other pictures draw it, (n, 2)."""
    drawn = ellipse((0, 0), P, 1.0, GREEN)
    return np.stack([drawn["x"], drawn["y"]], 1)
