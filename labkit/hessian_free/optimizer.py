r"""The Hessian-free optimiser: Gauss-Newton steps on batches, solved by LSMR.

Emirahmetoglu and Stewart, Algorithm 1 without its batch rule, which is in
:func:`labkit.hessian_free.train`; the diagonal preconditioners are those of section 4.4
and Algorithm 3, after Chapelle and Erhan (2011). Departures from the print, each with a
test: those of :mod:`labkit.hessian_free.step`; the ratio is minus infinity if the full
step does not lower the loss; after a refused step the next starts from zero.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from labkit.check import (
    INSIDE,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Range,
    check_options,
    number,
    one_of,
    optional,
)
from labkit.hessian_free.autoencoder import check_blocks
from labkit.hessian_free.linearise import weights_of
from labkit.hessian_free.losses import SQUARED, LossLike, check_pair, check_targets
from labkit.hessian_free.lsmr import LSMRResult, lsmr
from labkit.hessian_free.step import (
    HFStep,
    Newton,
    Rows,
    adapted_damping,
    keeps_generator,
    line_search,
    pair_of,
    read,
)
from labkit.hessian_free.stopping import MINITER, PATIENCE, STOPS
from labkit.hessian_free.system import FORMS, System, build_system
from labkit.hessian_free.vectors import Blocks, add, copied, dot, norm, scaled

KINDS = ("random_signs", "fisher", "jacobi", "none")  # of preconditioners
GAMMA_MAX, GAMMA_GROWTH = 0.95, 1.002  # section 4.5
OPTIONS = FORMS | STOPS | {"preconditioner": one_of(KINDS), "gamma": SHARE}
OPTIONS |= {"damping": POSITIVE, "damping_decay": INSIDE, "alpha": INSIDE}
OPTIONS["damping_floor"] = NOT_NEGATIVE
DIAGONAL = {  # of diagonal_preconditioner
    "point": Range("what linearise returns", lambda v: hasattr(v, "sum_squares")),
    "preconditioner": one_of(KINDS),
    "damping": NOT_NEGATIVE,
    "generator": optional(
        Range("a torch.Generator", lambda v: isinstance(v, torch.Generator))
    ),
}


def diagonal_estimate(point: object, signs: Tensor) -> tuple[Tensor, ...]:
    r"""Return an unbiased estimate of diag(A'A) from one backward pass.

    With independent signs u_ij, the expectation of $(J_i^T u_i)_p^2$ is
    $\sum_j (\partial r_{ij} / \partial w_p)^2$. The squares are taken before the sum
    over examples, so that no products between examples arise:

    (1) $g = \tfrac1n \sum_i (J_i^T u_i)^2, \qquad E[g] = \mathrm{diag}(A^T A)$.

    Algorithm 3 divides by n once, since its signals lack the 1 / sqrt(n) of A.
    """
    return point.sum_squares(signs / point.n**0.5)  # (1)


def diagonal_preconditioner(
    point: object,
    kind: str = "random_signs",
    *,
    damping: float = 0.0,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, ...] | None:
    r"""Return the preconditioner c of d = c o y, with entries > 0; None for "none".

    (2) $c = 1 / (1 + \sqrt g)$ for "random_signs": Algorithm 3 with g of (1)
    (3) $c = (\bar{g^2} + \lambda^2)^{-3/8}$ for "fisher", $\bar{g^2}$ the mean squared
    gradient of the examples: Martens' $M^{-1/2}$, $M = (\bar{g^2} + \lambda^2)^{3/4}$
    (4) $c = 1 / \sqrt{g + \lambda^2}$ for "jacobi", which makes the diagonal equal

    The text of section 4.4 has 1 / (1 + g), without the root that a column norm needs;
    (2) is that of Algorithm 3. (4) can slow LSMR down; it is offered for comparison.

    Parameters
    ----------
    point : what :func:`labkit.hessian_free.linearise` returns
    kind : {"random_signs", "fisher", "jacobi", "none"}
    damping : float, $\lambda$ of the system, for "fisher" and "jacobi"
    generator : torch.Generator, optional, of the signs, on the device of the weights

    Raises
    ------
    ValueError
        For an unknown kind, or a damping of 0, at which (3) and (4) may divide by zero.
    """
    given = {"point": point, "damping": damping, "generator": generator}
    check_options(given | {"preconditioner": kind}, DIAGONAL)
    if kind == "none":
        return None
    if kind in ("fisher", "jacobi") and not damping > 0:
        raise ValueError(f'"{kind}" needs damping > 0, got {damping}')
    if kind == "fisher":
        g2 = point.sum_squares(point.residual)  # R has the 1 / sqrt(n)
        return tuple((t + damping**2).pow_(-0.375) for t in g2)  # (3)
    R = point.residual
    signs = torch.randint(
        0, 2, R.shape, generator=generator, dtype=R.dtype, device=R.device
    )
    signs = point.agreed(signs.mul_(2).sub_(1))
    g = diagonal_estimate(point, signs)
    if kind == "jacobi":
        return tuple((t + damping**2).rsqrt_() for t in g)  # (4)
    return tuple(t.sqrt_().add_(1).reciprocal_() for t in g)  # (2)


class Subproblem(NamedTuple):
    """One damped least-squares problem, with a copy of the weights."""

    point: object  # the linearisation, with forward_map and transpose_map
    damping: float
    scale: tuple[Tensor, ...] | None  # right preconditioner c
    x0: tuple[Tensor, ...]  # warm start
    damping_norm: str
    damp_towards: str

    @property
    def b(self) -> Tensor:
        """The right-hand side -R."""
        return -self.point.residual

    def _arguments(self) -> dict:
        arguments = self._asdict()
        point = arguments.pop("point")
        return {"A": point.forward_map, "At": point.transpose_map} | arguments

    def system(self) -> System:
        """Return what :func:`labkit.hessian_free.lsmr_steps` iterates on."""
        return build_system(b=self.b, **self._arguments())

    def solve(self, **stops) -> LSMRResult:
        """Solve by :func:`labkit.hessian_free.lsmr`; ``stops`` are its stop rules."""
        return lsmr(b=self.b, **self._arguments(), **stops)

    def normal_map(self, p: Blocks) -> tuple[Tensor, ...]:
        """Return (A'A + lambda^2 I) p, the product of CG, for the norm "identity"."""
        Gp = self.point.transpose_map(self.point.forward_map(p))
        return add(Gp, self.damping**2, p)

    def normal_rhs(self) -> tuple[Tensor, ...]:
        """Return A'b, the negative gradient of the batch's loss."""
        return self.point.transpose_map(self.b)

    def model_value(self, d: Blocks) -> float:
        """Return CG's model |A d - b|^2 / 2 - |b|^2 / 2 + lambda^2 |d|^2 / 2."""
        check_blocks("d", d, self.point.weights)
        Bd, rhs = self.normal_map(d), self.normal_rhs()
        return float(0.5 * dot(d, add(Bd, -2.0, rhs)))

    def gradient_norm(self, d: Blocks) -> float:
        """Return |(A'A + lambda^2 I) d - A'b|, which LSMR minimises."""
        check_blocks("d", d, self.point.weights)
        return float(norm(add(self.normal_map(d), -1.0, self.normal_rhs())))


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
        Its parameters are float32 or float64. In a ``DistributedDataParallel`` the rows
        of all workers are one batch, in the order of ranks, and the signs are those of
        rank 0; each worker must make the same calls.
    loss : {"squared", "softmax", "logistic"}, CrossEntropy or Loss
        Half the squared error; or cross-entropy, for which the outputs are logits:
        "softmax" over their last axis (targets are class indices or probabilities),
        "logistic" for each output by itself (targets in [0, 1]). It is summed over a
        row and averaged over rows. Class weights, label smoothing and targets without
        loss: :class:`~labkit.hessian_free.CrossEntropy`. A loss of your own:
        :class:`~labkit.hessian_free.Loss`.
    damping : float
        $\lambda$ > 0 of the first step; it enters squared. What is right depends on the
        scale of A'A: often 10 (the paper), 1 or 2 for short runs.
    damping_decay : float in (0, 1), the paper's drop, 0.99 there; 0.9 for short runs
    damping_floor : float
        The least $\lambda$. With validation rows the ratio stays high and $\lambda$
        falls without end; a floor of 1e-3 costs nothing.
    gamma : float in [0, 1], $\gamma$, the first share of the last direction
    maxiter, atol, ftol, miniter, patience, as_published, damping_norm, damp_towards
        See :func:`labkit.hessian_free.lsmr`. A patience of 20 suits short runs.
    preconditioner : {"random_signs", "fisher", "jacobi", "none"}
        See :func:`labkit.hessian_free.diagonal_preconditioner`.
    alpha : float in (0, 1), $\alpha$, sufficient decrease of the line search
    generator : torch.Generator, optional, on the weights' device
        It draws the preconditioner's signs and nothing else, so that the choice of
        preconditioner changes no batch.

    Raises
    ------
    ValueError, TypeError
        For an option out of its range, a model without trained parameters, or
        parameters in half precision, sharded, or of two dtypes.

    Notes
    -----
    The options are in ``param_groups[0]`` and may be changed between steps; the steps
    themselves change ``damping`` and ``gamma``. ``state_dict`` holds the options and
    the last direction, so that a run can be resumed; save the generator's state
    yourself.

    Examples
    --------
    >>> from labkit.hessian_free import Autoencoder
    >>> g = torch.Generator().manual_seed(0)
    >>> X = torch.rand(20, 6, generator=g)
    >>> optimizer = HessianFree(Autoencoder((6, 3, 6), generator=g), damping=0.3)
    >>> step = optimizer.step(X)
    >>> step.loss_after < step.loss
    True
    """

    ranges = OPTIONS

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: LossLike = "squared",
        damping: float = 10.0,
        damping_decay: float = 0.99,
        damping_floor: float = 0.0,
        damping_norm: str = "identity",
        damp_towards: str = "zero",
        gamma: float = 0.7,
        preconditioner: str = "random_signs",
        maxiter: int = 150,
        atol: float = 1e-6,
        ftol: float = 1e-5,
        miniter: int = MINITER,
        patience: int = PATIENCE,
        as_published: bool = False,
        alpha: float = 1e-4,
        generator: torch.Generator | None = None,
    ):
        options = {
            "damping": damping,
            "damping_decay": damping_decay,
            "damping_floor": damping_floor,
            "damping_norm": damping_norm,
            "damp_towards": damp_towards,
            "gamma": gamma,
            "alpha": alpha,
            "preconditioner": preconditioner,
            "maxiter": maxiter,
            "atol": atol,
            "ftol": ftol,
            "miniter": miniter,
            "patience": patience,
            "as_published": as_published,
        }
        super().__init__(model, options, loss)
        floor = number("in [0, damping]", lambda v: 0 <= v <= damping)
        check_options({"damping_floor": damping_floor}, {"damping_floor": floor})
        self.generator = generator
        device = self.param_groups[0]["params"][0].device
        if not isinstance(generator, torch.Generator | None):
            kind = type(generator).__name__
            raise TypeError(f"generator must be a torch.Generator or None, got {kind}")
        if generator is not None and generator.device.type != device.type:
            raise ValueError(
                f"generator must be on the weights' device, {device}, got one on "
                f"{generator.device}"
            )

    @torch.no_grad()
    def subproblem(self, inputs: Tensor, targets: Tensor | None = None) -> Subproblem:
        """Return the problem that :meth:`step` solves on this batch; draw the signs."""
        group, weights = self.param_groups[0], copied(weights_of(self.model))
        point = self.linearised(inputs, targets, weights)
        if self.loss != SQUARED:
            mine = point if self.process_group is None else point.point
            check_targets(self.loss, mine.outputs, mine.targets)
        scale = diagonal_preconditioner(
            point,
            group["preconditioner"],
            damping=group["damping"],
            generator=self.generator,
        )
        form = group["damping_norm"], group["damp_towards"]
        return Subproblem(point, group["damping"], scale, self.warm_start(), *form)

    @torch.no_grad()
    @keeps_generator
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
        group = self.param_groups[0]
        if validation is not None:
            validation = pair_of(validation, "validation")
            check_pair(self.model, self.loss, "validation", *validation)
        problem = self.subproblem(inputs, targets)
        point, w = problem.point, problem.point.weights
        merit = None if validation is None else self._merit(w, validation)  # (2)
        stops = {name: group[name] for name in STOPS}
        d, status, stats = problem.solve(merit=merit, **stops)  # (1)
        Ad, b = point.forward_map(d), problem.b
        slope = -(Ad * b).sum()  # (3)
        q = slope + 0.5 * Ad.square().sum()  # (3)

        def moved(s):
            return self.linearised(inputs, targets, add(w, s, d), point)

        full = moved(1.0)
        scalars = point.loss(), full.loss(), slope, q
        (f0, f1, slope, q), lengths = read(*scalars, d=d, x0=problem.x0)
        if not math.isfinite(f0):
            raise FloatingPointError(f"the loss of the batch is {f0}")
        rho = (f1 - f0) / q if f1 < f0 and q else -math.inf  # (4)

        def trial(s):
            at = full if s == 1 else moved(s)
            return (f1 if s == 1 else float(at.loss())), at

        s, f, new = line_search(trial, f0, slope, alpha=group["alpha"])  # (6)
        agreed = rho if s else -math.inf
        rule = agreed, group["damping_decay"], group["damping_floor"]
        damping = adapted_damping(group["damping"], *rule)  # (5)
        new = new if s else point  # (7)
        gamma = group["gamma"]
        warm = scaled(d, gamma if s else 0.0)  # (8)
        grown = max(gamma, min(GAMMA_GROWTH * gamma, GAMMA_MAX))
        return self._finish(
            w,
            new.weights,
            warm,
            {"damping": damping, "gamma": grown},
            n=point.n,
            loss=f0,
            loss_after=f,
            rho=rho,
            slope=slope,
            predicted=q,
            step_length=s,
            gamma=gamma,
            status=status,
            iterations=stats.iterations,
            best=stats.best,
            point=new,
            merit=stats.merit,
            rnorm=stats.rnorm,
            arnorm=stats.arnorm,
            **lengths,
        )

    def _merit(self, w, validation):
        return lambda d: self.mean_loss(*validation, add(w, 1.0, d))
