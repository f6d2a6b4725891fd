"""Calls of hessian_free's public functions, for odd inputs; see :mod:`tests.odd`.

Generators of a solver's iterates and the estimates within a step are not here: the
solver, the optimiser or ``train`` checks what it hands them.
"""

from functools import partial
from itertools import islice

import torch
from torch import nn

from labkit import hessian_free as hf

from .conftest import rand, randn, small_net

X, V, NET = rand(6, 5), rand(3, 5, seed=1), small_net()
T = torch.arange(6) % 3
A, RHS, SYMMETRIC = randn(8, 5), randn(8, seed=1), torch.eye(5).double() * 3
POINT = hf.linearise(NET, X)
D = tuple(randn(*W.shape) / 9 for W in NET.parameters())
WEIGHTS = tuple(W.detach() for W in NET.parameters())
OPTIONS = {"loss": "squared", "damping": 0.3, "damping_decay": 0.9, "maxiter": 3}
NEWTON = {"damping_floor": 0.0, "damping_norm": "identity", "damp_towards": "zero"}
NEWTON |= {"gamma": 0.7, "preconditioner": "random_signs", "atol": 1e-6, "ftol": 1e-5}
NEWTON |= {"miniter": 1, "patience": 2, "as_published": False, "alpha": 1e-4}
NEWTON |= {"generator": None, **OPTIONS}
MARTENS = OPTIONS | {"tolerance": 5e-4, "alpha": 0.01}
ROWS = {"inputs": X, "targets": None}


def classifier():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def net(model):
    """A fresh net where the right one was not replaced."""
    return small_net() if model is NET or isinstance(model, str) else model


def newton(inputs=X, targets=None, validation=V, model="net", **options):
    made = hf.HessianFree(net(model), **({"maxiter": 3} | options))
    return made.step(inputs, targets, validation=validation)


def labelled(inputs, targets, loss):
    made = hf.HessianFree(classifier(), loss=loss, maxiter=3)
    return made.step(inputs, targets)


def posed(inputs, targets):
    problem = hf.HessianFree(small_net(), maxiter=3).subproblem(inputs, targets)
    return problem.solve(maxiter=2).x


def martens(inputs=X, targets=None, chunk=V, model="net", **options):
    made = hf.MartensHF(net(model), **({"maxiter": 3} | options))
    return made.step(inputs, targets, chunk=chunk)


def stepped(kind):
    made = kind(small_net(), maxiter=3)
    made.step(X)
    return made


def loaded(kind, **given):
    made = stepped(kind)
    made.load_state_dict(made.state_dict() | given)
    return made.step(X)


def grouped(kind, **given):
    made = stepped(kind)
    saved = made.state_dict()
    saved["param_groups"][0] |= given
    made.load_state_dict(saved)
    return made.step(X)


def entries(kind):
    return dict(stepped(kind).state_dict()["param_groups"][0])


def trained(optimizer="shf", settings=None, **given):
    model = small_net()
    made = hf.HessianFree(model, maxiter=2) if isinstance(optimizer, str) else optimizer
    settings = hf.Settings(**settings) if isinstance(settings, dict) else settings
    right = {"inputs": X, "validation": V, "steps": 1, "batch_size": 4} | given
    records = hf.train(model, made, settings=settings, **right)
    return [record.step for record in islice(records, 2)]


def trained_by_martens(optimizer="martens", **given):
    model = small_net()
    made = hf.MartensHF(model, maxiter=2) if isinstance(optimizer, str) else optimizer
    right = {"inputs": X, "validation": V, "steps": 1, "chunks": 2} | given
    records = hf.train_martens(model, made, **right)
    return [record.step for record in islice(records, 2)]


def solved(function=hf.lsmr, **given):
    first = given.pop("A" if function is hf.lsmr else "B")
    return function(first, given.pop("b"), **given).x


def by_functions(A, At):
    return hf.lsmr(A, RHS, At=At).x


def problem():
    return hf.HessianFree(small_net()).subproblem(X)


SETTINGS = {name: getattr(hf.Settings(), name) for name in vars(hf.Settings())}
LSMR = {"A": A, "b": RHS, "x0": randn(5), "damping": 0.1, "scale": 1 + rand(5)}
LSMR |= {"damping_norm": "identity", "damp_towards": "zero", "atol": 1e-6, "btol": 1e-6}
LSMR |= {"conlim": 1e8, "ftol": 1e-5, "maxiter": 9, "merit": None, "miniter": 1}
LSMR |= {"patience": 3, "as_published": False, "callback": None, "check_every": 1}
CG = {"B": SYMMETRIC, "b": RHS[:5], "x0": randn(5), "preconditioner": 1 + rand(5)}
CG |= {"maxiter": 9, "tolerance": 5e-4, "keep": False, "callback": None}
CG |= {"check_every": 1}
TRAIN = {"optimizer": "shf", "inputs": X, "validation": V, "test": V, "targets": None}
TRAIN |= {"steps": 1, "generator": None, "past": ()}
AUTO = {"widths": (5, 3, 5), "incoming": 2, "std": 1.5, "activations": None}
AUTO |= {"generator": None, "dtype": None, "device": None}
CALLS = {
    "lsmr": (solved, LSMR),
    "lsmr of float32": (
        solved,
        {k: v.float() if isinstance(v, torch.Tensor) else v for k, v in LSMR.items()},
    ),
    "lsmr of functions": (
        by_functions,
        {"A": A.mv, "At": A.T.mv},
    ),
    "cg": (partial(solved, hf.cg), CG),
    "Autoencoder": (hf.Autoencoder, AUTO),
    "Autoencoder.forward": (lambda X: small_net()(X), {"X": X}),
    "Autoencoder.encode": (lambda X: small_net().encode(X), {"X": X}),
    "Autoencoder.outputs": (
        lambda **given: small_net().outputs(**given),
        {"X": X, "weights": WEIGHTS, "layers": 2},
    ),
    "mirrored": (hf.mirrored, {"encoder": (5, 3)}),
    "as_sequential": (hf.as_sequential, {"net": NET}),
    "linearise": (
        lambda model, **given: hf.linearise(net(model), **given).residual,
        {"model": NET, **ROWS, "loss": "squared", "weights": WEIGHTS},
    ),
    "linearise, labels": (
        lambda **given: hf.linearise(classifier(), **given).loss(),
        {"inputs": X, "targets": T, "loss": "softmax"},
    ),
    "mean_loss": (
        lambda model, **given: hf.mean_loss(net(model), **given),
        {"model": NET, **ROWS, "loss": "squared", "weights": WEIGHTS},
    ),
    "squared_error": (
        lambda model, **given: hf.squared_error(net(model), **given),
        {"model": NET, **ROWS, "weights": WEIGHTS},
    ),
    "check_loss": (
        hf.check_loss,
        {"loss": hf.CrossEntropy(), "outputs": rand(6, 3), "targets": T},
    ),
    "diagonal_preconditioner": (
        hf.diagonal_preconditioner,
        {"point": POINT, "kind": "random_signs", "damping": 0.1, "generator": None},
    ),
    "next_batch_size": (
        hf.next_batch_size,
        {"variance": 3.0, "gradient_norm2": 0.04, "population": 99, "theta": 0.5},
    ),
    "schedule": (hf.schedule, {"maxiter": 30}),
    "HessianFree": (newton, {"model": NET, **NEWTON}),
    "HessianFree.step": (newton, ROWS | {"validation": V}),
    "HessianFree.step, labels": (
        labelled,
        {"inputs": X, "targets": T, "loss": "softmax"},
    ),
    "HessianFree.subproblem": (posed, ROWS),
    "Subproblem.model_value": (lambda d: problem().model_value(d), {"d": D}),
    "Subproblem.gradient_norm": (lambda d: problem().gradient_norm(d), {"d": D}),
    "Subproblem.solve": (
        lambda **given: problem().solve(**given).x,
        {"atol": 1e-6, "maxiter": 3, "merit": None, "patience": 2},
    ),
    "MartensHF": (martens, {"model": NET, **MARTENS}),
    "MartensHF.step": (martens, ROWS | {"chunk": V}),
    **{
        f"{kind.__name__}.load_state_dict": (
            partial(loaded, kind),
            stepped(kind).state_dict(),
        )
        for kind in (hf.HessianFree, hf.MartensHF)
    },
    **{
        f"{kind.__name__}, a saved option": (partial(grouped, kind), entries(kind))
        for kind in (hf.HessianFree, hf.MartensHF)
    },
    "train": (trained, TRAIN | {"batch_size": 4}),
    "train, settings": (lambda **given: trained(settings=given), SETTINGS),
    "train_martens": (
        trained_by_martens,
        TRAIN | {"optimizer": "martens", "chunks": 2, "gradient": "full"},
    ),
}
