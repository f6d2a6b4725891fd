"""One step of SHF and of Martens' HF, and their rules."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.hessian_free import (
    Autoencoder,
    HessianFree,
    MartensHF,
    adapted_damping,
    cg,
    gradient_variance,
    line_search,
    linearise,
    lsmr_steps,
    squared_error,
)
from labkit.hessian_free.linearise import weights_of
from labkit.hessian_free.martens import gradient_pass
from labkit.hessian_free.tuples import copied

from .conftest import dense, joined, rand, relative, small_net
from .test_linearise import per_example_gradients


def make(seed=0, **options):
    net = small_net(seed=seed)
    options = {"damp": 0.5, "drop": 0.9, "atol": 1e-13, "maxiter": 200} | options
    g = torch.Generator().manual_seed(seed)
    return net, HessianFree(net, generator=g, **options), rand(20, 5, seed=seed)


def gauss_newton(net, X, lam):
    """The exact damped step, and the gradient, from the dense Jacobian."""
    point = linearise(net, X, weights=copied(weights_of(net)))
    A = dense(point.forward_map, point.weights)
    g = A.T @ point.residual.reshape(-1)
    d = torch.linalg.solve(A.T @ A + lam**2 * torch.eye(len(g)).to(A), -g)
    return d, g, A


# The rules


def test_damping_rule():
    assert adapted_damping(1.0, 0.1, 0.5) == 2.0
    assert adapted_damping(1.0, 0.5, 0.5) == 1.0
    assert adapted_damping(1.0, 0.25, 0.5) == adapted_damping(1.0, 0.75, 0.5) == 1.0
    assert adapted_damping(1.0, 0.8, 0.5) == 0.5
    assert adapted_damping(1.0, -math.inf, 0.5) == 2.0
    assert adapted_damping(1.0, 0.8, 0.5, floor=0.7) == 0.7


def quadratic(x):
    return 0.5 * (x - 1) ** 2


def test_line_search_halves_to_a_sufficient_decrease():
    tried = []

    def trial(s):
        tried.append(s)
        return quadratic(5 * s), "here"

    s, f, found = line_search(trial, quadratic(0), -5.0, alpha=1e-4)
    assert tried == [1.0, 0.5, 0.25]
    assert (s, f, found) == (0.25, quadratic(1.25), "here")


@pytest.mark.parametrize("slope", [0.0, 1e-9, math.nan])
def test_line_search_refuses_to_go_uphill(slope):
    def trial(s):
        raise AssertionError("nothing to try")

    assert line_search(trial, 1.0, slope, alpha=1e-4) == (0.0, 1.0, None)


@pytest.mark.parametrize("value", [2.0, math.nan, math.inf])
def test_line_search_ends(value):
    tried = []
    found = line_search(lambda s: (tried.append(s) or value, s), 1.0, -1.0, alpha=1e-4)
    assert found == (0.0, 1.0, None)
    assert len(tried) == 61  # 1 and sixty halvings


# One step


def test_a_step_is_the_damped_gauss_newton_step():
    net, optimizer, X = make()
    w = joined(weights_of(net)).clone()
    d, g, A = gauss_newton(net, X, 0.5)
    step = optimizer.step(X)
    assert step.step_length == 1.0
    assert relative(joined(weights_of(net)) - w, d) < 1e-8
    q = d @ g + 0.5 * (A @ d).square().sum()  # without the damping's share
    assert math.isclose(step.slope, d @ g, rel_tol=1e-8)
    assert math.isclose(step.predicted, q, rel_tol=1e-8)
    change = step.loss_after - step.loss
    assert math.isclose(step.rho, change / q, rel_tol=1e-7)
    assert math.isclose(2 * step.loss_after, squared_error(net, X), rel_tol=1e-12)
    assert step.damp_next == pytest.approx(0.9 * 0.5 if step.rho > 0.75 else 0.5)
    assert torch.equal(joined(step.point.weights), joined(weights_of(net)))


def test_the_ratio_goes_to_one_with_the_step():
    gaps = []
    for lam in (1.0, 10.0, 100.0):
        _, optimizer, X = make(damp=lam)
        gaps.append(abs(optimizer.step(X).rho - 1))
    assert gaps[2] < gaps[1] < gaps[0]
    assert gaps[2] < 1e-3


def test_the_next_start_is_gamma_d_whatever_s():
    """A net and a damping for which the full step is halved."""
    for seed in range(40):
        net, optimizer, X = make(seed, damp=1e-3, gamma=0.7)
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
    gammas = [optimizer.step(X).gamma for _ in range(10)]
    assert gammas[:2] == [0.94, 0.94 * 1.002]
    assert gammas[-1] == 0.95


def spoil(optimizer, warm):
    """Hand the step a solver whose answer is ``warm``, a bad direction."""
    frozen = optimizer.subproblem

    class Spoiled:
        def __init__(self, problem):
            self.problem = problem
            self.point, self.b, self.x0 = problem.point, problem.b, problem.x0

        def solve(self, **options):
            return self.problem.solve(**options)._replace(x=warm)

    optimizer.subproblem = lambda *data: Spoiled(frozen(*data))


def test_an_uphill_direction_is_refused_and_the_start_forgotten():
    net, optimizer, X = make()
    optimizer.step(X)
    before = copied(weights_of(net))
    _, g, _ = gauss_newton(net, X, 0.5)
    sizes = [w.numel() for w in before]
    parts = zip(g.split(sizes), before, strict=True)
    uphill = tuple(1e-3 * p.reshape(w.shape) for p, w in parts)
    spoil(optimizer, uphill)
    damp = optimizer.param_groups[0]["damp"]
    step = optimizer.step(X)
    assert step.slope > 0
    assert step.step_length == 0.0
    assert step.loss_after == step.loss
    assert step.rho == -math.inf  # though the prediction was positive too
    assert step.predicted > 0
    assert step.damp_next == damp / 0.9
    assert all(map(torch.equal, before, weights_of(net)))
    del optimizer.subproblem
    assert not joined(optimizer.subproblem(X).x0).any()


def test_a_full_step_that_raises_the_loss_counts_as_minus_infinity():
    """Downhill at first, but far too long: halved, and the damping goes up."""
    net, optimizer, X = make()
    d, *_ = gauss_newton(net, X, 0.5)
    w = weights_of(net)
    parts = zip(d.split([t.numel() for t in w]), w, strict=True)
    spoil(optimizer, tuple(100 * p.reshape(t.shape) for p, t in parts))
    step = optimizer.step(X)
    assert step.rho == -math.inf
    assert 0 < step.step_length < 1
    assert step.damp_next == 0.5 / 0.9


def test_the_merit_is_the_validation_loss_at_w_plus_d():
    net, optimizer, X = make(maxiter=30, as_published=True)
    V = rand(9, 5, seed=50)
    before = float(squared_error(net, V))
    step = optimizer.step(X, validation=V)
    assert math.isclose(2 * step.merit[0][1], before, rel_tol=1e-12)
    assert step.step_length == 1.0
    after = float(squared_error(net, V))
    assert step.merit[-1][0] == step.iterations or step.status in ("atol", "exact")
    if step.merit[-1][0] == step.iterations:
        assert math.isclose(2 * step.merit[-1][1], after, rel_tol=1e-12)


def test_the_best_iterate_by_merit_is_taken():
    net, optimizer, X = make(damp=1e-4, atol=0.0, maxiter=60)
    V = rand(9, 5, seed=50)
    step = optimizer.step(X, validation=V)
    least = min(f for k, f in step.merit if k)
    assert dict(step.merit)[step.best] == least
    if step.step_length == 1.0:
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
    d, g, _ = gauss_newton(net, X, problem.damp)
    assert joined(problem.x0).any()
    assert relative(joined(problem.normal_rhs()), -g) < 1e-12
    M = tuple(c**-2 for c in problem.scale)
    options = {"x0": problem.x0, "preconditioner": M, "tolerance": 0.0}
    ours = cg(problem.normal_map, problem.normal_rhs(), maxiter=200, **options)
    assert relative(joined(ours.x), d) < 1e-8
    steps = lsmr_steps(problem.system())
    errors = [relative(joined(next(steps).x), d) for _ in range(90)]
    assert errors[-1] < 1e-8 < errors[0]


def test_resumes_from_its_state():
    X = [rand(20, 5, seed=s) for s in range(4)]
    net, optimizer, _ = make(maxiter=9)
    for x in X[:2]:
        optimizer.step(x)
    held = optimizer.state_dict(), net.state_dict(), optimizer.generator.get_state()
    held = torch.utils._pytree.tree_map(
        lambda t: t.clone() if isinstance(t, torch.Tensor) else t, held
    )
    want = [optimizer.step(x).loss_after for x in X[2:]]
    other, again, _ = make(seed=5, damp=9.0)
    again.load_state_dict(held[0])
    other.load_state_dict(held[1])
    again.generator.set_state(held[2])
    assert [again.step(x).loss_after for x in X[2:]] == want


def test_any_module_and_targets():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)
    )
    X, T = torch.rand(30, 3), torch.rand(30, 2)
    optimizer = HessianFree(net, damp=0.1)
    losses = [optimizer.step(X, T).loss_after for _ in range(30)]
    best = torch.linalg.lstsq(torch.cat([X, torch.ones(30, 1)], 1), T, driver="gelsd")
    linear = 0.5 * float(best.residuals.sum()) / 30
    assert losses[-1] < linear  # what no map without a hidden layer reaches


def test_an_endless_loss_leaves_the_weights():
    net, optimizer, X = make()
    before = copied(weights_of(net))
    with pytest.raises(FloatingPointError, match="not finite"):
        optimizer.step(X * math.nan)
    assert all(map(torch.equal, before, weights_of(net)))


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation gives."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves(out):
            if isinstance(x, torch.Tensor):
                self.entries = max(self.entries, x.numel())
        return out


def test_no_gradient_of_a_single_example_is_formed():
    """Nothing in a step is larger than the batch or one layer's weights."""
    net = Autoencoder((32, 24, 4, 24, 32))
    X = torch.rand(100, 32)
    optimizer = HessianFree(net, damp=1.0, maxiter=8)
    with Largest() as watch:
        step = optimizer.step(X, validation=X[:30])
        gradient_variance(step.point)
    P = sum(W.numel() for W in net.parameters())
    assert watch.entries <= 100 * 48  # rows of S~ lie 48 entries apart
    assert watch.entries < 100 * P / 30


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"damp": 0.0}, "damp must be finite and > 0, got 0.0"),
        ({"drop": 1.0}, r"drop must be in \(0, 1\), got 1.0"),
        ({"drop": 0.0}, r"drop must be in \(0, 1\), got 0.0"),
        ({"damp_floor": 2.0}, r"damp_floor must be in \[0, damp\], got 2.0"),
        ({"gamma": 1.1}, r"gamma must be in \[0, 1\], got 1.1"),
        ({"alpha": 0.0}, r"alpha must be in \(0, 1\), got 0.0"),
        ({"preconditioner": "diag"}, r"preconditioner must be one of .* got 'diag'"),
        ({"damping": "mixed"}, r"damping must be one of .* got 'mixed'"),
        ({"centre": "x0"}, r"centre must be one of .* got 'x0'"),
        ({"maxiter": 0}, "maxiter must be an integer >= 1, got 0"),
    ],
)
def test_refuses(options, match):
    with pytest.raises(ValueError, match=match):
        HessianFree(small_net(), **({"damp": 1.0} | options))


def test_refuses_a_generator_elsewhere_and_nothing_to_train():
    with pytest.raises(ValueError, match="generator must be on the weights' device"):
        HessianFree(small_net().to("meta"), generator=torch.Generator())
    with pytest.raises(ValueError, match="no parameters that require a gradient"):
        HessianFree(small_net().requires_grad_(False))


# Martens


def test_gradient_pass_in_slices(monkeypatch):
    net, X = small_net(), rand(20, 5)
    monkeypatch.setattr("labkit.hessian_free.martens.ROWS", 7)
    f, g, squares = gradient_pass(net, weights_of(net), X)
    G = per_example_gradients(net, X, X)
    assert math.isclose(2 * f, squared_error(net, X), rel_tol=1e-12)
    assert relative(joined(g), G.mean(0)) < 1e-12
    assert relative(joined(squares), G.square().mean(0)) < 1e-12


def test_a_converged_step_is_the_damped_gauss_newton_step():
    """Gradient of all rows, curvature of the chunk, lambda unsquared."""
    net, X = small_net(), rand(20, 5)
    chunk = X[:8]
    w = joined(weights_of(net)).clone()
    _, g, _ = gauss_newton(net, X, 1.0)
    _, _, A = gauss_newton(net, chunk, 1.0)
    B = A.T @ A + 4.0 * torch.eye(len(g)).to(A)
    optimizer = MartensHF(net, damp=4.0, tolerance=0.0)
    step = optimizer.step(X, chunk=chunk)
    p = torch.linalg.solve(B, -g)
    moved = (joined(weights_of(net)) - w) / step.step_length
    assert step.best == step.iterations  # nothing to go back over
    assert relative(moved, p) < 1e-8
    predicted = p @ g + 0.5 * (A @ p).square().sum()
    assert math.isclose(step.predicted, predicted, rel_tol=1e-8)
    start = [optimizer.state[q]["warm"] for q in net.parameters()]
    assert relative(joined(start), 0.95 * p) < 1e-8
    assert step.damp_next == pytest.approx(4.0 * 2 / 3 if step.rho > 0.75 else 4.0)


def test_goes_back_to_the_iterate_of_lowest_loss_but_starts_from_the_last():
    """With almost no damping the last iterates overshoot."""
    for seed in range(30):
        net, X = small_net(seed=seed), rand(20, 5, seed=seed)
        optimizer = MartensHF(net, damp=1e-6, tolerance=0.0, maxiter=60)
        step = optimizer.step(X)
        if step.best < step.iterations:
            break
    assert step.best < step.iterations
    losses = dict(step.merit)
    assert losses[step.best] == min(losses.values())
    start = joined([optimizer.state[q]["warm"] for q in net.parameters()])
    assert not math.isclose(start.norm(), 0.95 * step.direction_norm, rel_tol=1e-6)


def test_martens_descends_on_all_rows():
    net, X = small_net(), rand(40, 5)
    optimizer = MartensHF(net, damp=1.0)
    steps = [optimizer.step(X, chunk=X[i % 4 :: 4]) for i in range(12)]
    assert all(s.loss_after <= s.loss for s in steps)
    assert steps[-1].loss_after < steps[0].loss
