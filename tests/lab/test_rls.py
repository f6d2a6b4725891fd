"""The RLS lab: names, live experiment, opening, and runs on the paper's data."""

import math
from itertools import islice

import pytest
import torch

from labkit.lab.books import rls as lab, rls_training as nets
from labkit.lab.datasets import Labelled
from labkit.lab.panels import LiveLab
from labkit.lab.problem import Problem, load_problem, noisy_labels, seeded
from labkit.rls import RLS, loss_one_hot


@pytest.fixture(scope="module")
def digits():
    return load_problem("digits", samples=256)


def network(problem, layers="FC", hidden=16, seed=0):
    torch.manual_seed(seed)
    return lab.network(problem, layers, hidden)


def live(problem, **values):
    knobs = lab.Knobs(**{"method": "RLS+M+R"} | values)
    options = {"knobs": knobs, "interactive": False}
    return LiveLab(lab.TRAINING, lambda: problem, 16, **options)


# Names


def test_names_say_what_they_build(digits):
    model = network(digits)
    options = {"clip": 5.0, "l1": 1e-4, "momentum": 0.3, "mean_weight": 0.2}
    for name, momentum, l1 in (("RLS", 0.0, 0.0), ("RLS+M+R", 0.3, 1e-4)):
        optimizer = lab.make_training(name, model, **options).optimizer
        group = optimizer.param_groups[0]
        assert (group["momentum"], group["l1"]) == (momentum, l1)
        assert group["mean_weight"] == 0.2 and optimizer.max_grad_norm == 5.0
    hybrid = lab.make_training("HRLS+M", model, lr=0.4, adam_lr=0.5, **options)
    assert [g["lr"] for g in hybrid.optimizer.param_groups] == [0.4, 0.5]
    assert hybrid.optimizer.other.param_groups[0]["params"][0] is model[2].weight


@pytest.mark.parametrize("name", ["RLS+X", "adam", "Adam+M"])
def test_unknown_names_are_refused(digits, name):
    with pytest.raises(ValueError, match=r"unknown method .*; write one of RLS, HRLS"):
        lab.make_training(name, network(digits), clip=5.0)


def test_the_papers_networks_have_its_shapes():
    vgg = nets.vgg5()
    assert vgg(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert [b.fan_in for b in RLS(vgg).blocks] == [28, 577, 577, 1153, 1153, 4097, 1025]
    tokens = torch.zeros(4, 6, dtype=torch.int64)
    words = tuple(f"word {i}" for i in range(30))  # also those that no row has
    fit = Labelled("imdb", tokens, torch.arange(4) % 2, words)
    assert lab.network(Problem(fit, fit), "LSTM", 8)(tokens + 29).shape == (4, 2)


# The live experiment


def test_the_live_experiment_looks_at_what_P_takes_out_and_not_at_adam(digits):
    experiment = live(digits, batch=16)
    frame = experiment.run(12)
    assert frame["h"].iloc[0] > frame["h"].iloc[-1] > 1
    assert frame["cosine"].iloc[0] == pytest.approx(1, abs=1e-6)
    experiment.controls.set(method="Adam")
    assert "h" not in experiment.run(2)


def test_a_diverging_run_ends_with_its_reason(digits):
    experiment = live(digits, lr=10.0)
    frame = experiment.run(80)
    assert len(frame) < 80 and "the loss is" in experiment.note.value
    assert "the limit 100" in frame["note"].iloc[-1]


def test_turned_knobs_are_what_the_optimiser_goes_by(digits):
    """Bit for bit the run that changes them by hand, without instruments."""
    experiment = live(digits, seed=3)
    experiment.run(3)
    turned = {"mean_weight": 100.0, "lr": 0.3, "forgetting": 0.99}
    experiment.controls.set(batch=8, label_noise=0.8, **turned)
    frame = experiment.run(4)

    model = network(digits, seed=3)
    rls = RLS(model, momentum=0.5, l1=1e-5, max_grad_norm=5.0, on_failure="reset")
    X, y = digits.fit.inputs, digits.fit.targets
    generator = seeded(3)
    orders = [torch.randperm(len(X), generator=generator) for _ in range(2)]
    # 256 rows: the third step is of another epoch, the fourth of another size
    batches = [*orders[0].split(128), orders[1][:128], *orders[1][128:].split(8)]
    losses = []
    for step, rows in enumerate(batches[:7], start=1):
        if step == 4:
            y = noisy_labels(y, 0.8, seeded(3), 10)
            for group in rls.param_groups:
                group |= turned
        rls.zero_grad()
        loss = loss_one_hot(model(X[rows]), y[rows])
        loss.backward()
        rls.step()
        losses.append(float(loss.detach()))
    assert frame["loss"].tolist() == losses


# Runs


def last_loss(problem, **options):
    """The loss of the third epoch of RLS on an FC network."""
    model = network(problem)
    training = lab.make_training("RLS", model, clip=5.0, **options)
    *_, last = training.run(model, problem, generator=seeded(0), epochs=3)
    return last.epoch_loss


def test_scaling_k_eta_and_the_start_together_changes_nothing(digits):
    scaled = last_loss(digits, mean_weight=1.0, lr=10.0, P0_scale=0.1)
    assert scaled == pytest.approx(last_loss(digits), rel=1e-3)  # float32, 6 steps


@pytest.mark.real_data
@pytest.mark.filterwarnings("ignore:cifar10")
@pytest.mark.parametrize(
    ("dataset", "layers"),
    [("cifar10", "CONV"), pytest.param("imdb", "LSTM", marks=pytest.mark.long)],
)
def test_the_other_two_networks_of_the_paper_take_a_step(dataset, layers):
    problem = load_problem(dataset, samples=8)
    model = network(problem, layers, None)
    for name in ("RLS+M", "HRLS+M"):
        training = lab.make_training(name, model, **lab.CONSTANTS[layers])
        training.loss(model(problem.fit.inputs), problem.fit.targets).backward()
        training.optimizer.step()
        assert math.isfinite(training.optimizer.gradient_norm)


# The opening, and what is measured


def twelve_steps(**knobs):
    """The paths after twelve steps, and where each point lies from the lowest one."""
    knobs = lab.EllipseKnobs(**knobs)
    *_, row = islice(lab.ellipse_rows(knobs), 12)
    X, y = (part.double() for part in lab.data(knobs))
    lowest = torch.linalg.lstsq(X, y, driver="gelsd").solution[:, 0]
    paths = row["pictures"].paths.items()
    return {name: torch.tensor(at).double() - lowest for name, at in paths}, X.mean(0)


def crossings(k):
    """How often RLS and SGD change sides of the valley's floor, by seed."""
    found = {name: [] for name in lab.RULES}
    for seed in range(20):
        paths, mean = twelve_steps(seed=seed, mean_weight=k)
        for name, points in paths.items():
            sides = torch.sign(points @ mean)
            found[name].append(int((sides[1:] != sides[:-1]).sum()))
    return found


def test_the_opening_shows_that_sgd_crosses_the_valley_and_rls_does_not():
    found = crossings(0.3)
    assert sum(count >= 11 for count in found["SGD"]) >= 18
    assert sum(count == 0 for count in found["RLS"]) >= 18


def test_the_openings_mission_has_two_ends_that_fail():
    """With a small k RLS crosses too; with a large one it stays far from the bottom."""
    assert sum(count > 0 for count in crossings(0.1)["RLS"]) >= 18
    for k, far in ((0.3, False), (3.0, True)):
        paths, _ = twelve_steps(mean_weight=k)
        assert (float(paths["RLS"][-1].norm()) > 0.5) == far
