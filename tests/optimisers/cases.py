"""The optimisers of labkit, each behind the same four calls."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from labkit.hessian_free import HessianFree, MartensHF
from labkit.rls import RLS, Hybrid

ROWS = 6


def network(hidden=7):
    """Two layers in float64, the same at each call."""
    model = nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, 3))
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=g))
    return model.double()


def batch(seed=0):
    """Inputs and targets of a step."""
    g = torch.Generator().manual_seed(seed)
    shapes = (ROWS, 5), (ROWS, 3)
    return [torch.randn(*s, generator=g, dtype=torch.float64) for s in shapes]


def rls(model):
    return RLS(model, lr=0.5, momentum=0.5, l1=1e-4, max_grad_norm=1.0)


def hybrid(model):
    first = RLS(model, layers=["0"], lr=0.5, momentum=0.5, max_grad_norm=1.0)
    return Hybrid(first, torch.optim.Adam(model[2].parameters(), lr=0.01))


def newton(model):
    g = torch.Generator().manual_seed(0)
    return HessianFree(model, damping=0.5, maxiter=8, generator=g)


def martens(model):
    return MartensHF(model, damping=0.5, maxiter=8)


@dataclass(frozen=True)
class Case:
    """An optimiser, and how a step is taken with it."""

    make: Callable
    by_gradient: bool  # whether it steps on gradients, not on a batch

    def made(self, hidden=7):
        """A network and its optimiser."""
        model = network(hidden)
        return model, self.make(model)

    def step(self, model, optimizer, seed=0, scale=1.0):
        """One step; a scale that is not finite spoils it."""
        X, Y = batch(seed)
        if not self.by_gradient:
            return optimizer.step(X * scale, Y)
        optimizer.zero_grad()
        (scale * (model(X) - Y).square().sum() / (2 * ROWS)).backward()
        return optimizer.step()


CASES = {
    "RLS": Case(rls, True),
    "Hybrid": Case(hybrid, True),
    "HessianFree": Case(newton, False),
    "MartensHF": Case(martens, False),
}
BY_GRADIENT = [name for name, case in CASES.items() if case.by_gradient]


def kept(model, optimizer):
    """All that a step may change, copied."""
    tensors = [p.detach().clone() for p in model.parameters()]
    for _, state in sorted(optimizer.state_dict()["state"].items()):
        pairs = sorted(state.items())
        tensors += [v.clone() for _, v in pairs if isinstance(v, torch.Tensor)]
    groups = copy.deepcopy(optimizer.state_dict()["param_groups"])
    for group in groups:
        group.pop("differentiable", None)  # torch's, added by a copy
    return tensors, groups


def same(one, other):
    """Whether all is equal to the last bit."""
    (a, groups), (b, others) = one, other
    return len(a) == len(b) and all(map(torch.equal, a, b)) and groups == others
