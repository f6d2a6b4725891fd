"""Steps of RLS; forward and backward pass are counted in the rows of train only."""

from functools import partial

import torch
from torch import nn

from labkit import rls
from labkit.lab.books.rls_training import SequenceClassifier
from tests.device.rows import Row, random

CLASSES = 3
CELLS = {"RNN": nn.RNN, "LSTM": nn.LSTM}


def network(layers):
    torch.manual_seed(0)
    if layers in CELLS:
        made = SequenceClassifier(8, 5, CLASSES, cell=CELLS[layers])
    elif layers == "Conv2d":
        sizes = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.Flatten()
        made = nn.Sequential(nn.Unflatten(1, (1, 8)), *sizes, nn.Linear(48, CLASSES))
    else:
        sizes = nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, CLASSES)
        made = nn.Sequential(nn.Flatten(), *sizes)
    return made.to(torch.get_default_dtype())


def batch(device):
    (X,) = random(device, (7, 8, 8))
    return X, (torch.arange(7) % CLASSES).to(device)


def update(device, layers, make=rls.RLS, checks=False, **options):
    """A step of an optimiser after a forward and a backward pass."""
    model = network(layers).to(device)
    optimizer = make(model, **options)
    X, y = batch(device)

    def backward():
        optimizer.zero_grad()
        rls.loss_one_hot(model(X), y).backward()

    def step():
        optimizer.step()
        if checks:
            optimizer.check()
        return list(model.parameters())

    return backward, step


def adam(model):
    return torch.optim.Adam(model.parameters(), fused=True)


def hybrid(model):
    return rls.Hybrid(rls.RLS(model, layers=["1"]), adam(model[3]))


def train(device, make=rls.RLS, rows=3):
    """A whole step of training: forward, backward, update; the second of three rows."""
    model = network("Linear").to(device)
    data = {"batch_size": rows, "epochs": 9}
    return partial(next, rls.train(model, make(model), *batch(device), **data))


def row(layers, waits=0, title="RLS.step", **how):
    make = partial(update, layers=layers, **how)
    return Row(f"{title}, {layers}", make, waits)


RULE = {"momentum": 0.5, "l1": 1e-3, "max_grad_norm": 1.0}
ROWS = [
    row("Linear"),
    row("Linear", title="RLS.step with momentum, L1, clip", **RULE),
    row("Conv2d"),
    row("RNN"),
    row("LSTM"),
    row("Linear", 1, title="RLS.step and check", checks=True),  # one for all
    row("Linear", title="Hybrid.step", make=hybrid),
    row("Linear", title="RunningMeanRLS.step", make=rls.RunningMeanRLS),
    row("Linear", title="KailathRLS.step", make=rls.KailathRLS),
    row("Linear", title="AveragedRLS.step", make=rls.AveragedRLS),
    Row("train, Linear", train),
    # failures and losses, once an epoch
    Row("train, Linear, an epoch's end", partial(train, rows=7), 2),
    Row("train with fused Adam, Linear", partial(train, make=adam)),
]
