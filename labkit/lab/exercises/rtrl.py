"""Exercises of online gradients: UORO's factors, OK's small matrix, UORO's noise."""

from collections.abc import Callable
from functools import cache, partial

import torch

from labkit.lab.exercises.judging import Exercise, Question
from labkit.rtrl import OK, UORO, Cell, Learner, LSTMCell, RNNCell
from labkit.rtrl.kronecker import mix
from labkit.rtrl.uoro import uoro_step
from labkit.theorems import Finding, drawn, rtrl as theorems

# After TERMS + 1 steps OK draws all its signs
TERMS = 3
STEPS = 5


def learner(kind: type, cell: Cell, batch_size: int) -> Learner:
    """Make a learner."""
    if kind is OK:
        return OK(cell, batch_size=batch_size, rank=TERMS)
    return kind(cell, batch_size=batch_size)


def lstm(theorem: Callable[..., Finding], kind: type, *more: int) -> Finding:
    """Judge the steps of a learner on a small LSTM; all its sizes differ."""
    cell = LSTMCell(5, 3, dtype=torch.float64)
    cell.weight.data = 0.6 * drawn(*cell.weight.shape, seed=0)
    start, xs = 0.7 * drawn(1, cell.state_size, seed=1), drawn(STEPS, 5, seed=2)
    return theorem(partial(learner, kind, cell), start, xs, *more)


@cache
def first_variances() -> list[tuple[tuple[int], float]]:
    """Return numbers of signs, with UORO's relative variance in a first step."""
    found = []
    for units in range(2, 8):
        cell = RNNCell(5, units, dtype=torch.float64)
        cell.weight.data = 0.6 * drawn(*cell.weight.shape, seed=units)
        start, x = drawn(1, units, seed=1), drawn(1, 5, seed=2)
        draw = theorems.every_draw(partial(learner, UORO, cell), start, x)
        error = (draw.draws - draw.truth).square().sum((1, 2)).mean()
        found.append(((units,), float(error / draw.truth.square().sum())))
    return found


TASKS = (
    Exercise(
        name="rtrl-uoro-factors",
        title="Find the two factors with which UORO's noise is least.",
        function=uoro_step,
        imports="import torch\n\nfrom labkit.rtrl.uoro import balance, norm",
        line="""\
rho0 = balance(norm(v, 2)[..., 0], norm(Hu, 1))  # (2)
    rho1 = balance(norm(w, 2)[..., 0], norm(signs, 1))  # (3)""",
        blank="rho0 = ...  # (2)\n    rho1 = ...  # (3)",
        answer="""\
rho0 = balance(norm(v, 2)[..., 0], norm(Hu, 1))  # (2)
    rho1 = balance(norm(w, 2)[..., 0], norm(signs, 1))  # (3)""",
        theorems=(
            partial(lstm, theorems.balanced_uoro, UORO),
            partial(lstm, theorems.unbiased, UORO, 1),
        ),
        hints=(
            r"The first pair is $\rho_0 Hu$ and $v / \rho_0$. For which $\rho_0$ are "
            "they equally long?",
            r"$\rho_0 |Hu| = |v| / \rho_0$ gives $\rho_0 = \sqrt{|v| / |Hu|}$, and "
            r"$\rho_1$ comes likewise from $w$ and $\nu$.",
            "`v` and `w` are matrices for each sequence, so their norms go over 2 "
            "dimensions; `norm(v, 2)[..., 0]` is of shape (b, 1), as `norm(Hu, 1)` is. "
            r"`signs` is $\nu$. At first `v` and `Hu` are 0, and 0 / 0 is no number.",
        ),
        slips=(
            (
                "the first factor is upside down",
                "norm(v, 2)[..., 0], norm(Hu, 1)",
                "norm(Hu, 1), norm(v, 2)[..., 0]",
            ),
            (
                "the second factor is upside down",
                "norm(w, 2)[..., 0], norm(signs, 1)",
                "norm(signs, 1), norm(w, 2)[..., 0]",
            ),
            (
                "the first factor is 1",
                "balance(norm(v, 2)[..., 0], norm(Hu, 1))",
                "torch.ones_like(Hu[:, :1])",
            ),
            (
                "the second factor is 1",
                "balance(norm(w, 2)[..., 0], norm(signs, 1))",
                "torch.ones_like(Hu[:, :1])",
            ),
            (
                "`v` and `w` are exchanged",
                "norm(v, 2)[..., 0], norm(Hu, 1))  # (2)\n    rho1 = balance(norm(w",
                "norm(w, 2)[..., 0], norm(Hu, 1))  # (2)\n    rho1 = balance(norm(v",
            ),
            ("the first factor has no root", "norm(Hu, 1))  #", "norm(Hu, 1)) ** 2  #"),
            (
                "the second factor has no root",
                "norm(signs, 1))  #",
                "norm(signs, 1)) ** 2  #",
            ),
        ),
    ),
    Exercise(
        name="rtrl-ok-C",
        title="Find the small matrix C whose singular values decide what is kept.",
        function=mix,
        imports="""\
import math

import torch

from labkit.rtrl.decompose import gram_root, svd
from labkit.rtrl.low_rank import TOLERANCE, mixing_matrix, truncation_matrix""",
        line="U, d, V = svd(L @ R.mT)  # (3)",
        blank="C = ...  # (3)\n    U, d, V = svd(C)",
        answer="C = L @ R.mT  # (3)\n    U, d, V = svd(C)",
        theorems=(
            partial(lstm, theorems.unbiased, OK, 1),
            partial(lstm, theorems.of_least_variance, OK, TERMS),
        ),
        hints=(
            r"Put $u_i = Q L_i$ and $A_i = M R_i$ into $\sum_i u_i A_i^\top$, and take "
            r"$Q$ and $M^\top$ out of the sum.",
            r"What is left is $\sum_i L_i R_i^\top$, of the columns of `L` and `R`. "
            r"The paper's Lemma 3 prints $L^\top R$, which is another matrix.",
            "A sum of products of columns is the product of one matrix with the "
            "transpose of the other; `.mT` transposes each matrix of a batch.",
        ),
        slips=(
            (
                "`L` is transposed and `R` is not, as the paper prints it",
                "L @ R.mT",
                "L.mT @ R",
            ),
            ("`R` is not transposed", "L @ R.mT", "L @ R"),
            ("C is transposed", "L @ R.mT", "R @ L.mT"),
            ("`L` stands for `R`", "L @ R.mT", "L @ L.mT"),
            ("`R` stands for `L`", "L @ R.mT", "R @ R.mT"),
            ("the sign is turned", "L @ R.mT", "-L @ R.mT"),
        ),
    ),
    Question(
        name="rtrl-variance",
        title="Find how UORO's relative variance grows with the number S of its signs.",
        wants="a function of one whole number S",
        measured=first_variances,
        hints=(
            r"After a reset the estimate is $\nu \nu^\top F$, and what it should be is "
            "$F$.",
            r"The error is $(\nu \nu^\top - I) F$. Each entry of $\nu \nu^\top - I$ is "
            "0 on the diagonal, and a sign elsewhere.",
            r"$E[(\nu \nu^\top - I)^2]$ is a multiple of the identity: row i sums S - "
            "1 squares.",
        ),
        solution="`S - 1`. There is a sign for every unit, so the noise of UORO grows "
        "with the size of the network.",
    ),
)
