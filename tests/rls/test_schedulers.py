"""Every learning rate scheduler of torch turns the lr that RLS steps by."""

import pytest
import torch

from labkit.rls import RLS

from .conftest import batch, identical, take
from .twins import fcs

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


@pytest.mark.parametrize("name", ALL)
def test_a_schedule_is_the_lr_set_by_hand(name):
    model, twin = fcs(), fcs()
    optimizer, other = (RLS(each, momentum=0.5) for each in (model, twin))
    schedule = getattr(torch.optim.lr_scheduler, name)(optimizer, **ALL[name])
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
