r"""The Hessian-free optimiser: Gauss-Newton steps on batches, solved by LSMR.

Emirahmetoglu and Stewart, Algorithm 1 without its batch rule, which is in
:func:`labkit.hessian_free.train`. Departures from the print, each with a test: those of
:mod:`labkit.hessian_free.step`; the ratio is minus infinity if the full step does not
lower the loss; after a refused step the next starts from zero.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from labkit.check import check_making
from labkit.hessian_free.checks import Rows, check_batch, pair_of
from labkit.hessian_free.linearise import weights_of
from labkit.hessian_free.lsmr import LSMRResult, solve
from labkit.hessian_free.options import HessianFreeOptions, LSMROptions
from labkit.hessian_free.preconditioner import diagonal_preconditioner
from labkit.hessian_free.step import HFStep, Newton, adapted_damping, line_search
from labkit.hessian_free.system import System, build_system
from labkit.hessian_free.vectors import Blocks, add, copied, scaled

GAMMA_MAX = 0.95  # section 4.5, as the next
GAMMA_GROWTH = 1.002
NEGLIGIBLE = 1e-15  # norm of a residual or a gradient, at which a step stands still


class Subproblem(NamedTuple):
    """One damped least-squares problem, with a copy of the weights."""

    point: object  # the linearisation, with forward_map and transpose_map
    scale: Blocks | None  # right preconditioner c
    x0: Blocks  # warm start
    options: LSMROptions

    @property
    def b(self) -> Tensor:
        """The right-hand side -R."""
        return -self.point.residual

    @torch.no_grad()
    def system(self) -> System:
        """Return what :func:`labkit.hessian_free.lsmr_steps` iterates on."""
        return build_system(
            self.point.forward_map,
            self.b,
            At=self.point.transpose_map,
            x0=self.x0,
            scale=self.scale,
            workers=self.point.workers,
            options=self.options,
        )

    def solve(self, merit: Callable | None = None, **changes: object) -> LSMRResult:
        """Solve by :func:`labkit.hessian_free.lsmr`; ``changes`` are of its options."""
        changed = self._replace(options=replace(self.options, **changes))
        return solve(changed.system(), merit, NEGLIGIBLE)


class HessianFree(Newton):
    r"""Hessian-free optimiser: Gauss-Newton steps by damped, preconditioned LSMR.

    Each step linearises the residual on the batch that it is given and solves

    (1) $(A^T A + \lambda^2 I)\, d = A^T b, \quad b = -R$

    in which A'A is the (generalised) Gauss-Newton matrix and A'b minus the gradient.
    LSMR starts from a share gamma of the last direction; it stops by the loss on
    validation rows if these are given. Then the step adapts the damping by how well the
    model predicted the full step, and searches for a length.

    Parameters
    ----------
    model : nn.Module, see :func:`labkit.hessian_free.linearise`
        Its parameters are float32 or float64.
    loss : {"squared", "softmax"}
        Half the squared error, summed over a row and averaged over rows; or
        cross-entropy, for which the outputs are logits, (n, classes), and the targets
        class indices, (n,).
    damping : float
        $\lambda$ > 0 of the first step; it enters squared. What is right depends on the
        scale of A'A.
    damping_decay : float in (0, 1), the paper's drop, see :func:`adapted_damping`
    gamma : float in [0, 1], $\gamma$, the first share of the last direction
    maxiter, atol, ftol, miniter, patience, as_published, damping_norm, damp_towards
        See :func:`labkit.hessian_free.lsmr`. A patience of 20 suits short runs.
    preconditioner : {"random_signs", "fisher", "jacobi", "none"}
        See :func:`labkit.hessian_free.diagonal_preconditioner`.
    alpha : float in (0, 1), $\alpha$, sufficient decrease of the line search
    generator : torch.Generator, optional, on the weights' device
        It draws the preconditioner's signs and nothing else, so that the choice of
        preconditioner changes no batch.
    workers : optional, see :func:`labkit.scale.workers`
        The rows of all workers are then one batch. Each worker steps on rows of its
        own, draws the signs of these, and must make the same calls.

    Raises
    ------
    ValueError, TypeError
        For an option out of its range, a model without trained parameters, or
        parameters in half precision or of two dtypes.

    Notes
    -----
    The defaults of ``damping`` and ``damping_decay`` suit a first session, in which a
    few dozen steps should show a result. The paper's, for thousands of steps of deep
    autoencoders, are 5 to 12 and 0.98 or 0.99: from these a network hardly learns
    within a few dozen steps. ``labkit.lab.books.hessian_free_training.PAPER`` has them
    by data set, in fields with the names of the options. The other defaults are the
    paper's, for USPS or MNIST where they differ by data set.

    The options are in ``param_groups[0]`` and may be changed between steps; the steps
    themselves change ``damping`` and ``gamma``. ``state_dict`` holds the options and
    the last direction, so that a run can be resumed; save the generator's state
    yourself.

    Examples
    --------
    >>> from labkit.hessian_free import Autoencoder
    >>> generator = torch.Generator().manual_seed(0)
    >>> X = torch.rand(20, 6, generator=generator)
    >>> net = Autoencoder((6, 3, 6), generator=generator)
    >>> optimizer = HessianFree(net, damping=0.3)
    >>> step = optimizer.step(X)
    >>> step.loss_after < step.loss
    True
    """

    kind = HessianFreeOptions

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: str = "squared",
        generator: torch.Generator | None = None,
        workers: object = None,
        **options: object,
    ) -> None:
        super().__init__(model, loss=loss, **options)
        self.generator, self.workers = generator, workers
        params = self.param_groups[0]["params"]
        if workers is not None:
            for p in params:
                p.data.copy_(workers.first(p.data))
        device = params[0].device
        check_making(generator, None, None)
        if generator is not None and generator.device.type != device.type:
            raise ValueError(
                f"generator must be on the weights' device, {device}, got one on "
                f"{generator.device}"
            )

    @torch.no_grad()
    def subproblem(self, inputs: Tensor, targets: Tensor | None = None) -> Subproblem:
        """Return the problem that :meth:`step` solves on this batch; draw the signs."""
        check_batch(self.model, self.loss, inputs, targets)
        options, weights = self.options, copied(weights_of(self.model))
        point = self.linearised(inputs, targets, weights)
        scale = diagonal_preconditioner(
            point,
            options.preconditioner,
            damping=options.damping,
            generator=self.generator,
        )
        return Subproblem(point, scale, self.warm_start(), options)

    @torch.no_grad()
    def step(
        self,
        inputs: Tensor | None = None,
        targets: Tensor | None = None,
        *,
        validation: Rows | None = None,
    ) -> HFStep:
        r"""Take one step (Algorithm 1) on a batch, given in place of torch's closure.

        (2) $\phi(d) = f(w + d; X_{val})$, the paper's (20)
        (3) $q = \langle d, \nabla f \rangle + \tfrac12 |A d|^2$, with
        $\langle d, \nabla f \rangle = -\langle A d, b \rangle$
        (4) $\rho = (f(w + d) - f(w)) / q$, or $-\infty$ unless f falls
        (5) $\lambda' = \lambda / \mathrm{decay} \; (\rho < \tfrac14), \;
        \mathrm{decay}\,\lambda \; (\rho > \tfrac34)$, by :func:`adapted_damping`
        (6) $f(w + s d) \le f(w) + \alpha s \langle d, \nabla f \rangle$ for the first
        s of 1, 1/2, 1/4, ..., by :func:`line_search`
        (7) $w' = w + s d$
        (8) $d_0' = \gamma d$, however small s > 0; 0 if the step is refused

        Parameters
        ----------
        inputs : (n, ...) tensor, $X$, n >= 1
        targets : tensor, optional, $T$, of the loss; the inputs if not given
        validation : tensor or (inputs, targets), optional
            Rows of the merit function. Without them LSMR stops by ``atol`` or
            ``maxiter``.

        Raises
        ------
        FloatingPointError
            If a loss or a product is not finite; the weights stay as before.
        """
        options = self.options
        if validation is not None:
            held = pair_of(validation, "validation")
            check_batch(self.model, self.loss, *held, "validation")
        problem = self.subproblem(inputs, targets)
        point, b, w = problem.point, problem.b, problem.point.weights

        def phi(d):
            return self.mean_loss(*held, add(w, 1.0, d))  # (2)

        d, status, stats = problem.solve(None if validation is None else phi)  # (1)
        Ad = point.forward_map(d)
        slope = -point.dot(Ad, b)  # (3)
        q = slope + 0.5 * point.dot(Ad, Ad)  # (3)

        def moved(s):
            return self.linearised(inputs, targets, add(w, s, d))

        full = moved(1.0)
        f0, f1, slope, q = torch.stack([point.loss(), full.loss(), slope, q]).tolist()
        if not math.isfinite(f0):
            raise FloatingPointError(f"the loss of the batch is {f0}")
        rho = (f1 - f0) / q if f1 < f0 and q else -math.inf  # (4)

        def trial(s):
            if s == 1:
                return f1, full
            at = moved(s)
            return float(at.loss()), at

        s, f, new = line_search(trial, f0, slope, alpha=options.alpha)  # (6)
        agreed = rho if s else -math.inf
        damping = adapted_damping(options.damping, agreed, options.damping_decay)  # (5)
        new = new if s else point  # (7)
        gamma = options.gamma
        grown = max(gamma, min(GAMMA_GROWTH * gamma, GAMMA_MAX))
        return self._finish(
            new.weights,
            scaled(d, gamma if s else 0.0),  # (8)
            {"damping": damping, "gamma": grown},
            n=point.n,
            loss=f0,
            loss_after=f,
            rho=rho,
            slope=slope,
            predicted=q,
            step_length=s,
            status=status,
            iterations=stats.iterations,
            best=stats.best,
            point=new,
            merit=stats.merit,
        )
