"""The golden numbers of bpls: solves, targets, steps, walks, training and fits."""

import math

import numpy as np
import torch

from labkit import bpls
from labkit.bpls import BPLSClassifier, BPLSRegressor, Settings, activation
from labkit.bpls.walk import layer_step, solve_output, walk

try:
    from labkit.lab.gauss_newton import refine, refined_scores
except ImportError:  # where they were at commit 8a1e143
    from labkit.bpls import refine, refined_scores

READINGS = (*bpls.INTERPRETATIONS, 0, 1)
ACTIVATIONS = ("identity", "sigmoid", "tanh", "softplus", "softminus", "elu", "softmax")
SOLVERS = {
    "default": {},
    "ridge": {"ridge": 0.03},
    "exact": {"ridge": 0},
    "cholesky": {"method": "cholesky", "ridge": 1e-2},
    "eigh": {"method": "eigh"},
    "eigh ridge": {"method": "eigh", "ridge": 0.1, "rcond": 1e-3},
    "svd": {"method": "svd"},
    "svd cut": {"method": "svd", "rcond": 0.3},
}


def drawn(*shape, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def start(*sizes, seed=0, **options):
    g = torch.Generator().manual_seed(seed)
    return bpls.random_weights(sizes, generator=g, dtype=torch.float64, **options)


def blobs(samples=60, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=samples)
    X = rng.normal(size=(3, 4))[y] + rng.normal(size=(samples, 4))
    return torch.from_numpy(X), torch.from_numpy(y)


def parts(name, values):
    """Return the tensors and numbers of a tuple or an object, without clocks."""
    fields = values._asdict() if hasattr(values, "_asdict") else vars(values)
    found = {}
    for field, value in fields.items():
        where = f"{name} {field}"
        if field == "seconds" or value is None:
            continue
        if hasattr(value, "_asdict") or hasattr(value, "__dataclass_fields__"):
            found |= parts(where, value)
        elif isinstance(value, tuple):
            found |= {f"{where} {i}": each for i, each in enumerate(value)}
        else:
            found[where] = value
    return found


def solves():
    found = {}
    A = drawn(30, 6, seed=1)
    doubled = torch.cat([A, A[:, :2], 0 * A[:, :1]], 1)
    for kind, matrix in {"regular": A, "singular": doubled}.items():
        for name, options in SOLVERS.items():
            W, info = bpls.solve_layer(matrix, drawn(30, 3, seed=2), **options)
            found[f"{kind} {name}"] = W
            if kind == "regular":
                found |= parts(f"{kind} {name}", info)
    batch = drawn(2, 9, 4, seed=3), drawn(5, 2, 9, 2, seed=4)
    found["batch"] = bpls.solve_layer(*batch)[0]
    found["wide"] = bpls.solve_layer(drawn(40, 300, seed=5), drawn(40, 2, seed=6))[0]
    return found


def targets():
    H, W, B = drawn(11, 5, seed=1), drawn(5, 3, seed=2), drawn(11, 3, seed=3)
    found = {str(how): bpls.hidden_targets(H, W, B, how) for how in READINGS}
    W[:, 2] = W[:, 1]
    return found | {"doubled": bpls.hidden_targets(H, W, B)}


def steps():
    H, B, found = drawn(30, 6, seed=1), drawn(30, 3, seed=2), {}
    for name in ACTIVATIONS:
        a = activation(name)
        for second in (False, True):
            step = layer_step(2, a.value(H), B, a, second_solve=second, clamp=0.05)
            found |= parts(f"{name} {second}", step)
    tanh = activation("tanh")
    for how in READINGS:
        options = {"interpretation": how, "ridge": 1e-2, "method": "cholesky"}
        found |= parts(f"{how}", layer_step(2, torch.tanh(H), B, tanh, **options))
    return found


def walks():
    X, B, weights = drawn(30, 6, seed=1), drawn(30, 2, seed=2), start(6, 5, 4, 2)
    names = ["sigmoid", "tanh"]
    H, found = bpls.hidden_values(X, weights, names), {}
    for name, options in {
        "plain": {},
        "second": {"second_solve": True, "interpretation": "gauss_seidel"},
        "exact": {"ridge": 0, "clamp": 0.2},
    }.items():
        for step in walk(H, B, [activation(n) for n in names], **options):
            found |= parts(f"{name} {step.layer}", step)
    new = bpls.walked(X, B, weights, names)
    again = solve_output(X, B, new, names, ridge=0)
    found |= {f"walked {i}": W for i, W in enumerate((*new, *again))}
    return found | {"scores": bpls.scores(X, new, names)}


def draws_and_outputs():
    found = {f"{i}": W for i, W in enumerate(start(4, 3, 2, scale=0.3, runs=(2,)))}
    y = torch.tensor([1, 0, 2])
    found["labels"] = bpls.output_targets(y, classes=4, dtype=torch.float64)
    found["values"] = bpls.output_targets(drawn(3, 2, seed=1), "sigmoid", 0.1)
    return found


def run(X, Y, weights, *args, **options):
    found = {}
    for record in bpls.train(X, Y, weights, *args, **options):
        found |= parts(f"{record.step}", record)
    return found


def trained():
    X, y = blobs()
    found = {}
    for name, (sizes, options) in {
        "labels": ((4, 6, 3), {"activations": "sigmoid"}),
        "softmax": ((4, 6, 3), {"activations": "softmax", "ridge": 1e-2}),
        "deep": ((4, 6, 5, 3), {"activations": ["tanh", "sigmoid"], "clamp": 0.1}),
        "exact": ((4, 6, 3), {"ridge": 0, "stop": False, "max_walks": 5}),
        "printed": ((4, 6, 3), {"interpretation": 1, "max_walks": 2, "stop": False}),
    }.items():
        found |= {
            f"{name} {k}": v for k, v in run(X, y, start(*sizes), **options).items()
        }
    Y = torch.stack([X[:, 0].sin(), X[:, 1]], 1)
    found |= {f"values {k}": v for k, v in run(X, Y, start(4, 5, 2), "tanh").items()}
    how = {"output": "sigmoid", "clamp": 0.05}
    found |= {f"outputs {k}": v for k, v in run(X, Y, start(4, 5, 2), **how).items()}
    return found


def turned():
    """Settings and data that change between two layers or walks."""
    X, y = blobs(seed=1)
    settings, found = Settings(max_walks=4, stop=False), {}
    for record in bpls.train(X, y, start(4, 6, 3), "sigmoid", settings):
        found |= parts(f"{record.step}", record)
        if record.step == 3:
            settings.clamp, settings.interpretation = 0.1, "per_neuron"
        if record.step == 4:
            settings.data = X + 0.5 * drawn(*X.shape, seed=7), y
    return found


def fitted():
    X, y = (values.numpy() for values in blobs())
    Y = np.stack([np.sin(X[:, 0]), X[:, 1]], 1)
    found = {}
    for name, net, wanted in (
        ("regressor", BPLSRegressor((8,), bias=True, random_state=0), Y),
        ("deep", BPLSRegressor((8, 5), "tanh", ridge=0, random_state=1), Y[:, 0]),
        ("classifier", BPLSClassifier((8,), random_state=0), y),
        ("two", BPLSClassifier((8,), "softmax", bias=True, random_state=2), y > 0),
    ):
        net.fit(X, wanted)
        found |= {f"{name} W{i}": W for i, W in enumerate(net.weights_)}
        for row in net.history_:
            found |= {
                f"{name} {row['walk']} {key}": value
                for key, value in row.items()
                if key != "seconds" and value is not None
            }
        found[f"{name} predict"] = net.predict(X)
        if hasattr(net, "predict_proba"):
            found[f"{name} proba"] = net.predict_proba(X)
            found[f"{name} decision"] = net.decision_function(X)
    return found


def toys():
    found = {}
    for kind in ("linear", "nonlinear"):
        toy = bpls.toy_problem(kind)
        g = torch.Generator().manual_seed(1)
        sigmas = torch.tensor([0.0, 0.1], dtype=torch.float64)
        Y = bpls.noisy_outputs(toy, sigmas, 6, generator=g)
        before = start(2, 3, 2, runs=(6,))
        found[f"{kind} Y"] = Y
        for name, options in {
            "plain": {"ridge": 0},
            "again": {"ridge": 0, "solve_again": True},
            "none": {"interpretation": "none", "clamp": 1e-6, "ridge": 0},
            "ridge": {"ridge": 1e-3, "output_clamp": 0.1},
        }.items():
            weights = bpls.toy_walk(toy, Y, before, **options)
            train, test = bpls.toy_errors(toy, weights)
            found |= {f"{kind} {name} train": train, f"{kind} {name} test": test}
            found[f"{kind} {name} rmse"] = bpls.rmse(test)
    return found


def refined():
    X, y = blobs()
    found = {}
    for name, Y in (("labels", y), ("values", X[:, :2].sin())):
        for end in refine(X, Y, start(4, 6)[0], "tanh", sweeps=4, mu=0.1, alpha=1.5):
            numbers = {
                key: getattr(end, key)
                for key in ("misses", "accuracy", "rmse", "overshoot", "cosine", "kept")
            }
            numbers["W1"], numbers["W2"] = end.weights
            found |= {
                f"{name} {end.walk} {key}": value
                for key, value in numbers.items()
                if value is not None
                and not (isinstance(value, float) and math.isnan(value))
            }
        found[f"{name} scores"] = refined_scores(X, end.best, "tanh")
    return found


CASES = {
    function.__name__: function
    for function in (
        solves,
        targets,
        steps,
        walks,
        draws_and_outputs,
        trained,
        turned,
        fitted,
        toys,
        refined,
    )
}
