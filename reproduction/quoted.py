"""Numbers that a notebook or a docstring quotes and that belong to no study.

``labkit reproduce quoted NAME`` prints them and saves nothing.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from scipy.stats import rankdata
from sklearn import datasets, ensemble, linear_model, neural_network
from sklearn.kernel_approximation import RBFSampler
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from labkit import broad
from labkit.clock import Clock
from labkit.lab.books.rls_training import (
    CONSTANTS,
    after_each_epoch,
    make_training,
    network,
)
from labkit.lab.problem import Problem, load_problem
from labkit.lab.race import run_race, spread

EPOCHS, SEEDS = 10, 3


def rls_methods() -> Iterator[str]:
    """RLS beside its stand-in and Adam on 20,000 images of MNIST; the spectrum of P."""
    problem = load_problem("mnist", samples=20_000)
    names = ["Adam", "RLS", "RLS+M", "HRLS+M", "Adam-CE", "running-mean RLS", "SGD"]
    runners = {name: partial(rls_epochs, problem, name) for name in names}
    ends = spread(run_race(runners, seeds=SEEDS).last(), "accuracy", "loss", "seconds")
    yield f"20,000 images of MNIST, {EPOCHS} epochs, {SEEDS} seeds"
    yield ends.round(4).to_string()
    torch.manual_seed(0)
    model = network(problem)
    training = make_training("RLS", model, **CONSTANTS["FC"])
    for _ in training.run(model, problem, epochs=6):
        pass
    for block in training.rls.blocks:
        s = torch.linalg.eigvalsh(training.rls.state[block.weight]["P"])
        counts = ", ".join(f"{int((s < t).sum())} below {t}" for t in (0.5, 0.9))
        yield f"layer {block.name}: {len(s)} eigenvalues of P, {counts}"


def rls_epochs(problem: Problem, method: str, seed: int) -> Iterator[dict]:
    """Train by a method, and yield what is measured after each epoch."""
    torch.manual_seed(seed)
    model = network(problem)
    training = make_training(method, model, **CONSTANTS["FC"])
    run = training.run(model, problem, seed=seed, epochs=EPOCHS, drop_last=True)
    return after_each_epoch(run)


def tables() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the inputs and targets, by name, of data sets that need no download."""
    made = {}
    for name in ("iris", "wine", "breast_cancer", "digits", "diabetes"):
        made[name] = getattr(datasets, f"load_{name}")(return_X_y=True)
    X, y = made["diabetes"]
    made["diabetes > median"] = X, y > np.median(y)
    classes, noise = datasets.make_classification, {"n_informative": 10, "flip_y": 0.1}
    made["classes, 5 of 20 tell"] = classes(1000, n_informative=5, random_state=0)
    made["classes, noisy"] = classes(1000, n_classes=3, **noise, random_state=1)
    made["classes, 200 wide"] = classes(300, 200, n_informative=20, random_state=2)
    made["moons"] = datasets.make_moons(1000, noise=0.25, random_state=0)
    circles, seed = {"noise": 0.15, "factor": 0.5}, {"random_state": 0}
    made["circles"] = datasets.make_circles(1000, **circles, **seed)
    made["shells"] = datasets.make_gaussian_quantiles(
        n_samples=1000, n_features=5, n_classes=3, **seed
    )
    made["hastie"] = datasets.make_hastie_10_2(1500, random_state=0)
    for i, noise in ((1, 1.0), (2, 50.0), (3, 0.1)):
        make = getattr(datasets, f"make_friedman{i}")
        made[f"friedman {i}"] = make(800, noise=noise, random_state=0)
    made["linear"] = datasets.make_regression(300, 30, noise=20, random_state=0)
    return made


def contenders(labelled: bool, seed: int) -> dict[str, object]:
    """Return models by name with their defaults; inputs are scaled where needed."""
    kind = "Classifier" if labelled else "Regressor"
    Broad = getattr(broad, f"BroadLearning{kind}")
    alphas = {"alphas": np.logspace(-6, 3, 10)}  # those of broad learning too
    ridge = linear_model.RidgeClassifierCV if labelled else linear_model.RidgeCV
    network = getattr(neural_network, f"MLP{kind}")(random_state=seed)
    trees = getattr(ensemble, f"HistGradientBoosting{kind}")(random_state=seed)
    return {
        "broad": Broad(random_state=seed),
        "broad, ridge 1": Broad(random_state=seed, ridge=1.0),
        "broad, paper": Broad(**broad.PAPER, random_state=seed),
        "RidgeCV": make_pipeline(StandardScaler(), ridge(**alphas)),
        "RBF, RidgeCV": make_pipeline(
            StandardScaler(),
            RBFSampler(gamma="scale", n_components=1000, random_state=seed),
            ridge(**alphas),
        ),
        "MLP": make_pipeline(StandardScaler(), network),
        "trees": trees,
    }


def broad_defaults(splits: int = 3) -> Iterator[str]:
    """Scores of the estimators as they come, beside others of scikit-learn."""
    names, scores, seconds = [*contenders(True, 0)], [], 0.0
    yield f"{'score':24s}" + "".join(f"{name:>16s}" for name in names)
    warnings.simplefilter("ignore")  # an MLP's end, a bottleneck: both as they come
    for name, (X, y) in tables().items():
        labelled, measured = y.dtype.kind != "f" or len(np.unique(y)) < 10, []
        for seed in range(splits):
            X_fit, X_test, y_fit, y_test = train_test_split(
                X,
                y,
                test_size=1 / 3,
                random_state=seed,
                stratify=y if labelled else None,
            )
            row = []
            for model in contenders(labelled, seed).values():
                with (clock := Clock()):
                    score = model.fit(X_fit, y_fit).score(X_test, y_test)
                row.append((score, clock.lap))
            measured.append(row)
        score, spent = np.mean(measured, 0).T
        seconds = seconds + spent
        scores.append(score)
        yield f"{name:24s}" + "".join(f"{s:16.3f}" for s in score)
    ranks = rankdata(-np.round(scores, 3), axis=1).mean(0)
    yield f"{'mean rank':24s}" + "".join(f"{rank:16.2f}" for rank in ranks)
    yield f"{'seconds':24s}" + "".join(f"{s:16.1f}" for s in seconds)


QUOTED: dict[str, Callable[[], Iterator[str]]] = {
    "rls-methods": rls_methods,
    "broad-defaults": broad_defaults,
}
