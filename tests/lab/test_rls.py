"""The RLS lab: names, live experiment, and the digits and MNIST runs."""

import dataclasses
import math
import statistics
from itertools import islice

import pandas as pd
import pytest
import torch
from torch import nn

from labkit.instruments import GradientNoise, Trace
from labkit.lab import rls as lab
from labkit.lab.datasets import Labelled
from labkit.lab.panels import LiveLab, Measured
from labkit.lab.problem import Problem, load_problem, noisy_labels
from labkit.lab.rls import ellipse, networks as nets
from labkit.rls import RLS, AveragedRLS, Hybrid, loss_one_hot, train

LAYERS = pytest.mark.parametrize("layers", lab.LAYERS)


@pytest.fixture(scope="module")
def digits():
    return load_problem("digits", samples=512)


@pytest.fixture(scope="module")
def problems(digits):
    small = load_problem("digits", samples=256)
    return {layers: digits if layers == "FC" else small for layers in lab.LAYERS}


def network(problem, layers="FC", hidden=64, seed=0):
    torch.manual_seed(seed)
    return lab.network(problem, layers, hidden)


def live(problems, hidden=64, folder="", **values):
    knobs = lab.Knobs(**{"method": "RLS+M+R"} | values)
    options = {"knobs": knobs, "interactive": False, "folder": str(folder)}
    return LiveLab(lab.TRAINING, problems.__getitem__, hidden, **options)


# Names


@LAYERS
@pytest.mark.parametrize("name", lab.METHODS)
def test_every_method_trains_every_network(problems, name, layers):
    problem = problems[layers]
    model = network(problem, layers, 64 if layers == "FC" else 8)
    training = lab.make_training(name, model, **lab.CONSTANTS[layers])
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    records = list(training.run(model, problem))
    assert all(math.isfinite(record.loss) for record in records)
    assert 0 <= records[-1].test_accuracy <= 1
    assert all(not torch.equal(p, before[n]) for n, p in model.named_parameters())


def test_names_say_what_they_build(digits):
    model = network(digits)
    options = {"clip": 5.0, "l1": 1e-4, "momentum": 0.3}
    plain = lab.make_training("RLS", model, mean_weight=0.2, **options).optimizer
    both = lab.make_training("RLS+M+R", model, **options).optimizer
    hybrid = lab.make_training("HRLS+M", model, lr=0.4, adam_lr=0.5, **options)
    averaged = lab.make_training("averaged RLS", model, **options).optimizer
    assert isinstance(plain, RLS) and plain.max_grad_norm == 5.0
    for optimizer, *wanted in ((plain, 0.0, 0.0, 0.2), (both, 0.3, 1e-4, 0.1)):
        group = optimizer.param_groups[0]
        assert [group[k] for k in ("momentum", "l1", "mean_weight")] == wanted
    assert isinstance(hybrid.optimizer, Hybrid) and isinstance(averaged, AveragedRLS)
    assert [g["lr"] for g in hybrid.optimizer.param_groups] == [0.4, 0.5]
    assert hybrid.optimizer.other.param_groups[0]["params"][0] is model[2].weight


@pytest.mark.parametrize("name", ["RLS+X", "adam", "", "M", "+M", "Adam+M"])
def test_unknown_names_are_refused(digits, name):
    with pytest.raises(ValueError, match=r"unknown method .*; write one of RLS, HRLS"):
        lab.make_training(name, network(digits), clip=5.0)


def test_networks_that_do_not_fit_are_refused(digits):
    with pytest.raises(ValueError, match="goes with FC, CONV, RNN, LSTM layers, got"):
        lab.network(digits, "GRU")
    images = dataclasses.replace(digits.fit, name="cifar10")
    with pytest.raises(ValueError, match="cifar10 goes with CONV layers, got 'FC'"):
        lab.network(dataclasses.replace(digits, fit=images), "FC")


def test_networks_have_their_shapes():
    assert nets.dense_network()(torch.zeros(2, 784)).shape == (2, 10)
    assert nets.small_cnn()(torch.zeros(2, 64)).shape == (2, 10)
    vgg = nets.vgg5()
    assert vgg(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    widths = [m.out_channels for m in vgg if isinstance(m, nn.Conv2d)]
    assert widths == [64, 64, 128, 128, 256]
    assert max(block.fan_in for block in RLS(vgg).blocks) == 4097
    words = nets.SequenceClassifier(6, 8, 2, vocabulary=30)
    assert words(torch.randint(30, (3, 11))).shape == (3, 2)
    rows = nets.SequenceClassifier(8, 16)
    x = torch.randn(3, 64)
    assert torch.equal(rows(x), rows(x.view(3, 8, 8)))


@pytest.mark.parametrize(
    "network",
    [
        lambda: nets.small_cnn(8, (4, 8), 16),
        lambda: nets.SequenceClassifier(8, 16, layers=2, cell=nn.LSTM),
        lambda: nets.SequenceClassifier(8, 16, layers=2, cell=nn.RNN),
    ],
)
def test_the_loss_of_the_other_networks_falls(digits, network):
    torch.manual_seed(0)
    model = network()
    X, y = digits.fit.inputs[:128], digits.fit.targets[:128]
    optimizer = RLS(model, momentum=0.5, max_grad_norm=1.0)
    losses = [r.loss for r in train(model, optimizer, X, y, epochs=60)]
    assert losses[-1] < 0.8 * losses[0]
    assert {int(state["step"]) for state in optimizer.state.values()} == {60}


def test_label_noise_hits_its_share_and_keeps_the_rest():
    labels = torch.arange(10).repeat(400)

    def noisy(share):
        return noisy_labels(labels, share, torch.Generator().manual_seed(0), 10)

    changed = float((noisy(0.5) != labels).double().mean())
    assert 0.42 < changed < 0.48  # a tenth of those drawn are right by chance
    assert torch.equal(noisy(0.0), labels) and torch.equal(noisy(0.5), noisy(0.5))


def test_a_vocabulary_counts_words_that_the_rows_lack():
    tokens = torch.zeros(4, 6, dtype=torch.int64)
    words = tuple(f"word {i}" for i in range(30))
    fit = Labelled("imdb", tokens, torch.arange(4) % 2, words)
    model = lab.network(Problem(fit, fit), "LSTM", 8)
    assert model.embedding.num_embeddings == 30 and model(tokens + 29).shape == (4, 2)


# The live experiment


def test_the_live_experiment_writes_what_its_panels_show(problems, tmp_path):
    experiment = live(problems, folder=tmp_path)
    frame = experiment.run(12)
    drawn = {c for panel in experiment.plot.panels for c in panel.columns}
    assert drawn - {"best_k first"} <= set(frame.columns) | {"scale last"}
    assert frame["h first"].iloc[0] > frame["h first"].iloc[-1] > 1
    assert frame["cosine first"].iloc[0] == pytest.approx(1, abs=1e-6)
    assert frame["below first"].dropna().tolist() == [0, 1]
    experiment.controls.set(method="Adam")
    assert "h first" not in experiment.run(2)
    experiment.trace.close()
    assert len(Trace.load(tmp_path / "training-1.jsonl").frame()) == 12


def test_a_diverging_run_ends_with_its_reason(problems):
    experiment = live(problems, lr=10.0)
    frame = experiment.run(50)
    assert 1 < len(frame) < 10 and "the loss is" in experiment.note.value
    assert "the limit 100" in frame["note"].iloc[-1]


# What each knob is turned to while the network trains; with the ends of lr and
# forgetting the loss runs away.
LIVE = {"mean_weight": 100.0, "lr": 0.01, "forgetting": 0.9, "batch": 8}
LIVE |= {"momentum": 0.95, "l1": 1e-2, "label_noise": 0.8}


def columns(frame):
    """All that was measured; ``turned`` tells of knobs."""
    return frame.drop(columns="turned", errors="ignore")


@pytest.mark.parametrize("name", LIVE)
def test_a_live_knob_changes_the_next_step_and_restarts_nothing(problems, name):
    turned, left = live(problems), live(problems)
    turned.run(3), left.run(3)
    turned.controls.set(**{name: LIVE[name]})
    one, other = turned.run(2), left.run(2)
    assert list(one.index) == [1, 2, 3, 4, 5] and "from step 4" in turned.turned.value
    assert one["turned"].dropna().index.tolist() == [4]
    before = [frame.iloc[:3].dropna(axis=1) for frame in (columns(one), other)]
    pd.testing.assert_frame_equal(*before)
    seen = ["loss", "h first", "angle last"]
    assert not one.iloc[3:][seen].equals(other.iloc[3:][seen])


def test_turned_knobs_are_what_the_optimiser_goes_by(problems, digits):
    """Bit for bit the run that changes options, labels and batch by hand."""
    experiment = live(problems, seed=3)
    experiment.run(5)
    new = {name: LIVE[name] for name in LIVE if name != "forgetting"} | {"lr": 0.3}
    experiment.controls.set(**new)
    frame = experiment.run(4)

    model = network(digits, seed=3)
    rls = RLS(model, momentum=0.5, l1=1e-5, max_grad_norm=5.0, on_failure="reset")
    X, y = digits.fit.inputs, digits.fit.targets
    g = torch.Generator().manual_seed(3)
    orders = [torch.randperm(len(X), generator=g) for _ in range(2)]
    # 512 rows: the fifth step is of another epoch, the sixth of another size
    batches = [*orders[0].split(128), orders[1][:128], *orders[1][128:].split(8)]
    losses = []
    for step, rows in enumerate(batches[:9], start=1):
        if step == 6:
            y = noisy_labels(y, 0.8, torch.Generator().manual_seed(3), 10)
            for group in rls.param_groups:
                group |= {"mean_weight": 100.0, "lr": 0.3, "momentum": 0.95, "l1": 1e-2}
        rls.zero_grad()
        loss = loss_one_hot(model(X[rows]), y[rows])
        loss.backward()
        rls.step()
        losses.append(float(loss.detach()))
    assert frame["loss"].tolist() == losses


def test_options_that_a_method_lacks_cannot_be_turned_on(digits):
    training = lab.make_training("RLS", network(digits), clip=5.0)
    options = {"mean_weight": 0.2, "lr": 0.5, "forgetting": 0.99}
    training.turn(momentum=0.9, l1=1e-3, **options)
    for group in training.optimizer.param_groups:
        assert (group["momentum"], group["l1"]) == (0.0, 0.0)
        assert {name: group[name] for name in options} == options
    adam = lab.make_training("Adam", network(digits), clip=5.0)
    before = adam.optimizer.state_dict()
    adam.turn(momentum=0.9, l1=1e-3, **options)
    assert adam.optimizer.state_dict() == before


@LAYERS
def test_the_noise_of_the_gradient_is_that_of_all_single_gradients(problems, layers):
    problem = problems[layers]
    experiment = live(problems, layers=layers, method="RLS", batch=16)
    frame = experiment.run(21)
    seen = frame["noise first"].dropna()
    assert seen.index.tolist() == [1, 21] and (seen > 0).all()
    model = network(problem, layers, 64 if layers == "FC" else None)
    g = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(problem.fit.targets), generator=g)[:16]
    weights = list(list(model.children())[-1].parameters())
    X, y, single = problem.fit.inputs, problem.fit.targets, []
    for row in rows:
        loss = loss_one_hot(model(X[row, None]), y[row, None])
        grads = torch.autograd.grad(loss, weights)
        single.append(torch.cat([grad.flatten() for grad in grads]).double())
    variance = torch.stack(single).var(0).sum() / 16
    assert frame["noise last"].iloc[0] == pytest.approx(float(variance), rel=1e-4)


def test_batch_and_label_noise_change_the_noise(problems):
    def noise(steps, **knobs):
        return live(problems, **knobs).run(steps)["noise last"].iloc[-1]

    assert noise(21, lr=0.01, batch=8) > 4 * noise(21, lr=0.01)
    assert noise(41, label_noise=0.8) > noise(41)


def test_looking_changes_nothing(digits):
    """With and without instruments the weights are the same, to the last bit."""

    def trained(watch):
        model = network(digits)
        rls = RLS(model, momentum=0.5, max_grad_norm=5.0)
        noise = GradientNoise(model, every=2) if watch else None
        options = {"epochs": 2, "watch": lab.watcher(rls) if watch else None}
        options["generator"] = torch.Generator().manual_seed(0)
        records = train(model, rls, digits.fit.inputs, digits.fit.targets, **options)
        watched = [record.watched for record in records]
        assert all(watched) if watch else not any(watched)
        assert noise is None or noise.measured == 6
        return list(model.parameters())

    assert all(map(torch.equal, trained(True), trained(False)))


# Runs


def last_of(problem, name, seed=0, **options):
    """The last record of a run on an FC network."""
    model = network(problem, hidden=options.pop("hidden", 64), seed=seed)
    run = {key: options.pop(key) for key in ("epochs", "drop_last") if key in options}
    training = lab.make_training(name, model, clip=5.0, **options)
    return list(training.run(model, problem, seed=seed, **run))[-1]


def test_scaling_k_eta_and_the_start_together_changes_nothing(digits):
    a = last_of(digits, "RLS", epochs=3)
    scaled = {"mean_weight": 1.0, "lr": 10.0, "P0_scale": 0.1}
    b = last_of(digits, "RLS", epochs=3, **scaled)
    assert a.epoch_loss == pytest.approx(b.epoch_loss, rel=1e-3)  # float32, 12 steps


# The paper's own data


# Accuracy after ten epochs [%], as an independent implementation measured it.
MNIST = {"Adam": 97.80, "RLS": 97.58, "RLS+M": 97.69, "HRLS+M": 97.35, "Adam-CE": 97.03}


@pytest.mark.real_data
@pytest.mark.long
@pytest.mark.parametrize("name", MNIST)
def test_mnist_comes_out_as_measured_before(name):
    problem = load_problem("mnist", samples=20_000)
    options = {"epochs": 10, "drop_last": True, "hidden": 512}
    ends = [last_of(problem, name, seed, **options) for seed in range(3)]
    mean = 100 * statistics.mean(record.test_accuracy for record in ends)
    assert abs(mean - MNIST[name]) <= 0.3


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
    assert model(problem.test.inputs[:8]).shape[1] == problem.classes


# The opening, and what is measured


def sides(points, knobs):
    """On which side of the valley's floor each point of a path lies."""
    X, y = (part.double() for part in ellipse.data(knobs))
    lowest = torch.linalg.lstsq(X, y, driver="gelsd").solution[:, 0]
    return torch.sign((torch.tensor(points).double() - lowest) @ X.mean(0))


def crossings(k):
    """How often RLS and SGD change sides in twelve steps, by seed."""
    found = {name: [] for name in ellipse.RULES}
    for seed in range(20):
        knobs = ellipse.EllipseKnobs(seed=seed, mean_weight=k)
        *_, row = islice(ellipse.ellipse_rows(knobs), 12)
        for name, points in row["pictures"].paths.items():
            at = sides(points, knobs)
            found[name].append(int((at[1:] != at[:-1]).sum()))
    return found


def test_the_opening_shows_that_sgd_crosses_the_valley_and_rls_does_not():
    found = crossings(0.3)
    assert sum(count >= 11 for count in found["SGD"]) >= 18
    assert sum(count == 0 for count in found["RLS"]) >= 18


def test_the_openings_mission_has_two_ends_that_fail():
    """With a small k RLS crosses too; with a large one it stays far from the bottom."""
    assert sum(count > 0 for count in crossings(0.1)["RLS"]) >= 18
    for k, far in ((0.3, False), (3.0, True)):
        knobs = ellipse.EllipseKnobs(mean_weight=k)
        *_, row = islice(ellipse.ellipse_rows(knobs), 12)
        X, y = (part.double() for part in ellipse.data(knobs))
        lowest = torch.linalg.lstsq(X, y, driver="gelsd").solution[:, 0]
        end = torch.tensor(row["pictures"].paths["RLS"][-1]).double()
        assert (float((end - lowest).norm()) > 0.5) == far


def test_each_record_holds_beyond_two_standard_errors():
    for each in (lab.ANATOMY, lab.SPECTRUM, lab.SIDE_BY_SIDE):
        shown = Measured(each)
        assert shown.finding.holds, shown.finding
