"""Exercises of BPLS: the solve of a layer, what it wants below, and whole walks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labkit.bpls import activation, random_weights, scores, train, walked
from labkit.bpls.solve import cut_eigh, ridge_cholesky
from labkit.bpls.targets import hidden_targets, neuron_by_neuron
from labkit.lab.datasets import load
from labkit.lab.exercises.answers import Question, called, tensor_of
from labkit.lab.exercises.judging import Exercise
from labkit.theorems import bpls as theorems

RHO = 0.05  # the relative ridge of the examples


def one_walk(**options: object) -> Sequence[Tensor]:
    """Walk through three layers; return their weights and their targets."""
    found = []
    for _, _, step in theorems.walking(**options):
        found += [part for part in (step.W, step.T, step.B) if part is not None]
    return found


def twice() -> Sequence[Tensor]:
    """Correct the hidden values for some targets, and then for others."""
    H, W, B = theorems.layer(11, 5, 3)
    once = hidden_targets(H, W, B)
    return [once, hidden_targets(once, W, 0.7 * B)]


# Runs that decide the questions


def least_widths() -> dict[tuple[int, int], int]:
    """Return, by inputs and outputs, the width from which a walk is least squares.

    The hidden layer is linear. Each width from 1 to 8 is walked once.
    """
    found = {}
    for M, J in ((2, 5), (7, 3), (4, 4), (3, 6), (5, 2)):
        X, Y = theorems.drawn(11, M, seed=1), theorems.drawn(11, J, seed=2)
        wanted = X @ torch.linalg.pinv(X) @ Y
        same = []
        for width in range(1, 9):
            generator = torch.Generator().manual_seed(width)
            start = random_weights(
                (M, width, J), generator=generator, dtype=torch.float64
            )
            end = walked(X, Y, start, "identity", ridge=0)
            off = scores(X, end, "identity") - wanted
            same.append(bool(off.norm() < 1e-6 * wanted.norm()))
        found[M, J] = 1 + same.index(True)
    return found


def judge_widths(answer: Callable, measured: dict) -> tuple[bool, str]:
    """Compare a function of M and J with the widths that were found."""
    said = {sizes: called(answer, *sizes) for sizes in measured}
    rows = "; ".join(
        f"M = {M}, J = {J}: {width}, and yours is {said[M, J]}"
        for (M, J), width in measured.items()
    )
    return said == measured, f"The least width with {rows}."


def noisy_labels() -> dict[str, list[float]]:
    """Return both accuracies [%] after each walk, with wrong labels among the rows.

    One fifth of the labels is drawn at random. The stop rule is off; ``test`` has
    labels as they are.
    """
    data = load("digits")
    X, y = data.inputs.flatten(1).double(), data.targets
    rows, unseen = slice(1000), slice(1000, None)
    g = torch.Generator().manual_seed(0)
    wrong = torch.rand(1000, generator=g) < 0.2
    labels = torch.where(wrong, torch.randint(10, (1000,), generator=g), y[rows])
    start = random_weights((64, 50, 10), generator=g, dtype=torch.float64)
    act, found = [activation("sigmoid")], {"train": [], "test": [], "misses": []}
    walks = train(X[rows], labels, start, act, max_walks=8, ridge=1e-4, stop=False)
    for end in (record.end for record in walks if record.end):
        right = scores(X[unseen], end.weights, act).argmax(1) == y[unseen]
        found["train"].append(100 * float(end.accuracy))
        found["test"].append(100 * float(right.double().mean()))
        found["misses"].append(end.misses)
    return found


def words_of(measured: dict[str, list[float]]) -> tuple[str, str]:
    """Return in words how both accuracies go from the first walk to the last."""
    changes = (measured[name][-1] - measured[name][0] for name in ("train", "test"))
    return tuple("rises" if change > 0 else "falls" for change in changes)


def judge_words(answer: Any, measured: dict) -> tuple[bool, str]:
    """Compare two words with the run."""
    if isinstance(answer, str) or len(answer) != 2:
        raise ValueError(f"got {answer!r}")
    if not set(answer) <= {"rises", "falls"}:
        raise ValueError(f"the words are 'rises' and 'falls', got {answer!r}")
    said = "; ".join(
        f"{name} {measured[name][0]:.1f} %, then {measured[name][-1]:.1f} %"
        for name in ("train", "test")
    )
    misses = measured["misses"]
    stop = next(i for i, n in enumerate(misses) if i and n >= misses[i - 1])
    return tuple(answer) == words_of(measured), (
        f"After the first walk and after the last: {said}. The misses were "
        f"{', '.join(map(str, misses))}, so that the stop rule keeps walk {stop}."
    )


def repaired(W: Tensor) -> Tensor:
    """Return M (J, J): where every neuron makes the mean move (5c), R loses R M."""
    return (1 / W).T @ W / W.shape[1]


def mean_moves() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return weights W, residuals R, and what the moves of (5c) do to the outputs."""
    found = []
    for D, N, J in ((11, 5, 3), (9, 7, 2), (13, 4, 6)):
        H, W, B = theorems.layer(D, N, J)
        found.append((W, B - H @ W, (hidden_targets(H, W, B, "mean") - H) @ W))
    return found


def judge_repaired(answer: Callable, measured: list) -> tuple[bool, str]:
    """Compare a function of W with what the moves did."""
    off, most = [], []
    for W, R, done in measured:
        J = W.shape[1]
        found = tensor_of(called(answer, W.clone()), J, J)
        off.append(float((R @ found - done).norm() / done.norm()))
        most.append(f"{repaired(W).abs().max():.0f}")
    said = ", ".join(f"{error:.2g}" for error in off)
    return max(off) < 1e-6, (  # it may be computed in float32
        f"Relative difference between R M and what the moves do, for three layers: "
        f"{said}. The largest entries of M are {', '.join(most)}."
    )


EXERCISES = (
    Exercise(
        name="bpls-ridge",
        title="Write the weights of a layer, as the ridge solution.",
        function=ridge_cholesky,
        tags=("6",),
        equation=r"W = (A^\top A + \lambda I)^{-1} A^\top B, \qquad "
        r"\lambda = \texttt{ridge} \; \mathrm{tr}(A^\top A) / K",
        shapes={"W": "(K, J)"},
        given=("W = ...  # (6)",),
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
        title="Write what the hidden values should have been.",
        function=hidden_targets,
        tags=("5'",),
        equation=r"\hat H = H + R\,W^+ \quad\text{with}\quad R = B - H W",
        shapes={"return": "(D, N)"},
        hints=(
            "`inverse` is $W^+$, the generalised inverse of the weights above, (J, N), "
            "and `R` is what the outputs lack, (D, J).",
            "$R\\,W^+$ is the smallest change of the hidden values that repairs `R`. "
            "It is added to the values that are there.",
            "`R @ inverse` is (D, N), as `H` is.",
        ),
        example=twice,
        theorems=(
            theorems.targets_repair_the_residual,
            theorems.targets_are_the_smallest_change,
        ),
    ),
    Question(
        name="bpls-1",
        title=(
            "Behind a linear hidden layer, from which width on does the first walk "
            "give the outputs of ordinary least squares? Write it as a function of "
            "the number `M` of inputs and the number `J` of outputs."
        ),
        wants="a function of two whole numbers M and J that returns a whole number",
        measured=least_widths,
        right=lambda _: lambda M, J: min(M, J),
        verdict=judge_widths,
        hints=(
            "In the live experiment, with *identity*, the accuracy of the first walk "
            "is the same from the width 10 on. Digits have 64 inputs and 10 classes.",
            "The hidden values have to repair J residuals. With how few neurons is "
            "there always a change of these that does it?",
            "With few inputs M the outputs of least squares have the rank M, and M "
            "neurons hold all that there is of the inputs.",
        ),
        because=(
            "`min(M, J)`: J neurons can repair any residual, and M neurons hold all "
            "inputs. With fewer, the overshoot of (5') below 1 is the part that can be "
            "repaired."
        ),
    ),
    Question(
        name="bpls-2",
        title=(
            "A fifth of the labels is drawn at random, and eight walks on the misses "
            "follow the first walk, without the stop rule. Does the accuracy rise or "
            "fall from the first walk to the last, on the labels that were learned, "
            "and on clean ones? Predict both."
        ),
        wants="two of the words 'rises' and 'falls', such as ('rises', 'falls')",
        measured=noisy_labels,
        right=words_of,
        verdict=judge_words,
        hints=(
            "Which rows does the first walk miss, once a fifth of the labels is wrong?",
            "The misses are mostly the wrong labels, and the next walk learns from "
            "these alone.",
            "A walk enters with the share f of its rows. What it has learned from "
            "wrong labels, all rows get.",
        ),
        because=(
            "('falls', 'falls'): the misses are mostly the wrong labels, and each walk "
            "learns them with weight f. The stop rule rejects the first walk that does "
            "not lower the misses, and keeps the one before it."
        ),
    ),
    Question(
        name="bpls-3",
        title=(
            "With `interpretation` at *mean*, neuron i moves by the mean over all "
            "outputs j of $R_j / w_{ij}$. When all N neurons have moved, the residual "
            "R (D, J) is smaller by $R\\,M$. Write a function of the weights `W` "
            "(N, J) that returns M (J, J)."
        ),
        wants="a function of W that returns a matrix (J, J)",
        measured=mean_moves,
        right=lambda _: repaired,
        verdict=judge_repaired,
        hints=(
            "With `V = 1 / W`, the move of all neurons is `R @ V.T / J`, where J is "
            "the number of outputs.",
            "A move of the hidden values changes the outputs by the move times `W`.",
            "So $R M$ is `R @ V.T @ W / J`. The diagonal of M is N / J.",
        ),
        because=(
            "`(1 / W).T @ W / W.shape[1]`. An output is repaired N / J times over, and "
            "small weights let it disturb the others by far more. A linear layer "
            "passes all of it on, and is ruined. Behind a sigmoid it cannot get "
            "through: *Targets that the clamp moved* shows that more than half are cut "
            "off at the ends."
        ),
    ),
)
