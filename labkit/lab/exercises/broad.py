"""Exercises of broad learning: the factor's new columns, Greville, fewer columns."""

from functools import cache

import torch
from torch import Tensor

from labkit.broad.greville import orig_update
from labkit.broad.ridge import chol1_update
from labkit.lab.exercises.judging import Exercise, Question
from labkit.theorems import broad as theorems


@cache
def fewer_columns() -> list[tuple[tuple[Tensor, Tensor, int], Tensor]]:
    """Return F and A^T Y of all columns and a number k, with the first k's weights."""
    *_, (A, state) = theorems.growing("chol-1")
    Y, found = theorems.drawn(len(A), state.AY.shape[1], seed=1), []
    for k in (3, 7):
        first = A[:, :k]
        R = first.T @ first + theorems.RIDGE * torch.eye(k).to(A)
        found.append(((state.F, state.AY, k), torch.linalg.solve(R, first.T @ Y)))
    return found


TASKS = (
    Exercise(
        name="broad-chol1",
        title="Find the new columns $T$ of the factor, above its new corner $G$.",
        function=chol1_update,
        imports="""\
import torch

from labkit.broad.factor import bordered, inverse_cholesky_
from labkit.broad.ridge import smallest_pivot, with_ridge
from labkit.broad.state import FactorState
from labkit.broad.triangular import gram, mm, upper_t_mm""",
        line="T = upper_mm(F, mm_upper(V, G).neg_())  # (42b)",
        blank="T = ...  # (42b)",
        answer="T = -F @ V @ G",
        theorems=(
            theorems.factor_is_that_of_the_inverse,
            theorems.ridge_gradient_vanishes,
        ),
        hints=(
            r"The new factor is $\begin{bmatrix} F & T \\ 0 & G \end{bmatrix}$. Write "
            "$F^\\top R F = I$ in blocks: the upper right one has to be 0.",
            r"It is $F^\top (F^{-\top} F^{-1} T + P G) = 0$, since the old block of "
            r"$R$ is $(F F^\top)^{-1}$. And $V = F^\top P$.",
            r"$F^{-1} T + V G = 0$.",
        ),
        slips=(
            ("the minus is missing", "-F", "F"),
            ("`F` is transposed", "-F", "-F.T"),
            ("`G` is transposed", "@ G", "@ G.T"),
            ("`F` is left out", "-F @ V", "-V"),
            ("`G` is left out", " @ G", ""),
            ("`P` stands where `V` has to", "@ V", "@ P"),
            ("`F` stands there twice", "-F", "-F @ F"),
        ),
    ),
    Exercise(
        name="broad-greville",
        title="Find the generalised inverse of all columns, old and new.",
        function=orig_update,
        imports="""\
import torch

from labkit.broad.factor import cholesky
from labkit.broad.greville import solved
from labkit.broad.ridge import with_ridge
from labkit.broad.state import DaggerState
from labkit.broad.triangular import gram, mm""",
        line="A_dagger = torch.cat([torch.addmm(A_dagger, D, B, alpha=-1), B])  # (20)",
        blank="A_dagger = ...  # (20)",
        answer="A_dagger = torch.cat([A_dagger - D @ B, B])",
        theorems=(theorems.greville_gives_the_generalised_inverse,),
        hints=(
            "`B` has the new rows. The old rows have to be such that $A^+ A = I$ still "
            "holds, and that they take $H$ to 0.",
            r"$A^+ H$ is $D$ and not 0. $B$ takes $H$ to $I$ and $A$ to 0: which "
            "multiple of it takes $D$ away?",
            "`D` is (k, q) and `B` is (q, l), so that `D @ B` has the shape of the old "
            "rows. `torch.cat([upper, lower])` puts `B` below.",
        ),
        slips=(
            ("what the new rows do is added and not taken off", "- D", "+ D"),
            ("the old rows stay as they are", " - D @ B", ""),
            (
                "only the new rows are taken off, without `D`",
                "A_dagger - D @ B",
                "A_dagger - D @ torch.ones_like(B)",
            ),
            (
                "the new rows stand above the old ones",
                "[A_dagger - D @ B, B]",
                "[B, A_dagger - D @ B]",
            ),
            ("the new rows have the wrong sign", "B, B]", "B, -B]"),
        ),
    ),
    Question(
        name="broad-drop",
        title="Find the weights of the first k columns, without a factorisation.",
        wants="a function of F, AY and k that returns a tensor",
        measured=fewer_columns,
        hints=(
            "An update leaves the old $F$ as it is, and puts a block column beside it. "
            "So look at the leading block of $F$.",
            "The leading block is the factor for the first k columns: new columns "
            r"never changed it. The same holds for the first k rows of $A^\top Y$.",
            "The weights are $W = R^{-1} A^\\top Y$ with $R^{-1} = F F^\\top$.",
        ),
        solution="`F[:k, :k] @ (F[:k, :k].T @ AY[:k])`. The leading block of $F$ is "
        r"the factor for the first columns, so that only $W = F F^\top A^\top Y$ has "
        "to be computed.",
    ),
)
