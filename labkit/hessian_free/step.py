r"""The parts that SHF and Martens' method share: optimiser, rules and line search.

Emirahmetoglu and Stewart, sections 4.2 and 4.5, Algorithm 1. Departures from the print,
each with a test: the line search ends, and refuses directions that lead uphill.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import ClassVar

import torch
from torch import Tensor, nn

from labkit.check import check_tensor
from labkit.hessian_free.checks import check_model
from labkit.hessian_free.linearise import linearised, loss_at
from labkit.hessian_free.losses import Point
from labkit.hessian_free.options import MOST, Options
from labkit.hessian_free.pooled import Pooled
from labkit.hessian_free.system import DTYPES
from labkit.hessian_free.vectors import Blocks, check_blocks

HALVINGS = 60
LEAST = 1e-18  # damping, which is squared: float32 holds the square


@dataclass(frozen=True, eq=False, kw_only=True)
class HFStep:
    """The record of one step; its losses are f of the batch."""

    n: int  # examples of the batch
    loss: float  # before the step; for "squared" half the error
    loss_after: float
    damping: float  # lambda of this step
    damping_next: float
    rho: float  # actual over predicted change for the full step, or -inf
    slope: float  # <d, grad f>
    predicted: float  # change of the undamped model
    step_length: float  # s, or 0 if the step was refused
    iterations: int  # of the Krylov method
    best: int  # index of the iterate that was used
    status: str  # why the Krylov method stopped
    merit: tuple[tuple[int, float], ...] = field(repr=False)  # (k, merit) at the checks
    point: object = field(default=None, repr=False)  # SHF: linearised at new weights


class Newton(torch.optim.Optimizer):
    """The base class of optimisers of a model and its loss, with damping, warm start.

    With ``workers`` the rows of all workers are one batch, see
    :mod:`labkit.hessian_free.pooled`; each worker must then make the same calls.
    """

    kind: ClassVar[type[Options]]  # of the options
    workers = None

    def __init__(
        self, model: nn.Module, *, loss: str = "squared", **options: object
    ) -> None:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            raise TypeError(
                f"{type(self).__name__} takes the model without its "
                "DistributedDataParallel, model.module, and "
                "workers=labkit.scale.workers()"
            )
        check_model(model, loss)
        self.model, self.loss = model, loss
        super().__init__(_trained(model), asdict(self.kind(**options)))

    @property
    def options(self) -> Options:
        """The options in ``param_groups``, checked."""
        group = self.param_groups[0]
        return self.kind(**{each.name: group[each.name] for each in fields(self.kind)})

    def __getstate__(self):
        """Return all but hooks, model and loss included, so that copies can step."""
        return {
            key: value for key, value in vars(self).items() if not key.startswith("_")
        }

    def __setstate__(self, state: dict) -> None:
        """Set a state; options that it lacks keep the constructor's values."""
        super().__setstate__(state)
        self.param_groups = [
            _Group(self.defaults | group) for group in self.param_groups
        ]

    def add_param_group(self, group: dict) -> None:
        """Raise a ValueError for a second group, as a step needs all parameters."""
        if self.param_groups:
            raise ValueError(
                "a Hessian-free step is on all parameters of its model at once; make "
                "the optimiser anew when these change"
            )
        super().add_param_group(group)
        self.param_groups[0] = _Group(self.param_groups[0])

    def load_state_dict(self, state_dict: dict) -> None:
        """Load the options and the last direction, which must be of this model."""
        params = self.param_groups[0]["params"]
        kept = state_dict["state"]
        if kept:
            warm = [kept[i]["warm"].to(params[0]) for i in sorted(kept)]
            check_blocks("the last direction", warm, params)
        super().load_state_dict(state_dict)

    def warm_start(self) -> Blocks:
        """Return the start of the next step: a share of the last direction, or 0."""
        params = self.param_groups[0]["params"]
        if {*params} != {p for p in self.model.parameters() if p.requires_grad}:
            raise ValueError(
                "other parameters of the model are trained than when the optimiser was "
                "made; make it anew after requires_grad changes"
            )
        return tuple(
            self.state[p]["warm"] if p in self.state else torch.zeros_like(p)
            for p in params
        )

    def linearised(
        self, inputs: Tensor, targets: Tensor | None, weights: Blocks
    ) -> Point | Pooled:
        """Return the linearisation of checked rows, of all workers if there are any."""
        point = linearised(self.model, inputs, targets, self.loss, weights)
        if self.workers is None:
            return point
        rows = torch.tensor([point.n], device=point.residual.device)
        return Pooled(point, self.workers, int(self.workers.sum([rows])[0]))

    def mean_loss(
        self, inputs: Tensor, targets: Tensor | None, weights: Blocks
    ) -> Tensor:
        """Return f, (), the mean loss over checked rows, of all workers."""
        f = loss_at(self.model, inputs, targets, self.loss, weights)
        if self.workers is None:
            return f
        total, n = self.workers.sum([len(inputs) * f, f.new_tensor(len(inputs))])
        return total / n

    def _finish(self, weights: Blocks, warm: Blocks, options: dict, **done) -> HFStep:
        """Write weights, warm start and options; return the record."""
        group = self.param_groups[0]
        record = HFStep(
            damping=group["damping"], damping_next=options["damping"], **done
        )
        torch._foreach_copy_(group["params"], weights)
        for p, start in zip(group["params"], warm, strict=True):
            self.state[p] = {"warm": start}
        group.update(options)
        return record


class _Group(dict):
    """The options of an optimiser, which explain why there is no learning rate."""

    def __missing__(self, name: str):
        if name == "lr":
            raise ValueError(
                "a Hessian-free step has no lr, for its length is searched, so that no "
                "scheduler applies; change param_groups[0]['damping'] between steps"
            )
        raise KeyError(name)


def _trained(model) -> list[nn.Parameter]:
    """Return the trained parameters, or raise an error if no step can be taken."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not named:
        raise ValueError("model has no parameters that require a gradient")
    previous = None
    for name, p in named.items():
        check_tensor(f"the parameter {name}", p.detach(), like=previous, dtype=DTYPES)
        previous = p
    return list(named.values())


def adapted_damping(damping: float, rho: float, decay: float) -> float:
    r"""Return the next damping by the Levenberg-Marquardt rule (section 4.2).

    $\lambda / \mathrm{decay}$ if rho < 1/4, $\mathrm{decay}\,\lambda$ if rho > 3/4,
    else $\lambda$. It stays between 1e-18 and 1e18, since the square of a damping far
    beyond these is 0 or infinite in float32.

    Examples
    --------
    >>> adapted_damping(1.0, 0.9, decay=0.5), adapted_damping(1.0, 0.1, decay=0.5)
    (0.5, 2.0)
    """
    if rho < 0.25:
        damping = damping / decay
    elif rho > 0.75:
        damping = decay * damping
    return min(max(damping, LEAST), MOST)


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
    s, f, anything : of the first s that satisfies it; (0.0, f0, None) if none does
    """
    if not slope < 0:
        return 0.0, f0, None
    s = 1.0
    for _ in range(HALVINGS + 1):
        f, anything = trial(s)
        if f <= f0 + alpha * s * slope:
            return s, f, anything
        s *= shrink
    return 0.0, f0, None
