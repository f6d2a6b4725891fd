"""Real steps of RLS, to be recorded; each made anew at every call."""

from functools import partial

import torch
from torch import nn

from labkit import rls
from tests.device.rls import train
from tests.walks import Walk, random


def rls_function():
    x, gradient, theta, V = random(6, (3, 6), (3, 6), (3, 6))
    P, rule = torch.eye(6).double(), {"momentum": 0.5, "l1": 0.1}
    call = partial(rls.rls_step, theta, P, x, gradient, velocity=V, **rule)
    return Walk(call, lambda: (theta, V, P), {rls.rls_step: "37 38 39 c 99 100"})


class LastOfLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(8, 5), nn.Linear(5, 3)

    def forward(self, X):
        return self.out(self.lstm(X.transpose(0, 1))[0][-1])


def rls_optimizer(layers, shows="37 38 39 99 100", **options):
    torch.manual_seed(0)
    conv = (nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
    model = {
        "FC": lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 3)
        ),
        "CONV": lambda: nn.Sequential(*conv, nn.Linear(144, 3)),
        "LSTM": LastOfLSTM,
    }[layers]()
    kind = options.pop("kind", rls.RLS)
    optimizer = kind(model, **options)
    (X,) = random((7, 8, 8), dtype=torch.float32)
    for step in range(2):
        optimizer.zero_grad()
        rls.loss_one_hot(model(X), torch.arange(7) % 3).backward()
        if not step:
            optimizer.step()
    kept = lambda: (list(model.parameters()), optimizer.state_dict())  # noqa: E731
    return Walk(optimizer.step, kept, {kind.step: shows})


def rls_hybrid():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    first = rls.RLS(model, layers=["0"], max_grad_norm=1.0)
    both = rls.Hybrid(first, torch.optim.Adam(model[2].parameters()))
    (X,) = random((7, 4), dtype=torch.float32)
    nn.functional.cross_entropy(model(X), torch.arange(7) % 3).backward()
    kept = lambda: (list(model.parameters()), both.state_dict())  # noqa: E731
    return Walk(both.step, kept, {rls.RLS.step: "37 38 39 99 100"})


WALKS = {
    "rls_step": rls_function,
    **{
        f"RLS {layers}": partial(rls_optimizer, layers, momentum=0.5, l1=1e-3)
        for layers in ("FC", "CONV", "LSTM")
    },
    "RLS plain, clipped": partial(rls_optimizer, "FC", max_grad_norm=1.0),
    "RLS running mean": partial(
        rls_optimizer, "FC", "99 100", kind=rls.RunningMeanRLS, momentum=0.5
    ),
    "Hybrid": rls_hybrid,
}


# The walked function, and a step of the table of devices that goes through it.
STEPS = {rls.rls_step: train, rls.gain: train}
