"""Exercises of broad learning: Chol-1, Chol-2, R-Inv and Greville."""

from bisect import bisect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labkit.broad import SOLVERS, SharedColumns, Update, side_by_side
from labkit.broad.greville import orig_update, r_inv_update
from labkit.broad.ridge import chol1_update, chol2_update
from labkit.lab.datasets import load
from labkit.lab.exercises.answers import Question, called
from labkit.lab.exercises.guard import described
from labkit.lab.exercises.judging import Exercise
from labkit.theorems import broad as theorems


def two_updates(name: str, ridge: float = theorems.RIDGE) -> Sequence[Tensor]:
    """Add columns twice; return the weights and what the solver keeps."""
    found = []
    for _, state in theorems.growing(name, ridge=ridge):
        kept = state.A_dagger if name in ("r-inv", "orig") else state.F
        found += [state.W.clone(), kept.clone()]
    return found


# Questions


UPDATES, ADDED, FEATURES = 12, 50, 4  # of the live growth: nodes in each update
POWERS = range(-12, -6)  # of ten: the ridges at which it is tried
NEAR = 1.0  # points of accuracy within which Orig ends with Chol-1


def columns_of(features: int, updates: Sequence[Update]) -> SharedColumns:
    """Return the columns of digits after these updates of a group and 100 nodes."""
    nodes = [Update(features), Update(extra=100), *updates]
    data = (load("digits", part, dtype=torch.float64) for part in ("train", "test"))
    fit, test = ((each.inputs, each.targets) for each in data)
    columns = SharedColumns(fit, test, sum(each.columns for each in nodes))
    columns.add(*nodes[:2])
    for update in updates:
        columns.add(update)
    return columns


def growth_with(added: int) -> SharedColumns:
    """Return the columns of the live growth with so many nodes in an update."""
    own = (added - FEATURES) * 3 // 8  # that see the new features only
    update = Update(FEATURES, own, added - FEATURES - own)
    return columns_of(10, [update] * UPDATES)


def points_behind(columns: SharedColumns, ridge: float) -> float:
    """Return by how many points of accuracy Orig ends behind Chol-1."""
    names = ["chol-1", "orig"]
    *_, ends = side_by_side(columns.A, columns.widths, columns.Y, ridge, names)
    exact, greville = (columns.score(record.W) for record in ends)
    return exact - greville


def largest_ridge(added: int) -> int:
    """Return the largest power of ten at which Orig ends within a point of Chol-1."""
    columns = growth_with(added)
    behind = bisect(POWERS, NEAR, key=lambda p: points_behind(columns, 10.0**p))
    return POWERS.start + behind - 1


def largest_ridges() -> tuple[int, int]:
    """Return the powers of ten with the nodes of the live growth, and with half."""
    return largest_ridge(ADDED), largest_ridge(ADDED // 2)


def right_ridge(measured: tuple[int, int]) -> tuple[float, str]:
    """Return the answer that a run decides."""
    whole, half = measured
    return 10.0**whole, "larger" if half > whole else "smaller"


def judge_ridge(answer: Any, measured: tuple[int, int]) -> tuple[bool, str]:
    """Judge a ridge, to a factor of ten, and which way it goes with fewer nodes."""
    words = "larger", "smaller"
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise TypeError(f"got {answer!r}")
    ridge, word = answer
    if word not in words:
        raise ValueError(f"the words are {' and '.join(words)}, got {word!r}")
    if not isinstance(ridge, int | float) or not ridge > 0:
        raise ValueError(f"a ridge is a number above 0, got {ridge!r}")
    (whole, half), (wanted, which) = measured, right_ridge(measured)
    said = (
        f"Orig ends within a point of Chol-1 up to a ridge of 1e{whole}, and with half "
        f"the nodes in an update up to 1e{half}."
    )
    return wanted / 10 <= ridge <= 10 * wanted and word == which, said


LOW = 3e-13  # the ridge at which pivots are lost


def ended() -> dict[str, int]:
    """Return the solvers that end over columns that hardly differ, and at how many."""
    columns = columns_of(5, [Update(extra=100)] * 4)
    growth = side_by_side(columns.A, columns.widths, columns.Y, LOW, SOLVERS)
    records = (record for turn in growth for record in turn)
    return {r.solver: r.columns for r in records if r.lost is not None}


def judge_ended(answer: Any, measured: dict[str, int]) -> tuple[bool, str]:
    """Compare names of solvers, Chol-1 left out, with those that ended."""
    if isinstance(answer, str) or not hasattr(answer, "__iter__"):
        raise TypeError(f"got {answer!r}")
    names = set(answer)
    if wrong := names - set(SOLVERS):
        raise ValueError(f"the solvers are {', '.join(SOLVERS)}, got {wrong}")
    said = ", ".join(f"{name} at {k} columns" for name, k in measured.items())
    alone = {"chol-1"}
    return names - alone == measured.keys() - alone, f"These ended: {said}."


def fewer_columns() -> tuple[Tensor, Tensor, int, Tensor]:
    """Return F and A^T Y of all columns, a number k, and the weights of the first k."""
    *_, (A, state) = theorems.growing("chol-1")
    k, Y = 7, theorems.drawn(len(A), state.AY.shape[1], seed=1)
    first = A[:, :k]
    R = first.T @ first + theorems.RIDGE * torch.eye(k).to(A)
    return state.F.clone(), state.AY.clone(), k, torch.linalg.solve(R, first.T @ Y)


def first_weights(F: Tensor, AY: Tensor, k: int) -> Tensor:
    """Return the weights of the first k columns from the leading block of F."""
    return F[:k, :k] @ (F[:k, :k].T @ AY[:k])


def judge_weights(answer: Callable, measured: tuple) -> tuple[bool, str]:
    """Compare a function's weights with those of a fit from scratch."""
    F, AY, k, wanted = measured
    found = called(answer, F.clone(), AY.clone(), k)
    if not isinstance(found, Tensor) or found.shape != wanted.shape:
        raise ValueError(f"it returned {described(found)}, not {described(wanted)}")
    off = float((found - wanted).abs().max() / wanted.abs().max())
    words = "of the first 7 of 12 columns differ from those of a fit from scratch by"
    return off < 1e-10, f"The weights {words} {off:.2g}, relative to the largest."


EXERCISES = (
    Exercise(
        name="broad-weights",
        title="Write how the new columns change the weights.",
        function=chol1_update,
        tags=("50",),
        equation=r"E = T^\top (A^\top Y) + G^\top (H^\top Y), \qquad "
        r"W \leftarrow \begin{bmatrix} W + T E \\ G E \end{bmatrix}",
        shapes={"W": "(k + q, c)"},
        hints=(
            "`AY` is $A^\\top Y$ and `HY` is $H^\\top Y$. `T` is (k, q) and `G` is "
            "(q, q).",
            "$E$ is (q, c), one row for each new column. The old weights change by "
            "`T @ E`, and the new ones are `G @ E`.",
            "`torch.cat([upper, lower])` puts the new rows below the old ones.",
        ),
        example=partial(two_updates, "chol-1"),
        theorems=(theorems.ridge_gradient_vanishes,),
    ),
    Exercise(
        name="broad-chol1",
        title="Write the new columns $T$ of the factor above its old corner.",
        function=chol1_update,
        tags=("42b",),
        equation=r"V = F^\top P, \qquad T = -F V G",
        shapes={"T": "(k, q)"},
        given=("T = ...  # (42b)",),
        plain=("-F @ V @ G",),
        hints=(
            "`F` is the factor of the old columns, (k, k); `V` is (k, q), and `G` is "
            "the factor of the new corner, (q, q).",
            "The product of three matrices is taken with `@`, in the order of the "
            "equation. There is a minus.",
            "`-F @ V @ G` is right; `upper_mm` and `mm_upper` compute the same "
            "products without the zeros of the triangles.",
        ),
        example=partial(two_updates, "chol-1"),
        theorems=(
            theorems.factor_is_that_of_the_inverse,
            theorems.ridge_gradient_vanishes,
        ),
    ),
    Exercise(
        name="broad-chol2",
        title="Write the matrix whose inverse factor is $G$, as a sum of three terms.",
        function=chol2_update,
        tags=("57",),
        equation=r"G G^\top = \bigl(C^\top C + \lambda (D^\top D + I)\bigr)^{-1}",
        shapes={"S": "(q, q)"},
        given=(
            "S = ...  # (57)\n"
            "G = inverse_cholesky_(S.clone(), offset=len(F))  # in place",
        ),
        plain=("C.T @ C + ridge * (D.T @ D + torch.eye(len(D.T)).to(D))",),
        hints=(
            "`C` is what the old columns cannot explain of the new ones, (l, q); `D` "
            "has the coefficients, (k, q); `ridge` is $\\lambda$.",
            "Three matrices of shape (q, q) are added: `C.T @ C`, the ridge times "
            "`D.T @ D`, and the ridge on the diagonal.",
            "`gram(C)` is `C.T @ C`, and `with_ridge(M, ridge)` adds the ridge to the "
            "diagonal of `M` in place and returns it.",
        ),
        example=partial(two_updates, "chol-2"),
        theorems=(
            partial(theorems.ridge_gradient_vanishes, "chol-2"),
            partial(theorems.factor_is_that_of_the_inverse, "chol-2"),
        ),
    ),
    Exercise(
        name="broad-rinv",
        title="Write the matrix that is solved for the new rows of the ridge inverse.",
        function=r_inv_update,
        tags=("68",),
        equation=r"B = \bigl(C^\top C + \lambda (D^\top D + I)\bigr)^{-1} C^\top",
        shapes={"K": "(q, q)"},
        given=(
            "K = ...  # (68)\nL = cholesky(K, offset=len(D))  # (68)\n"
            "B = solved(L, C.T)  # (68)",
        ),
        plain=("C.T @ C + ridge * (D.T @ D + torch.eye(len(D.T)).to(D))",),
        hints=(
            "`C` is what the old columns cannot explain of the new ones, (l, q); `D` "
            "has the coefficients, (k, q). The matrix is (q, q).",
            "Orig, the older method, leaves out one of the three terms: "
            "$\\lambda D^\\top D$.",
            "`gram(C)` is $C^\\top C$, `gram(D)` is $D^\\top D$, and "
            "`with_ridge(M, ridge)` adds $\\lambda I$ to `M`.",
        ),
        example=partial(two_updates, "r-inv"),
        theorems=(
            theorems.dagger_is_the_ridge_inverse,
            partial(theorems.ridge_gradient_vanishes, "r-inv"),
        ),
    ),
    Exercise(
        name="broad-greville",
        title="Write what Greville's recursion makes of $A^+$.",
        function=orig_update,
        tags=("20",),
        equation=r"A^+ \leftarrow \begin{bmatrix} A^+ - D B \\ B \end{bmatrix}, "
        r"\qquad D = A^+ H",
        shapes={"A_dagger": "(k + q, l)"},
        given=("A_dagger = ...  # (20)",),
        plain=("torch.cat([A_dagger - D @ B, B])",),
        hints=(
            "`A_dagger` has one row for each old column, and `B` one for each new "
            "column; `torch.cat([upper, lower])` puts `B` below.",
            "What the new rows do, times the coefficients `D` of the new columns "
            "in the old ones, is taken off the old rows.",
            "`D` is (k, q) and `B` is (q, l), so `D @ B` has the shape of `A_dagger`.",
        ),
        example=partial(two_updates, "orig", ridge=theorems.VANISHING),
        theorems=(theorems.greville_gives_the_generalised_inverse,),
    ),
    Question(
        name="broad-1",
        title=(
            "In the live growth, which is the largest ridge, as a power of ten, at "
            "which Orig still ends within a point of Chol-1? And with half the nodes "
            "in an update, is this ridge larger or smaller? Give both."
        ),
        wants="a ridge and one of the words 'larger' and 'smaller'",
        measured=largest_ridges,
        right=right_ridge,
        verdict=judge_ridge,
        hints=(
            "Turn **ridge** in the live growth down by powers of ten, and compare the "
            "ends of the two accuracies.",
            "Turn **per update** to 25. The growth then ends with fewer columns.",
            "The over-shoot is linear in the ridge, and it grows with the columns that "
            "earlier ones already explain. Ask whether these are more or fewer now.",
        ),
        because=(
            "About `(1e-11, 'larger')`. The over-shoot is linear in the ridge, and it "
            "grows with the columns that earlier ones already explain. With fewer "
            "nodes in an update there are fewer of these."
        ),
    ),
    Question(
        name="broad-2",
        title=(
            f"At a ridge of {LOW:g}, over 505 columns that hardly differ, Chol-1 loses "
            "a pivot and ends. Which other solvers end? Predict their names."
        ),
        wants="names of solvers, such as ('orig', 'exg-e')",
        measured=ended,
        right=set,
        verdict=judge_ended,
        hints=(
            "A pivot is lost where nearly equal numbers are subtracted. The table of "
            "three ways shows who subtracts.",
            "Chol-2, R-Inv, Orig and Exg-E factorise a sum of positive terms.",
            "Bordered Cholesky subtracts $V^\\top V$ too. So does a Cholesky "
            "factorisation of the whole $R$, column by column.",
        ),
        because=(
            "`('bordered', 'd-rdg')`. Bordered Cholesky subtracts $V^\\top V$ from "
            "$H^\\top H + \\lambda I$ too. d-rdg factorises the whole $R$ anew, "
            "which is that subtraction column by column."
        ),
    ),
    Question(
        name="broad-3",
        title=(
            "The last columns are taken away again. Write a function of `F` and `AY`, "
            "which belong to all columns, and of `k` that returns the weights of the "
            "first k columns, without a factorisation."
        ),
        wants="a function of F, AY and k that returns a tensor",
        measured=fewer_columns,
        right=lambda _: first_weights,
        verdict=judge_weights,
        hints=(
            "An update leaves the old $F$ as it is, and puts a block column beside it. "
            "So look at the leading block of $F$.",
            "The leading block is the factor for the first k columns: new columns "
            "never changed it. The same holds for the first k rows of $A^\\top Y$.",
            "The weights are $W = R^{-1} A^\\top Y$ with $R^{-1} = F F^\\top$.",
        ),
        because=(
            "`F[:k, :k] @ (F[:k, :k].T @ AY[:k])`. The leading block of $F$ is the "
            "factor for the first columns, so that only $W = F F^\\top A^\\top Y$ has "
            "to be computed."
        ),
    ),
)
