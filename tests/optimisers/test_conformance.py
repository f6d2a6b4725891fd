"""What every optimiser of labkit does as torch's own; a row a class (float64)."""

import copy
import io
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers

from labkit.hessian_free import HessianFree, MartensHF
from labkit.rls import RLS, Hybrid
from tests.draws import seeded

ROWS = 6


def network(hidden=7):
    """Two layers, the same at each call."""
    model = nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, 3))
    generator = seeded()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=generator))
    return model.double()


def batch(seed=0):
    """Inputs and targets of a step."""
    generator = seeded(seed)
    shapes = (ROWS, 5), (ROWS, 3)
    return [torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes]


def rls(model):
    return RLS(model, lr=0.5, momentum=0.5, l1=1e-4, max_grad_norm=1.0)


def hybrid(model):
    first = RLS(model, layers=["0"], lr=0.5, momentum=0.5, max_grad_norm=1.0)
    return Hybrid(first, torch.optim.Adam(model[2].parameters(), lr=0.01))


def newton(model):
    generator = seeded()
    return HessianFree(model, damping=0.5, maxiter=8, generator=generator)


def martens(model):
    return MartensHF(model, damping=0.5, maxiter=8)


@dataclass(frozen=True)
class Case:
    """An optimiser, and how a step is taken with it."""

    make: Callable
    by_gradient: bool  # whether it steps on gradients, not on a batch

    def made(self, hidden=7):
        """A network and its optimiser."""
        model = network(hidden)
        return model, self.make(model)

    def run(self, model, optimizer, seeds, scale=1.0):
        """Steps; a scale that is not finite spoils them."""
        for seed in seeds:
            X, Y = batch(seed)
            if self.by_gradient:
                optimizer.zero_grad()
                (scale * loss(model, X, Y)).backward()
                optimizer.step()
            else:
                optimizer.step(X * scale, Y)


CASES = {
    "RLS": Case(rls, True),
    "Hybrid": Case(hybrid, True),
    "HessianFree": Case(newton, False),
    "MartensHF": Case(martens, False),
}
BY_GRADIENT = [name for name, case in CASES.items() if case.by_gradient]


def loss(model, X, Y):
    return (model(X) - Y).square().sum() / (2 * ROWS)


def kept(model, optimizer):
    """All that a step may change, copied."""
    tensors = [p.detach().clone() for p in model.parameters()]
    for _, state in sorted(optimizer.state_dict()["state"].items()):
        pairs = sorted(state.items())
        tensors += [v.clone() for _, v in pairs if isinstance(v, torch.Tensor)]
    return tensors


def same(one, other):
    """Whether all is equal to the last bit."""
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(params=BY_GRADIENT)
def by_gradient(request):
    return CASES[request.param]


def test_it_is_an_optimizer_and_can_be_printed(case):
    model, optimizer = case.made()
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert "Parameter Group 0" in repr(optimizer)
    grouped = [p for group in optimizer.param_groups for p in group["params"]]
    assert {*grouped} == {*model.parameters()}
    assert {*optimizer.state_dict()} == {"state", "param_groups"}


def test_steps_lower_the_loss_of_their_batch(case):
    model, optimizer = case.made()
    X, Y = batch()
    before = loss(model, X, Y)
    case.run(model, optimizer, [0] * 5)
    assert loss(model, X, Y) < before


def test_save_and_load_in_mid_run_continue_to_the_last_bit(case):
    """By a file that is read without running code."""
    model, optimizer = case.made()
    case.run(model, optimizer, range(3))
    file = io.BytesIO()
    generator = getattr(optimizer, "generator", None)
    random = generator and generator.get_state()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    case.run(model, optimizer, range(3, 6))
    again, resumed = case.made()
    saved = torch.load(file, weights_only=True)
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    if generator:
        resumed.generator.set_state(random)
    case.run(again, resumed, range(3, 6))
    assert same(kept(model, optimizer), kept(again, resumed))


def test_a_copy_with_its_model_goes_its_own_way(case):
    pair = case.made()
    case.run(*pair, range(2))
    if isinstance(pair[1], RLS | Hybrid):  # hooks read the model
        with pytest.raises(TypeError, match=r"anew, and load the state_dict\(\)"):
            copy.deepcopy(pair)
        return
    twin, before = copy.deepcopy(pair), kept(*pair)
    case.run(*twin, range(2, 4))
    assert same(before, kept(*pair))
    case.run(*pair, range(2, 4))
    assert same(kept(*pair), kept(*twin))


def test_a_state_dict_of_another_network_changes_nothing(case):
    model, optimizer = case.made()
    case.run(model, optimizer, range(2))
    wide = case.made(hidden=9)
    case.run(*wide, range(2))
    before = kept(model, optimizer)
    with pytest.raises(ValueError, match="shape"):
        optimizer.load_state_dict(wide[1].state_dict())
    assert same(before, kept(model, optimizer))


def test_a_batch_that_is_not_finite_changes_nothing(case):
    model, optimizer = case.made()
    case.run(model, optimizer, range(2))
    before, generator = kept(model, optimizer), getattr(optimizer, "generator", None)
    drawn = generator and generator.get_state()
    with pytest.raises((ArithmeticError, ValueError), match=r"nan|not finite"):
        case.run(model, optimizer, [2], math.nan)
    assert same(before, kept(model, optimizer))
    if generator:
        generator.set_state(drawn)
    case.run(model, optimizer, [2])
    twin, other = case.made()
    case.run(twin, other, range(3))
    assert all(map(torch.equal, model.parameters(), twin.parameters()))


def test_a_step_without_gradients_changes_nothing(by_gradient):
    model, optimizer = by_gradient.made()
    by_gradient.run(model, optimizer, range(2))
    optimizer.zero_grad()
    before = kept(model, optimizer)
    optimizer.step()
    assert same(before, kept(model, optimizer))


def test_a_closure_is_evaluated_with_gradients_and_its_loss_returned(by_gradient):
    (model, optimizer), (twin, other) = by_gradient.made(), by_gradient.made()
    X, Y = batch()

    def closure():
        optimizer.zero_grad()
        found = loss(model, X, Y)
        found.backward()
        return found

    with torch.no_grad():
        assert optimizer.step(closure).requires_grad
    by_gradient.run(twin, other, [0])
    assert same(kept(model, optimizer), kept(twin, other))


def test_a_layer_of_rate_zero_stands_still_beside_one_that_moves(by_gradient):
    model, optimizer = by_gradient.made()
    optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["l1"] = 0.0
    before = [p.detach().clone() for p in model.parameters()]
    by_gradient.run(model, optimizer, range(2))
    pairs = zip(before, model.parameters(), strict=True)
    assert [torch.equal(*pair) for pair in pairs] == [True, True, False, False]


# a scheduler of torch -> its options
SCHEDULERS = {
    schedulers.LambdaLR: {"lr_lambda": lambda epoch: 0.9**epoch},
    schedulers.ReduceLROnPlateau: {"patience": 0},
}


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_a_scheduler_of_torch_sets_the_rates(by_gradient, schedule):
    model, optimizer = by_gradient.made()
    schedule, rates = schedule(optimizer, **SCHEDULERS[schedule]), set()
    for seed in range(5):
        rates.add(optimizer.param_groups[0]["lr"])
        by_gradient.run(model, optimizer, [seed])
        schedule.step(*[1.0] * hasattr(schedule, "patience"))
    assert len(rates) > 1
