"""Exercises of recursive least squares: the gain, P, momentum and L1; its knobs."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from labkit.lab.exercises import rls_runs as runs
from labkit.lab.exercises.answers import Question
from labkit.lab.exercises.judging import Exercise
from labkit.rls.update import descend, gain, rls_step
from labkit.theorems import rls as theorems


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
        name="rls-clip",
        title="Write the normaliser by which a clipped gradient acts on the weights.",
        function=rls_step,
        tags=("c",),
        equation=r"\tfrac{\eta}{h_c}\,\tilde\nabla P = "
        r"\tfrac{\eta}{h}\,(c\,\tilde\nabla)\,P",
        shapes={"h_clipped": "()"},
        hints=(
            "A clip multiplies the gradient by `clip`, which is $c$. Here the gradient "
            "is not touched: `h_clipped`, that is $h_c$, takes the place of `h` below.",
            "Without a clip, `clip` is 1, and nothing changes.",
            r"The step is divided by the normaliser, so that $h_c = h / c$.",
        ),
        example=lambda: [*two_steps(momentum=0.6, clip=0.4), *two_steps()],
        theorems=(
            theorems.a_clip_is_a_scaled_gradient,
            theorems.weights_follow_the_gradient_times_P,
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
    Question(
        name="rls-1",
        title=(
            "With few rows in a minibatch, the noise of their mean also enters P. "
            "Write a function of the mean `mu` (n,) and the covariance `Sigma` (n, n) "
            "of the inputs, of the number `M` of rows that are drawn independently, "
            "and of `k`: the matrix by which a step makes $A = P^{-1}$ grow, on "
            "average over all minibatches."
        ),
        wants="a function of mu, Sigma, M and k that returns a matrix (n, n)",
        measured=runs.growths,
        right=lambda _: runs.growth,
        verdict=runs.judge_growth,
        hints=(
            r"One step adds $k\,\bar x \bar x^\top$ to $A$, where $\bar x$ is the mean "
            "of the rows.",
            r"For any random vector, $E[x x^\top]$ is the sum of $\mu \mu^\top$ and of "
            "its covariance.",
            r"The mean of $M$ independent rows has the covariance $\Sigma / M$.",
        ),
        because=(
            "`k * (torch.outer(mu, mu) + Sigma / M)`. With eight rows in the place of "
            "128, other directions than the mean input are switched off, too, and the "
            "mean of each minibatch lies further from the running one: its angle grows."
        ),
    ),
    Question(
        name="rls-2",
        title=(
            "A linear layer learns from all rows X (M, n) at once, with a P that "
            r"stays: a step takes $\eta\,\nabla P$ from the weights. Write a function "
            r"of `X` and `P` that returns the largest $\eta$ with which the loss does "
            "not run away. With P = I this is gradient descent."
        ),
        wants="a function of X and P that returns a number",
        measured=runs.largest_steps,
        right=lambda _: runs.largest_step,
        verdict=runs.judge_largest,
        hints=(
            r"The gradient of half the mean squared error is $(\Theta - \Theta^*)\,C$, "
            "with $C = X^\\top X / M$. What does a step multiply the error by?",
            r"It is $\Theta - \Theta^* \leftarrow (\Theta - \Theta^*)(I - \eta\,C P)$. "
            "In which direction does this grow first?",
            r"No eigenvalue of $I - \eta\,C P$ may lie below -1, so that $\eta$ times "
            "the largest eigenvalue of `C @ P` is at most 2. `torch.linalg.eigvals` "
            "returns complex numbers; these have no imaginary part.",
        ),
        because=(
            "`2 / torch.linalg.eigvals(X.T @ X / len(X) @ P).real.max()`. Gradient "
            r"descent is limited by the curvature along the mean input, "
            r"$|\bar x|^2$ and more. RLS has switched that direction off, and the next "
            "largest curvature decides."
        ),
    ),
    Question(
        name="rls-3",
        title=(
            "Let every minibatch have the same mean input, with $q = |\\bar x|^2$, and "
            "P begin as I. Write the curve of h: a function of `k`, `q` and the step "
            "s = 1, 2, ... Which part of it notices k?"
        ),
        wants="a function of k, q and s that returns a number",
        measured=runs.curves_of_h,
        right=lambda _: runs.curve_of_h,
        verdict=runs.judge_curve,
        hints=(
            r"After $s - 1$ steps $A = I + (s - 1)\,k\,\bar x \bar x^\top$, and $P$ is "
            "its inverse.",
            r"Along $\bar x$, $A$ is $1 + (s - 1)\,k q$, so that "
            r"$\bar x^\top P \bar x$ is $q$ over this number.",
            r"$h = 1 + k\,\bar x^\top P_{s-1} \bar x$.",
        ),
        because=(
            "`1 + k * q / (1 + (s - 1) * k * q)`. From the second step on a large k "
            "gives $1 + 1 / (s - 1)$, whatever it is: k decides how many steps it "
            "takes to switch the mean input off. The end of a run is nearly the same "
            "over three decades of it."
        ),
    ),
    Question(
        name="rls-4",
        title=(
            "From which `l1` on does RLS+R lose more than one point of accuracy on "
            "digits? Answer a strength that does, while a tenth of it does not."
        ),
        wants="a number above 0",
        measured=partial(runs.accuracy, 0.0),
        right=runs.harmful,
        verdict=runs.judge_harm,
        hints=(
            "The paper's strength is 1e-5. In the live experiment take a method with "
            "+R, and turn `l1` up.",
            "Go up by factors of ten until the accuracy falls.",
            "It is some hundred times the paper's strength.",
        ),
        because=(
            "Above 1e-3, some hundred times the paper's 1e-5: that strength is far "
            "from any effect on the accuracy."
        ),
    ),
    Question(
        name="rls-5",
        title=(
            "RLS with the mean weight k, the step factor `lr` and `P0_scale` makes the "
            "same run as RLS with the mean weight 1 and two other numbers. Write a "
            "function of `k`, `lr` and `P0_scale` that returns these two, the new `lr` "
            "and the new `P0_scale`."
        ),
        wants="a function of k, lr and P0_scale that returns two numbers above 0",
        measured=runs.with_mean_weight,
        right=lambda _: runs.with_mean_weight_one,
        verdict=runs.judge_same,
        hints=(
            r"h and the steps have to stay the same. h has $k\,\bar x^\top P \bar x$, "
            r"and a step has $\eta\,\nabla P$.",
            "If k becomes 1, that is k / k, then P has to become k P.",
            "With P times k, the step factor has to be divided by k.",
        ),
        because=(
            "`(lr / k, k * P0_scale)`: the two runs are the same but for rounding. So "
            "k is no constant of its own, but the weight of the data against $P_0$."
        ),
    ),
)
