"""Exercises of stochastic Hessian-free: the maps, LSMR's rotations, the batch rule."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from labkit.hessian_free import Autoencoder, HessianFree, lsmr, lsmr_steps
from labkit.hessian_free.batch_size import batch_gradient_variance, next_batch_size
from labkit.hessian_free.linearise import LinearisedLayers, linearise, squared_error
from labkit.hessian_free.lsmr import rotate
from labkit.hessian_free.preconditioner import diagonal_estimate
from labkit.hessian_free.system import build_system
from labkit.lab.datasets import load
from labkit.lab.exercises.answers import Question, called
from labkit.lab.exercises.judging import Exercise
from labkit.theorems import Finding, hessian_free as theorems

ROWS, WIDTHS = 7, (5, 4, 3, 4, 5)


def drawn(*shape: int, seed: int) -> Tensor:
    """Draw standard normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def net(widths: Sequence[int] = WIDTHS) -> Autoencoder:
    """Return a small autoencoder with dense weights."""
    made = Autoencoder(widths, dtype=torch.float64)
    for i, W in enumerate(made.parameters()):
        W.data = 0.8 * drawn(*W.shape, seed=i)
    return made


def images(n: int = ROWS, width: int = WIDTHS[0], seed: int = 10) -> Tensor:
    """Return n rows of numbers in (0, 1)."""
    return drawn(n, width, seed=seed).sigmoid()


# Examples: all that two or more steps change


def system(m: int = 11, n: int = 8) -> tuple[Tensor, Tensor, dict]:
    """Return A, b, and a start, damping and preconditioner, none of them 1."""
    scale = 0.2 + drawn(n, seed=3).sigmoid()
    options = {"x0": drawn(n, seed=2), "scale": scale, "damping": 0.6}
    return drawn(m, n, seed=0), drawn(m, seed=1), options


def iterations() -> Sequence[Tensor]:
    """Take four iterations of LSMR; return the iterates and their norms."""
    A, b, options = system()
    found = []
    for step in islice(lsmr_steps(build_system(A, b, **options)), 5):
        found += [step.x[0].clone(), torch.tensor(step.norms, dtype=torch.float64)]
    return found


def hf_steps() -> Sequence[Tensor]:
    """Take two steps of Hessian-free; return the weights, the noise and the model."""
    model, X = net(), images()
    generator = torch.Generator().manual_seed(0)
    optimizer = HessianFree(
        model, damping=0.3, damping_decay=0.99, maxiter=6, generator=generator
    )
    found = []
    for _ in range(2):
        step = optimizer.step(X)
        noise = batch_gradient_variance(step.point)
        found += [W.detach().clone() for W in model.parameters()]
        found.append(torch.tensor([*noise, step.predicted], dtype=torch.float64))
    return found


def products() -> Sequence[Tensor]:
    """Return A d and A'U at two points."""
    found = []
    for seed in (10, 11):
        point = linearise(net(), images(seed=seed))
        d = tuple(drawn(*W.shape, seed=seed + i) for i, W in enumerate(point.weights))
        U = drawn(ROWS, WIDTHS[-1], seed=seed + 20)
        found += [point.forward_map(d), *point.transpose_map(U)]
    return found


# V, the squared norm, N and theta; n-hat notices each term and factor.
CASES = (
    (9.0, 1.2, 12, 0.8),
    (4.0, 2.5, 1000, 0.5),
    (900.0, 0.02, 100_000, 0.3),
    (90.0, 0.2, 60, 0.6),
    (12.5, 0.3, 7000, 0.15),
)


def batches() -> Sequence[Tensor]:
    """Return the next batch's size in all cases."""
    sizes = [next_batch_size(*case) for case in CASES]
    return [torch.tensor(sizes, dtype=torch.float64)]


def on_system(
    theorem: Callable,
    k: int,
    *,
    equations: int = 11,
    unknowns: int = 8,
    damping: float = 0.6,
) -> Finding:
    """Judge k iterations of LSMR on a small system."""
    A, b, options = system(equations, unknowns)
    return theorem(A, b, k, **options | {"damping": damping})


def rotations(*, unit: float = 1.0) -> Finding:
    """Judge the rotations of a bidiagonal matrix, whose entries have some unit."""
    alphas, betas = (1.7, 0.8, 2.3, 1.4, 0.6), (2.9, 1.3, 0.7, 1.9, 2.2)
    return theorems.rotations_annihilate(
        [unit * alpha for alpha in alphas], [unit * beta for beta in betas]
    )


LSMR = (
    rotations,
    partial(on_system, theorems.least_gradient, 3),
    partial(on_system, theorems.true_norms, 4),
    partial(on_system, theorems.norms_fall, 6),
)


def adjoint(*, rows: int = ROWS) -> Finding:
    """Judge A and A' of the small net by one pair of vectors."""
    point = linearise(net(), images(rows))
    d = tuple(drawn(*W.shape, seed=i + 30) for i, W in enumerate(point.weights))
    return theorems.adjoint(point, d, drawn(rows, WIDTHS[-1], seed=40))


def derivative(*, rows: int = ROWS) -> Finding:
    """Judge A d of the small net by ``torch.func``."""
    model = net()
    d = tuple(drawn(*W.shape, seed=i + 30) for i, W in enumerate(model.parameters()))
    return theorems.derivative(model, images(rows), images(rows, seed=12), d)


def unbiased_diagonal() -> Finding:
    """Judge the estimate of diag(A'A) by all 2^8 signs of a smaller net."""
    return theorems.unbiased_diagonal(net((2, 3, 2)), images(4, 2))


def gradient_noise(*, rows: int = 9) -> Finding:
    """Judge the noise of the gradient by an explicit loop over examples."""
    return theorems.gradient_noise(net(), images(rows))


def least_batch(*, unit: float = 1.0) -> Finding:
    """Judge the batch rule in exact arithmetic, for a loss in some unit."""
    return theorems.least_batch((unit * V, unit * g2, N, t) for V, g2, N, t in CASES)


# Runs that decide the questions


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
        ends = [solve(damp_towards=towards).x for towards in ("start", "zero")]
        gap = (ends[0] - ends[1]).norm() / ends[1].norm()
        found.append(((A, b, x0, 0.6), float(gap)))
    return found


def exact_gap(A: Tensor, b: Tensor, x0: Tensor, damping: float) -> float:
    """Return the same from the normal equations."""
    B = A.T @ A + damping**2 * torch.eye(A.shape[1], dtype=A.dtype)
    x = torch.linalg.solve(B, A.T @ b)
    return float(damping**2 * torch.linalg.solve(B, x0).norm() / x.norm())


def judge_settled(answer: Callable, measured: list) -> tuple[bool, str]:
    """Compare a function of a system with where LSMR's iterates ended."""
    said = [float(called(answer, *system)) for system, _ in measured]
    right = all(
        math.isclose(one, gap, rel_tol=1e-6)
        for one, (_, gap) in zip(said, measured, strict=True)
    )
    ends = ", ".join(f"{gap:.4g}" for _, gap in measured)
    yours = ", ".join(f"{one:.4g}" for one in said)
    return right, f"LSMR ends at the distances {ends}; your function gives {yours}."


def denoised() -> dict[str, list[float]]:
    """Return, for clean and noisy images, errors after training on noise over without.

    Two seeds, 15 steps on 200 digits, shrunk to 4 by 4.
    """
    X = load("digits", dtype=torch.float64).inputs.unflatten(1, (1, 8, 8))
    X = torch.nn.functional.avg_pool2d(X, 2).flatten(1)
    fit, test = X[:200], X[400:700]
    noisy = test + 0.3 * drawn(*test.shape, seed=5)
    found: dict[str, list[float]] = {"clean": [], "noisy": []}
    for seed in range(2):
        errors = []
        for noise in (0.0, 0.3):
            g = torch.Generator().manual_seed(seed)
            model = Autoencoder((16, 8, 16), generator=g, dtype=torch.float64)
            optimizer = HessianFree(
                model, damping=0.3, damping_decay=0.8, maxiter=20, generator=g
            )
            for s in range(15):
                batch = fit + noise * drawn(*fit.shape, seed=100 * seed + s)
                optimizer.step(batch, fit)
            pairs = ((test, test), (noisy, test))
            errors.append([float(squared_error(model, *pair)) for pair in pairs])
        for name, without, trained in zip(found, *errors, strict=True):
            found[name].append(trained / without)
    return found


def judge_denoised(answer: object, measured: dict) -> tuple[bool, str]:
    """Compare two words with the ratios that were measured."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise ValueError(f"got {answer!r}")
    if not set(answer) <= {"rises", "falls"}:
        raise ValueError(f"the words are 'rises' and 'falls', got {answer!r}")
    said = "; ".join(
        f"on {name} images it is {min(ratios):.2f} to {max(ratios):.2f} times as large"
        for name, ratios in measured.items()
    )
    return tuple(answer) == words_of(measured), f"In two runs, {said}."


def words_of(ratios: Mapping[str, list[float]]) -> tuple[str, ...]:
    """Return whether the errors rise or fall, in words."""
    return tuple("rises" if sum(r) > len(r) else "falls" for r in ratios.values())


ROTATED = (
    "A plane rotation turns two numbers (a, b) into (r, 0). Its cosine is a / r and "
    r"its sine b / r, with $r = \sqrt{a^2 + b^2}$."
)
HYPOT = "`math.hypot(a, b)` is that root."

EXERCISES = (
    Exercise(
        name="hessian_free-rotation",
        title=r"Write the rotation that annihilates $\beta$, below the diagonal of B.",
        function=rotate,
        tags=("2",),
        equation=(
            r"\rho = \sqrt{\bar\alpha^2 + \beta^2}, \quad \cos = \bar\alpha / \rho, "
            r"\quad \sin = \beta / \rho"
        ),
        shapes={"rho": "a number", "cos": "a number", "sin": "a number"},
        hints=(
            ROTATED,
            r"$\bar\alpha$ of the iteration before is `s.alphabar`. " + HYPOT,
            "`rho` is the `math.hypot` of `s.alphabar` and `beta`; `cos` belongs to "
            "the first and `sin` to the second.",
        ),
        example=iterations,
        theorems=LSMR,
    ),
    Exercise(
        name="hessian_free-next-column",
        title=r"Write what the rotation makes of the next column, (0, $\alpha$).",
        function=rotate,
        tags=("3",),
        equation=r"\theta = \sin\,\alpha, \qquad \bar\alpha' = \cos\,\alpha",
        shapes={"theta": "a number", "alphabar": "a number"},
        hints=(
            "The rotation that annihilates an entry also acts on the column beside it. "
            r"There stand 0 and $\alpha$.",
            r"The upper number becomes $\theta$, beside the diagonal. The lower one is "
            r"what the next rotation begins with, $\bar\alpha'$.",
            "Both are `alpha` times the cosine or the sine, which the lines above "
            "have.",
        ),
        example=iterations,
        theorems=LSMR,
    ),
    Exercise(
        name="hessian_free-second-rotation",
        title=r"Write the rotation that makes $R^\top$ triangular.",
        function=rotate,
        tags=("4", "5"),
        equation=(
            r"\bar\theta = \bar s\,\rho, \quad "
            r"\bar\rho = \sqrt{(\bar c\,\rho)^2 + \theta^2}, \quad "
            r"\bar c' = \bar c\,\rho / \bar\rho, \quad \bar s' = \theta / \bar\rho"
        ),
        shapes={
            "thetabar": "a number",
            "rhobar": "a number",
            "cbar": "a number",
            "sbar": "a number",
        },
        hints=(
            ROTATED + r" Here a is $\bar c\,\rho$ and b is $\theta$.",
            r"$\bar c$ and $\bar s$ of the iteration before are `s.cbar` and `s.sbar`; "
            "the new ones are `cbar` and `sbar`. " + HYPOT,
            "`thetabar` and `rhobar` need `s.sbar` and `s.cbar`, each times `rho`. "
            "`cbar` and `sbar` are the cosine and the sine of this rotation.",
        ),
        example=iterations,
        theorems=LSMR,
    ),
    Exercise(
        name="hessian_free-zeta",
        title="Write what the second rotation makes of the right-hand side.",
        function=rotate,
        tags=("6",),
        equation=r"\zeta = \bar c'\,\bar\zeta, \qquad \bar\zeta' = -\bar s'\,\bar\zeta",
        shapes={"zeta": "a number", "zetabar": "a number"},
        hints=(
            r"The rotation has the rows $(\bar c', \bar s')$ and $(-\bar s', \bar "
            r"c')$. It acts on $(\bar\zeta, 0)$.",
            r"$\bar\zeta$ of the iteration before is `s.zetabar`. The new cosine and "
            "sine, `cbar` and `sbar`, are used.",
            r"$|\bar\zeta'|$ is the norm of the gradient. The minus stands with the "
            "sine.",
        ),
        example=iterations,
        theorems=LSMR,
    ),
    Exercise(
        name="hessian_free-batch",
        title="Write the least batch whose noise is within its bound.",
        function=next_batch_size,
        tags=("2", "3"),
        equation=(
            r"\hat n = \left\lceil \frac{N V}{V + \theta^2 (N - 1) |\nabla f_S|^2} "
            r"\right\rceil \text{ solves } \frac{V}{n} \cdot \frac{N - n}{N - 1} \le "
            r"\theta^2 |\nabla f_S|^2"
        ),
        shapes={"n": "a whole number"},
        hints=(
            "Multiply both sides of the inequality by $n (N - 1)$, and bring all terms "
            "with n to one side.",
            "`V`, `g2` and `t` are exact fractions of the noise, of the squared norm "
            r"and of $\theta$; `population` is N.",
            "The quotient is `population * V / (V + t**2 * (population - 1) * g2)`. A "
            "batch is a whole number, and a smaller one has more noise: round up, with "
            "`math.ceil`.",
        ),
        example=batches,
        theorems=(least_batch,),
    ),
    Exercise(
        name="hessian_free-noise",
        title="Write the sample variance of one example's gradient.",
        function=batch_gradient_variance,
        tags=("1",),
        equation=(
            r"V = \frac{n}{n - 1} \left( \frac1n \sum_i |\nabla f_i|^2 - "
            r"|\nabla f_S|^2 \right)"
        ),
        shapes={"V": "()"},
        hints=(
            "The variance of a number is the mean of its square less the square of its "
            "mean. Here the same is summed over all parameters.",
            r"`squares` is $\sum_i |\nabla f_i|^2$, without the $1/n$, and `g2` is "
            r"$|\nabla f_S|^2$.",
            r"The factor $\frac{n}{n-1}$ stands before the whole difference, since the "
            "mean was estimated from the same n examples.",
        ),
        example=hf_steps,
        theorems=(gradient_noise,),
    ),
    Exercise(
        name="hessian_free-diagonal",
        title="Write the estimate of the diagonal of $A^T A$ from one backward pass.",
        function=diagonal_estimate,
        tags=("1",),
        equation=r"g = \frac1n \sum_i (J_i^\top u_i)^2",
        shapes={"return": "the weights"},
        hints=(
            r"`point.sum_squares(U)` is $\sum_i (J_i^\top u_i)^2$ for the rows $u_i$ "
            "of U. `point.n` is n. The factor is missing.",
            r"The sum is quadratic in U. To get $\frac1n$ before it, U needs a factor "
            r"of $\frac{1}{\sqrt n}$.",
            "`signs / point.n**0.5` is U.",
        ),
        example=hf_steps,
        theorems=(unbiased_diagonal,),
    ),
    Exercise(
        name="hessian_free-forward",
        title="Write how a change of the weights passes through a layer.",
        function=LinearisedLayers.forward_map,
        tags=("A2",),
        equation=r"F_l = S'_l \circ (F_{l-1} W_l^- + \tilde S_{l-1} D_l)",
        shapes={"F": "(n, m)"},
        hints=(
            r"This is the product rule for $\tilde S_{l-1} W_l$: the signal changes "
            "through the old weights, and the weights change under the old signal.",
            r"`W[i][:-1]` is $W_l^-$, without the row of the bias, `S[i]` is "
            r"$\tilde S_{l-1}$, `d[i]` is $D_l$, and `S_[i]` is $S'_l$.",
            "Two matrix products are added, and the sum is multiplied by `S_[i]` entry "
            "by entry.",
        ),
        example=products,
        theorems=(derivative, adjoint),
    ),
    Exercise(
        name="hessian_free-adjoint",
        title="Write the product of $A^T$ with U, from the backward signals.",
        function=LinearisedLayers.transpose_map,
        tags=("B3",),
        equation=r"A^\top U = (\tilde S_{l-1}^\top F_l / \sqrt n)_l",
        shapes={"return": "the weights"},
        hints=(
            r"`pairs` has $\tilde S_{l-1}$ (n, m_l + 1) and $F_l$ (n, m_{l+1}) of each "
            r"layer. The factor $1/\sqrt n$ is in $F_l$ already.",
            "The result is a tuple, and its entry for a layer has the shape of the "
            "layer's weights, (m_l + 1, m_{l+1}).",
            "The sum over the n rows is a product with the transpose of the first.",
        ),
        example=products,
        theorems=(adjoint,),
    ),
    Question(
        name="hessian_free-1",
        title=(
            "With `damp_towards` at *start*, the distance of LSMR's iterates from the "
            "step that is damped towards 0 does not fall to 0. Write a function of "
            "`A`, `b`, `x0` and `damping` that returns where it settles, relative to "
            "the length of that step, without running LSMR."
        ),
        wants="a function of A, b, x0 and damping that returns a number",
        measured=settled,
        right=lambda _: exact_gap,
        verdict=judge_settled,
        hints=(
            "LSMR solves its problem, but it is another one. Write the normal "
            "equations of both.",
            r"They are $(A^\top A + \lambda^2 I)\,x = A^\top b$ and "
            r"$(A^\top A + \lambda^2 I)(x - x_0) = A^\top (b - A x_0)$.",
            "`torch.linalg.solve` solves both. Their difference is "
            r"$\lambda^2 (A^\top A + \lambda^2 I)^{-1} x_0$.",
        ),
        because=(
            r"$\lambda^2 |(A^\top A + \lambda^2 I)^{-1} x_0|$ over the length of the "
            "step. This is no fault of LSMR: it penalises the distance from the start, "
            "and the answer keeps more of the last direction."
        ),
    ),
    Question(
        name="hessian_free-2",
        title=(
            "A net is trained with noise of 0.3 on its inputs, and with clean targets. "
            "Beside a net that never saw noise, does its error rise or fall on clean "
            "images, and on noisy ones? Predict both."
        ),
        wants="two of the words 'rises' and 'falls', such as ('falls', 'falls')",
        measured=denoised,
        right=words_of,
        verdict=judge_denoised,
        hints=(
            "The narrow layer has to hold what tells images apart, and not the noise.",
            "On clean images, a net that was trained on them alone has seen nothing "
            "else.",
            "On noisy images, a net that never saw noise takes it for a part of the "
            "image.",
        ),
        because=(
            "('rises', 'falls'): what noise costs on clean images, it brings on noisy "
            "ones."
        ),
    ),
)
