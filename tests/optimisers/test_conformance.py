"""One suite for all optimisers of labkit: what torch's optimisers have in common."""

import copy
import io
import math
import pickle

import pytest
import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .cases import BY_GRADIENT, CASES, batch, kept, same


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(params=BY_GRADIENT)
def by_gradient(request):
    return CASES[request.param]


def run(case, model, optimizer, seeds):
    for seed in seeds:
        case.step(model, optimizer, seed)


def test_it_is_an_optimizer_and_can_be_printed(case):
    model, optimizer = case.made()
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert "Parameter Group 0" in repr(optimizer)
    grouped = [p for group in optimizer.param_groups for p in group["params"]]
    assert {*grouped} == {*model.parameters()}
    for group in optimizer.param_groups:
        assert {*optimizer.defaults} - {"differentiable"} <= {*group}
    assert {*optimizer.state_dict()} == {"state", "param_groups"}


def test_a_step_lowers_the_loss_of_its_batch(case):
    model, optimizer = case.made()
    X, Y = batch(0)
    losses = []
    for _ in range(5):
        losses.append(float((model(X) - Y).square().sum().detach()))
        case.step(model, optimizer, 0)
    assert losses[-1] < losses[0]


def test_save_and_load_in_mid_run_continue_to_the_last_bit(case):
    """By a file that is read without running code."""
    model, optimizer = case.made()
    run(case, model, optimizer, range(3))
    file = io.BytesIO()
    draws = getattr(optimizer, "generator", None)
    random = draws and draws.get_state()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    run(case, model, optimizer, range(3, 6))
    again, resumed = case.made()
    saved = torch.load(file, weights_only=True)
    for each, state in zip((again, resumed), saved, strict=True):
        each.load_state_dict(state)
    if draws:
        resumed.generator.set_state(random)
    before = copy.deepcopy(saved[1])
    run(case, again, resumed, range(3, 6))
    assert same(kept(model, optimizer), kept(again, resumed))
    assert before["param_groups"] == saved[1]["param_groups"]
    for number, state in before["state"].items():  # what was loaded is a copy
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(saved[1]["state"][number][name]), value)


def test_a_copy_with_its_model_goes_its_own_way(case):
    pair = case.made()
    run(case, *pair, range(2))
    twin, before = copy.deepcopy(pair), kept(*pair)
    run(case, *twin, range(2, 4))
    assert same(before, kept(*pair))
    run(case, *pair, range(2, 4))
    assert same(kept(*pair), kept(*twin))
    public = [{k for k in vars(each[1]) if k[0] != "_"} for each in (pair, twin)]
    assert public[0] == public[1]


def test_a_pickle_works_or_says_what_to_save(case):
    pair = case.made()
    run(case, *pair, range(2))
    if case.by_gradient:
        for way in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError, match=r"save optimizer\.state_dict\(\)"):
                way(pair[1])
        with pytest.raises(TypeError, match=r"copy\.deepcopy\(\(model, optimizer\)\)"):
            copy.deepcopy(pair[1])
        return
    twin = pickle.loads(pickle.dumps(pair))
    for each in (pair, twin):
        run(case, *each, range(2, 4))
    assert same(kept(*pair), kept(*twin))


def test_a_batch_that_is_not_finite_changes_nothing(case):
    model, optimizer = case.made()
    run(case, model, optimizer, range(2))
    before = kept(model, optimizer)
    with pytest.raises((ArithmeticError, ValueError), match=r"nan|not finite"):
        case.step(model, optimizer, 2, math.nan)
    assert same(before, kept(model, optimizer))
    run(case, model, optimizer, range(2, 3))
    twin, other = case.made()
    run(case, twin, other, range(3))
    assert all(map(torch.equal, model.parameters(), twin.parameters()))


def lacking(state, name):
    del state[name]
    return state


def with_groups(state, change):
    change(state["param_groups"])
    return state


BROKEN = {
    "no groups": lambda state: lacking(state, "param_groups"),
    "no state": lambda state: lacking(state, "state"),
    "a group less": lambda state: with_groups(state, list.pop),
    "a group more": lambda s: with_groups(s, lambda g: g.append(copy.deepcopy(g[0]))),
    "a parameter less": lambda s: with_groups(s, lambda g: g[0]["params"].pop()),
    "no dict": lambda state: [state],
    "nothing": lambda state: None,
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_state_dict_changes_nothing(case, how):
    model, optimizer = case.made()
    run(case, model, optimizer, range(2))
    before = kept(model, optimizer)
    state = BROKEN[how](copy.deepcopy(optimizer.state_dict()))
    refused = (ValueError, TypeError) if case.by_gradient else Exception
    with pytest.raises(refused):
        optimizer.load_state_dict(state)
    assert same(before, kept(model, optimizer))
    run(case, model, optimizer, range(2, 3))


def test_a_state_dict_of_another_network_changes_nothing(case):
    model, optimizer = case.made()
    run(case, model, optimizer, range(2))
    wide = case.made(hidden=9)
    run(case, *wide, range(2))
    before = kept(model, optimizer)
    with pytest.raises(ValueError, match="shape"):
        optimizer.load_state_dict(wide[1].state_dict())
    assert same(before, kept(model, optimizer))


def test_an_older_state_dict_lacks_options(case):
    """They get their defaults."""
    model, optimizer = case.made()
    run(case, model, optimizer, range(2))
    state = copy.deepcopy(optimizer.state_dict())
    name = "weight_decay" if case.by_gradient else "alpha"
    for group in state["param_groups"]:
        if "layer" in group or not case.by_gradient:
            del group[name]
    optimizer.load_state_dict(state)
    assert all(name in group for group in optimizer.param_groups)
    run(case, model, optimizer, range(2, 3))


def test_numbers_in_place_of_tensors(by_gradient):
    model, optimizer = by_gradient.made()
    run(by_gradient, model, optimizer, range(2))
    state = copy.deepcopy(optimizer.state_dict())
    for each in state["state"].values():
        if "step" in each:
            each["step"] = float(each["step"])
    twin = copy.deepcopy(model)
    again = by_gradient.make(twin)
    again.load_state_dict(state)
    for each in ((model, optimizer), (twin, again)):
        run(by_gradient, *each, range(2, 4))
    assert all(map(torch.equal, model.parameters(), twin.parameters()))


def test_a_second_group_is_refused_or_the_other_optimiser_s(case):
    model, optimizer = case.made()
    more = {"params": [torch.nn.Parameter(torch.ones(2).double())]}
    if hasattr(optimizer, "others"):
        optimizer.add_param_group(more)
        assert optimizer.param_groups[-1]["params"] == more["params"]
        more = {"params": [*model[0].parameters()]}
    before = kept(model, optimizer)
    with pytest.raises(ValueError):
        optimizer.add_param_group(more)
    assert same(before, kept(model, optimizer))


def test_zero_grad(by_gradient):
    model, optimizer = by_gradient.made()
    for to_none in (True, False):
        X, _ = batch(0)
        model(X).sum().backward()
        optimizer.zero_grad(set_to_none=to_none)
        grads = [p.grad for p in model.parameters()]
        assert all(g is None or not g.any() for g in grads)
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.step()
        assert all(map(torch.equal, before, model.parameters())) or not to_none


def test_a_closure_is_evaluated_with_gradients_and_its_loss_returned(by_gradient):
    (model, optimizer), (twin, other) = by_gradient.made(), by_gradient.made()
    X, Y = batch(0)

    def closure():
        optimizer.zero_grad()
        loss = (model(X) - Y).square().sum() / 12
        loss.backward()
        return loss

    with torch.no_grad():
        loss = optimizer.step(closure)
    assert loss.requires_grad and by_gradient.step(twin, other, 0) is None
    assert same(kept(model, optimizer), kept(twin, other))


def test_hooks_of_a_step_run_once_each(case):
    model, optimizer = case.made()
    heard = []
    handles = [
        register_optimizer_step_pre_hook(lambda o, *_: heard.append(("all before", o))),
        optimizer.register_step_pre_hook(lambda o, *_: heard.append(("before", o))),
        optimizer.register_step_post_hook(lambda o, *_: heard.append(("after", o))),
        register_optimizer_step_post_hook(lambda o, *_: heard.append(("all after", o))),
    ]
    try:
        run(case, model, optimizer, range(2))
    finally:
        for handle in handles:
            handle.remove()
    names = ["all before", "before", "after", "all after"]
    assert heard == [(name, optimizer) for name in names] * 2
    run(case, model, optimizer, range(2, 3))
    assert len(heard) == 8


def test_hooks_of_state_dicts_run_once_each_and_may_change_them(case):
    model, optimizer = case.made()
    run(case, model, optimizer, range(2))
    heard, wanted = [], kept(model, optimizer)

    def wrap(_, state):
        heard.append("after saving")
        return {"inside": state}

    def unwrap(_, state):
        heard.append("before loading")
        return state["inside"]

    optimizer.register_state_dict_pre_hook(lambda _: heard.append("before saving"))
    handle = optimizer.register_state_dict_post_hook(wrap)
    if case.by_gradient:
        optimizer.register_load_state_dict_pre_hook(unwrap)
    optimizer.register_load_state_dict_post_hook(
        lambda _: heard.append("after loading")
    )
    saved = copy.deepcopy(optimizer.state_dict())
    run(case, model, optimizer, range(2, 3))
    optimizer.load_state_dict(saved if case.by_gradient else saved["inside"])
    handle.remove()
    order = ["before saving", "after saving", "before loading", "after loading"]
    assert [each for each in order if case.by_gradient or each != order[2]] == heard
    assert all(map(torch.equal, wanted[0][4:], kept(model, optimizer)[0][4:]))


def test_what_is_put_into_the_state_stays_there(by_gradient):
    model, optimizer = by_gradient.made()
    for p in model.parameters():
        optimizer.state[p]["mine"] = torch.ones(())
    optimizer.state["loose"] = {"kept": 1}
    assert all(optimizer.state[p]["mine"] == 1 for p in model.parameters())
    assert len(optimizer.state) == 5 and "loose" in optimizer.state
    del optimizer.state["loose"]
    assert {*optimizer.state} == {*model.parameters()}
