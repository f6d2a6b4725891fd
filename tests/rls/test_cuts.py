"""A step that is interrupted at any line: it happened, or did not (float64)."""

import signal
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from labkit.rls import RLS, Hybrid
from tests.cuts import lines_of

SAMPLE = 25  # lines of a step that are interrupted; all of them in `make test-long`


def dense():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def conv():
    layers = nn.Conv1d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(12, 2)
    return nn.Sequential(*layers).double()


def half():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).bfloat16()


def hybrid(model):
    rls = RLS(model, layers=["0"], max_grad_norm=0.5, momentum=0.5)
    return Hybrid(rls, torch.optim.AdamW(model[2].parameters()))


CASES = {
    "RLS": (dense, RLS, (6, 5)),
    "RLS, all options": (
        dense,
        lambda m: RLS(m, momentum=0.5, l1=1e-3, weight_decay=0.1, forgetting=0.99),
        (6, 5),
    ),
    "RLS, factors": (dense, lambda m: RLS(m, max_grad_norm=0.5), (2, 5)),
    "RLS, reset": (dense, lambda m: RLS(m, on_failure="reset"), (6, 5)),
    "RLS, groups": (conv, RLS, (6, 2, 5)),
    "RLS, half precision": (half, RLS, (6, 5)),
    "Hybrid": (dense, hybrid, (6, 5)),
}


def due(case):
    """A model and its optimiser after one step, and with the next one due."""
    module, make, shape = CASES[case]
    torch.manual_seed(0)
    model = module()
    with pytest.warns(UserWarning, match="P grows") if "all" in case else nullcontext():
        optimizer = make(model)
    x = torch.randn(shape).to(model[0].weight)
    for step in range(2):
        optimizer.zero_grad()
        model(x + step).square().mean().backward()
        if not step:
            optimizer.step()
    return model, optimizer


def seen(model, optimizer):
    """Weights, and all that the optimiser keeps of them."""
    held = [t.tolist() for t in model.state_dict().values()]
    return held, repr(optimizer.state_dict()["state"])


def interrupted_everywhere(case, count=None):
    """Lines that were interrupted, and what fell: neither as before nor as after."""
    model, optimizer = due(case)
    before = seen(model, optimizer)
    n = lines_of(optimizer.step)
    after = seen(model, optimizer)
    assert before != after
    lines = range(1, n + 1) if count is None else range(1, n + 1, max(1, n // count))
    fallen = []
    for at in lines:
        model, optimizer = due(case)
        lines_of(
            optimizer.step,
            at,
            error=KeyboardInterrupt,
            cut=lambda: signal.raise_signal(signal.SIGINT),
        )
        if seen(model, optimizer) == before:
            optimizer.step()
        if seen(model, optimizer) != after:
            fallen.append(at)
    return len(lines), fallen


@pytest.mark.parametrize("case", CASES)
def test_a_step_that_is_interrupted_happened_or_did_not(case):
    tried, fallen = interrupted_everywhere(case, SAMPLE)
    assert tried >= SAMPLE and not fallen


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_step_can_be_interrupted_at_every_line(case, capsys):
    tried, fallen = interrupted_everywhere(case)
    with capsys.disabled():
        print(f" {case}: {tried} lines interrupted, {len(fallen)} fell", end="")
    assert not fallen


def test_an_interrupt_is_not_lost():
    _, optimizer = due("Hybrid")
    step = optimizer.others[0].step
    optimizer.others[0].step = lambda: (signal.raise_signal(signal.SIGINT), step())
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
