"""One step of SHF."""

import math
import re
from functools import partial
from itertools import islice

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import one_hot

from labkit.hessian_free import HessianFree, cg, lsmr_steps, squared_error
from labkit.hessian_free.linearise import weights_of
from labkit.hessian_free.optimizer import Subproblem
from labkit.hessian_free.vectors import copied
from labkit.theorems.hessian_free import joined, normal_map, normal_rhs
from tests.draws import seeded

from .conftest import gauss_newton, rand, relative, small_net


def make(seed=0, **options):
    net = small_net(seed=seed)
    start = {"damping": 0.5, "damping_decay": 0.9, "atol": 1e-13, "maxiter": 200}
    generator = seeded(seed)
    return (
        net,
        HessianFree(net, generator=generator, **start | options),
        rand(20, 5, seed=seed),
    )


def test_a_step_is_the_damped_gauss_newton_step():
    net, optimizer, X = make()
    w = joined(weights_of(net)).clone()
    d, g, A = gauss_newton(net, X, 0.5)
    step = optimizer.step(X)
    assert step.step_length == 1.0
    assert relative(joined(weights_of(net)) - w, d) < 1e-8
    q = d @ g + 0.5 * (A @ d).square().sum()  # without the damping's share
    rho = (step.loss_after - step.loss) / q
    for found, want in ((step.slope, d @ g), (step.predicted, q), (step.rho, rho)):
        assert math.isclose(found, want, rel_tol=1e-8)
    assert math.isclose(2 * step.loss_after, squared_error(net, X), rel_tol=1e-12)
    assert step.damping_next == pytest.approx(0.9 * 0.5 if step.rho > 0.75 else 0.5)
    assert torch.equal(joined(step.point.weights), joined(weights_of(net)))


def test_the_next_start_is_gamma_d_whatever_s():
    """A net and a damping for which the full step is halved."""
    for seed in range(40):
        net, optimizer, X = make(seed, damping=1e-3, gamma=0.7)
        w = joined(weights_of(net)).clone()
        d, *_ = gauss_newton(net, X, 1e-3)
        step = optimizer.step(X)
        if 0 < step.step_length < 1:
            break
    assert 0 < step.step_length < 1
    moved = joined(weights_of(net)) - w
    assert relative(moved, step.step_length * d) < 1e-5
    assert relative(joined(optimizer.subproblem(X).x0), 0.7 * d) < 1e-5


def test_gamma_grows_to_its_cap():
    _, optimizer, X = make(gamma=0.94, maxiter=3)
    gammas = []
    for _ in range(10):
        optimizer.step(X)
        gammas.append(optimizer.param_groups[0]["gamma"])
    assert gammas[0] == 0.94 * 1.002 and gammas[-1] == 0.95


def spoil(monkeypatch, model, vector):
    """Have the solver's answer be this bad direction."""
    blocks, solve = weights_of(model), Subproblem.solve
    parts = zip(vector.split([w.numel() for w in blocks]), blocks, strict=True)
    bad = tuple(part.reshape(w.shape) for part, w in parts)
    monkeypatch.setattr(
        Subproblem, "solve", lambda *given: solve(*given)._replace(x=bad)
    )


def test_an_uphill_direction_is_refused_and_the_start_forgotten(monkeypatch):
    net, optimizer, X = make()
    optimizer.step(X)
    before = copied(weights_of(net))
    _, g, _ = gauss_newton(net, X, 0.5)
    spoil(monkeypatch, net, 1e-3 * g)
    damp = optimizer.param_groups[0]["damping"]
    step = optimizer.step(X)
    assert step.slope > 0 and step.predicted > 0
    assert step.rho == -math.inf  # though the prediction was positive too
    assert step.step_length == 0.0 and step.loss_after == step.loss
    assert step.damping_next == damp / 0.9
    assert all(map(torch.equal, before, weights_of(net)))
    assert not joined(optimizer.subproblem(X).x0).any()


def test_a_full_step_that_raises_the_loss_counts_as_minus_infinity(monkeypatch):
    """Downhill at first, but far too long: halved, and the damping goes up."""
    net, optimizer, X = make()
    spoil(monkeypatch, net, 100 * gauss_newton(net, X, 0.5)[0])
    step = optimizer.step(X)
    assert step.rho == -math.inf
    assert 0 < step.step_length < 1 and step.damping_next == 0.5 / 0.9


def test_the_merit_is_the_validation_loss_at_w_plus_d():
    net, optimizer, X = make(maxiter=12, as_published=True)
    V = rand(9, 5, seed=50)
    before = squared_error(net, V)
    step = optimizer.step(X, validation=V)
    assert math.isclose(2 * step.merit[0][1], before, rel_tol=1e-12)
    assert step.step_length == 1.0 and step.merit[-1][0] == step.iterations
    assert math.isclose(2 * step.merit[-1][1], squared_error(net, V), rel_tol=1e-12)


def test_the_best_iterate_by_merit_is_taken():
    net, optimizer, X = make(damping=0.03, atol=0.0, maxiter=60)
    V = rand(9, 5, seed=50)
    step = optimizer.step(X, validation=V)
    least = min(f for k, f in step.merit if k)
    assert dict(step.merit)[step.best] == least
    assert step.step_length == 1.0 and step.best < step.iterations
    assert math.isclose(squared_error(net, V), 2 * least, rel_tol=1e-9)


def test_a_frozen_subproblem_outlives_the_step():
    net, optimizer, X = make()
    problem = optimizer.subproblem(X)
    d, *_ = gauss_newton(net, X, 0.5)
    optimizer.step(X)
    assert relative(joined(problem.solve(atol=1e-13, maxiter=200).x), d) < 1e-8


def test_lsmr_and_cg_on_one_frozen_subproblem():
    """Both from the same start, to the same solution, by the same operator."""
    net, optimizer, X = make()
    optimizer.step(X)
    problem = optimizer.subproblem(X)
    d, g, _ = gauss_newton(net, X, problem.options.damping)
    assert joined(problem.x0).any()
    assert relative(joined(normal_rhs(problem)), -g) < 1e-12
    M = tuple(c**-2 for c in problem.scale)
    options = {"x0": problem.x0, "preconditioner": M, "tolerance": 0.0}
    B = partial(normal_map, problem)
    solved = cg(B, normal_rhs(problem), maxiter=200, **options)
    assert relative(joined(solved.x), d) < 1e-8
    steps = islice(lsmr_steps(problem.system()), 91)
    errors = [relative(joined(step.x), d) for step in steps]
    assert errors[-1] < 1e-8 < errors[0]


def test_a_first_session_with_the_defaults_learns_digits():
    X, y = map(torch.tensor, load_digits(return_X_y=True))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)).double()
    optimizer = HessianFree(model)
    for _ in range(40):
        batch = torch.randperm(1400)[:300]
        optimizer.step(X[batch] / 16, one_hot(y[batch], 10).double())
    right = model(X[1400:] / 16).argmax(1) == y[1400:]
    assert right.double().mean() > 0.85


def test_a_first_session_with_the_defaults_learns_xor():
    X = torch.cartesian_prod(torch.arange(2.0), torch.arange(2.0))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = HessianFree(model, loss="softmax")
    for _ in range(40):
        step = optimizer.step(X, torch.tensor([0, 1, 1, 0]))
    assert step.loss_after < 0.1
    assert re.fullmatch(r"HFStep\((, |\w+=[\w.+'-]+)*\)", repr(step))


REFUSED = [
    ({"damping": 0.0}, "damping must be > 0 and at most 1e18, .* got 0.0"),
    ({"damping": 1e300}, "damping must be .* at most 1e18, for it is squ"),
    ({"preconditioner": "diag"}, r"preconditioner must be one of .* got 'diag'"),
    ({"maxiter": 0}, "maxiter must be an integer >= 1, got 0"),
    ({"generator": 5}, "generator must be a torch.Generator or None, got"),
]


@pytest.mark.parametrize(("options", "match"), REFUSED)
def test_refuses(options, match):
    with pytest.raises((ValueError, TypeError), match=match):
        HessianFree(small_net(), **options)


class OnCuda(torch.Generator):
    device = torch.device("cuda")


def test_refuses_a_generator_elsewhere_and_nothing_to_train():
    with pytest.raises(ValueError, match="generator must be on the weights' device"):
        HessianFree(small_net(), generator=OnCuda())
    with pytest.raises(ValueError, match="no parameters that require a gradient"):
        HessianFree(small_net().requires_grad_(False))


def test_refuses_a_step_after_another_layer_was_frozen():
    net, optimizer, X = make()
    net.weights[0].requires_grad_(False)
    with pytest.raises(ValueError, match="make it anew after requires_grad changes"):
        optimizer.step(X)
