"""Calls of rls's public functions, for odd inputs; see :mod:`tests.odd`.

The steps and the losses hold the paper's lines alone and are not here: the optimiser
and ``train`` check what they hand them.
"""

import torch
from torch import nn

from labkit import rls
from labkit.rls import RLS, Hybrid

g = torch.Generator().manual_seed(0)
X, LABELS = torch.randn(6, 5, generator=g), torch.arange(6) % 3


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def passed(optimizer, model, x=X):
    model(x).square().mean().backward()
    optimizer.step()
    return [*model.parameters()]


def stepped(kind=RLS, model="net", **options):
    model = net() if isinstance(model, str) and model == "net" else model
    return passed(kind(model, **options), model)


def weighed(weights):
    model = net()
    optimizer = RLS(model)
    with optimizer.row_weights(weights):
        model(X).square().mean().backward()
    optimizer.step()


def closed(closure):
    model = net()
    optimizer = RLS(model)
    model(X).square().mean().backward()
    return optimizer.step(closure)


def loaded(**given):
    model = net()
    optimizer = RLS(model)
    passed(optimizer, model)
    optimizer.load_state_dict(optimizer.state_dict() | given)
    return passed(optimizer, model)


def restored(**given):
    model = net()
    optimizer = RLS(model)
    passed(optimizer, model)
    saved = optimizer.state_dict()
    saved["state"][0] = saved["state"][0] | given
    optimizer.load_state_dict(saved)
    return passed(optimizer, model)


def joined(rls_part, other):
    model = net()
    first = RLS(model, layers=["0"]) if isinstance(rls_part, str) else rls_part
    second = (
        torch.optim.Adam(model[2].parameters()) if isinstance(other, str) else other
    )
    return passed(Hybrid(first, second), model)


def hybrid_for(**given):
    model = net()
    return passed(Hybrid.for_model(model, **given), model)


def hybrid():
    model = net()
    made = Hybrid(RLS(model, layers=["0"]), torch.optim.Adam(model[2].parameters()))
    passed(made, model)
    return made


def hybrid_loaded(**given):
    made = hybrid()
    made.load_state_dict(made.state_dict() | given)
    return passed(made, made.rls.model)


def saved_state():
    model = net()
    optimizer = RLS(model, momentum=0.0)
    passed(optimizer, model)
    return optimizer.state_dict()


def trained(optimizer="rls", **given):
    model = net()
    made = RLS(model) if isinstance(optimizer, str) else optimizer
    right = {"inputs": X, "labels": LABELS, "batch_size": 3} | given
    return [record.loss for record in rls.train(model, made, **right)]


OPTIONS = {"forgetting": 1.0, "mean_weight": 0.1, "lr": 1.0, "momentum": 0.5, "l1": 0.0}
OPTIONS |= {"weight_decay": 0.0, "P0_scale": 1.0, "max_grad_norm": 1.0, "layers": None}
OPTIONS |= {"on_failure": "raise", "max_fan_in": 8192}
TRAIN = {
    "optimizer": "rls",
    "inputs": X,
    "labels": LABELS,
    "epochs": 1,
    "batch_size": 3,
}
TRAIN |= {"loss": rls.loss_one_hot, "generator": None, "drop_last": False}
TRAIN |= {"max_grad_norm": None, "test": (X, LABELS), "watch": None, "ceiling": 100.0}
TRAIN |= {"capture": False}
SEQUENCE = {"inputs": 2, "hidden": 3, "classes": 2, "layers": 1, "cell": nn.LSTM}
CALLS = {
    "RLS": (stepped, {"model": "net", **OPTIONS}),
    **{
        kind.__name__: (
            lambda kind=kind, **given: stepped(kind, **given),
            {"model": "net", "mean_weight": 0.1, "lr": 1.0, "momentum": 0.0, "l1": 0.0},
        )
        for kind in (rls.KailathRLS, rls.AveragedRLS, rls.RunningMeanRLS)
    },
    "RLS.step": (closed, {"closure": None}),
    "RLS.row_weights": (weighed, {"weights": torch.ones(6)}),
    "RLS.load_state_dict": (loaded, saved_state()),
    "RLS, a saved state": (restored, dict(saved_state()["state"][0])),
    "Hybrid": (joined, {"rls_part": "rls", "other": "adam"}),
    "Hybrid.load_state_dict": (hybrid_loaded, hybrid().state_dict()),
    "Hybrid.for_model": (
        hybrid_for,
        {"rest": torch.optim.AdamW, "leave": ("2",), "time_steps": 1, "momentum": 0.5}
        | {"max_fan_in": 8192, "max_grad_norm": 1.0},
    ),
    "dense_network": (rls.dense_network, {"inputs": 5, "hidden": 4, "classes": 3}),
    "small_cnn": (
        rls.small_cnn,
        {"side": 8, "channels": (2, 3), "hidden": 4, "classes": 3},
    ),
    "vgg5": (rls.vgg5, {"classes": 3}),
    "SequenceClassifier": (rls.SequenceClassifier, SEQUENCE | {"vocabulary": 9}),
    "train": (trained, TRAIN),
}
