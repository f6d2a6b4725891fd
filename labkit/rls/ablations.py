r"""Three relatives of RLS that show which part of it does the work.

They teach; none is meant for use. All but the product with P is :class:`RLS`'s own.
"""

import torch
from torch import Tensor, nn

from labkit.ranges import Range, check
from labkit.rls.blocks import Block, BlockStep
from labkit.rls.optimizer import RLS
from labkit.rls.update import Residuals, descend, zeroed


class KailathRLS(RLS):
    r"""RLS without the average approximation: every row of the minibatch enters P.

    The exact inverse of (27), and the step with it:

    .. math::
        S &= \lambda M I + X P_{s-1} X^\top,\qquad
        P_s = \tfrac1\lambda\bigl(P_{s-1} - P_{s-1}X^\top S^{-1} X P_{s-1}\bigr) \\
        \Theta_s &= \Theta_{s-1}-\eta\,\tilde\nabla P_s,\quad X P_s = M S^{-1}X P_{s-1}

    Steps die out like 1/s. ``mean_weight`` has no effect. Linear layers only; one
    M x M factorisation a step.
    """

    keeps_inputs = True

    def gain(self, each: BlockStep) -> tuple[Tensor | None, Tensor]:
        """No vector; h = 1."""
        return None, torch.ones_like(each.x_mean[0])

    def update(
        self, each: BlockStep, velocity: Tensor | None, clip: Tensor | None
    ) -> None:
        """Step by the new P, the exact inverse, made symmetric again."""
        P, dZ = each.state["P"], each.gradient.dZ
        X = each.block.with_ones(each.gradient.X)
        forgetting, l1 = each.options["forgetting"], each.options["l1"]
        M, XP = each.block.inputs.sequences, X @ P
        S = (XP @ X.T).diagonal_scatter((XP * X).sum(1) + forgetting * M)
        L, _ = torch.linalg.cholesky_ex(S)
        with each.parameters() as theta:
            signs = theta.sign() if l1 else None
        step(each, dZ.T @ (M * torch.cholesky_solve(XP, L)), velocity, clip)
        u = torch.linalg.solve_triangular(L, XP, upper=False)
        new = (P - u.T @ u) / forgetting
        new = (new + new.T) / 2
        P.copy_(new if each.still is None else P.where(each.still, new))
        if l1:
            with each.parameters() as theta:
                theta.addmm_(signs.mul_(-l1), P)


class AveragedRLS(RLS):
    r"""RLS with the averaged update (41), (56), which does not learn.

    $\Theta_s = \Theta_{s-1} - \tfrac{k\eta}{h}\,\bar\delta\,u^\top$ with
    $\bar\delta = \sum_m \nabla_{Z(m,:)}$: a product of two means no longer knows which
    input went with which error. Linear layers only.
    """

    keeps_inputs = True

    def update(
        self, each: BlockStep, velocity: Tensor | None, clip: Tensor | None
    ) -> None:
        """The step of RLS, with the product of the means for the gradient."""
        mean = each.options["mean_weight"] * each.x_mean
        means = Residuals(each.gradient.dZ.sum(0)[None], mean[None])
        super().update(each._replace(gradient=means), velocity, clip)


class RunningMeanRLS(RLS):
    r"""RLS that remembers the running mean $\mu$ of its inputs, n numbers, for P.

    $P_s = (P_0^{-1} + k T s\,\mu\mu^\top)^{-1}$: the identity with one direction
    switched off. Follows RLS closely on many problems, which says what P really learns.
    All layer kinds; ValueError if ``forgetting`` is not 1 or ``l1`` is not 0.
    """

    def __init__(self, model: nn.Module, **options):
        super().__init__(model, **options)
        fixed = {"forgetting": Range("1", lambda v: v == 1)}
        fixed["l1"] = Range("0", lambda v: v == 0)
        for group in self.param_groups:
            check({name: group[name] for name in fixed}, fixed, "RunningMeanRLS")
        if grouped := [block.name for block in self.blocks if block.groups > 1]:
            raise ValueError(
                f"RunningMeanRLS cannot train {grouped[0]!r}: it has groups"
            )

    def new_state(self, block: Block, P0_scale: float) -> dict:
        """Sum of the mean inputs so far, (n,), and how many they are."""
        like = {"dtype": block.dtype, "device": block.weight.device}
        return {
            "total": torch.zeros(block.fan_in, **like),
            "count": torch.zeros((), **like),
        }

    def gain(self, each: BlockStep) -> tuple[Tensor | None, Tensor]:
        """u and h."""
        u = _times_P(each, each.x_mean)
        return u, 1 + each.options["mean_weight"] * each.time_steps * (each.x_mean @ u)

    def update(
        self, each: BlockStep, velocity: Tensor | None, clip: Tensor | None
    ) -> None:
        """Multiply the gradient by P without making it; add this step's mean input."""
        step(each, _times_P(each, each.block.gradient()), velocity, clip)
        each.state["total"] += zeroed(each.x_mean, each.still)
        each.state["count"] += 1 if each.still is None else ~each.still


def _times_P(each: BlockStep, rows: Tensor) -> Tensor:
    """Rows (..., n) times the P of :class:`RunningMeanRLS`."""
    total, start = each.state["total"], each.options["P0_scale"]
    weight = start * each.options["mean_weight"] * each.time_steps
    weight = weight / each.state["count"].clamp(min=1)
    c = weight / (1 + weight * total.square().sum())
    return start * (rows - c * (rows @ total)[..., None] * total)


def step(
    each: BlockStep,
    preconditioned: Tensor,
    velocity: Tensor | None,
    clip: Tensor | None,
) -> None:
    """Step against what stands in for the gradient times P, (N, n)."""
    rate = each.rate(clip)
    h = each.h if rate["clip"] is None else each.h / rate["clip"]
    change, momentum = zeroed(preconditioned, each.still), each.options["momentum"]
    with each.parameters() as theta:
        descend(theta, velocity, change, h, lr=rate["lr"], momentum=momentum)
