"""Copies, pickles and checkpoints of an optimiser that reads its model by hooks."""

import copy
import math
import pickle

import pytest
import torch

from labkit.rls import RLS, Hybrid, KailathRLS, RunningMeanRLS
from tests.device.strict_device import NAME, strict
from tests.rls.conftest import assert_close, batch, identical, snapshot, take
from tests.rls.twins import fcs


def running(make=RLS, steps=3, **options):
    model = fcs()
    optimizer = make(model, momentum=0.5, **options)
    for s in range(steps):
        take(model, optimizer, *batch(2, s))
    return model, optimizer


@pytest.mark.parametrize("limit", [None, math.inf])
@pytest.mark.parametrize("make", [RLS, KailathRLS, RunningMeanRLS])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_copy_with_its_model_goes_its_own_way(make, limit, steps):
    pair = running(make, steps, max_grad_norm=limit)
    kept = snapshot(*pair)
    twin = copy.deepcopy(pair)
    for s in range(2):
        take(*twin, *batch(2, 10 + s))
    assert identical(snapshot(*pair), kept)
    for s in range(2):
        take(*pair, *batch(2, 10 + s))
    assert identical(snapshot(*pair), snapshot(*twin))
    assert vars(pair[1]).keys() == vars(twin[1]).keys()


def test_a_copy_of_a_hybrid_with_its_model():
    model = fcs()
    rls = RLS(model, layers=["0"], max_grad_norm=1.0)
    pair = model, Hybrid(rls, torch.optim.Adam(model[2].parameters()))
    take(*pair, *batch(2, 0))
    twin = copy.deepcopy(pair)
    for each in (pair, twin):
        take(*each, *batch(2, 1))
    assert identical(list(model.parameters()), list(twin[0].parameters()))


def test_a_copy_of_the_optimizer_alone_says_what_to_do():
    _, optimizer = running()
    with pytest.raises(TypeError, match=r"copy\.deepcopy\(\(model, optimizer\)\)"):
        copy.deepcopy(optimizer)
    for way in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match=r"save optimizer\.state_dict\(\)"):
            way(optimizer)


def test_a_checkpoint_of_another_network_is_refused_whole():
    _, other = running(max_grad_norm=math.inf)
    model = fcs(4, 7, 3)
    optimizer = RLS(model, momentum=0.5)
    take(model, optimizer, torch.ones(2, 4).double(), torch.zeros(2, 3).double())
    before = snapshot(model, optimizer)
    message = r"P of layer '0' has shape \(6, 6\) .* needs \(5, 5\)"
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(other.state_dict())
    assert identical(before, snapshot(model, optimizer))


def test_a_checkpoint_of_labkit_0_2():
    """The step was counted on the CPU, and 0 stood for no failure."""
    model, optimizer = running()
    saved = copy.deepcopy(optimizer.state_dict())
    for state in filter(None, saved["state"].values()):
        state["step"] = torch.tensor(3.0)
        state |= {name: torch.zeros(()).double() for name in ("failed_at", "failed_h")}
    twin = copy.deepcopy(model)
    again = RLS(twin)
    again.load_state_dict(saved)
    again.check()
    for each in ((model, optimizer), (twin, again)):
        take(*each, *batch(2, 4))
    assert identical(list(model.parameters()), list(twin.parameters()))


@pytest.mark.parametrize("there", [True, False])
def test_a_checkpoint_goes_on_on_another_device(there):
    """From the CPU to an accelerator, and back."""

    def on(device, saved=None, steps=range(2)):
        model = fcs().to(device)
        optimizer = RLS(model, momentum=0.5, max_grad_norm=1.0)
        if saved:
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        for s in steps:
            take(model, optimizer, *(each.to(device) for each in batch(2, s)))
        for state in optimizer.state.values():
            assert {value.device.type for value in state.values()} == {device}
        optimizer.check()
        return model.state_dict(), optimizer.state_dict()

    with strict():
        first, last = ("cpu", NAME) if there else (NAME, "cpu")
        moved = on(last, on(first), range(2, 4))
        stayed = on("cpu", None, range(4))
    found = [value.cpu() for value in moved[0].values()]
    assert_close(found, stayed[0].values())
