"""What is drawn is what the papers' own functions say, in its place."""

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from labkit.lab.books import (
    broad_functions as functions,
    compare as live,
    rls,
    rtrl,
)
from labkit.lab.books.compare import RaceKnobs
from labkit.lab.books.rtrl_training import estimates, make_learner, new_network
from labkit.lab.datasets import load
from labkit.rls import loss_mse
from labkit.rls.update import gain
from labkit.rtrl.low_rank import optimal_low_rank, random_signs, water_level
from tests.draws import randn, seeded

TEXT = load("text")


def run(rows, knobs, *problem, steps=1, **turned):
    """The last of so many rows at these knobs, and what it draws."""
    settings = SimpleNamespace(**vars(knobs(**turned)))
    row = list(islice(rows(settings, *problem), steps))[-1]
    return row, row["pictures"]


def drawn(figure, name):
    """The trace of this name as points (n, 2), and it."""
    (found,) = (trace for trace in figure["data"] if trace.get("name") == name)
    return np.stack([found["x"], found["y"]], 1), found


# The cloud


def test_the_plane_holds_the_exact_gradient_and_the_largest_noise():
    truth, stretch = randn(30), torch.linspace(0.1, 3, 30, dtype=torch.float64)
    spray = stretch * randn(500, 30, seed=1)
    frame = rtrl.plane(truth + spray, truth)
    unit = frame * truth.norm()
    assert torch.allclose(frame @ truth, torch.tensor([1.0, 0]).double(), atol=1e-12)
    assert torch.allclose(unit @ unit.T, torch.eye(2).double(), atol=1e-12)
    across = spray - torch.outer(spray @ unit[0], unit[0])
    largest = torch.linalg.eigvalsh(torch.cov(across.T))[-1]
    assert float((spray @ unit[1]).var()) == pytest.approx(float(largest))
    assert rtrl.plane(truth + spray, truth, -frame[1])[1] @ frame[1] < 0


def test_the_cloud_is_of_the_estimators_draws():
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
        wanted = (draws @ rtrl.plane(draws, truth).T).numpy()
        wanted[:, 1] *= np.sign(points[:, 1] @ wanted[:, 1])  # of the first step's side
        assert np.allclose(points, wanted, rtol=1e-3, atol=1e-5)
        far = (draws - truth).square().sum(1).mean() / truth.square().sum()
        assert row[f"noise {name}"] == noise == pytest.approx(float(far), rel=1e-4)


# The ellipse


@pytest.mark.parametrize("turned", [{}, {"mean_weight": 2.0, "lr": 0.5, "noise": 0.5}])
def test_arrows_ellipse_and_contours_are_the_step_P_and_the_loss(turned):
    row, now = run(rls.ellipse_rows, rls.EllipseKnobs, steps=9, **turned)
    knobs = rls.EllipseKnobs(**turned)
    P, mean = torch.tensor(now.P), torch.tensor(now.mean)
    _, h = gain(P, mean, mean_weight=knobs.mean_weight)
    (start, *_, at, end), others = now.paths["RLS"], now.paths["SGD"]
    wanted = -knobs.lr / float(h) * now.gradient @ now.P
    assert float(h) == pytest.approx(row["h"])
    assert np.allclose(end - at, wanted, rtol=1e-4, atol=1e-6)
    assert np.allclose([start, others[0]], [1.9, 0.9])
    figure = rls.picture(now, None)
    (_, down), (start, ahead) = (
        drawn(figure, name)[0] for name in ("minus the gradient", "step of RLS")
    )
    assert np.allclose(start, at)
    factor = np.linalg.norm(ahead - at) / np.linalg.norm(end - at)
    assert np.allclose(ahead - at, factor * (end - at), rtol=1e-3)
    assert np.allclose(down - at, -factor * now.gradient, rtol=1e-3)
    edge = np.stack([figure["data"][1]["x"], figure["data"][1]["y"]])
    assert np.allclose((edge * np.linalg.solve(now.P, edge)).sum(0), 1, rtol=1e-4)
    X, y = rls.data(knobs)
    (map_,) = (trace for trace in figure["data"] if trace["type"] == "contour")
    for i, j in ((0, 0), (7, 30), (48, 11)):
        w = torch.tensor([[map_["x"][j]], [map_["y"][i]]]).float()
        assert np.allclose(10 ** map_["z"][i, j], loss_mse(X @ w, y), rtol=1e-4)


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
    d, generator = torch.tensor(now.d[falling]), seeded()
    L, R = optimal_low_rank(
        torch.diag(d), knobs.rank, random_signs((5,), d, generator)[falling]
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
    regions, side = live.regions, live.SIDE
    monkeypatch.setattr(live, "regions", lambda *a: looks.append(a) or regions(*a))
    shown = live.race_of(*rules)
    row, now = run(shown.rows, RaceKnobs, steps=4, label_noise=0.2)
    outputs, generator = looks[-1][0], seeded()
    noisy = RaceKnobs(label_noise=0.2)
    *_, (X, y) = (live.draw(problem.fit, noisy, generator) for _ in range(4))
    assert (now.points == X[-live.SHOWN :].numpy()).all()
    assert (now.labels == y[-live.SHOWN :].numpy()).all()
    figure = shown.picture(now, now)
    cells, dots = figure["data"]
    inside = now.points[(np.abs(now.points) <= live.WIDE).all(1)]
    placed = np.stack([dots["x"], dots["y"]], 1).reshape(len(rules), -1, 2)
    titles = [title["text"] for title in figure["layout"]["annotations"]]
    for n, label in enumerate(rules):
        left, low = live._corner(n, rules)
        for i, j in ((0, 0), (6, 60), (side - 1, 24), (40, 42)):
            at = torch.stack([ticks[j // 2], ticks[i // 2]])
            predicted = int(outputs[label](at[None]).argmax())
            assert cells["z"][low + i, left + j] == predicted + 1
        points = np.interp(placed[n] - (left, low), [0, side - 1], ticks[[0, -1]])
        assert np.allclose(points, inside)
        error = f"{row[label]:.0f} %"
        assert f"{label}<br>{error} ({error})" in titles[n]
    assert (cells["z"] > 0).sum() == len(rules) * side**2
