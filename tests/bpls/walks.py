"""Real steps of BPLS, to be recorded; each made anew at every call."""

import dataclasses
from functools import partial

import torch

from labkit import bpls
from labkit.bpls.activations import activation
from labkit.bpls.targets import INTERPRETATIONS, hidden_targets
from labkit.bpls.walk import hidden_values, layer_step, walked
from tests.device.bpls import train
from tests.draws import seeded
from tests.walks import Walk, random


def bpls_layer(interpretation, method=None, second_solve=False):
    H, B = random((30, 5), (30, 2))
    options = {"method": method, "second_solve": second_solve}
    call = partial(layer_step, 2, H.tanh(), B, activation("tanh"), **options)
    names = {"per_neuron": "5a", "gauss_seidel": "5b", "mean": "5c", "cyclic": "5d"}
    names |= {"label": "5e", 1: "5f", "min_norm": "5'", "none": ""}
    shows = {layer_step: "5 6 7 8 9" if second_solve else "5 6 7 8"}
    shows[hidden_targets] = names[interpretation]
    return Walk(partial(call, interpretation=interpretation), lambda: (H, B), shows)


def bpls_walk():
    X, Y = random((30, 4), (30, 2))
    a = [activation("tanh")] * 2
    weights = bpls.random_weights((4, 6, 5, 2), generator=seeded(), dtype=X.dtype)
    call = partial(walked, X, Y, weights, a)
    shows = {bpls.walk: "5 6 7 8", hidden_values: "2 3"}
    return Walk(call, lambda: (X, Y, weights), shows)


def bpls_train():
    (X,) = random((40, 6))
    Y = torch.arange(40) % 3
    weights = bpls.random_weights((6, 5, 3), generator=seeded(), dtype=X.dtype)

    def call():
        records = list(bpls.train(X, Y, weights, max_walks=2))
        return [dataclasses.replace(r, seconds=0, end=None) for r in records]

    shows = {bpls.train: "1 2 3 5 6 7 8 9 20"}
    return Walk(call, lambda: weights, shows, ("labkit.bpls",))


KNOWN = (*INTERPRETATIONS[:-1], 1)
WALKS = {f"BPLS {name}": partial(bpls_layer, name) for name in KNOWN}
WALKS["BPLS eigh"] = partial(bpls_layer, "min_norm", "eigh", True)
WALKS["BPLS svd"] = partial(bpls_layer, "min_norm", "svd", True)
WALKS |= {"BPLS walk": bpls_walk, "BPLS train": bpls_train}


# The walked function, and a step of the table of devices that goes through it.
STEPS = {layer_step: train, hidden_targets: train, bpls.walk: train}
