"""Odd inputs to every public function: a right result, or a refusal in words."""

import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sklearn
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from scipy import sparse

import labkit
from labkit import bpls
from labkit.bpls import BPLSClassifier, BPLSRegressor, Settings
from labkit.errors import DivergedError
from tests.bpls.conftest import blobs, randn, seeded, start

HOMES = tuple(str(Path(each.__file__).parent) for each in (labkit, sklearn))
REFUSALS = (ValueError, TypeError, DivergedError)

A, LABELS = blobs(samples=12)
Y = randn(12, 3, seed=1)
W = start(4, 5, 3)
H = torch.sigmoid(A @ W[0])
TOY = bpls.toy_problem("nonlinear")
TOY_WEIGHTS = start(2, 3, 2, runs=(4,))
NOISY = bpls.noisy_outputs(TOY, 0.1, 4, generator=seeded())
SPARSE = A.to_sparse().coalesce()

PLAIN = [None, True, -1, 0, 3, 2.5, float("nan"), float("inf"), 1e300, 10**30, 10**400]
PLAIN += ["", "identity", "cup", b"x", [], (), {}, [1, 2], [None], {"a": 1}, object()]
PLAIN += [len, slice(2), 1j, np.float32(0.5), np.int64(1), np.nan, torch.float16]
PLAIN += [torch.device("meta"), "meta", "cuda:77", np.random.default_rng(0), deque()]
ARRAYS = [np.ones((12, 4)), np.array([["a"]]), np.array([None, 1.0]), np.ones(0)]
ARRAYS += [sparse.csr_array(np.eye(4)), sparse.csr_array((12, 4)), np.ma.ones(3)]
TENSORS = [A, LABELS, H, Y, W[0], W[1], Y[0], A[:0], A[:, :0], A[None], A.mT, A[:1]]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that the CSR form is in beta
    TENSORS.append(A.to_sparse_csr())
TENSORS += [SPARSE, A.to_sparse(1), torch.tensor(2.0), A.float()]
TENSORS += [A.half(), A.bfloat16(), A.int(), A > 0, A + 0j, A.to("meta"), A * torch.nan]
TENSORS += [A * torch.inf, 1e200 * A, 1e-200 * A, 0 * A, torch.nn.Parameter(A), -LABELS]
TENSORS += [LABELS + 10**15, LABELS.float(), LABELS.double() * torch.nan, LABELS[:3]]
TENSORS += [
    A.expand(2, 12, 4),
    A.requires_grad_(False)[::2],
    LABELS * 0,
    torch.zeros(0),
]
NESTED = [
    W,
    W[:1],
    W[::-1],
    list(W),
    (W[0], None),
    (A, LABELS),
    (A, None),
    (A,),
    [H, Y],
]
ODD = [*PLAIN, *ARRAYS, *TENSORS, *NESTED]


def call(function, **given):
    """A call, and all that its generator makes."""
    result = function(**given)
    return list(result) if isinstance(result, Iterator) else result


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
FUNCTIONS = {
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
        FUNCTIONS[f"{Net.__name__}.{method}"] = of_fit(Net, method)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(Net, method):
            run = partial(lambda N, m, **given: estimate(N, m, given), Net, method)
            FUNCTIONS[f"{Net.__name__}.{method}"] = run, {"X": A.numpy()}


def outcome(function, given):
    """None, or the error that is not one of labkit's own, as a text."""
    try:
        call(function, **given)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        if isinstance(error, REFUSALS) and last.filename.startswith(HOMES):
            assert str(error), "a refusal without a word"
            return None
        return f"{type(error).__name__} at {last.filename}:{last.lineno}: {error}"
    return None


def test_the_table_has_every_public_function():
    classes = {"Activation", "Record", "Settings", "Toy", "WalkEnd"}
    tables = {"ACTIVATIONS", "INTERPRETATIONS"}
    estimators = {"BPLSClassifier", "BPLSRegressor"}
    assert set(bpls.__all__) - classes - tables - estimators <= set(FUNCTIONS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_a_right_result_or_a_refusal_in_words(name, data):
    function, plain = FUNCTIONS[name]
    changed = data.draw(st.sampled_from(sorted(plain)))
    i = data.draw(st.integers(0, len(ODD) - 1))
    assert outcome(function, plain) is None
    assert outcome(function, plain | {changed: ODD[i]}) is None, (changed, ODD[i])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_odd_inputs(name):
    function, plain = FUNCTIONS[name]
    raw = {}
    for changed in plain:
        for i, odd in enumerate(ODD):
            said = outcome(function, plain | {changed: odd})
            if said:
                raw[changed, i] = said, repr(odd)[:60]
    assert not raw
