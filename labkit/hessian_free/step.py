r"""The parts that SHF and Martens' method share: optimiser, rules and line search.

Emirahmetoglu and Stewart, sections 4.2 and 4.5, Algorithm 1. Departures from the print,
each with a test: the line search ends, and refuses directions that lead uphill.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from labkit.check import (
    Range,
    check_kind,
    check_options,
    check_tensor,
    described,
    number,
)
from labkit.collectives import mean_over
from labkit.hessian_free.linearise import linearise, loss_at
from labkit.hessian_free.losses import LossLike, as_loss
from labkit.hessian_free.pooled import Pooled, Workers
from labkit.hessian_free.vectors import Blocks, dot, norm

if TYPE_CHECKING:  # a torch without torch.distributed has none
    from torch.distributed import ProcessGroup

HALVINGS = 60
DTYPES = (torch.float32, torch.float64)  # half precision stalls
SHARDED = ("DTensor", "FlatParameter")
Rows = Tensor | tuple[Tensor, Tensor | None]  # inputs, and targets if they are others
LEAST, MOST = 1e-18, 1e18  # damping, which is squared: float32 holds both squares
SQUARABLE = number("at most 1e18, for it is squared", lambda v: v <= MOST)


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
    merit: tuple[tuple[int, float], ...]  # (k, merit) at the checks
    rnorm: tuple[float, ...]  # of the Krylov method, from iteration 0
    direction_norm: float
    cosine: float  # between this direction and the last; nan where that was 0
    gamma: float  # share of the last direction that this one started from
    arnorm: tuple[float, ...] = ()  # empty for CG, whose rnorm is the gradient's
    q: tuple[float, ...] = ()  # model values of CG's iterates; empty for LSMR
    point: object = field(default=None, repr=False)  # SHF: linearised at new weights


class Newton(torch.optim.Optimizer):
    """The base class of optimisers of a model and its loss, with damping, warm start.

    With a ``DistributedDataParallel`` the rows of all workers are one batch, see
    :mod:`labkit.hessian_free.pooled`; each worker must then make the same calls.
    """

    ranges: ClassVar[dict[str, Range]] = {}  # of the options
    process_group: "ProcessGroup | None" = None
    _steps = 0  # taken by this object

    def __init__(self, model: nn.Module, options: dict, loss: LossLike):
        check_options(options, self.ranges, type(self).__name__)
        check_options({"damping": options["damping"]}, {"damping": SQUARABLE})
        if isinstance(model, nn.parallel.DistributedDataParallel):
            self.process_group, model = model.process_group, model.module
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"{type(self).__name__} takes the model, not its parameters, got "
                f"{described(model)}"
            )
        self.loss, self.model = as_loss(loss, model), model
        super().__init__(_trained(model), options)

    def __getstate__(self):
        """Return the state with model, loss and generator, so that copies can step."""
        if self.process_group is not None:
            raise TypeError(
                "an optimiser of several workers cannot be copied or pickled; save "
                "its state_dict()"
            )
        kept = ("model", "loss", "generator")
        own = {k: v for k, v in vars(self).items() if k in kept}
        return super().__getstate__() | own

    def __setstate__(self, state: dict) -> None:
        """Set a state; options that it lacks keep the constructor's values."""
        super().__setstate__(state)
        own = {k: v for k, v in self.defaults.items() if k in self.ranges}
        self.param_groups = [_Options(own | group) for group in self.param_groups]

    def add_param_group(self, group: dict) -> None:
        """Raise a ValueError for a second group, as a step needs all parameters."""
        if self.param_groups:
            raise ValueError(
                "a Hessian-free step is on all parameters of its model at once; make "
                "the optimiser anew when these change"
            )
        super().add_param_group(group)
        self.param_groups[0] = _Options(self.param_groups[0])

    def load_state_dict(self, state_dict: dict) -> None:
        """Load the options and the last direction.

        Raises
        ------
        ValueError, TypeError
            For options out of range or a direction of another shape; nothing is
            changed then.
        """
        check_state_dict(state_dict)
        groups = state_dict["param_groups"]
        if len(groups) == 1:
            known = {k: v for k, v in groups[0].items() if k in self.ranges}
            check_options(known, self.ranges, "state_dict")
            if "damping" in known:
                check_options({"damping": known["damping"]}, {"damping": SQUARABLE})
            parameters = self.param_groups[0]["params"]
            if len(groups[0]["params"]) != len(parameters):
                raise ValueError(
                    "the group of the state dict doesn't match the size of the "
                    f"model: it has {len(groups[0]['params'])} parameters, and the "
                    f"model {len(parameters)}"
                )
            for i, p in zip(groups[0]["params"], parameters, strict=False):
                kept = state_dict["state"].get(i, {})
                if "warm" in kept:
                    check_tensor(f"state {i}: warm", kept["warm"], shape=p.shape)
        super().load_state_dict(state_dict)

    def warm_start(self) -> tuple[Tensor, ...]:
        """Return the start of the next step: a share of the last direction, or 0."""
        parameters = self.param_groups[0]["params"]
        kept = ((p, self.state.get(p, {}).get("warm")) for p in parameters)
        return tuple(torch.zeros_like(p) if x is None else x for p, x in kept)

    def linearised(
        self,
        inputs: Tensor,
        targets: Tensor | None,
        weights: Blocks,
        beside: object = None,
    ) -> object:
        """Return the linearisation of the rows, of all workers if there are several.

        ``beside`` is one for the same rows at other weights; its counts are reused.
        """
        point = linearise(self.model, inputs, targets, loss=self.loss, weights=weights)
        if self.process_group is None:
            return point
        workers = beside.workers if beside else Workers(self.process_group, inputs)
        return Pooled(point, workers)

    def mean_loss(
        self, inputs: Tensor, targets: Tensor | None, weights: Blocks
    ) -> Tensor:
        """Return f, (), the mean loss over the rows of all workers."""
        f = loss_at(self.model, inputs, targets, self.loss, weights)
        if self.process_group is None:
            return f
        return mean_over([f], self.process_group, weight=len(inputs))[0]

    def _finish(
        self, old: Blocks, new: Blocks, warm: Blocks, options: dict, **done
    ) -> HFStep:
        """Write weights, warm start and options, all or none; return the record."""
        group = self.param_groups[0]
        parameters, before = group["params"], dict(group)
        starts = {p: self.state[p]["warm"] for p in parameters if p in self.state}
        record = HFStep(
            damping=group["damping"], damping_next=options["damping"], **done
        )
        try:
            torch._foreach_copy_(parameters, list(new))
            for p, start in zip(parameters, warm, strict=True):
                self.state[p]["warm"] = start
            group.update(options)
            self._steps += 1
        except BaseException:
            torch._foreach_copy_(parameters, list(old))
            self.state.clear()
            self.state.update({p: {"warm": start} for p, start in starts.items()})
            group.update(before)
            raise
        return record


class _Options(dict):
    """The options of an optimiser, which explain why there is no learning rate."""

    def __missing__(self, name: str):
        if name == "lr":
            raise ValueError(
                "a Hessian-free step has no lr, for its length is searched, so that no "
                "scheduler applies; change param_groups[0]['damping'] between steps"
            )
        raise KeyError(name)


def check_state_dict(saved: object) -> None:
    """Raise an error unless this is the state dict of an optimiser of one group."""
    known = isinstance(saved, Mapping) and {"state", "param_groups"} <= {*saved}
    known = known and isinstance(saved["state"], Mapping)
    groups = saved["param_groups"] if known else None
    if not isinstance(groups, list | tuple):
        raise ValueError(
            'a state dict has "state", a mapping, and "param_groups", a list; got '
            f"{described(saved)}"
        )
    if len(groups) != 1:
        raise ValueError(
            "the state dict has a different number of parameter groups: "
            f"{len(groups)} instead of one"
        )
    group = groups[0]
    if not isinstance(group, Mapping) or not isinstance(group.get("params"), list):
        raise ValueError(
            'the group of a state dict is a mapping with a list "params"; got '
            f"{described(group)}"
        )
    if not all(isinstance(i, int) for i in group["params"]):
        raise ValueError(f"params must be numbers, got {group['params']!r}")
    for i, kept in saved["state"].items():
        check_kind(f"state {i}", kept, Mapping, "a mapping")


def pair_of(rows: Rows, name: str) -> tuple[Tensor, Tensor | None]:
    """Return rows as a pair of inputs and targets, which are None if not given."""
    if isinstance(rows, tuple | list) and len(rows) in (1, 2):
        return rows[0], (rows[1] if rows[1:] else None)
    if isinstance(rows, Tensor):
        return rows, None
    raise TypeError(
        f"{name} must be a tensor or a pair (inputs, targets), got {described(rows)}"
    )


def _trained(model) -> list[nn.Parameter]:
    """Return the trained parameters, or raise an error if no step can be taken."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not named:
        raise ValueError("model has no parameters that require a gradient")
    for name, p in named:
        if type(p).__name__ in SHARDED or type(p.data).__name__ in SHARDED:
            raise ValueError(
                f"the parameter {name} is a {type(p.data).__name__}, but a step needs "
                "whole weights on each worker: use DistributedDataParallel"
            )
        if is_lazy(p):
            raise ValueError(f"the parameter {name} is lazy: call the model once")
        check_tensor(f"the parameter {name}", p.detach(), dtype=DTYPES)
    kinds = {(p.dtype, p.device) for _, p in named}
    if len(kinds) > 1:
        raise ValueError(
            "all trained parameters must have one dtype and device, got "
            + ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        )
    return [p for _, p in named]


def keeps_generator(step: Callable) -> Callable:
    """Make a step that fails restore the state of the generator that it drew from."""

    @wraps(step)
    def kept(self, *args, **kwargs):
        device, generator = self.param_groups[0]["params"][0].device, self.generator
        if generator is None and device.type == "cuda":
            get = partial(torch.cuda.get_rng_state, device)
            put = partial(torch.cuda.set_rng_state, device=device)
        else:
            used = torch.default_generator if generator is None else generator
            get, put = used.get_state, used.set_state
        state, steps = get(), self._steps
        try:
            return step(self, *args, **kwargs)
        except BaseException:
            if self._steps == steps:
                put(state)
            raise

    return kept


def read(*scalars: Tensor, d: Blocks, x0: Blocks) -> tuple[list[float], dict]:
    """Read scalars to the host at once, with the length of d and its cosine to x0."""
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
    else $\lambda$, and never below ``floor``. It stays between 1e-18 and 1e18, since
    the square of a damping far beyond these is 0 or infinite in float32.

    Examples
    --------
    >>> adapted_damping(1.0, 0.9, decay=0.5), adapted_damping(1.0, 0.1, decay=0.5)
    (0.5, 2.0)
    """
    if rho < 0.25:
        damping = damping / decay
    elif rho > 0.75:
        damping = decay * damping
    return min(max(damping, floor, LEAST), MOST)


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
        f, beside = trial(s)
        if f <= f0 + alpha * s * slope:
            return s, f, beside
        s *= shrink
    return 0.0, f0, None
