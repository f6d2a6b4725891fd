"""Exercises of BPLS: what a hidden layer should have produced, and the least width."""

from functools import cache

import torch

from labkit.bpls import random_weights, scores, walked
from labkit.bpls.targets import hidden_targets, neuron_by_neuron
from labkit.lab.exercises.judging import Exercise, Question
from labkit.theorems import bpls as theorems


@cache
def least_widths() -> list[tuple[tuple[int, int], int]]:
    """Return inputs and outputs, each with the width from which a walk is exact.

    The hidden layer is linear. Each width from 1 to 8 is walked once.
    """
    found = []
    for M, J in ((2, 5), (7, 3), (4, 4), (3, 6), (5, 2)):
        X, Y = theorems.drawn(11, M, seed=1), theorems.drawn(11, J, seed=2)
        wanted = X @ torch.linalg.pinv(X) @ Y
        for width in range(1, 9):
            generator = torch.Generator().manual_seed(width)
            sizes = M, width, J
            start = random_weights(sizes, generator=generator, dtype=torch.float64)
            end = walked(X, Y, start, "identity", ridge=0)
            off = scores(X, end, "identity") - wanted
            if off.norm() < 1e-6 * wanted.norm():
                found.append(((M, J), width))
                break
    return found


TASKS = (
    Exercise(
        name="bpls-targets",
        title="Find what the hidden values should have been.",
        function=hidden_targets,
        imports="import torch\n\n"
        "from labkit.bpls.targets import neuron_by_neuron, reciprocal",
        line="return H + R @ inverse  # (5')",
        blank="return ...  # (5')",
        answer="return H + R @ inverse  # (5')",
        theorems=(
            theorems.targets_repair_the_residual,
            theorems.targets_are_the_smallest_change,
        ),
        hints=(
            r"Call the change $\Delta$, so that $\hat H = H + \Delta$. What has "
            r"$\Delta W$ to be?",
            r"$\Delta W = R$ has many solutions, if there are more neurons than "
            "outputs. The generalised inverse gives the smallest.",
            "`R` is (D, J) and `inverse` is (J, N), so that `R @ inverse` is (D, N), "
            "as `H` is.",
        ),
        slips=(
            ("the change has the wrong sign", "H + R", "H - R"),
            ("the values that are there are left out", "H + R", "R"),
            ("the targets `B` stand where the residual `R` has to", "R @", "B @"),
            ("the transpose of `W` stands where its inverse has to", "inverse", "W.mT"),
            ("the change is halved", "R @", "R / 2 @"),
        ),
    ),
    Exercise(
        name="bpls-neurons",
        title="Find the move of one neuron, and the residual that it leaves.",
        function=neuron_by_neuron,
        imports="import torch\n\nfrom labkit.bpls.targets import reciprocal",
        line="""\
move = (R * w).sum(-1) * scale[..., i, None]  # (5b)
        R = R - move[..., None] * w  # (5b)""",
        blank="move = ...  # (5b)\n        R = ...  # (5b)",
        answer="""\
move = (R * w).sum(-1) * scale[..., i, None]  # (5b)
        R = R - move[..., None] * w  # (5b)""",
        theorems=(theorems.neurons_move_one_after_the_other,),
        hints=(
            r"If neuron i moves by $m$, one number a sample, the outputs move by the "
            r"outer product $m\,w_i$. What is left of the residual?",
            r"$(R - m\,w_i)\,w_i^\top = 0$ gives $m = R\,w_i^\top / |w_i|^2$.",
            r"`(R * w).sum(-1)` is $R\,w_i^\top$, (D,), and `move[..., None] * w` is "
            "the outer product, (D, J).",
        ),
        slips=(
            ("the move has the wrong sign", "move = (R", "move = -(R"),
            ("the residual grows by what was repaired", "R - move", "R + move"),
            ("the residual stays as it was", "R - move[..., None] * w", "R"),
            ("the move is not divided by $|w_i|^2$", " * scale[..., i, None]", ""),
            (
                "the move is divided by $|w_i|$ and not by its square",
                "i, None]  #",
                "i, None].sqrt()  #",
            ),
        ),
    ),
    Question(
        name="bpls-width",
        title="Find the width from which the first walk is ordinary least squares.",
        wants="a function of two whole numbers M and J that returns a whole number",
        measured=least_widths,
        hints=(
            "In the live experiment, with *identity*, the accuracy of the first walk "
            "is the same from the width 10 on. Digits have 64 inputs and 10 classes.",
            "The hidden values have to repair J residuals. With how few neurons is "
            "there always a change of these that does it?",
            "With few inputs M the outputs of least squares have the rank M, and M "
            "neurons hold all that there is of the inputs.",
        ),
        solution="`min(M, J)`: J neurons can repair any residual, and M neurons hold "
        "all inputs. With fewer, the overshoot of (5') below 1 is the part that can be "
        "repaired.",
    ),
)
