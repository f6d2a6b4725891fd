r"""The Hessian-free optimiser: one Gauss-Newton step on a batch, solved by LSMR.

Emirahmetoglu and Stewart, Algorithm 1 without its batch rule, which is in
:func:`labkit.hessian_free.train`. Departures from the print, each with a test: those of
:mod:`labkit.hessian_free.step`; a full step that does not lower the loss counts as
ratio minus infinity; a refused step restarts from zero.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from labkit.hessian_free.door import check_pair
from labkit.hessian_free.linearise import linearise, mean_loss, weights_of
from labkit.hessian_free.losses import SQUARED, Loss, check_targets
from labkit.hessian_free.lsmr import LSMRResult, lsmr
from labkit.hessian_free.merit import MINITER, PATIENCE
from labkit.hessian_free.precondition import KINDS, diagonal_preconditioner
from labkit.hessian_free.step import HFStep, Newton, adapted_damping, line_search, read
from labkit.hessian_free.stopping import STOPS
from labkit.hessian_free.system import FORMS, System, build_system
from labkit.hessian_free.tuples import add, copied, dot, norm, scaled
from labkit.ranges import INSIDE, POSITIVE, SHARE, check, number, one_of

GAMMA_MAX, GAMMA_GROWTH = 0.95, 1.002  # section 4.5
OPTIONS = FORMS | STOPS | {"preconditioner": one_of(KINDS), "gamma": SHARE}
OPTIONS |= {"damping": POSITIVE, "damping_decay": INSIDE, "alpha": INSIDE}


class Subproblem(NamedTuple):
    """One damped least-squares problem, frozen: its weights are a copy."""

    point: object  # the linearisation, with forward_map and transpose_map
    damping: float
    scale: tuple[Tensor, ...] | None  # right preconditioner c
    x0: tuple[Tensor, ...]  # warm start
    damping_norm: str
    damp_towards: str

    @property
    def b(self) -> Tensor:
        """Right-hand side -R."""
        return -self.point.residual

    def _parts(self):
        form = self._asdict()
        point = form.pop("point")
        return (point.forward_map, point.transpose_map, self.b), form

    def system(self) -> System:
        """It as :func:`labkit.hessian_free.lsmr_steps` iterates on it."""
        maps, form = self._parts()
        return build_system(*maps, **form)

    def solve(self, **stops) -> LSMRResult:
        """Run :func:`labkit.hessian_free.lsmr` on it, with its stop rules."""
        maps, form = self._parts()
        return lsmr(*maps, **form, **stops)

    def normal_map(self, p) -> tuple[Tensor, ...]:
        """(A'A + lambda^2 I) p, the matrix that CG works on; norm "identity"."""
        Gp = self.point.transpose_map(self.point.forward_map(p))
        return add(Gp, self.damping**2, p)

    def normal_rhs(self) -> tuple[Tensor, ...]:
        """A'b, minus the gradient of the batch's loss."""
        return self.point.transpose_map(self.b)

    def model_value(self, d) -> float:
        """|A d - b|^2 / 2 - |b|^2 / 2 + lambda^2 |d|^2 / 2, what CG minimises."""
        Bd, rhs = self.normal_map(d), self.normal_rhs()
        return float(0.5 * dot(d, add(Bd, -2.0, rhs)))

    def gradient_norm(self, d) -> float:
        """|(A'A + lambda^2 I) d - A'b|, what LSMR minimises; norm "identity"."""
        return float(norm(add(self.normal_map(d), -1.0, self.normal_rhs())))


class HessianFree(Newton):
    r"""Gauss-Newton steps by damped, preconditioned LSMR.

    Each step linearises the residual on the batch it is given and solves

    (1) $(A^T A + \lambda^2 I)\, d = A^T b, \quad b = -R$

    in which A'A is the (generalised) Gauss-Newton matrix and A'b minus the gradient,

    from a share gamma of the last direction, watching the loss on other data if these
    are given. The full step is judged, the damping adapted, the length searched.

    Parameters
    ----------
    model : nn.Module, see :func:`labkit.hessian_free.linearise`
    loss : {"squared", "softmax", "logistic"} or Loss
        Half the squared error, or cross-entropy of outputs that are logits: of a
        softmax over their last axis (targets: class indices, or probabilities), or of
        each output by itself (targets in [0, 1]); summed over a row, averaged over
        rows. One of your own: :class:`~labkit.hessian_free.losses.Loss`.
    damping : float
        $\lambda$ > 0 of the first step; enters squared. Tied to the scale of A'A; often
        10 (the paper), 1 or 2 for short runs.
    damping_decay : float in (0, 1), the paper's drop, 0.99 there; 0.9 for short runs
    damping_floor : float
        $\lambda$ does not fall below. The validation stop keeps the ratio high, so it
        falls without end; 1e-3 costs nothing.
    gamma : float in [0, 1], $\gamma$, first share of the last direction
    maxiter, atol, ftol, miniter, patience, as_published, damping_norm, damp_towards
        Of :func:`labkit.hessian_free.lsmr`. A patience of 20 suits short runs.
    preconditioner : {"random_signs", "fisher", "jacobi", "none"}
    alpha : float in (0, 1), $\alpha$, sufficient decrease of the line search
    generator : torch.Generator, optional
        Of the preconditioner's signs only, so that the choice of preconditioner changes
        no batch; on the weights' device.

    Raises
    ------
    ValueError
        For an option out of its range, or a model without trained parameters.

    Notes
    -----
    The options lie in ``param_groups[0]`` and may be changed between steps; ``damping``
    and ``gamma`` are changed by the steps. ``state_dict`` holds these and the last
    direction, so that a run can be resumed; the generator's state is the caller's.

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

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: str | Loss = "squared",
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
        options = {"damping": damping, "damping_decay": damping_decay}
        options |= {"damping_floor": damping_floor, "damping_norm": damping_norm}
        options |= {"damp_towards": damp_towards, "gamma": gamma, "alpha": alpha}
        options |= {"preconditioner": preconditioner, "maxiter": maxiter, "atol": atol}
        options |= {"ftol": ftol, "miniter": miniter, "patience": patience}
        options["as_published"] = as_published
        floor = number("in [0, damping]", lambda v: 0 <= v <= damping)
        check(options, OPTIONS | {"damping_floor": floor})
        super().__init__(model, options, loss)
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
    def subproblem(self, inputs: Tensor, targets=None) -> Subproblem:
        """What :meth:`step` would solve on this batch; draws the signs as it would."""
        group, weights = self.param_groups[0], copied(weights_of(self.model))
        point = linearise(self.model, inputs, targets, loss=self.loss, weights=weights)
        if self.loss != SQUARED:
            check_targets(self.loss, point.outputs, point.targets)
        drawn = {"damping": group["damping"], "generator": self.generator}
        scale = diagonal_preconditioner(point, group["preconditioner"], **drawn)
        form = group["damping_norm"], group["damp_towards"]
        return Subproblem(point, group["damping"], scale, self.warm_start(), *form)

    @torch.no_grad()
    def step(self, inputs: Tensor, targets=None, *, validation=None) -> HFStep:
        r"""One step on one batch (Algorithm 1); takes the batch, not a closure.

        (2) $\phi(d) = f(w + d; X_{val})$, the paper's (20)
        (3) $q = \langle d, \nabla f \rangle + \tfrac12 |A d|^2$, with
        $\langle d, \nabla f \rangle = -\langle A d, b \rangle$
        (4) $\rho = (f(w + d) - f(w)) / q$, or $-\infty$ unless f falls
        (5) $\lambda' = \lambda / \mathrm{decay} \; (\rho < \tfrac14), \;
        \mathrm{decay}\,\lambda \; (\rho > \tfrac34)$, by :func:`adapted_damping`
        (6) $f(w + s d) \le f(w) + \alpha s \langle d, \nabla f \rangle$ for the first
        s of 1, 1/2, 1/4, ..., by :func:`line_search`
        (7) $w' = w + s d$
        (8) $d_0' = \gamma d$, whatever s > 0; 0 if refused

        Parameters
        ----------
        inputs : (n, ...) tensor, $X$, n >= 1
        targets : tensor, optional, $T$, of the loss; the inputs if not given
        validation : tensor or (inputs, targets), optional
            Rows of the merit function; without them the Krylov method stops by ``atol``
            or ``maxiter``.

        Raises
        ------
        FloatingPointError
            Where a loss or a product is not finite; the weights are as before.
        """
        group = self.param_groups[0]
        if isinstance(validation, Tensor):
            validation = validation, None
        if validation is not None:
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
            at = add(w, s, d)
            return linearise(self.model, inputs, targets, loss=self.loss, weights=at)

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
        group["gamma"] = max(gamma, min(GAMMA_GROWTH * gamma, GAMMA_MAX))
        done = {"n": point.n, "loss": f0, "loss_after": f, "rho": rho, "slope": slope}
        done |= {"predicted": q, "step_length": s, "gamma": gamma, "status": status}
        done |= {"iterations": stats.iterations, "best": stats.best, "point": new}
        done |= {"merit": stats.merit, "rnorm": stats.rnorm, "arnorm": stats.arnorm}
        return self._finish(new.weights, warm, damping, **done, **lengths)

    def _merit(self, w, validation):
        given = self.model, *validation
        return lambda d: mean_loss(*given, loss=self.loss, weights=add(w, 1.0, d))
