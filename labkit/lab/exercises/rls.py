"""Exercises of recursive least squares: the gain, P, momentum and L1."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from labkit.lab.exercises.judging import Exercise
from labkit.rls import theorems
from labkit.rls.update import descend, gain, rls_step


def two_steps(**options: float) -> Sequence[Tensor]:
    """Take two steps from a random state; return all that they changed."""
    P, theta = theorems.first_P(), theorems.first_theta()
    velocity = theorems.drawn(3, 5, seed=2) if options.get("momentum") else None
    found = []
    for s in range(2):
        x, G = theorems.drawn(5, seed=s + 3), theorems.drawn(3, 5, seed=s + 20)
        rule = theorems.RULE | options
        h = rls_step(theta, P, x, G, velocity=velocity, lr=0.7, **rule)
        found += [h, theta.clone(), P.clone()]
    return found if velocity is None else [*found, velocity]


# What may be drawn of an example, see labkit.lab.exercises.versions.
BOUNDS = {"n": (4, 8), "count": (2, 3), "steps": (3, 6)}
BOUNDS |= {"forgetting": (0.8, 0.95), "mean_weight": (0.2, 0.6)}

EXERCISES = (
    Exercise(
        name="rls-gain",
        title="Write the gain vector $u$ and its normaliser $h$.",
        function=gain,
        tags=("38", "39"),
        equation=r"u = P_{s-1}\,\bar x, \qquad h = \lambda + k T\,\bar x^\top u",
        shapes={"u": "(n,)", "h": "()"},
        hints=(
            r"`P` and `x_mean` are tensors, and `@` is the product of a matrix and a "
            r"vector. The names of $\lambda$, $k$ and $T$ are `forgetting`, "
            "`mean_weight` and `steps`.",
            "$u$ is a vector with one number for each input. $h$ is one number, since "
            r"$\bar x^\top u$ is the scalar product of two vectors.",
            "`x_mean @ u` is the scalar product. It is multiplied by `mean_weight` "
            "and by `steps`, and `forgetting` is added.",
        ),
        example=two_steps,
        theorems=(
            theorems.gain_is_the_new_P_on_the_input,
            theorems.inverse_of_autocorrelation,
            theorems.weights_follow_the_gradient_times_P,
        ),
    ),
    Exercise(
        name="rls-P",
        title="Write the new $P$, which the line below it puts into the library's.",
        function=rls_step,
        tags=("37",),
        equation=r"P_s = \tfrac1\lambda P_{s-1} - \tfrac{kT}{\lambda h} u u^\top",
        shapes={"P_new": "(n, n)"},
        given=("P_new = ...  # (37)\nP.copy_(P_new)",),
        plain=("(P - mean_weight * steps / h * torch.outer(u, u)) / forgetting",),
        stands_for={"P_new": "P"},
        hints=(
            r"$u u^\top$ is a matrix: its entry $(i, j)$ is $u_i u_j$. `torch.outer` "
            "computes it, and so does `u[:, None] * u`.",
            r"The names of $\lambda$, $k$ and $T$ are `forgetting`, `mean_weight` and "
            "`steps`. Both terms are divided by `forgetting`.",
            "The number before the outer product is "
            "`mean_weight * steps / (forgetting * h)`, and the outer product is taken "
            "off `P / forgetting`.",
        ),
        example=two_steps,
        theorems=(
            theorems.inverse_of_autocorrelation,
            theorems.gain_is_the_new_P_on_the_input,
            theorems.weights_follow_the_gradient_times_P,
        ),
    ),
    Exercise(
        name="rls-momentum",
        title="Write the change $\\Omega_s$ of the weights, without and with momentum.",
        function=descend,
        tags=("99",),
        equation=r"\Omega_s = \alpha\,\Omega_{s-1} - \tfrac{\eta}{h}\,\tilde\nabla P",
        shapes={"change": "(N, n)"},
        given=(
            "change = ...  # (99), where momentum is 0\ntheta.add_(change)  # (100)",
            "change = ...  # (99)\nvelocity.copy_(change)",
        ),
        plain=(
            "-lr / h * preconditioned",
            "momentum * velocity - lr / h * preconditioned",
        ),
        stands_for={"change": "velocity"},
        hints=(
            r"`preconditioned` is $\tilde\nabla P$, `velocity` is $\Omega_{s-1}$, "
            r"`momentum` is $\alpha$ and `lr` is $\eta$.",
            r"A step goes against the gradient: its factor is $-\eta / h$, in both "
            "branches.",
            "With momentum, `momentum * velocity` is added to the change that there is "
            "without it.",
        ),
        example=lambda: [*two_steps(momentum=0.6), *two_steps()],
        theorems=(
            theorems.weights_follow_the_gradient_times_P,
            theorems.momentum_is_the_sum_of_earlier_steps,
            theorems.a_clip_is_a_scaled_gradient,
        ),
    ),
    Exercise(
        name="rls-l1",
        title="Write what L1 adds to the weights; it acts through the new $P$.",
        function=rls_step,
        tags=("100",),
        equation=r"\Theta_s = \Theta_{s-1} + \Omega_s "
        r"- \gamma\,\mathrm{sgn}(\Theta_{s-1})\,P_s",
        shapes={"change": "(N, n)"},
        given=("change = ...  # (100), with the new P\ntheta.add_(change)",),
        plain=("-l1 * signs @ P",),
        hints=(
            r"$\Omega_s$ is added already, by `descend`. What is missing is the last "
            r"term; $\gamma$ is `l1`.",
            "`signs` has the signs of the weights before the step, one row a unit, and "
            "`P` is the new one by now.",
            "A row of weights stands left of `P`: the product is `signs @ P`, and its "
            r"factor is $-\gamma$.",
        ),
        example=partial(two_steps, l1=0.02),
        theorems=(theorems.l1_acts_without_a_gradient,),
    ),
)
