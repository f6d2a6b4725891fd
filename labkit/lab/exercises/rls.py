"""Exercises of recursive least squares: P, a clip's normaliser, and the curve of h."""

from functools import cache

import torch

from labkit.lab.exercises.judging import Exercise, Question
from labkit.rls.update import rls_step
from labkit.theorems import rls as theorems

IMPORTS = "import torch\n\nfrom labkit.rls.update import descend, gain"


@cache
def curves_of_h() -> list[tuple[tuple[float, float, int], float]]:
    """Return k, q and a step, each with h of a run whose mean inputs are all alike."""
    found = []
    for k, size in ((0.01, 3), (0.3, 3), (0.3, 1), (100.0, 3)):
        x = torch.linspace(0.5, 1.5, 4).double() * size
        P, theta = torch.eye(4).double(), torch.zeros(1, 4).double()
        for step in range(1, 41):
            h = rls_step(theta, P, x, torch.zeros_like(theta), mean_weight=k)
            if step in (1, 2, 10, 40):
                found.append(((k, float(x @ x), step), float(h)))
    return found


TASKS = (
    Exercise(
        name="rls-P",
        title="Find the new $P$ from the old one, without inverting a matrix.",
        function=rls_step,
        imports=IMPORTS,
        line="""\
v = u * (mean_weight * steps / (forgetting * h)).sqrt()  # (37)
    P.div_(forgetting).addcmul_(v[:, None], v, value=-1)  # (37)""",
        blank="P_new = ...  # (37)\n    P.copy_(P_new)",
        answer="""\
P_new = (P - mean_weight * steps / h * torch.outer(u, u)) / forgetting
    P.copy_(P_new)""",
        theorems=(
            theorems.inverse_of_autocorrelation,
            theorems.gain_is_the_new_P_on_the_input,
        ),
        hints=(
            r"$A$ grows by a matrix of rank one, $kT \bar x \bar x^\top$. What has to "
            r"be taken off $\frac1\lambda P$ then also has rank one, and it is "
            r"symmetric: a number times $u u^\top$.",
            r"Multiply $\frac1\lambda P - c\,u u^\top$ by $\lambda A + kT \bar x \bar "
            r"x^\top$, where $P A = I$ and $\bar x^\top u = (h - \lambda) / kT$. For "
            "which $c$ is this $I$?",
            r"$c = \frac{kT}{\lambda h}$. `torch.outer(u, u)` is $u u^\top$.",
        ),
        slips=(
            ("the term of rank one is added and not taken off", "P - ", "P + "),
            (
                "only the first term is divided by `forgetting`",
                "/ h *",
                "* forgetting / h *",
            ),
            ("nothing is divided by `forgetting`", ") / forgetting", ")"),
            ("`steps` is left out", "mean_weight * steps", "mean_weight"),
            ("`mean_weight` is left out", "mean_weight * steps", "steps"),
            ("the term of rank one is not divided by `h`", "/ h *", "*"),
            (
                "the term of rank one has `x_mean` in the place of `u`",
                "(u, u)",
                "(x_mean, x_mean)",
            ),
            (
                "the term of rank one is left out",
                " - mean_weight * steps / h * torch.outer(u, u)",
                "",
            ),
        ),
    ),
    Exercise(
        name="rls-clip",
        title="Find the normaliser by which a clipped gradient acts on the weights.",
        function=rls_step,
        imports=IMPORTS,
        line="h_clipped = h / clip  # (c)",
        blank="h_clipped = ...  # (c)",
        answer="h_clipped = h / clip  # (c)",
        theorems=(
            theorems.a_clip_is_a_scaled_gradient,
            theorems.weights_follow_the_gradient_times_P,
        ),
        hints=(
            "The gradient stays as it is, and so does `preconditioned`. Only what the "
            "step is divided by can change.",
            r"$\frac{\eta}{h_c} \nabla P$ has to be $\frac{\eta}{h} (c \nabla) P$.",
            "The step becomes smaller, $c < 1$, so that the normaliser becomes larger: "
            "divide by `clip`.",
        ),
        slips=(
            (
                "the clip divides the gradient, so that the step grows",
                "h / clip",
                "h * clip",
            ),
            ("the clip is left out", "h / clip", "h"),
            ("`h` is left out", "h / clip", "torch.ones_like(h) / clip"),
            ("the clip acts twice", "h / clip", "h / clip**2"),
        ),
    ),
    Question(
        name="rls-curve",
        title="Find the curve of h where all minibatches have the same mean input.",
        wants="a function of k, q and s that returns a number",
        measured=curves_of_h,
        hints=(
            r"After $s - 1$ steps $A = I + (s - 1)\,k\,\bar x \bar x^\top$, and $P$ is "
            "its inverse.",
            r"Along $\bar x$, $A$ is $1 + (s - 1)\,k q$, so that $\bar x^\top P \bar "
            "x$ is $q$ over this number.",
            r"$h = 1 + k\,\bar x^\top P_{s-1} \bar x$.",
        ),
        solution="`1 + k * q / (1 + (s - 1) * k * q)`. From the second step on a large "
        "k gives $1 + 1 / (s - 1)$, whatever it is: k decides how many steps it takes "
        "to switch the mean input off. Figure 4(a) in docs/reproduction/rls.md has the "
        "ends of recorded runs over three decades of it.",
    ),
)
