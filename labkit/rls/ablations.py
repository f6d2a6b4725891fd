r"""Provide three variants of RLS that show which of its parts matters.

The variants are for study, not for use. They differ from :class:`RLS` only in the
product with P.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from labkit.check import Range, check_options
from labkit.layers import WeakHook
from labkit.rls.block_step import BlockStep
from labkit.rls.capture import Block
from labkit.rls.optimizer import RLS
from labkit.rls.update import Residuals, descend


class KailathRLS(RLS):
    r"""RLS without the average approximation: every row of the minibatch enters P.

    The update uses the exact inverse of (27):

    .. math::
        S &= \lambda M I + X P_{s-1} X^\top,\qquad
        P_s = \tfrac1\lambda\bigl(P_{s-1} - P_{s-1}X^\top S^{-1} X P_{s-1}\bigr) \\
        \Theta_s &= \Theta_{s-1}-\eta\,\tilde\nabla P_s

    The steps shrink like 1/s. ``mean_weight`` has no effect. Only Linear layers are
    supported. A step factorises one M x M matrix.
    """

    forms_gradients = True

    def __init__(self, model: nn.Module, lr: float | Tensor = 1.0, **options):
        super().__init__(model, lr, **options)
        _only_linear(self)
        if self.workers is not None:
            raise ValueError(
                "KailathRLS needs every row of the minibatch, and workers share only "
                "means: train in one process"
            )
        self.by_weight = {each.module.weight: each for each in self.captures}
        for capture in self.captures:  # this hook first: gradients come to it last
            capture.module.register_forward_hook(WeakHook(self.read), prepend=True)

    def hooked(self, module: nn.Module) -> bool:
        """Return whether a layer is trained here."""
        return module.weight in self.by_weight

    def read(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        """Keep the rows of a forward pass whose output gets a gradient."""
        if output.requires_grad:
            capture = self.by_weight[module.weight]
            X = args[0].detach().reshape(-1, module.in_features).to(module.weight)
            output.register_hook(lambda _: capture.seen.append(X))

    def gain(
        self, block: Block, options: Mapping, state: dict, x_mean: Tensor, T: Tensor
    ) -> Tensor:
        """Return 1 for the normaliser h."""
        return torch.ones_like(x_mean[0])

    def advance(self, each: BlockStep, theta: Block, state: dict, clip: Tensor) -> None:
        """Step with the new P, which is symmetrised."""
        P, forgetting, l1 = state["P"], each.options["forgetting"], each.options["l1"]
        rows = self.by_weight[each.block.weight].seen
        X = torch.cat(rows)
        rows.clear()
        if self._on_cpu(X) and len(X) != each.rows:
            raise RuntimeError(
                f"layer {each.block.name!r} has a gradient from {int(each.rows)} rows, "
                f"and {len(X)} were seen: leave out other backward passes"
            )
        X = nn.functional.pad(X, (0, each.block.bias is not None), value=1)
        M, XP = each.rows / each.time_steps, X @ P
        S = (XP @ X.T).diagonal_scatter((XP * X).sum(1) + forgetting * M)
        L, _ = torch.linalg.cholesky_ex(S)
        u = torch.linalg.solve_triangular(L, XP, upper=False)
        new = (P - u.T @ u) / forgetting
        P.copy_((new + new.T) / 2)
        signs = theta.sign()
        _step(each, theta, state, each.gradient @ P, clip)
        theta.addmm_(signs, P, alpha=-l1)


class AveragedRLS(RLS):
    r"""RLS with the averaged update (41), (56), which does not learn.

    $\Theta_s = \Theta_{s-1} - \tfrac{k\eta}{h}\,\bar\delta\,u^\top$ with
    $\bar\delta = \sum_m \nabla_{Z(m,:)}$, the gradient of the bias: a product of two
    means no longer knows which input went with which error. Linear layers with a bias
    only.
    """

    forms_gradients = True

    def __init__(self, model: nn.Module, lr: float | Tensor = 1.0, **options):
        super().__init__(model, lr, **options)
        _only_linear(self)
        for block in self.blocks:
            if block.bias is None:
                raise ValueError(
                    f"layer {block.name!r} has no bias, whose gradient is the mean "
                    "error of this variant"
                )

    def advance(self, each: BlockStep, theta: Block, state: dict, clip: Tensor) -> None:
        """Run the RLS step with the product of the two means as the gradient."""
        error, x_mean = each.gradient[:, -1], each.x_mean[None, :-1]
        k = each.options["mean_weight"]
        means = Residuals(error[None], k * x_mean, k * error)
        super().advance(each._replace(gradient=means), theta, state, clip)


class RunningMeanRLS(RLS):
    r"""RLS that replaces P by the running mean $\mu$ of the inputs, n numbers.

    $P_s = (P_0^{-1} + k T s\,\mu\mu^\top)^{-1}$: the identity with one direction
    switched off. This variant follows RLS closely on many problems, which shows what P
    learns. It raises ValueError if ``forgetting`` is not 1 or ``l1`` is not 0.
    """

    forms_gradients = True

    def __init__(self, model: nn.Module, lr: float | Tensor = 1.0, **options):
        super().__init__(model, lr, **options)
        fixed = {"forgetting": Range("1", lambda v: v == 1)}
        fixed["l1"] = Range("0", lambda v: v == 0)
        for group in self.param_groups:
            values = {name: group[name] for name in fixed}
            check_options(values, fixed, "RunningMeanRLS")

    def new_state(self, block: Block, P0_scale: float) -> dict:
        """Return zeros for the sum of the mean inputs, (n,), and for their number."""
        zeros = block.weight.new_zeros(block.fan_in)
        return {"total": zeros, "count": zeros.sum()}

    def gain(
        self, block: Block, options: Mapping, state: dict, x_mean: Tensor, T: Tensor
    ) -> Tensor:
        """Return the normaliser h."""
        u = _times_P(options, state, T, x_mean)
        return 1 + options["mean_weight"] * T * (x_mean @ u)

    def advance(self, each: BlockStep, theta: Block, state: dict, clip: Tensor) -> None:
        """Step without forming P, then add the mean input to the sum."""
        GP = _times_P(each.options, state, each.time_steps, each.gradient)
        _step(each, theta, state, GP, clip)
        state["total"] += each.x_mean
        state["count"] += 1


def _times_P(options: Mapping, state: dict, T: Tensor, rows: Tensor) -> Tensor:
    """Multiply the rows (..., n) by the P of :class:`RunningMeanRLS`."""
    total, start = state["total"], options["P0_scale"]
    weight = start * options["mean_weight"] * T / state["count"].clamp(min=1)
    c = weight / (1 + weight * total.square().sum())
    return start * (rows - c * (rows @ total)[..., None] * total)


def _step(
    each: BlockStep, theta: Block, state: dict, preconditioned: Tensor, clip: Tensor
) -> None:
    """Update theta by what replaces the product of the gradient and P, (N, n)."""
    lr, momentum, h = each.options["lr"], each.options["momentum"], each.h / clip
    velocity = state.get("velocity")
    descend(theta, velocity, preconditioned, h, lr=lr, momentum=momentum)


def _only_linear(optimizer: RLS) -> None:
    """Raise ValueError unless all layers are Linear."""
    for capture in optimizer.captures:
        if not isinstance(capture.module, nn.Linear):
            raise ValueError(
                f"layer {capture.name!r} is a {type(capture.module).__name__}; this "
                "variant is for Linear layers only"
            )
