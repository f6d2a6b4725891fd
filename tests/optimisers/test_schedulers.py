"""Every learning rate scheduler of torch turns the lr of RLS and of Hybrid."""

from functools import partial

import pytest
import torch

from labkit.rls import RLS, Hybrid
from tests.rls.conftest import batch, identical, take
from tests.rls.twins import fcs

ALL = {
    "LambdaLR": {"lr_lambda": lambda epoch: 0.9**epoch},
    "MultiplicativeLR": {"lr_lambda": lambda epoch: 0.9},
    "StepLR": {"step_size": 2},
    "MultiStepLR": {"milestones": [2]},
    "ConstantLR": {"total_iters": 2},
    "LinearLR": {},
    "ExponentialLR": {"gamma": 0.9},
    "PolynomialLR": {},
    "CosineAnnealingLR": {"T_max": 4},
    "CosineAnnealingWarmRestarts": {"T_0": 3},
    "ReduceLROnPlateau": {"patience": 0},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 2},
    "OneCycleLR": {"max_lr": 1.0, "total_steps": 9},
}
CYCLE = "CyclicLR", "OneCycleLR"  # the momentum too, which the two may name otherwise


schedulers = torch.optim.lr_scheduler
MADE = {name: partial(getattr(schedulers, name), **ALL[name]) for name in ALL}
MADE["ChainedScheduler"] = lambda optimizer: schedulers.ChainedScheduler(
    [schedulers.ExponentialLR(optimizer, 0.9), schedulers.ConstantLR(optimizer)]
)
MADE["SequentialLR"] = lambda optimizer: schedulers.SequentialLR(
    optimizer,
    [schedulers.ConstantLR(optimizer), schedulers.ExponentialLR(optimizer, 0.9)],
    milestones=[2],
)


def hybrid(model, **options):
    rls = RLS(model, layers=["0"], **options)
    return Hybrid(rls, torch.optim.SGD(model[2].parameters(), lr=1.0, momentum=0.5))


def test_none_is_left_out():
    assert {*MADE, "LRScheduler"} == {*schedulers.__all__}


@pytest.mark.parametrize("make", [RLS, hybrid])
@pytest.mark.parametrize("name", MADE)
def test_a_schedule_is_the_lr_set_by_hand(name, make):
    model, twin = fcs(), fcs()
    optimizer, other = (make(each, momentum=0.5) for each in (model, twin))
    keep = {"cycle_momentum": False} if make is hybrid and name in CYCLE else {}
    schedule = MADE[name](optimizer, **keep)
    rates = []
    for s in range(5):
        turned = {key: optimizer.param_groups[0][key] for key in ("lr", "momentum")}
        rates.append(turned["lr"])
        for group in other.param_groups:
            group |= turned
        take(model, optimizer, *batch(4, s))
        take(twin, other, *batch(4, s))
        schedule.step(*[1.0] * (name == "ReduceLROnPlateau"))
    assert len(set(rates)) > 1
    assert identical(list(model.parameters()), list(twin.parameters()))
