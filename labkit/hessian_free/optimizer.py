r"""The Hessian-free optimiser: one Gauss-Newton step on a batch, solved by LSMR.

Emirahmetoglu and Stewart, Algorithm 1 without its batch rule, which is in
:func:`labkit.hessian_free.train`. Departures from the print, each with a test: the
line search is bounded and refuses directions that lead uphill; a full step that does
not lower the loss counts as ratio minus infinity; a refused step restarts from zero.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from labkit.hessian_free.linearise import linearise, squared_error, weights_of
from labkit.hessian_free.lsmr import LSMRResult, lsmr
from labkit.hessian_free.merit import MINITER, RECOVER
from labkit.hessian_free.precondition import check_kind, diagonal_preconditioner
from labkit.hessian_free.system import CENTRES, DAMPINGS, System, build_system
from labkit.hessian_free.tuples import add, copied, dot, norm, scaled

GAMMA_MAX, GAMMA_GROWTH = 0.95, 1.002  # section 4.5
HALVINGS = 60


class Subproblem(NamedTuple):
    """One damped least-squares problem, frozen: its weights are a copy."""

    point: object  # the linearisation, with forward_map and transpose_map
    damp: float
    scale: tuple[Tensor, ...] | None  # right preconditioner c
    x0: tuple[Tensor, ...]  # warm start
    damping: str
    centre: str

    @property
    def b(self) -> Tensor:
        """Right-hand side -R."""
        return -self.point.residual

    def system(self) -> System:
        """It as :func:`labkit.hessian_free.lsmr_steps` iterates on it."""
        return build_system(
            self.point.forward_map,
            self.point.transpose_map,
            self.b,
            x0=self.x0,
            damp=self.damp,
            scale=self.scale,
            damping=self.damping,
            centre=self.centre,
        )

    def solve(self, **options) -> LSMRResult:
        """Run :func:`labkit.hessian_free.lsmr` on it."""
        return lsmr(
            self.point.forward_map,
            self.point.transpose_map,
            self.b,
            x0=self.x0,
            damp=self.damp,
            scale=self.scale,
            damping=self.damping,
            centre=self.centre,
            **options,
        )

    def normal_map(self, p) -> tuple[Tensor, ...]:
        """(A'A + lambda^2 I) p, the matrix that CG works on; damping "identity"."""
        Gp = self.point.transpose_map(self.point.forward_map(p))
        return add(Gp, self.damp**2, p)

    def normal_rhs(self) -> tuple[Tensor, ...]:
        """A'b, minus the gradient of the batch's loss."""
        return self.point.transpose_map(self.b)


@dataclass(frozen=True, eq=False)
class HFStep:
    """What one step did. Losses are f of the batch, half the error that is reported."""

    n: int  # examples of the batch
    loss: float  # before
    loss_after: float
    damp: float  # lambda of this step
    damp_next: float
    rho: float  # actual over predicted change of the full step, or -inf
    slope: float  # <d, grad f>
    predicted: float  # change of the undamped model
    step_length: float  # s; 0: refused
    iterations: int  # Krylov
    best: int  # the iterate that was taken
    status: str  # why the Krylov method stopped
    merit: tuple[tuple[int, float], ...]  # (k, merit) at the checks
    rnorm: tuple[float, ...]  # of the Krylov method, from iteration 0
    arnorm: tuple[float, ...]  # empty for CG, whose rnorm is the gradient's
    direction_norm: float
    cosine: float  # between this direction and the last; nan where that was 0
    gamma: float  # share of the last direction that this one started from
    point: object = field(repr=False)  # linearisation on the batch at the new weights
    q: tuple[float, ...] = ()  # model values of CG's iterates; empty for LSMR


class HessianFree(torch.optim.Optimizer):
    r"""Gauss-Newton steps for squared loss by damped, preconditioned LSMR.

    Each step linearises the residual on the batch it is given and solves

    (1) $(A^T A + \lambda^2 I)\, d = A^T b, \quad b = -R$

    from a share gamma of the last direction, watching the loss on other data if these
    are given. The full step is judged, the damping adapted, the length searched.

    Parameters
    ----------
    model : an Autoencoder or any module with squared loss, see
        :func:`labkit.hessian_free.linearise`.
    damp : $\lambda$ > 0 of the first step; enters squared. Tied to the scale of A'A;
        often 10 (the paper), 1 or 2 for short runs.
    drop : in (0, 1), the factor of the damping rule; 0.99 (the paper), 0.9 for short
        runs.
    damp_floor : lambda does not fall below. The validation stop keeps the ratio high,
        so lambda falls without end; 1e-3 costs nothing.
    gamma : first share of the last direction, in [0, 1].
    maxiter, atol, ftol, miniter, recover, as_published, damping, centre : of
        :func:`labkit.hessian_free.lsmr`. Patience (recover 20) suits short runs.
    preconditioner : "random_signs", "fisher", "jacobi" or "none".
    alpha : sufficient decrease of the line search.
    generator : of the preconditioner's signs only, so that the choice of
        preconditioner changes no batch.

    Notes
    -----
    The settings lie in ``param_groups[0]`` and may be changed between steps; ``damp``
    and ``gamma`` are changed by the steps. ``state_dict`` holds these and the last
    direction, so that a run can be resumed; the generator's state is the caller's.

    Examples
    --------
    >>> from labkit.hessian_free import Autoencoder
    >>> g = torch.Generator().manual_seed(0)
    >>> X = torch.rand(20, 6, generator=g)
    >>> optimizer = HessianFree(Autoencoder((6, 3, 6), generator=g), damp=0.3)
    >>> step = optimizer.step(X)
    >>> step.loss_after < step.loss
    True
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        damp: float = 10.0,
        drop: float = 0.99,
        damp_floor: float = 0.0,
        gamma: float = 0.7,
        maxiter: int = 150,
        atol: float = 1e-6,
        ftol: float = 1e-5,
        miniter: int = MINITER,
        recover: int = RECOVER,
        preconditioner: str = "random_signs",
        damping: str = "identity",
        centre: str = "zero",
        as_published: bool = False,
        alpha: float = 1e-4,
        generator: torch.Generator | None = None,
    ):
        check_damping(damp, drop, damp_floor)
        check_kind(preconditioner)
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma must be in [0, 1], got {gamma}")
        if not 0 < alpha < 1:
            raise ValueError(f"alpha must be in (0, 1), got {alpha}")
        if damping not in DAMPINGS:
            raise ValueError(f"damping must be one of {DAMPINGS}, got {damping!r}")
        if centre not in CENTRES:
            raise ValueError(f"centre must be one of {CENTRES}, got {centre!r}")
        if isinstance(maxiter, bool) or not isinstance(maxiter, int) or maxiter < 1:
            raise ValueError(f"maxiter must be an integer >= 1, got {maxiter!r}")
        settings = {
            name: value
            for name, value in locals().items()
            if name not in ("self", "model", "generator", "__class__")
        }
        self.model = model
        self.generator = generator
        trained = [p for p in model.parameters() if p.requires_grad]
        if not trained:
            raise ValueError("model has no parameters that require a gradient")
        if generator is not None and generator.device.type != trained[0].device.type:
            raise ValueError(
                f"generator must be on the weights' device, {trained[0].device}, "
                f"got one on {generator.device}"
            )
        super().__init__(trained, settings)

    @torch.no_grad()
    def subproblem(self, inputs: Tensor, targets: Tensor | None = None) -> Subproblem:
        """The problem that :meth:`step` would solve on this batch; changes no weight.

        It draws the preconditioner's signs, and keeps its own copy of the weights.
        """
        group = self.param_groups[0]
        weights = copied(weights_of(self.model))
        point = linearise(self.model, inputs, targets, weights=weights)
        scale = diagonal_preconditioner(
            point,
            group["preconditioner"],
            damp=group["damp"],
            generator=self.generator,
        )
        x0 = tuple(
            self.state[p]["warm"] if "warm" in self.state[p] else torch.zeros_like(w)
            for p, w in zip(group["params"], weights, strict=True)
        )
        return Subproblem(
            point, group["damp"], scale, x0, group["damping"], group["centre"]
        )

    @torch.no_grad()
    def step(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        validation: tuple[Tensor, Tensor] | Tensor | None = None,
    ) -> HFStep:
        r"""One step on one batch (Algorithm 1).

        (2) $\phi(d) = f(w + d; X_{val})$, the paper's (20)
        (3) $q = \langle d, \nabla f \rangle + \tfrac12 |A d|^2$, with
        $\langle d, \nabla f \rangle = -\langle A d, b \rangle$
        (4) $\rho = (f(w + d) - f(w)) / q$, or $-\infty$ unless f falls
        (5) $\lambda' = \lambda / \mathrm{drop} \; (\rho < \tfrac14), \;
        \mathrm{drop}\,\lambda \; (\rho > \tfrac34)$, by :func:`adapted_damping`
        (6) $f(w + s d) \le f(w) + \alpha s \langle d, \nabla f \rangle$ for the first
        s of 1, 1/2, 1/4, ..., by :func:`line_search`
        (7) $w' = w + s d$
        (8) $d_0' = \gamma d$, whatever s > 0; 0 if refused

        Parameters
        ----------
        inputs : (n, ...), n >= 1.  targets : like the outputs; None: the inputs.
        validation : inputs, or (inputs, targets), of the merit function; None: the
            Krylov method stops by ``atol`` or ``maxiter``.

        Raises
        ------
        FloatingPointError
            Where the loss or a product is not finite; the weights are as before.
        """
        group = self.param_groups[0]
        problem = self.subproblem(inputs, targets)
        point, w = problem.point, problem.point.weights
        merit = None if validation is None else self._merit(w, validation)  # (2)
        d, status, stats = problem.solve(
            merit=merit,
            **{k: group[k] for k in ("maxiter", "atol", "ftol")},
            **{k: group[k] for k in ("miniter", "recover", "as_published")},
        )  # (1)
        Ad, b = point.forward_map(d), problem.b
        slope = -(Ad * b).sum()  # (3)
        q = slope + 0.5 * Ad.square().sum()  # (3)
        full = linearise(self.model, inputs, targets, weights=add(w, 1.0, d))
        scalars = [point.loss(), full.loss(), slope, q]
        scalars += [norm(d), norm(problem.x0), dot(d, problem.x0)]
        f0, f1, slope, q, length, before, inner = torch.stack(scalars).tolist()
        if not math.isfinite(f0):
            raise FloatingPointError(f"the loss of the batch is {f0}")
        rho = (f1 - f0) / q if f1 < f0 and q else -math.inf  # (4)

        def trial(s):
            at = (
                full
                if s == 1
                else linearise(self.model, inputs, targets, weights=add(w, s, d))
            )
            return (f1 if s == 1 else float(at.loss())), at

        s, f, new = line_search(trial, f0, slope, alpha=group["alpha"])  # (6)
        damp, gamma = group["damp"], group["gamma"]
        agreed = rho if s else -math.inf
        group["damp"] = adapted_damping(
            damp, agreed, group["drop"], group["damp_floor"]
        )  # (5)
        new = new if s else point
        warm = scaled(d, gamma if s else 0.0)  # (8)
        for p, value, start in zip(group["params"], new.weights, warm, strict=True):
            p.copy_(value)  # (7)
            self.state[p]["warm"] = start
        group["gamma"] = max(gamma, min(GAMMA_GROWTH * gamma, GAMMA_MAX))
        both = length * before
        return HFStep(
            n=point.n,
            loss=f0,
            loss_after=f,
            damp=damp,
            damp_next=group["damp"],
            rho=rho,
            slope=slope,
            predicted=q,
            step_length=s,
            iterations=stats.iterations,
            best=stats.best,
            status=status,
            merit=stats.merit,
            rnorm=stats.rnorm,
            arnorm=stats.arnorm,
            direction_norm=length,
            cosine=inner / both if both else math.nan,
            gamma=gamma,
            point=new,
        )

    def _merit(self, w, validation):
        pair = (validation, None) if isinstance(validation, Tensor) else validation
        return lambda d: 0.5 * squared_error(self.model, *pair, weights=add(w, 1.0, d))


def adapted_damping(damp: float, rho: float, drop: float, floor: float = 0.0) -> float:
    r"""The Levenberg-Marquardt rule (section 4.2).

    $\lambda / \mathrm{drop}$ if rho < 1/4, $\mathrm{drop}\,\lambda$ if rho > 3/4, else
    $\lambda$; not below ``floor``.

    Examples
    --------
    >>> adapted_damping(1.0, 0.9, drop=0.5), adapted_damping(1.0, 0.1, drop=0.5)
    (0.5, 2.0)
    """
    if rho < 0.25:
        damp = damp / drop
    elif rho > 0.75:
        damp = drop * damp
    return max(damp, floor)


def line_search(
    trial: Callable,
    f0: float,
    slope: float,
    *,
    alpha: float,
    shrink: float = 0.5,
    limit: int = HALVINGS,
):
    r"""Backtrack over s = 1, shrink, shrink^2, ... to a sufficient decrease.

    $f(w + s d) \le f(w) + \alpha s \langle d, \nabla f \rangle$ (Algorithm 1). Two
    guards that it lacks: no search along a direction that does not lead downhill, and
    no more than ``limit`` shrinkings.

    Parameters
    ----------
    trial : function s -> (f, anything), the second returned with the result.
    f0, slope : loss at s = 0, and its derivative there.

    Returns
    -------
    s, f, what ``trial`` gave; (0.0, f0, None) when refused.
    """
    if not slope < 0:
        return 0.0, f0, None
    s = 1.0
    for _ in range(limit + 1):
        f, found = trial(s)
        if f <= f0 + alpha * s * slope:
            return s, f, found
        s *= shrink
    return 0.0, f0, None


def check_damping(damp, drop, floor):
    """Refuse constants that the damping rule cannot work with."""
    if not (damp > 0 and math.isfinite(damp)):
        raise ValueError(f"damp must be finite and > 0, got {damp}")
    if not 0 < drop < 1:
        raise ValueError(f"drop must be in (0, 1), got {drop}")
    if not 0 <= floor <= damp:
        raise ValueError(f"damp_floor must be in [0, damp], got {floor}")
