"""Calls of bpls's public functions, for odd inputs; see :mod:`tests.odd`."""

from functools import partial

import numpy as np
import torch

from labkit import bpls
from labkit.bpls import BPLSClassifier, BPLSRegressor, Settings
from tests.bpls.conftest import blobs, randn, seeded, start

A, LABELS = blobs(samples=12)
Y = randn(12, 3, seed=1)
W = start(4, 5, 3)
H = torch.sigmoid(A @ W[0])
TOY = bpls.toy_problem("nonlinear")
TOY_WEIGHTS = start(2, 3, 2, runs=(4,))
NOISY = bpls.noisy_outputs(TOY, 0.1, 4, generator=seeded())


def estimate(Net, method, given, **parameters):
    net = Net(**{"hidden_sizes": (5,), "random_state": 0} | parameters)
    if method not in ("fit", "partial_fit"):
        net.fit(A.numpy(), LABELS.numpy())
    return getattr(net, method)(**given)


def of_fit(Net, method):
    """A fit whose own arguments are odd."""
    names = {"X": A.numpy(), "y": LABELS.numpy(), "sample_weight": np.ones(12)}
    if method == "partial_fit" and Net is BPLSClassifier:
        names["classes"] = [0, 1, 2]
    return lambda **given: estimate(Net, method, given), names


def of_parameters(Net):
    """A fit whose parameters are odd."""
    given = {"X": A.numpy(), "y": LABELS.numpy()}
    plain = Net().get_params()
    return lambda **parameters: estimate(Net, "fit", given, **parameters), plain


LAYER = {"layer": 2, "H": H, "B": Y, "a": "sigmoid", "interpretation": "min_norm"}
LAYER |= {"clamp": 1e-2, "second_solve": True, "ridge": 1e-3, "rcond": None}
TRAIN = {"X": A, "Y": LABELS, "weights": W, "activations": "sigmoid"}
TRAIN |= {"settings": None, "output": "identity", "weight": None}
WALK = {"H": [A, H], "B": Y, "activations": "sigmoid", "settings": None}
OPTIONS = {name: getattr(Settings(), name) for name in vars(Settings())}
SOLVE = {"A": A, "B": Y, "ridge": None, "rcond": None, "method": None, "root": None}
DRAW = {"sizes": (4, 5, 3), "scale": 1.0, "runs": (), "generator": None}
DRAW |= {"dtype": None, "device": None}
REFINE = {"X": A, "Y": LABELS, "W1": W[0], "a": "tanh", "sweeps": 2, "alpha": 2.0}
REFINE |= {"mu": 1e-2, "ridge": 1e-3, "weight": None}
NOISE = {"toy": TOY, "sigma": 0.1, "runs": 4, "generator": None}
TOYS = {"toy": TOY, "Y": NOISY, "weights": TOY_WEIGHTS, "interpretation": "min_norm"}
TOYS |= {"clamp": 1e-2, "output_clamp": 1e-2, "solve_again": True, "ridge": 0}
NETWORK = {"X": A, "weights": W, "activations": "sigmoid"}
REFINED = (W[0], torch.cat([W[1], W[1][:1]]))
# each public function with arguments that it takes
CALLS = {
    "activation": (bpls.activation, {"name": "sigmoid"}),
    "hidden_targets": (bpls.hidden_targets, {"H": H, "W": W[1], "B": Y} | {}),
    "interpretation": (
        partial(bpls.hidden_targets, H, W[1], Y),
        {"interpretation": "mean", "careful": True},
    ),
    "hidden_values": (bpls.hidden_values, NETWORK),
    "scores": (bpls.scores, NETWORK),
    "layer_step": (bpls.layer_step, LAYER),
    "noisy_outputs": (bpls.noisy_outputs, NOISE),
    "output_targets": (
        bpls.output_targets,
        {"Y": LABELS, "output": "sigmoid", "clamp": 1e-2, "classes": 3, "dtype": None},
    ),
    "random_weights": (bpls.random_weights, DRAW),
    "refine": (bpls.refine, REFINE),
    "refined_scores": (bpls.refined_scores, {"X": A, "weights": REFINED, "a": "tanh"}),
    "rmse": (bpls.rmse, {"squares": Y.square()}),
    "solve_layer": (bpls.solve_layer, SOLVE),
    "toy_errors": (bpls.toy_errors, {"toy": TOY, "weights": TOY_WEIGHTS}),
    "toy_problem": (
        bpls.toy_problem,
        {"kind": "linear", "dtype": torch.float64, "device": None},
    ),
    "toy_walk": (bpls.toy_walk, TOYS),
    "train": (bpls.train, TRAIN),
    "train, options": (partial(bpls.train, A, LABELS, W), OPTIONS),
    "walk": (bpls.walk, WALK),
    "walk, options": (partial(bpls.walk, [A, H], Y, "sigmoid"), OPTIONS),
    "walked": (bpls.walked, NETWORK | {"B": Y}),
    "regressor": of_parameters(BPLSRegressor),
    "classifier": of_parameters(BPLSClassifier),
}
for Net in (BPLSRegressor, BPLSClassifier):
    for method in ("fit", "partial_fit"):
        CALLS[f"{Net.__name__}.{method}"] = of_fit(Net, method)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(Net, method):
            run = partial(lambda N, m, **given: estimate(N, m, given), Net, method)
            CALLS[f"{Net.__name__}.{method}"] = run, {"X": A.numpy()}
