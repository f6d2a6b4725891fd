"""Combine RLS for some layers with another optimiser for the rest (HRLS)."""

from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor

from labkit.check import check_kind
from labkit.rls.optimizer import RLS


class Hybrid(torch.optim.Optimizer):
    """Combine RLS and another optimiser in one: one joint clip, two steps.

    This is HRLS of Zhang et al. 2021: RLS trains the hidden layers, and Adam the output
    layer with softmax and cross-entropy. P depends on the inputs only, so any loss
    works. ValueError if the two share a parameter, if a parameter of the model belongs
    to neither, or if the other evaluates the loss several times (LBFGS).

    Parameters
    ----------
    rls : RLS
        Its ``max_grad_norm`` is the joint norm of all gradients, its own and the
        other's.
    other : torch.optim.Optimizer, over all other parameters that are not frozen

    Notes
    -----
    ``param_groups`` and ``state`` are those of both optimisers, RLS first, so
    schedulers change the ``lr`` of both.

    Examples
    --------
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> rls = RLS(model, layers=["0"], max_grad_norm=5.0)
    >>> optimizer = Hybrid(rls, torch.optim.Adam(model[2].parameters()))
    >>> model(torch.ones(8, 3)).logsumexp(1).mean().backward()
    >>> optimizer.step()
    """

    def __init__(self, rls: RLS, other: torch.optim.Optimizer):
        check_kind("rls", rls, RLS, "an RLS")
        check_kind("other", other, torch.optim.Optimizer, "a torch optimizer")
        if isinstance(other, torch.optim.LBFGS):
            raise ValueError("LBFGS evaluates the loss again within a step; take AdamW")
        self.rls, self.other = rls, other
        first, second = ({*_parameters(part)} for part in (rls, other))
        for name, parameter in rls.model.named_parameters():
            owners = (parameter in first) + (parameter in second)
            if owners == 2:
                raise ValueError(
                    f"parameter {name!r} is trained by two optimizers; give RLS "
                    "layers=[...] and the other the rest"
                )
            if owners == 0 and parameter.requires_grad:
                raise ValueError(
                    f"parameter {name!r} is trained by neither optimizer; give it to "
                    "one, or freeze it by requires_grad_(False)"
                )
        rls.other = other
        super().__setstate__({"defaults": {}})  # the hooks of an optimizer

    @property
    def param_groups(self) -> list[dict]:
        """Return the parameter groups of both optimisers, RLS first."""
        return self.rls.param_groups + self.other.param_groups

    @property
    def state(self) -> dict:
        """Return the states of both optimisers by parameter, in a new mapping."""
        return {**self.rls.state, **self.other.state}

    @property
    def gradient_norm(self) -> Tensor | None:
        """Return the joint norm of all gradients at the last step, (), unclipped."""
        return self.rls.gradient_norm

    def add_param_group(self, param_group: dict) -> None:
        """Give more parameters to the other optimiser; ValueError for those of RLS."""
        self.other.add_param_group(param_group)
        Hybrid(self.rls, self.other)  # which checks whose the parameters are

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return self.rls._step_supports_amp_scaling

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients, and the inputs that RLS keeps with them."""
        self.rls.zero_grad(set_to_none)
        self.other.zero_grad(set_to_none)

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Clip all gradients together, then run both steps; errors as in `RLS.step`."""
        for p in _parameters(self.other):
            if p.grad is not None and p.grad.is_sparse:
                raise ValueError(
                    "Hybrid needs dense gradients: nn.Embedding(sparse=False)"
                )
        return self.rls.step(closure)

    def check(self) -> None:
        """Raise NumericalError for a failure of RLS; waits for an accelerator."""
        self.rls.check()

    def __setstate__(self, state: dict) -> None:
        """Take over what a state dict holds; ValueError if it is of other layers."""
        n = len(self.rls.param_groups)
        groups = state["param_groups"]
        parts = {self.rls: groups[:n], self.other: groups[n:]}
        for part, groups in parts.items():
            own = {
                p: state["state"][p] for p in _parameters(part) if p in state["state"]
            }
            kept = defaultdict(dict, own)
            part.__setstate__({"state": kept, "param_groups": groups})

    __reduce_ex__ = RLS.__reduce_ex__


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
