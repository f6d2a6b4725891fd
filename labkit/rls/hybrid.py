"""RLS for some layers and another optimiser for the rest (HRLS)."""

import torch

from labkit.rls.blocks import joint_norm
from labkit.rls.health import NumericalError
from labkit.rls.optimizer import RLS
from labkit.rls.update import clip_factor


class Hybrid:
    """RLS and another optimiser as one: one joint clip, one step.

    HRLS of Zhang et al. 2021: hidden layers by RLS, the output layer by Adam under
    softmax and cross-entropy. P depends on inputs alone, so any loss will do.
    ValueError if the two share a parameter, or one of the model belongs to neither.

    Parameters
    ----------
    rls : RLS
        Its ``max_grad_norm`` is the joint norm of all gradients, its own and the
        other's.
    other : torch.optim.Optimizer, over all other parameters that are not frozen.

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
        self.rls, self.other = rls, other
        self.gradient_norm = None  # (), joint, of the last step, unclipped
        mine, theirs = (set(map(id, _parameters(each))) for each in (rls, other))
        for name, parameter in rls.model.named_parameters():
            owners = (id(parameter) in mine) + (id(parameter) in theirs)
            if owners == 2:
                raise ValueError(
                    f"parameter {name!r} is trained by both optimizers; give RLS "
                    "layers=[...] and the other one the rest"
                )
            if owners == 0 and parameter.requires_grad:
                raise ValueError(
                    f"parameter {name!r} is trained by neither optimizer; give it to "
                    "one, or freeze it by requires_grad_(False)"
                )

    @property
    def param_groups(self) -> list[dict]:
        """Groups of both, RLS first."""
        return self.rls.param_groups + self.other.param_groups

    @property
    def max_grad_norm(self):
        """Joint norm that all gradients are clipped to, or None."""
        return self.rls.max_grad_norm

    def zero_grad(self, set_to_none=True):
        """Clear all gradients, and the inputs that came with those of RLS."""
        self.rls.zero_grad(set_to_none)
        self.other.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self):
        """Clip all gradients together, then let both step; errors as of `RLS.step`."""
        steps = self.rls.collect()
        parameters = _parameters(self.other)
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = joint_norm([each.gradient for each in steps] + gradients)
        factor = clip_factor(norm, self.rls.max_grad_norm)
        at_hand = norm.device.type == "cpu"
        if at_hand and not all(g.isfinite().all() for g in gradients):
            name, what = (
                f"(those of {type(self.other).__name__})",
                "the gradient's norm",
            )
            size = float(torch.stack([g.norm() for g in gradients]).norm())
            advice = "nothing was changed; lower its rate or clip by max_grad_norm"
            raise NumericalError(name, steps[0].number, what, size, advice)
        self.rls.apply(steps, norm, factor)
        self.gradient_norm = norm
        failed = ~(norm < torch.inf)
        for g in gradients:  # one that is not finite becomes no gradient
            g.masked_fill_(failed, 0)
        if factor is not None and gradients:
            torch._foreach_mul_(gradients, factor)
        self.other.step()

    def check(self):
        """Raise for a failure of RLS on an accelerator; waits for it."""
        self.rls.check()

    def state_dict(self) -> dict:
        """State of both."""
        return {"rls": self.rls.state_dict(), "other": self.other.state_dict()}

    def load_state_dict(self, state: dict):
        """Restore what :meth:`state_dict` gave."""
        self.rls.load_state_dict(state["rls"])
        self.other.load_state_dict(state["other"])


def _parameters(optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
