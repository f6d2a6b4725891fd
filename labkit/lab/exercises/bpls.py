"""Exercises of BPLS: the solve of a layer, and the values that it wants below."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from labkit.bpls import theorems
from labkit.bpls.solve import cut_eigh, ridge_cholesky
from labkit.bpls.targets import hidden_targets, neuron_by_neuron
from labkit.lab.exercises.judging import Exercise

RHO = 0.05  # the relative ridge of the examples


def one_walk(**options: object) -> Sequence[Tensor]:
    """Walk through three layers; return their weights and their targets."""
    found = []
    for _, _, step in theorems.walking(**options):
        found += [part for part in (step.W, step.T, step.B) if part is not None]
    return found


def both_ways() -> Sequence[Tensor]:
    """Correct the hidden values twice: with and without waiting for a device."""
    shapes = (11, 5), (5, 3), (11, 3)
    H, W, B = (theorems.drawn(*shape, seed=i) for i, shape in enumerate(shapes))
    once = hidden_targets(H, W, B, careful=True)
    return [once, hidden_targets(once, W, 0.7 * B, careful=False)]


# What may be drawn of an example, see labkit.lab.exercises.versions.
BOUNDS = {"D": (9, 14), "N": (5, 7), "J": (2, 4), "ridge": (0.02, 0.2)}

EXERCISES = (
    Exercise(
        name="bpls-ridge",
        title="Write the weights of a layer, as the ridge solution.",
        function=ridge_cholesky,
        tags=("6",),
        equation=r"W = (A^\top A + \lambda I)^{-1} A^\top B",
        shapes={"W": "(K, J)"},
        given=("W = ...  # (6)\nreturn W, regular.info()",),
        plain=("regular.solve(A.T @ B)",),
        hints=(
            r"`regular` holds the Cholesky factor of $A^\top A + \lambda I$. "
            "`regular.solve(C)` multiplies $C$ by the inverse of that matrix.",
            r"What is multiplied by the inverse is $A^\top B$, (K, J): one column for "
            "each neuron of the layer.",
            "`cross(A, B)` is `A.mT @ B`, computed with the thin factor on the left.",
        ),
        example=partial(one_walk, ridge=RHO),
        theorems=(
            partial(theorems.weights_solve_the_ridge_problem, RHO),
            theorems.all_methods_agree,
        ),
    ),
    Exercise(
        name="bpls-eigen",
        title="Write the weights of a layer from the eigenvectors of its Gram matrix.",
        function=cut_eigh,
        tags=("6",),
        equation=r"W = V\,\mathrm{diag}(w + \lambda)^{-1}\,V^\top C, \qquad "
        r"A^\top A = V\,\mathrm{diag}(w)\,V^\top, \quad C = A^\top B",
        shapes={"W": "(K, J)"},
        hints=(
            "`filtered` has the numbers $1 / (w_i + \\lambda)$, (K,), with 0 where an "
            "eigenvalue is cut off. The columns of `V` are the eigenvectors.",
            "From the right: `V.mT @ C` has one row for each eigenvector. Each row "
            "is multiplied by its number, and `V` turns the result back.",
            "`filtered[..., None]` has the shape (K, 1), so that it multiplies rows "
            "and not columns.",
        ),
        example=partial(one_walk, ridge=RHO, method="eigh", rcond=0.0),
        theorems=(
            partial(theorems.weights_solve_the_ridge_problem, RHO, "eigh"),
            theorems.all_methods_agree,
        ),
    ),
    Exercise(
        name="bpls-neurons",
        title="Write the move of one neuron, and the residual that it leaves.",
        function=neuron_by_neuron,
        tags=("5b",),
        equation=r"\hat n_i = n_i + R\,w_i^\top / |w_i|^2, \qquad "
        r"R \leftarrow R - (\hat n_i - n_i)\,w_i",
        shapes={"move": "(D,)", "R": "(D, J)"},
        hints=(
            "`w` is the row $w_i$ with the shape (1, J), and `scale[..., i, None]` is "
            "$1 / |w_i|^2$. `move` is one number for each sample.",
            r"$R\,w_i^\top$ is a scalar product for each sample: multiply `R` by `w` "
            "and sum over the outputs.",
            "The residual changes by the outer product of `move`, as a column "
            "`move[..., None]`, and `w`. It becomes smaller: there is a minus.",
        ),
        example=partial(one_walk, ridge=RHO, interpretation="gauss_seidel"),
        theorems=(theorems.neurons_move_one_after_the_other,),
    ),
    Exercise(
        name="bpls-targets",
        title="Write what the hidden values should have been, with either inverse.",
        function=hidden_targets,
        tags=("5'",),
        equation=r"\hat H = H + R\,W^+ \quad\text{with}\quad R = B - H W",
        shapes={"return": "(D, N)"},
        given=(
            "inverse = decomposed(torch.linalg.pinv, W, rtol=rtol)\nreturn ...  # (5')",
            "inverse = full_rank_inverse(W)\nreturn ...  # (5')",
        ),
        plain=("H + R @ inverse", "H + R @ inverse"),
        hints=(
            "`inverse` is $W^+$, the generalised inverse of the weights above, (J, N), "
            "and `R` is what the outputs lack, (D, J).",
            "$R\\,W^+$ is the smallest change of the hidden values that repairs `R`. "
            "It is added to the values that are there.",
            "Both lines are the same: `R @ inverse` is (D, N), as `H` is.",
        ),
        example=both_ways,
        theorems=(
            theorems.targets_repair_the_residual,
            theorems.targets_are_the_smallest_change,
        ),
    ),
)
