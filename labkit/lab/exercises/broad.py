"""Exercises of broad learning: Chol-1, Chol-2, R-Inv, Greville, and new samples."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from labkit.broad import theorems
from labkit.broad.greville import orig_step, r_inv_step
from labkit.broad.ridge import chol1_step, chol2_step
from labkit.broad.rows import rows_start, rows_step, rows_update
from labkit.lab.exercises.judging import Exercise


def two_updates(name: str, ridge: float = theorems.RIDGE) -> Sequence[Tensor]:
    """Add columns twice; return the weights and what the solver keeps."""
    found = []
    for _, state in theorems.growing(name, ridge=ridge):
        kept = state.A_dagger if name in ("r-inv", "orig") else state.F
        found += [state.W.clone(), kept.clone()]
    return found


def two_pieces() -> Sequence[Tensor]:
    """Add samples twice; return the weights and the triangle."""
    l, k, _, c = theorems.SIZES  # noqa: E741
    A, Y = theorems.drawn(l, k, seed=0), theorems.drawn(l, c, seed=1)
    state, found = rows_start(k, Y, theorems.RIDGE), []
    for rows in (slice(6), slice(6, l)):
        state = rows_update(state, A[rows], Y[rows])
        found += [state.W, state.L]
    return found


# What may be drawn of an example, see labkit.lab.exercises.versions.
BOUNDS = {"ridge": (0.3, 1.5)}

EXERCISES = (
    Exercise(
        name="broad-weights",
        title="Write how the new columns change the weights.",
        function=chol1_step,
        tags=("50",),
        equation=r"E = T^\top (A^\top Y) + G^\top (H^\top Y), \qquad "
        r"W \leftarrow \begin{bmatrix} W + T E \\ G E \end{bmatrix}",
        shapes={"W": "(k + q, c)"},
        hints=(
            "`AY` is $A^\\top Y$ and `HY` is $H^\\top Y$; both are kept as sums, so "
            "that no sample is needed here. `T` is (k, q) and `G` is (q, q).",
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
        function=chol1_step,
        tags=("42b",),
        equation=r"V = F^\top P, \qquad T = -F V G",
        shapes={"new": "(k, q)"},
        given=("new = ...  # (42b)\nT = new if out is None else out.copy_(new)",),
        plain=("-F @ V @ G",),
        stands_for={"new": "T"},
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
        function=chol2_step,
        tags=("57",),
        equation=r"G G^\top = \bigl(C^\top C + \lambda (D^\top D + I)\bigr)^{-1}",
        shapes={"S": "(q, q)"},
        given=("S = ...  # (57)\nG, blocks = inverse_cholesky_(S)",),
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
        function=r_inv_step,
        tags=("68",),
        equation=r"B = \bigl(C^\top C + \lambda (D^\top D + I)\bigr)^{-1} C^\top",
        shapes={"K": "(q, q)"},
        given=(
            "K = ...  # (68)\nL = cholesky(K, offset=len(D))  # (68)\n"
            "solve_(L, B)  # (68), in place",
        ),
        plain=("B @ B.T + ridge * (D.T @ D + torch.eye(len(B)).to(B))",),
        hints=(
            "Here `B` holds $C^\\top$, (q, l), until `solve_` replaces it. So $C$ is "
            "`B.T`.",
            "Orig, the older method, leaves out one of the three terms: "
            "$\\lambda D^\\top D$.",
            "`gram(B.T)` is $C^\\top C$, `gram(D)` is $D^\\top D$, and "
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
        title="Write what Greville's recursion makes of the old rows of $A^+$.",
        function=orig_step,
        tags=("20",),
        equation=r"A^+ \leftarrow \begin{bmatrix} A^+ - D B \\ B \end{bmatrix}, "
        r"\qquad D = A^+ H",
        shapes={"old_rows": "(k, l)"},
        given=("old_rows = ...  # (20)\nA_dagger.copy_(old_rows)",),
        plain=("A_dagger - D @ B",),
        stands_for={"old_rows": "A_dagger"},
        hints=(
            "`A_dagger` has one row for each old column, and `B` one for each new "
            "column; `B` is in its place already.",
            "What the new rows do, times the coefficients `D` of the new columns "
            "in the old ones, is taken off the old rows.",
            "`D` is (k, q) and `B` is (q, l), so `D @ B` has the shape of `A_dagger`.",
        ),
        example=partial(two_updates, "orig", ridge=theorems.VANISHING),
        theorems=(theorems.greville_gives_the_generalised_inverse,),
    ),
    Exercise(
        name="broad-rows",
        title="Write the triangle that belongs to the old and the new samples.",
        function=rows_step,
        tags=("1",),
        equation=r"\begin{bmatrix} L^\top & z \\ A & Y \end{bmatrix} "
        r"= Q \begin{bmatrix} L'^\top & z' \\ 0 & \cdot \end{bmatrix}",
        shapes={"M": "(k, k + c)"},
        given=("M = ...  # (1)\nL, z = M[:, :k].T, M[:, k:]",),
        plain=("torch.linalg.qr(torch.cat([old, new])).R[:k]",),
        hints=(
            "`old` is $[L^\\top, z]$ and `new` is $[A, Y]$. One below the other they "
            "are `torch.cat([old, new])`.",
            "A QR decomposition makes a triangle of a tall matrix without changing "
            "$M^\\top M$: `torch.linalg.qr(...)` has it as `.R`.",
            "Only the first `k` rows of the triangle belong to $L'^\\top$ and $z'$. "
            "The sign of a row is free; the library makes the diagonal positive.",
        ),
        example=two_pieces,
        theorems=(theorems.samples_in_pieces_are_all_samples,),
    ),
)
