"""A step that is cut off at any line of labkit: it happened, or did not (float64)."""

import copy

import pytest
import torch
from torch import nn

from labkit.hessian_free import HessianFree, MartensHF
from tests.cuts import lines_of

from .conftest import rand, small_net

SAMPLE = 12  # lines of a step that are cut at; all of them in `make test-long`

X, V = rand(6, 5), rand(3, 5, seed=1)
T = torch.arange(6) % 3


def module():
    torch.manual_seed(0)
    layers = nn.Linear(5, 4), nn.BatchNorm1d(4).eval(), nn.Tanh(), nn.Linear(4, 3)
    return nn.Sequential(*layers).double()


def newton(make=small_net, **options):
    g = torch.Generator().manual_seed(0)
    options = {"damping": 0.3, "damping_decay": 0.9, "maxiter": 3, **options}
    return HessianFree(make(), generator=g, **options)


def martens(make=small_net, **options):
    return MartensHF(make(), damping=0.3, maxiter=3, **options)


CASES = {
    "HessianFree": (newton, lambda m: m.step(X, validation=V)),
    "HessianFree, softmax": (
        lambda: newton(module, loss="softmax"),
        lambda m: m.step(X, T, validation=(V, T[:3])),
    ),
    "HessianFree, global signs": (
        lambda: newton(preconditioner="jacobi"),
        lambda m: m.step(X),
    ),
    "MartensHF": (martens, lambda m: m.step(X, chunk=V)),
    "MartensHF, module": (
        lambda: martens(module),
        lambda m: m.step(X, rand(6, 3, seed=2)),
    ),
}


def seen(made):
    """Weights, buffers, warm start, options, and the state of all random numbers."""
    held = [t.tolist() for t in made.model.state_dict().values()]
    options = {k: v for k, v in made.param_groups[0].items() if k != "params"}
    warm = [made.state[p]["warm"].tolist() for p in made.state]
    g = getattr(made, "generator", None)
    drawn = (torch.default_generator if g is None else g).get_state().tolist()
    return held, options, warm, drawn


def begun(case):
    """The optimiser of a case after a first step."""
    make, call = CASES[case]
    torch.manual_seed(0)
    made = make()
    if case == "HessianFree, global signs":
        made.generator = None
    call(made)
    return made


def cut_everywhere(case, count=None):
    """Lines that were cut at, and what fell: neither as before nor as after."""
    call, fallen, made = CASES[case][1], [], begun(case)
    start, drawn = copy.deepcopy(made), torch.get_rng_state()

    def again():
        torch.set_rng_state(drawn)
        return copy.deepcopy(start)

    before = seen(made)
    n = lines_of(lambda: call(made))
    after = seen(made)
    assert before != after
    if count is None:
        cuts = range(1, n + 1)
    else:  # spread over the step, with each line of its end, where it assigns
        ends = range(n - 60, n + 1)
        cuts = sorted({1 + i * n // count for i in range(count)} | {*ends})
    for at in cuts:
        made = again()
        lines_of(lambda made=made: call(made), at)
        now = seen(made)
        if now == before:
            call(made)
            now = seen(made)
        if now != after:
            fallen.append(at)
    return len(cuts), fallen


@pytest.mark.parametrize("case", CASES)
def test_a_step_that_is_cut_off_happened_or_did_not(case):
    tried, fallen = cut_everywhere(case, SAMPLE)
    assert tried > SAMPLE and not fallen


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_step_can_be_cut_off_at_every_line(case, capsys):
    tried, fallen = cut_everywhere(case)
    with capsys.disabled():
        print(f" {case}: {tried} lines cut at, {len(fallen)} fell", end="")
    assert not fallen
