"""What is drawn is what the papers' own functions say, in its place."""

from dataclasses import fields
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from labkit.lab.books import (
    broad_columns as columns,
    broad_functions as functions,
    compare as live,
    rls,
    rtrl,
)
from labkit.lab.books.compare import RaceKnobs
from labkit.lab.books.rtrl_training import estimates, make_learner, new_network
from labkit.lab.datasets import load
from labkit.lab.panels import LiveLab
from labkit.lab.panels.figures.captions import as_json
from labkit.lab.panels.figures.planes import ellipse as edge_of
from labkit.rls import loss_mse
from labkit.rls.update import gain
from labkit.rtrl.low_rank import optimal_low_rank, random_signs, water_level

TEXT = load("text")
NETWORK = new_network(len(TEXT.symbols), 16)  # stands in for a trained one
PICTURES = {
    "ellipse": (rls.ELLIPSE, ()),
    "columns": (columns.COLUMNS, ()),
    "functions": (functions.FUNCTIONS, ()),
    "regions": (live.RACE, (live.spirals(), None, 8)),
    "three regions": (
        live.race_of(*"RLS SGD Adam".split()),
        (live.spirals(),),
    ),
}


def run(rows, knobs, *problem, steps=1, **turned):
    """The last of so many rows at these knobs, and what it draws."""
    settings = SimpleNamespace(**vars(knobs(**turned)))
    row = list(islice(rows(settings, *problem), steps))[-1]
    return row, row["pictures"]


def drawn(figure, name):
    """The trace of this name as points (n, 2), and it."""
    (found,) = (trace for trace in figure["data"] if trace.get("name") == name)
    return np.stack([found["x"], found["y"]], 1), found


@pytest.fixture(params=PICTURES)
def lab(request):
    experiment, problem = PICTURES[request.param]
    return LiveLab(experiment, *problem)


def test_a_picture_moves_keeps_the_run_before_and_has_a_status(lab):
    knobs = {field.name for field in fields(lab.experiment.knobs)}
    assert set(lab.experiment.front) <= knobs and len(lab.experiment.front) == 3
    frame, pictures = lab.run(4), lab.scene
    shown = as_json(pictures.figure)
    assert lab.note.value and "pictures" not in frame and len(frame) == 4
    below = (lab.plot.figure if lab.plot else lab.figure)["layout"]["meta"]["caption"]
    assert below == lab.experiment.caption
    assert pictures.figure["layout"]["meta"]["caption"]
    lab.stepper.reset()
    now, alone = pictures.figure, lab.experiment.picture(pictures.now, None)
    assert now["data"] and as_json(now) != shown
    assert as_json(now) != as_json(alone)  # the run before, in grey or in numbers
    named = sum(trace.get("showlegend", False) for trace in now["data"])
    assert named <= 5


@pytest.mark.parametrize("name", PICTURES)
def test_a_legend_has_five_entries_at_most(name):
    """With the run before, in grey, that is one more where it has a name."""
    experiment, problem = PICTURES[name]
    settings = SimpleNamespace(**vars(experiment.knobs()))
    *_, now = (
        row["pictures"] for row in islice(experiment.rows(settings, *problem), 6)
    )
    for before in (None, now):
        drawn = experiment.picture(now, before)["data"]
        names = {t["name"] for t in drawn if t.get("showlegend")}
        assert len(names) <= 5 + (before is not None)


@pytest.mark.parametrize("name", PICTURES)
def test_before_the_first_step_there_are_empty_planes(name):
    experiment, _ = PICTURES[name]
    figure = experiment.picture(None, None)
    assert figure["data"] == [] and len(figure["layout"]["annotations"]) >= 2


# The cloud


def test_the_plane_holds_the_exact_gradient_and_the_largest_noise():
    g = torch.Generator().manual_seed(0)
    truth = torch.randn(30, generator=g, dtype=torch.float64)
    stretch = torch.linspace(0.1, 3, 30, dtype=torch.float64)
    spray = stretch * torch.randn(500, 30, generator=g, dtype=torch.float64)
    frame = rtrl.plane(truth + spray, truth)
    unit = frame * truth.norm()
    assert torch.allclose(frame @ truth, torch.tensor([1.0, 0]).double(), atol=1e-12)
    assert torch.allclose(unit @ unit.T, torch.eye(2).double(), atol=1e-12)
    spread = (spray @ unit[1]).var()
    for _ in range(50):
        other = torch.randn(30, generator=g, dtype=torch.float64)
        other -= (other @ unit[0]) * unit[0]
        assert (spray @ (other / other.norm())).var() < spread
    assert rtrl.plane(truth + spray, truth, -frame[1])[1] @ frame[1] < 0


def test_the_cloud_has_the_estimators_mean_and_covariance():
    *_, row = rtrl.cloud_rows(rtrl.CloudKnobs(rank=2), TEXT)
    network = new_network(len(TEXT.symbols), 16)
    terms = {"OK": 2, "KF-AVG": 1, "UORO": 1}
    shown = row["pictures"]
    for name, points, noise in zip(rtrl.NOISY, shown.points, shown.noise, strict=True):
        options = {"batch_size": rtrl.DRAWS, "seed": 0}
        learner = make_learner(name, terms[name], network.cell, **options)
        steps = estimates(network, {name: learner}, TEXT)
        *_, (draws, truth) = islice(steps, rtrl.STEPS)
        draws, truth = draws[name].flatten(1), truth.flatten()
        frame = rtrl.plane(draws, truth)
        flip = np.sign(points[:, 1] @ (draws @ frame[1]).numpy())
        frame = frame.numpy() * [[1.0], [flip]]
        exact = draws.double().numpy()
        mean, covariance = exact.mean(0), np.cov(exact.T)
        close = {"rtol": 1e-3, "atol": 1e-5}
        assert np.allclose(points.mean(0), frame @ mean, **close)
        assert np.allclose(np.cov(points.T), frame @ covariance @ frame.T, **close)
        assert row[f"noise {name}"] == pytest.approx(noise)


def test_ellipses_lie_at_their_distance():
    g = np.random.default_rng(0)
    root = g.standard_normal((2, 2))
    covariance, centre = root @ root.T, np.array([1.0, 2.0])
    points, _ = drawn({"data": [edge_of(centre, covariance, 1.5, "#000000", "e")]}, "e")
    off = points - centre
    distance = np.einsum("ni,ij,nj->n", off, np.linalg.inv(covariance), off)
    assert np.allclose(distance, 1.5**2)
    flat = edge_of(centre, np.zeros((2, 2)), 1.0, "#000000")
    assert np.allclose(flat["x"], 1) and np.allclose(flat["y"], 2)


# The ellipse


@pytest.mark.parametrize("turned", [{}, {"mean_weight": 2.0, "lr": 0.5}])
def test_arrows_are_the_gradient_and_the_step_and_the_ellipse_is_of_P(turned):
    row, now = run(rls.ellipse_rows, rls.EllipseKnobs, steps=9, **turned)
    knobs = rls.EllipseKnobs(**turned)
    P, mean = torch.tensor(now.P), torch.tensor(now.mean)
    _, h = gain(P, mean, mean_weight=knobs.mean_weight)
    at, end = now.paths["RLS"][-2:]
    wanted = -knobs.lr / float(h) * now.gradient @ now.P
    assert float(h) == pytest.approx(row["h"])
    assert np.allclose(end - at, wanted, rtol=1e-4, atol=1e-6)
    figure = rls.picture(now, None)
    (_, down), (start, ahead) = (
        drawn(figure, name)[0] for name in ("minus the gradient", "step of RLS")
    )
    assert np.allclose(start, at)
    factor = np.linalg.norm(ahead - at) / np.linalg.norm(end - at)
    assert np.allclose(ahead - at, factor * (end - at), rtol=1e-3)
    assert np.allclose(down - at, -factor * now.gradient, rtol=1e-3)


def test_contours_are_the_loss():
    knobs = rls.EllipseKnobs(noise=0.5)
    _, now = run(rls.ellipse_rows, rls.EllipseKnobs, noise=0.5)
    X, y = rls.data(knobs)
    drawn = rls.picture(now, None)["data"]
    trace = next(trace for trace in drawn if trace["type"] == "contour")
    for i, j in ((0, 0), (7, 30), (48, 11)):
        w = torch.tensor([[trace["x"][j]], [trace["y"][i]]]).float()
        assert np.allclose(10 ** trace["z"][i, j], loss_mse(X @ w, y), rtol=1e-4)


# Functions


def test_the_fits_are_sums_of_the_columns_and_the_ridge_solution():
    turned = {"ridge": 0.1, "noise": 0.3}
    _, now = run(functions.function_rows, functions.FunctionKnobs, steps=4, **turned)
    knobs = functions.FunctionKnobs(**turned)
    points, A, B = functions.drawn(knobs)
    k = functions.FIRST + 3 * knobs.added
    assert np.array_equal(now.columns, B[:, :k]) and now.old == k - knobs.added
    normal = A[:, :k].T @ A[:, :k] + knobs.ridge * np.eye(k)
    W = np.linalg.solve(normal, A[:, :k].T @ points[:, 1])
    assert np.allclose(B[:, :k] @ W, now.fits["chol-1"], atol=1e-8)
    assert not np.allclose(now.fits["orig"], now.fits["chol-1"], atol=1e-3)
    fit, _ = drawn(functions.picture(now, None), "ridge solver")
    assert np.allclose(fit[:, 1], now.fits["chol-1"])


# The water


WATERS = [{}, {"rank": 1}, {"rank": 4, "third": 0.0}, {"rank": 5}, {"first": 0.0}]
WATERS += [{"fifth": 4.0, "second": 0.3, "rank": 3}]  # not in falling order


@pytest.mark.parametrize("turned", WATERS)
def test_the_water_is_the_theorems_and_the_draw_is_the_estimators(turned):
    knobs = rtrl.WaterKnobs(**turned)
    row, now = run(rtrl.water_rows, rtrl.WaterKnobs, steps=1, **turned)
    assert now.d.tolist() == [getattr(knobs, bar) for bar in rtrl.BARS]
    falling = np.argsort(-now.d, kind="stable")
    d, g = torch.tensor(now.d[falling]), torch.Generator().manual_seed(0)
    L, R = optimal_low_rank(
        torch.diag(d), knobs.rank, random_signs((5,), d, g)[falling]
    )
    assert np.allclose(L @ R.mT, now.drawn[np.ix_(falling, falling)], atol=1e-12)
    assert row["noise"] == pytest.approx(row["theorem"], abs=1e-9)
    figure = rtrl.water_picture(now, None)
    level = 0.0 if knobs.rank == 5 else float(water_level(d, knobs.rank))
    points, _ = drawn(figure, "water level")
    assert np.allclose(points[:, 1], level)
    kept, mixed = (drawn(figure, name)[0][:, 1] for name in ("kept", "mixed"))
    assert (kept >= level - 1e-9).all() and (mixed < level).all()
    assert sorted([*kept, *mixed], reverse=True) == d.tolist()
    *_, last = islice(rtrl.water_rows(knobs), 40)
    assert last["of the mean"] <= row["theorem"] / 10 + 1e-12  # about a fortieth


# The regions


@pytest.mark.parametrize("rules", [live.ALL, ("RLS", "SGD", "Adam")])
def test_regions_are_the_rules_predictions(rules, monkeypatch):
    problem, ticks, looks = live.spirals(), live.TICKS, []
    classes = live._classes
    monkeypatch.setattr(live, "_classes", lambda *a: looks.append(a) or classes(*a))
    shown = live.race_of(*rules)
    row, now = run(shown.rows, RaceKnobs, problem, None, 8, steps=4, label_noise=0.2)
    outputs, g = looks[-1][0], torch.Generator().manual_seed(0)
    drawn = [live.draw(problem.fit, RaceKnobs(label_noise=0.2), g) for _ in range(4)]
    X, y = drawn[-1]
    assert set(now.classes) == set(rules)
    points, labels = (part[-live.SHOWN :].numpy() for part in (X, y))
    assert (now.points == points).all() and (now.labels == labels).all()
    shown_now = shown.picture(now, None)
    drawn_as, drawn_points = shown_now["data"]
    inside, last = (np.abs(points) <= live.WIDE).all(1), live.SIDE - 1
    for n, label in enumerate(rules):
        assert row[label] == now.errors[label]
        left, low = live._corner(n, rules)
        for i, j in ((0, 0), (6, 60), (last, 24), (40, 42)):
            at = torch.stack([ticks[j // 2], ticks[i // 2]])
            said = int(outputs[label](at[None]).argmax())
            assert drawn_as["z"][low + i, left + j] == now.classes[label][i, j] + 1
            assert now.classes[label][i, j] == said
        part = slice(n * inside.sum(), (n + 1) * inside.sum())
        cells = np.stack([drawn_points[k][part] for k in "xy"], 1) - (left, low)
        assert np.allclose(np.interp(cells, [0, last], ticks[[0, -1]]), points[inside])
    assert (drawn_as["z"] > 0).sum() == len(rules) * live.SIDE**2
    titles = [
        each["text"] for each in shown.picture(None, now)["layout"]["annotations"]
    ]
    for label, title in zip(rules, titles, strict=True):
        assert label in title and f"({now.errors[label]:.0f} %)" in title
