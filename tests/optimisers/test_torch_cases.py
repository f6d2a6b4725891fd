"""The generic cases of torch's own optimiser tests, for RLS and Hybrid.

Torch does not ship these tests, only their helpers, `common_optimizers`; the cases here
are written after `TestOptimRenewed`, name by name. RLS takes a model where torch's
take parameters, so a case has a model whose layers hold its weight and bias.
"""

import copy
import math

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint import state_dict as checkpoint

from . import test_conformance as conformance
from .cases import BY_GRADIENT, CASES, batch, kept, network, same

common = pytest.importorskip("torch.testing._internal.common_optimizers")
HOOKS = "test_hooks_of_state_dicts_run_once_each_and_may_change_them"
# Of torch's cases those that no class of labkit can have, and why.
NOT_APPLICABLE = {
    "test_complex": "RLS refuses complex weights",
    "test_complex_2d": "RLS refuses complex weights",
    "test_rosenbrock_sparse": "RLS trains layers; Hybrid refuses sparse gradients",
    "test_sparse": "as test_rosenbrock_sparse",
    "test_foreach_matches_forloop": "there is no option foreach",
    "test_foreach_large_tensor": "there is no option foreach",
    "test_peak_memory_foreach": "there is no option foreach",
    "test_fused_matches_forloop": "there is no option fused",
    "test_fused_cpu_matches_cuda": "there is no option fused",
    "test_fused_large_tensor": "there is no option fused",
    "test_fused_does_not_step_if_foundinf": "there is no option fused",
    "test_fused_error_on_params_on_meta": "there is no option fused",
    "test_mixed_device_dtype": "one step is on one device",
    "test_cuda_capturable": "needs a GPU; labkit records by train(capture=True)",
    "test_cpu_load_state_dict": "needs a GPU; test_rls_copies has the strict device",
    "test_state_dict_with_cuda_params": "as test_cpu_load_state_dict",
    "test_forloop_goes_right_direction_multigpu": "one step is on one device",
    "test_set_default_dtype_works_with_foreach": "there is no option foreach",
    "test_differentiable": "a step changes its tensors in place",
    "test_grad_scaling_autocast_fused_optimizers": "tests/rls/test_scaler.py",
    "test_defaults_changed_to_foreach": "there is no option foreach",
    "test_non_empty_state": "state is made by the first gradient, not by zeros alone",
    "test_param_groups_with_named_parameters": "RLS groups layers, and names them",
    "test_can_load_from_to_named_state_dict": "RLS groups layers, and names them",
    "test_second_order_optims_return_consistent_types": "of L-BFGS alone",
    "test_optim_infos_do_not_specify_global_cliquey_kwargs": "of torch's own table",
}
# Torch's cases that tests of other names hold, here and in the conformance suite.
HELD_BY = {
    "test_errors": "test_a_second_group_is_refused_or_the_other_optimiser_s",
    "test_optimizer_can_be_printed": "test_it_is_an_optimizer_and_can_be_printed",
    "test_can_load_older_state_dict": "test_an_older_state_dict_lacks_options",
    "test_load_nontensor_step": "test_numbers_in_place_of_tensors",
    "test_step_pre_hook": "test_hooks_of_a_step_run_once_each",
    "test_step_post_hook": "test_hooks_of_a_step_run_once_each",
    "test_step_all_hooks": "test_hooks_of_a_step_run_once_each",
    "test_state_dict_pre_hook": HOOKS,
    "test_state_dict_post_hook": HOOKS,
    "test_state_dict_pre_post_hook": HOOKS,
    "test_load_state_dict_post_hook": HOOKS,
}


@pytest.fixture(params=BY_GRADIENT)
def case(request):
    return CASES[request.param]


def run(case, model, optimizer, seeds):
    for seed in seeds:
        case.step(model, optimizer, seed)


def scheduled():
    """The schedulers that torch's cases put beside an optimiser, by their number."""
    sgd = next(o for o in common.optim_db if o.optim_cls is torch.optim.SGD)
    return [each for group in sgd.scheduler_inputs for each in group]


def test_torch_has_the_helpers_that_the_cases_were_written_after():
    assert len(common.optim_db) >= 14 and scheduled()


@pytest.mark.parametrize("i", range(len(scheduled())))
@pytest.mark.parametrize("contiguous", [True, False])
def test_forloop_goes_right_direction(case, i, contiguous):
    model = network()
    if not contiguous:
        with torch.no_grad():
            model[0].weight.data = model[0].weight.detach().T.contiguous().T
    optimizer = case.make(model)
    schedule = scheduled()[i](optimizer)
    X, Y = batch(0)
    loss = lambda: float((model(X) - Y).square().sum().detach())  # noqa: E731
    first = loss()
    for _ in range(20):
        case.step(model, optimizer, 0)
        plateau = isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau)
        schedule.step(*[loss()] * plateau)
    assert loss() < first


def test_step_is_noop_when_params_have_no_grad(case):
    model, optimizer = case.made()
    before = kept(model, optimizer)
    optimizer.step()
    assert same(before, kept(model, optimizer))
    run(case, model, optimizer, range(2))
    optimizer.zero_grad()
    before = kept(model, optimizer)
    optimizer.step()
    assert same(before, kept(model, optimizer))


def test_step_is_noop_for_zero_grads(case):
    model, optimizer = case.made()
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("i", [None, *range(len(scheduled()))])
def test_state_dict_deterministic(case, i):
    """Whether a state is loaded or gone on with, also beside a schedule."""
    model, optimizer = case.made()
    twin = network()
    other = case.make(twin)
    schedules = [] if i is None else [scheduled()[i](o) for o in (optimizer, other)]
    run(case, model, optimizer, range(3))
    twin.load_state_dict(model.state_dict())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for seed in range(3, 6):
        case.step(model, optimizer, seed), case.step(twin, other, seed)
        for schedule in schedules:
            schedule.step(*[1.0] * hasattr(schedule, "patience"))
    assert same(kept(model, optimizer), kept(twin, other))


def test_save_load_equality_with_weights_only(case, tmp_path):
    model, optimizer = case.made()
    run(case, model, optimizer, range(2))
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    again = case.make(model)
    again.load_state_dict(saved)
    assert same(kept(model, optimizer), kept(model, again))


@pytest.mark.parametrize("lr", [torch.tensor(0.5), torch.tensor([0.5])])
def test_tensor_lr(case, lr):
    """As the same number, also where a schedule changes it in place."""
    found = []
    for rate in (0.5, lr.clone().double()):
        model, optimizer = case.made()
        optimizer.param_groups[0]["lr"] = rate
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for seed in range(3):
            case.step(model, optimizer, seed)
            schedule.step()
        found.append([p.detach() for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_param_groups_lr(case):
    """A layer of rate 0 stands still beside one that moves."""
    model, optimizer = case.made()
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.param_groups[0]["l1"] = 0.0
    before = [p.detach().clone() for p in model.parameters()]
    run(case, model, optimizer, range(2))
    pairs = zip(before, model.parameters(), strict=True)
    assert [torch.equal(*pair) for pair in pairs] == [True, True, False, False]


def test_param_groups_weight_decay(case):
    """Without a rate of its own the decayed layer is the shorter one."""
    lengths = []
    for decay in (0.0, 0.5):
        model, optimizer = case.made()
        optimizer.param_groups[0]["weight_decay"] = decay
        run(case, model, optimizer, range(3))
        lengths.append(model[0].weight.norm())
    assert lengths[1] < 0.8 * lengths[0]


# torch.distributed.checkpoint


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("fresh", [False, True])
def test_distributed_checkpoint(case, flatten, fresh):
    """By names of parameters, into a new optimiser, with torch's strict default."""
    options = checkpoint.StateDictOptions(flatten_optimizer_state_dict=flatten)
    model, optimizer = case.made()
    run(case, model, optimizer, range(0 if fresh else 3))
    saved = copy.deepcopy(checkpoint.get_state_dict(model, optimizer, options=options))
    again, other = case.made()
    checkpoint.set_state_dict(
        again,
        other,
        model_state_dict=saved[0],
        optim_state_dict=saved[1],
        options=options,
    )
    for each in ((model, optimizer), (again, other)):
        run(case, *each, range(3, 6))
    assert all(map(torch.equal, model.parameters(), again.parameters()))


def test_a_checkpoint_of_labkit_0_2():
    """Hybrid wrote a dict for each of its two optimisers."""
    case = CASES["Hybrid"]
    model, optimizer = case.made()
    run(case, model, optimizer, range(3))
    parts = {"rls": optimizer.rls.state_dict(), "other": optimizer.other.state_dict()}
    twin = copy.deepcopy(model)
    again = case.make(twin)
    again.load_state_dict(copy.deepcopy(parts))
    for each in ((model, optimizer), (twin, again)):
        run(case, *each, range(3, 5))
    assert all(map(torch.equal, model.parameters(), twin.parameters()))


def test_a_gradient_that_is_not_finite_steps_nowhere(case):
    model, optimizer = case.made()
    before = kept(model, optimizer)
    with pytest.raises(ArithmeticError):
        case.step(model, optimizer, 0, math.inf)
    assert same(before, kept(model, optimizer))


@pytest.mark.parametrize("i", range(len(scheduled())))
def test_param_group_with_lrscheduler_goes_right_direction(case, i):
    """With another rate for each group, both on one schedule."""
    model, optimizer = case.made()
    first, second = optimizer.param_groups
    second["lr"] = 0.1 * first["lr"]
    schedule = scheduled()[i](optimizer)
    X, Y = batch(0)
    loss = lambda: float((model(X) - Y).square().sum().detach())  # noqa: E731
    before = loss()
    for _ in range(20):
        case.step(model, optimizer, 0)
        schedule.step(*[loss()] * hasattr(schedule, "patience"))
    assert loss() < before


def test_deepcopy_copies_all_public_attrs(case):
    model, optimizer = case.made()
    run(case, model, optimizer, range(2))
    _, again = copy.deepcopy((model, optimizer))
    public = [{k for k in vars(o) if not k.startswith("_")} for o in (optimizer, again)]
    assert public[0] == public[1] and "defaults" in public[0]


@pytest.mark.parametrize("prepend", [False, True])
def test_load_state_dict_pre_hook_and_prepend(case, prepend):
    """A hook may change what it is given, or give another; the last one wins."""
    model, optimizer = case.made()
    run(case, model, optimizer, range(2))
    saved = copy.deepcopy(optimizer.state_dict())

    def in_place(_, state):
        state["param_groups"][0]["lr"] = 0.002

    def anew(_, state):
        state = copy.deepcopy(state)
        state["param_groups"][0]["lr"] = 0.003
        return state

    optimizer.register_load_state_dict_pre_hook(in_place)
    optimizer.register_load_state_dict_pre_hook(anew, prepend=prepend)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == (0.002 if prepend else 0.003)


def test_the_count_of_torch_s_cases():
    """Each of torch's cases runs, is held by a test of another name, or cannot be."""
    known = vars(conformance) | globals()
    assert all(callable(known[name]) for name in HELD_BY.values())
    here = {name for name in globals() if name.startswith("test_")}
    assert len(here) >= 13 and (len(HELD_BY), len(NOT_APPLICABLE)) == (11, 26)
    assert not here & {*NOT_APPLICABLE, *HELD_BY} and not {*HELD_BY} & {*NOT_APPLICABLE}


def test_schedules_of_a_hybrid_that_cycle_the_momentum_say_so():
    _, optimizer = CASES["Hybrid"].made()
    with pytest.raises(ValueError, match="cycle_momentum"):
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=5)
    model = network()
    sgd = torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.5)
    first = type(optimizer.rls)(model, layers=["0"], momentum=0.5)
    both = type(optimizer)(first, sgd)
    torch.optim.lr_scheduler.OneCycleLR(both, 1.0, total_steps=5)
    assert {group["momentum"] for group in both.param_groups} == {0.95}
    assert isinstance(model, nn.Module)
