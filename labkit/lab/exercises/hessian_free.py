"""Exercises of stochastic Hessian-free: the adjoint map, the batch, LSMR's start."""

from functools import cache, partial

import torch

from labkit.hessian_free import Autoencoder, lsmr
from labkit.hessian_free.batch_size import next_batch_size
from labkit.hessian_free.linearise import LinearisedLayers, linearise
from labkit.lab.exercises.judging import Exercise, Question
from labkit.theorems import Finding, drawn, hessian_free as theorems

ROWS = 7
WIDTHS = (5, 4, 3, 4, 5)
# V, the squared norm, N and theta; n-hat notices each term and factor.
CASES = (
    (9.0, 1.2, 12, 0.8),
    (4.0, 2.5, 1000, 0.5),
    (900.0, 0.02, 100_000, 0.3),
    (90.0, 0.2, 60, 0.6),
    (12.5, 0.3, 7000, 0.15),
    (0.0, 0.3, 50, 0.5),
    (2.0, 2.0, 3, 0.5),  # the quotient is a whole number
    (3.0, 0.2, 1001, 0.3),  # in floats it is rounded below one
)


def adjoint() -> Finding:
    """Judge A and A' of a small autoencoder by one pair of vectors."""
    net = Autoencoder(WIDTHS, dtype=torch.float64)
    for i, W in enumerate(net.parameters()):
        W.data = 0.8 * drawn(*W.shape, seed=i)
    point = linearise(net, drawn(ROWS, WIDTHS[0], seed=10).sigmoid())
    d = tuple(drawn(*W.shape, seed=i + 30) for i, W in enumerate(point.weights))
    return theorems.adjoint(point, d, drawn(ROWS, WIDTHS[-1], seed=40))


@cache
def settled() -> list[tuple[tuple, float]]:
    """Return systems, and how far LSMR ends from the solution damped towards 0."""
    found = []
    for m, n, seed in ((11, 8, 0), (9, 6, 7)):
        A, b, x0 = (
            drawn(m, n, seed=seed),
            drawn(m, seed=seed + 1),
            drawn(n, seed=seed + 2),
        )
        solve = partial(lsmr, A, b, x0=x0, damping=0.6, atol=1e-14, maxiter=80)
        start, zero = (solve(damp_towards=towards).x for towards in ("start", "zero"))
        found.append(((A, b, x0, 0.6), float((start - zero).norm() / zero.norm())))
    return found


TASKS = (
    Exercise(
        name="hessian_free-adjoint",
        title="Find the product of $A^\\top$ with U, from the backward signals.",
        function=LinearisedLayers.transpose_map,
        imports="import torch",
        line="return tuple(torch.mm(S.T, F_l) for S, F_l in pairs)  # (B3)",
        blank="return ...  # (B3)",
        answer="return tuple(S.T @ F_l for S, F_l in pairs)",
        theorems=(adjoint,),
        hints=(
            r"A change $D_l$ of one layer's weights moves its outputs by $\tilde "
            r"S_{l-1} D_l$. What is $\langle \tilde S_{l-1} D_l, F_l \rangle$, if it "
            r"has to be $\langle D_l, \cdot \rangle$?",
            "The result is a tuple, and its entry for a layer has the shape of the "
            "layer's weights, (m + 1, m').",
            "The sum over the n rows is a product with the transpose of the first: "
            r"$\tilde S_{l-1}^\top F_l$.",
        ),
        slips=(
            ("the sign is turned", "(S.T", "(-S.T"),
            (
                "the result is divided by n",
                "S.T @",
                "S.T / len(S) @",
            ),
            (
                "the factor $1 / \\sqrt n$ stands there twice",
                "S.T @",
                "S.T / len(S) ** 0.5 @",
            ),
            (
                "the signals of the first row alone are taken",
                "S.T @ F_l",
                "S[:1].T @ F_l[:1]",
            ),
        ),
    ),
    Exercise(
        name="hessian_free-batch",
        title="Find the least batch whose noise is within its bound.",
        function=next_batch_size,
        imports="import math\nfrom fractions import Fraction\n\n"
        "from labkit.check import check_options\n"
        "from labkit.hessian_free.batch_size import RANGES",
        line="n = math.ceil(population * V / (V + t**2 * (population - 1) * g2))  # "
        "(2), (3)",
        blank="n = ...  # (2), (3)",
        answer="n = math.ceil(population * V / (V + t**2 * (population - 1) * g2))  # "
        "(2), (3)",
        theorems=(partial(theorems.least_batch, CASES),),
        hints=(
            "Multiply both sides of the inequality by $n (N - 1)$, and bring all terms "
            "with n to one side.",
            "`V`, `g2` and `t` are exact fractions of the noise, of the squared norm "
            r"and of $\theta$; `population` is N.",
            "The quotient is `population * V / (V + t**2 * (population - 1) * g2)`. A "
            "batch is a whole number, and a smaller one has more noise: round up, with "
            "`math.ceil`.",
        ),
        slips=(
            ("the quotient is rounded down", "math.ceil", "math.floor"),
            ("$\\theta$ is not squared", "t**2", "t"),
            ("$\\theta$ is left out", "t**2 * ", ""),
            ("$N$ stands where $N - 1$ has to", "(population - 1)", "population"),
            ("the squared norm is left out", " * g2", ""),
            ("the norm is squared twice", "g2)", "g2**2)"),
            ("the first V of the denominator is left out", "(V + t", "(t"),
            (
                "the sampling without replacement is left out",
                "population * V / (V + t**2 * (population - 1) * g2)",
                "V / (t**2 * g2)",
            ),
        ),
    ),
    Question(
        name="hessian_free-start",
        title="Find where LSMR settles if it is damped towards its start.",
        wants="a function of A, b, x0 and damping that returns a number",
        measured=settled,
        hints=(
            "LSMR solves its problem, but it is another one. Write the normal "
            "equations of both.",
            r"They are $(A^\top A + \lambda^2 I)\,x = A^\top b$ and $(A^\top A + "
            r"\lambda^2 I)(x - x_0) = A^\top (b - A x_0)$.",
            r"`torch.linalg.solve` solves both. Their difference is $\lambda^2 (A^\top "
            r"A + \lambda^2 I)^{-1} x_0$.",
        ),
        solution=r"$\lambda^2 |(A^\top A + \lambda^2 I)^{-1} x_0|$ over the length of "
        "the step. This is no fault of LSMR: it penalises the distance from the start, "
        "and the answer keeps more of the last direction.",
    ),
)
