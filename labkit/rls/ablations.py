r"""Three relatives of RLS that show which part of it does the work.

They teach; none is meant for use. All but the product with P is :class:`RLS`'s own.
"""

import torch
from torch import Tensor

from labkit.rls.blocks import Block
from labkit.rls.optimizer import RLS, Pending


class KailathRLS(RLS):
    r"""RLS without the average approximation: every row of the minibatch enters P.

    The exact inverse of (27), and the step with it:

    .. math::
        S &= \lambda M I + X P_{s-1} X^\top,\qquad
        P_s = \tfrac1\lambda\bigl(P_{s-1} - P_{s-1}X^\top S^{-1} X P_{s-1}\bigr) \\
        \Theta_s &= \Theta_{s-1}-\eta\,\tilde\nabla P_s,\quad X P_s = M S^{-1}X P_{s-1}

    Steps die out like 1/s. ``ratio`` has no effect. Linear layers only; one M x M
    factorisation a step.
    """

    keeps_inputs = True

    def precondition(self, each: Pending):
        """Set ``left @ right`` to the gradient times the new P; h = 1."""
        P, X, forgetting = each.state["P"], each.X, each.options["forgetting"]
        XP = X @ P
        M = each.block.sequences
        S = (XP @ X.T).diagonal_scatter((XP * X).sum(1) + forgetting * M)
        L, _ = torch.linalg.cholesky_ex(S)  # what is not finite is refused afterwards
        each.left, each.right = each.dZ.T, M * torch.cholesky_solve(XP, L)
        each.u = torch.linalg.solve_triangular(L, XP, upper=False)
        each.h = torch.ones_like(XP[0, 0])

    def remember(self, each: Pending):
        """Replace P by the exact inverse, made symmetric again."""
        P = (each.state["P"] - each.u.T @ each.u) / each.options["forgetting"]
        each.state["P"].copy_((P + P.T) / 2)


class AveragedRLS(RLS):
    r"""RLS with the averaged update (41), (56), which does not learn.

    $\Theta_s = \Theta_{s-1} - \tfrac{k\eta}{h}\,\bar\delta\,u^\top$ with
    $\bar\delta = \sum_m \nabla_{Z(m,:)}$: a product of two means no longer knows which
    input went with which error. Linear layers only.
    """

    keeps_inputs = True

    def precondition(self, each: Pending):
        """Set ``left @ right`` to the product of the means."""
        super().precondition(each)
        each.left = each.dZ.sum(0)[:, None]
        each.right = each.options["ratio"] * each.u[None]


class RunningMeanRLS(RLS):
    r"""RLS that remembers the running mean $\mu$ of its inputs, n numbers, for P.

    $P_s = (P_0^{-1} + k T s\,\mu\mu^\top)^{-1}$: the identity with one direction
    switched off. Follows RLS closely on many problems, which says what P really learns.
    lambda = 1 only; all layer kinds.

    Raises
    ------
    ValueError
        As :class:`RLS`, and if ``forgetting`` is not 1 or ``l1`` is not 0.
    """

    def __init__(self, model, **options):
        super().__init__(model, **options)
        for group in self.param_groups:
            for name, value in (("forgetting", 1), ("l1", 0)):
                if group[name] != value:
                    raise ValueError(
                        f"RunningMeanRLS: {name} must be {value}, got {group[name]}"
                    )

    def new_state(self, block: Block, initial: float) -> dict:
        """Sum of the mean inputs so far, (n,), and how many they are."""
        zeros = block.weight.new_zeros
        return {"total": zeros(block.fan_in), "count": zeros(())}

    def precondition(self, each: Pending):
        """Multiply the gradient by P without making it."""
        total, start = each.state["total"], each.options["initial"]
        weight = start * each.rule["ratio"] * each.rule["steps"]
        weight = weight / each.state["count"].clamp(min=1)
        c = weight / (1 + weight * total.square().sum())

        def times_P(rows: Tensor) -> Tensor:
            return start * (rows - c * (rows @ total)[..., None] * total)

        each.u = times_P(each.x_mean)
        each.h = 1 + each.rule["ratio"] * each.rule["steps"] * (each.x_mean @ each.u)
        each.left, each.right = times_P(each.block.gradient()), None

    def remember(self, each: Pending):
        """Add this step's mean input."""
        each.state["total"] += each.x_mean
        each.state["count"] += 1
