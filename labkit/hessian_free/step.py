r"""What the steps of SHF and of Martens' method share: optimiser, rules, line search.

Emirahmetoglu and Stewart, sections 4.2 and 4.5, Algorithm 1. Departures from the print,
each with a test: the line search ends, and refuses directions that lead uphill.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from labkit.hessian_free.losses import LossLike, as_loss
from labkit.hessian_free.vectors import Blocks, dot, norm
from labkit.ranges import check, number

HALVINGS = 60
Rows = Tensor | tuple[Tensor, Tensor | None]  # inputs, and targets if they are others
# Damping is squared, in float32 too.
SQUARABLE = number("at most 1e18, for it is squared", lambda v: v <= 1e18)


@dataclass(frozen=True, eq=False, kw_only=True)
class HFStep:
    """What one step did. Losses are f of the batch, for "squared" half the error."""

    n: int  # examples of the batch
    loss: float  # before
    loss_after: float
    damping: float  # lambda of this step
    damping_next: float
    rho: float  # actual over predicted change of the full step, or -inf
    slope: float  # <d, grad f>
    predicted: float  # change of the undamped model
    step_length: float  # s; 0: refused
    iterations: int  # Krylov
    best: int  # the iterate that was taken
    status: str  # why the Krylov method stopped
    merit: tuple[tuple[int, float], ...]  # (k, merit) at the checks
    rnorm: tuple[float, ...]  # of the Krylov method, from iteration 0
    direction_norm: float
    cosine: float  # between this direction and the last; nan where that was 0
    gamma: float  # share of the last direction that this one started from
    arnorm: tuple[float, ...] = ()  # empty for CG, whose rnorm is the gradient's
    q: tuple[float, ...] = ()  # model values of CG's iterates; empty for LSMR
    point: object = field(default=None, repr=False)  # SHF: linearised at new weights


class Newton(torch.optim.Optimizer):
    """An optimiser of a model and its loss, with damping and a warm start."""

    def __init__(self, model: nn.Module, options: dict, loss: LossLike):
        self.loss = as_loss(loss, model)
        trained = [p for p in model.parameters() if p.requires_grad]
        if not trained:
            raise ValueError("model has no parameters that require a gradient")
        check({"damping": options["damping"]}, {"damping": SQUARABLE})
        kinds = {(p.dtype, p.device) for p in trained}
        if len(kinds) > 1:
            raise ValueError(
                "all trained parameters must have one dtype and device, got "
                + ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
            )
        self.model = model
        super().__init__(trained, options)

    def __getstate__(self):
        """Return the state with model, loss and generator, so that copies can step."""
        kept = ("model", "loss", "generator")
        own = {k: v for k, v in vars(self).items() if k in kept}
        return super().__getstate__() | own

    def add_param_group(self, group: dict) -> None:
        """Refuse a second group: a step is on all trained parameters of the model."""
        if self.param_groups:
            raise ValueError(
                "a Hessian-free step is on all parameters of its model at once; make "
                "the optimiser anew when these change"
            )
        super().add_param_group(group)

    def warm_start(self) -> tuple[Tensor, ...]:
        """Return where the next step starts: a share of the last direction, or 0."""
        parameters = self.param_groups[0]["params"]
        kept = ((p, self.state.get(p, {}).get("warm")) for p in parameters)
        return tuple(torch.zeros_like(p) if x is None else x for p, x in kept)

    def _finish(self, weights: Blocks, warm: Blocks, damping: float, **done) -> HFStep:
        """Write weights, warm start and damping of the next step; return the record."""
        group = self.param_groups[0]
        for p, value, start in zip(group["params"], weights, warm, strict=True):
            p.copy_(value)
            self.state[p]["warm"] = start
        before, group["damping"] = group["damping"], damping
        return HFStep(damping=before, damping_next=damping, **done)


def read(*scalars: Tensor, d: Blocks, x0: Blocks) -> tuple[list[float], dict]:
    """Read scalars to the host at once, with the lengths of d and of the start."""
    lengths = norm(d), norm(x0), dot(d, x0)
    *values, length, before, inner = torch.stack([*scalars, *lengths]).tolist()
    both = length * before
    cosine = inner / both if both else math.nan
    return values, {"direction_norm": length, "cosine": cosine}


def adapted_damping(
    damping: float, rho: float, decay: float, floor: float = 0.0
) -> float:
    r"""Return the next damping by the Levenberg-Marquardt rule (section 4.2).

    $\lambda / \mathrm{decay}$ if rho < 1/4, $\mathrm{decay}\,\lambda$ if rho > 3/4,
    else $\lambda$; not below ``floor``.

    Examples
    --------
    >>> adapted_damping(1.0, 0.9, decay=0.5), adapted_damping(1.0, 0.1, decay=0.5)
    (0.5, 2.0)
    """
    if rho < 0.25:
        damping = damping / decay
    elif rho > 0.75:
        damping = decay * damping
    return max(damping, floor)


def line_search(
    trial: Callable[[float], tuple],
    f0: float,
    slope: float,
    *,
    alpha: float,
    shrink: float = 0.5,
) -> tuple:
    r"""Backtrack over s = 1, shrink, shrink^2, ... to a sufficient decrease.

    $f(w + s d) \le f(w) + \alpha s \langle d, \nabla f \rangle$ (Algorithm 1). Two
    guards are added: a direction that does not lead downhill is refused, and s shrinks
    sixty times at most.

    Parameters
    ----------
    trial : callable, s -> (f, anything)
    f0, slope : float, the loss and its derivative at s = 0
    alpha : float, $\alpha$
    shrink : float, the factor of s

    Returns
    -------
    s, f, anything : of the first s that will do; (0.0, f0, None) if none does
    """
    if not slope < 0:
        return 0.0, f0, None
    s = 1.0
    for _ in range(HALVINGS + 1):
        f, beside = trial(s)
        if f <= f0 + alpha * s * slope:
            return s, f, beside
        s *= shrink
    return 0.0, f0, None
