r"""Provide three variants of RLS that show which of its parts matters.

The variants are for study, not for use. They differ from :class:`RLS` only in the
product with P.
"""

import torch
from torch import Tensor, nn

from labkit.check import Range, check_options
from labkit.rls.blocks import Block, BlockStep
from labkit.rls.optimizer import RLS
from labkit.rls.update import Residuals, descend, zeroed


class KailathRLS(RLS):
    r"""RLS without the average approximation: every row of the minibatch enters P.

    The update uses the exact inverse of (27):

    .. math::
        S &= \lambda M I + X P_{s-1} X^\top,\qquad
        P_s = \tfrac1\lambda\bigl(P_{s-1} - P_{s-1}X^\top S^{-1} X P_{s-1}\bigr) \\
        \Theta_s &= \Theta_{s-1}-\eta\,\tilde\nabla P_s,\quad X P_s = M S^{-1}X P_{s-1}

    The steps shrink like 1/s. ``mean_weight`` has no effect. Only Linear layers are
    supported. A step factorises one M x M matrix.
    """

    keeps_inputs = True

    def gain(self, each: BlockStep) -> tuple[Tensor | None, Tensor]:
        """Return None for the gain vector and 1 for the normaliser h."""
        return None, torch.ones_like(each.x_mean[0])

    def update(
        self, each: BlockStep, velocity: Tensor | None, clip: Tensor | None
    ) -> None:
        """Update the block with the new P, which is symmetrised after the step."""
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
        """Run the RLS step with the product of the two means as the gradient."""
        mean = each.options["mean_weight"] * each.x_mean
        means = Residuals(each.gradient.dZ.sum(0)[None], mean[None])
        super().update(each._replace(gradient=means), velocity, clip)


class RunningMeanRLS(RLS):
    r"""RLS that replaces P by the running mean $\mu$ of the inputs, n numbers.

    $P_s = (P_0^{-1} + k T s\,\mu\mu^\top)^{-1}$: the identity with one direction
    switched off. This variant follows RLS closely on many problems, which shows what P
    learns. It supports all layer kinds without groups. It raises ValueError if
    ``forgetting`` is not 1 or ``l1`` is not 0.
    """

    def __init__(self, model: nn.Module, **options):
        super().__init__(model, **options)
        fixed = {"forgetting": Range("1", lambda v: v == 1)}
        fixed["l1"] = Range("0", lambda v: v == 0)
        for group in self.param_groups:
            check_options(
                {name: group[name] for name in fixed}, fixed, "RunningMeanRLS"
            )
        if grouped := [block.name for block in self.blocks if block.groups > 1]:
            raise ValueError(
                f"RunningMeanRLS cannot train {grouped[0]!r}: it has groups"
            )

    def new_state(self, block: Block, P0_scale: float) -> dict:
        """Return zeros for the sum of the mean inputs, (n,), and for their number."""
        like = {"dtype": block.dtype, "device": block.weight.device}
        return {
            "total": torch.zeros(block.fan_in, **like),
            "count": torch.zeros((), **like),
        }

    def gain(self, each: BlockStep) -> tuple[Tensor | None, Tensor]:
        """Return the gain vector u and the normaliser h."""
        u = _times_P(each, each.x_mean)
        return u, 1 + each.options["mean_weight"] * each.time_steps * (each.x_mean @ u)

    def update(
        self, each: BlockStep, velocity: Tensor | None, clip: Tensor | None
    ) -> None:
        """Update the block without forming P, then add the mean input to the sum."""
        step(each, _times_P(each, each.block.gradient()), velocity, clip)
        each.state["total"] += zeroed(each.x_mean, each.still)
        each.state["count"] += 1 if each.still is None else ~each.still


def _times_P(each: BlockStep, rows: Tensor) -> Tensor:
    """Multiply the rows (..., n) by the P of :class:`RunningMeanRLS`."""
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
    """Update theta by what replaces the product of the gradient and P, (N, n)."""
    rate = each.rate(clip)
    h = each.h if rate["clip"] is None else each.h / rate["clip"]
    change, momentum = zeroed(preconditioned, each.still), each.options["momentum"]
    with each.parameters() as theta:
        descend(theta, velocity, change, h, lr=rate["lr"], momentum=momentum)
