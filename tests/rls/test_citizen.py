"""What users of torch take for granted: gradients that are missing, masks, dtypes."""

import copy
import gc
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import prune

from labkit.rls import (
    RLS,
    Hybrid,
    KailathRLS,
    NumericalError,
    RunningMeanRLS,
    loss_mse,
)

from .conftest import (
    RULE,
    assert_close,
    assert_resumes,
    backward,
    batch,
    identical,
    randn,
    snapshot,
    take,
)
from .test_health import held
from .twins import LastOutput, fcs, randomise

pytestmark = pytest.mark.filterwarnings("ignore:with forgetting < 1")
FORMS = pytest.mark.parametrize("limit", [None, math.inf])


def hybrid(model, limit=None):
    rls = RLS(model, layers=["0"], max_grad_norm=limit)
    return Hybrid(rls, torch.optim.SGD(model[2].parameters(), lr=0.1))


# Steps without a gradient


@FORMS
@pytest.mark.parametrize("make", [partial(RLS), hybrid])
def test_a_step_without_a_gradient_does_nothing(make, limit):
    model = fcs()
    optimizer = make(model, limit) if make is hybrid else RLS(model)
    for passes in (0, 1):
        if passes:
            take(model, optimizer, *batch(2, 0))
            optimizer.zero_grad()
        before = snapshot(model, optimizer)
        optimizer.step()
        model(randn(2, 5))
        optimizer.step()
        assert identical(before, snapshot(model, optimizer))


def test_what_reaches_only_the_other_part_steps_there():
    """A batch that reaches the head alone, since the trunk stands behind a detach."""
    model = fcs()
    optimizer = hybrid(model)
    before = [p.clone() for p in model.parameters()]
    model[2](model[0](randn(2, 5)).detach()).sum().backward()
    optimizer.step()
    pairs = zip(model.parameters(), before, strict=True)
    assert [torch.equal(*pair) for pair in pairs] == [True, True, False, False]


# Gradients whose inputs were not seen


def by_hand(model, optimizer):
    weights = list(model.parameters())
    loss = model(randn(2, 5)).sum()
    for p, g in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        p.grad = g


def replaced(model, optimizer):
    model[0].weight = nn.Parameter(randn(7, 5))
    model(randn(2, 5)).sum().backward()


def pruned(model, optimizer):
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    model(randn(2, 5)).sum().backward()


def traced(model, optimizer):
    torch.jit.trace(model, randn(2, 5))(randn(2, 5)).sum().backward()


def not_called(model, optimizer):
    x = nn.functional.linear(randn(2, 5), model[0].weight, model[0].bias)
    model[2](x).sum().backward()


def evaluated(model, optimizer):
    model.eval()(randn(2, 5)).sum().backward()


def superseded(model, optimizer):
    model.keep = [RLS(model)]
    model(randn(2, 5)).sum().backward()


CAUSES = {
    by_hand: r"torch\.autograd\.grad; only a backward pass brings the inputs",
    replaced: "its weight was replaced since RLS was made; make RLS anew",
    pruned: r"pruning has put its weight behind a mask; call prune\.remove",
    traced: r"past hooks, as by torch\.jit\.trace",
    not_called: "past hooks, as by .*nn.functional; call the layer",
    evaluated: r"run the forward pass in training mode, model\.train\(\)",
    superseded: "another RLS was made for this layer later",
}


@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore:Converting a tensor")
@pytest.mark.parametrize("way", CAUSES)
def test_a_gradient_without_its_inputs_is_told_the_cause(way):
    model = fcs()
    optimizer = RLS(model)
    take(model, optimizer, *batch(2, 0))
    optimizer.zero_grad()
    way(model, optimizer)
    before = snapshot(model, optimizer)
    with pytest.raises(RuntimeError, match=f"layer '0' .*{CAUSES[way]}"):
        optimizer.step()
    assert identical(before, snapshot(model, optimizer))


def clipped(model):
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def decayed(model):
    for p in model.parameters():
        if p.grad is not None:
            p.grad.add_(p.detach(), alpha=0.1)


def exchanged(model):
    model[0].bias.grad = model[0].bias.grad / 2


@pytest.mark.parametrize("change", [clipped, decayed, exchanged])
@pytest.mark.parametrize("make", [RLS, hybrid])
def test_changes_of_gradients_that_are_not_formed_are_refused(make, change):
    model = fcs()
    optimizer = hybrid(model, 1.0) if make is hybrid else RLS(model, max_grad_norm=1.0)
    backward(model, *batch(2, 0))
    assert model[0].weight.grad is None
    change(model)
    before = snapshot(model, optimizer)
    message = "layer '0' was changed, but under max_grad_norm most of it is not formed"
    with pytest.raises(RuntimeError, match=message):
        optimizer.step()
    assert identical(before, snapshot(model, optimizer))
    optimizer.zero_grad()
    take(model, optimizer, *batch(2, 0))


def test_a_dropped_optimiser_takes_its_hooks_off_the_model():
    model = fcs()
    optimizer = RLS(model)
    backward(model, *batch(2, 0))
    del optimizer
    gc.collect()
    for layer in (model[0], model[2]):
        assert not layer._forward_hooks
        for p in layer.parameters():
            assert not p._post_accumulate_grad_hooks


# Options


def test_weight_decay_is_decoupled():
    models = fcs(), fcs()
    a = RLS(models[0], lr=0.5, weight_decay=0.1, momentum=0.5)
    b = RLS(models[1], lr=0.5, momentum=0.5)
    for s in range(3):
        for model, optimizer in zip(models, (a, b), strict=True):
            optimizer.zero_grad()
            backward(model, *batch(9, s))
        with torch.no_grad():
            for p in models[1].parameters():
                p.mul_(1 - 0.5 * 0.1)
        a.step(), b.step()
    assert identical(snapshot(models[0], a), snapshot(models[1], b))


@pytest.mark.parametrize("kind", [RLS, RunningMeanRLS])
def test_weight_decay_stands_still_with_its_layer(kind):
    model = fcs()
    optimizer = held(kind)(model, weight_decay=0.1)
    take(model, optimizer, *batch(9, 0))
    before = [p.detach().clone() for p in model.parameters()]
    take(model, optimizer, *batch(9, 1), scale=math.nan)
    assert identical(before, list(model.parameters()))


@pytest.mark.parametrize("lr", [0.0, torch.tensor(0.0)])
def test_a_rate_of_zero_moves_nothing_but_P(lr):
    model = fcs()
    optimizer = RLS(model, lr=lr, momentum=0.5)
    before = [p.detach().clone() for p in model.parameters()]
    for s in range(2):
        take(model, optimizer, *batch(9, s))
    assert identical(before, list(model.parameters()))
    assert optimizer.state[model[0].weight]["P"].trace() < 6


@pytest.mark.parametrize("make", [RLS, lambda m, **o: held(RLS)(m, **o)])
@pytest.mark.parametrize("limit", [None, 0.5])
def test_a_rate_in_a_tensor_is_the_number(make, limit):
    found = []
    for lr in (0.3, torch.tensor(0.3, dtype=torch.float64)):
        model = fcs()
        optimizer = make(model, lr=lr, momentum=0.5, max_grad_norm=limit)
        for s in range(3):
            take(model, optimizer, *batch(9, s))
            optimizer.param_groups[0]["lr"] = lr / 2
        found.append(snapshot(model, optimizer))
    assert_close(*found)


def test_rates_that_are_none():
    for lr in (torch.ones(2), torch.ones((), dtype=torch.int64), "1"):
        with pytest.raises(ValueError, match="lr must be >= 0 and finite, or a tensor"):
            RLS(fcs(), lr=lr)


# A gradient penalty


def critic_step(limit, penalty, activation=nn.Tanh):
    """A step of a WGAN's critic, wide enough to leave its gradient unformed."""
    model = randomise(nn.Sequential(nn.Linear(4, 9), activation(), nn.Linear(9, 1)))
    optimizer = RLS(model, momentum=0.5, max_grad_norm=limit)
    for s in range(3):
        optimizer.zero_grad()
        real, fake = randn(3, 4, seed=s), randn(3, 4, seed=50 + s)
        loss = model(fake).mean() - model(real).mean()
        if penalty:
            x = (0.4 * real + 0.6 * fake).requires_grad_()
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            loss = loss + 10 * (slope.norm(dim=1) - 1).square().mean()
        loss.backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("limit", [math.inf, 0.5])
def test_a_gradient_penalty_under_max_grad_norm(limit, activation):
    formed = critic_step(None, True, activation)
    if limit == math.inf:
        assert_close(critic_step(limit, True, activation), formed, 1e-11)
    assert not identical(formed, critic_step(None, False, activation))
    for p in critic_step(limit, True, activation):
        assert p.isfinite().all()


# Rows without a loss


class Tagger(nn.Module):
    """Words (b, T) -> (b, T, classes)."""

    def __init__(self, cell=None):
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.inner = cell(5, 5, batch_first=True) if cell else nn.Linear(5, 5)
        self.cell, self.head = cell, nn.Linear(5, 3)
        randomise(self)

    def forward(self, words):
        y = self.inner(self.embed(words))
        return self.head(torch.tanh(y[0] if self.cell else y))


@FORMS
@pytest.mark.parametrize("cell", [None, nn.GRU, nn.LSTM])
def test_padding_that_is_masked_has_no_part_in_P(cell, limit):
    """Whatever stands in the padding, and however much there is of it."""
    lengths = torch.tensor([4, 2, 3])
    words = torch.randint(7, (3, 4), generator=torch.Generator().manual_seed(0))
    tags = torch.randint(3, (3, 4), generator=torch.Generator().manual_seed(1))
    found = []
    for padding, masked in ((0, True), (5, True), (60, True), (5, False)):
        model = Tagger(cell)
        recurrent = {"layer": "inner"} | ({} if cell else {"time_steps": 1})
        layers = [recurrent, {"layer": "head", "time_steps": 1}]
        rls = RLS(model, layers=layers, momentum=0.5, max_grad_norm=limit)
        optimizer = Hybrid(rls, torch.optim.SGD(model.embed.parameters(), lr=0.1))
        X = torch.cat([words, torch.full((3, padding), 6)], 1)
        mask = torch.arange(X.shape[1]) < lengths[:, None]
        y = torch.cat([tags, torch.full((3, padding), 0)], 1).masked_fill(~mask, -100)
        for _ in range(3):
            optimizer.zero_grad()
            with rls.row_weights(mask if masked else None):
                outputs = model(X)
            cross_entropy(outputs.flatten(0, 1), y.flatten()).backward()
            optimizer.step()
        found.append(snapshot(model, rls))
    for each in found[1:3]:
        assert_close(each, found[0], 1e-12)
    assert not identical(found[1], found[3])


@pytest.mark.parametrize("kind", ["linear", "conv", "rnn", "pooled"])
def test_weights_of_rows_are_repetitions(kind):
    """An example of weight 3 counts as three; also where time stands first."""
    weights, times = torch.tensor([1, 0, 3]), [0, 2, 2, 2]
    make, shape = {
        "linear": (lambda: nn.Linear(4, 3), (4,)),
        "conv": (lambda: nn.Conv1d(2, 3, 2, padding=1), (2, 4)),
        "rnn": (lambda: nn.RNN(4, 3), (4,)),
        "pooled": (lambda: nn.Linear(4, 3), (4,)),
    }[kind]
    x = randn(3, *shape, seed=1)
    if kind == "rnn":
        x = randn(5, 3, 4, seed=1)
    means = []
    for given, w in ((x, weights), (x[:, times] if kind == "rnn" else x[times], None)):
        model = randomise(make())
        optimizer = RLS(model)
        if kind == "pooled" and w is not None:  # weights of (b, T) before a pooling
            w, given = torch.ones(3, 9), x
        with optimizer.row_weights(w):
            y = model(given)
        (y[0] if kind == "rnn" else y).sum().backward()
        means.append([each.x_mean for each in optimizer.pending()])
    if kind == "pooled":
        assert_close(means[0], [torch.cat([x.mean(0), torch.ones(1)])])
    else:
        assert_close(*means)


def test_weights_that_do_not_fit():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    layers = [{"layer": name, "time_steps": 1} for name in "01"]
    optimizer = RLS(model, layers=layers)
    message = (
        r"layer '0' got an input of shape \(2, 5, 4\), to whose rows weights .*\(5, 2\)"
    )
    with optimizer.row_weights(torch.ones(5, 2)):
        with pytest.raises(ValueError, match=message):
            model(torch.ones(2, 5, 4))
    conv = nn.Conv1d(4, 3, 2)
    other = RLS(conv)
    with other.row_weights(torch.ones(2, 5)):
        with pytest.raises(ValueError, match=r"Conv1d, which can weigh examples, not"):
            conv(torch.ones(2, 4, 5))
    with pytest.raises(TypeError, match="weights must be a tensor, got list"):
        with optimizer.row_weights([1.0]):
            pass
    assert all(capture.weights is None for capture in optimizer.captures)
    with pytest.raises(ValueError, match="KailathRLS takes every row as it is"):
        with KailathRLS(fcs()).row_weights(torch.ones(2)):
            pass


# Half precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("limit", [None, 1.0])
@pytest.mark.parametrize("kind", [RLS, held(RLS), RunningMeanRLS])
def test_half_precision_keeps_P_and_a_copy_in_single(dtype, limit, kind):
    """Steps below the resolution of the weights add up in the copy."""
    models = fcs().to(dtype), fcs().to(dtype).float()
    options = {"momentum": 0.5, "max_grad_norm": limit, "lr": 1e-3}
    a, b = (kind(model, **options) for model in models)
    for s in range(30):
        x, target = (each.to(dtype) for each in batch(4, s % 3))
        for model, optimizer in zip(models, (a, b), strict=True):
            p = next(model.parameters())
            take(model, optimizer, x.to(p), target.to(p))
    for p, q in zip(*(model.parameters() for model in models), strict=True):
        assert p.dtype == dtype
        torch.testing.assert_close(p.float(), q, rtol=0.02, atol=0.02)
    for state in a.state.values():
        assert {v.dtype for v in state.values()} == {torch.float32}
        assert state["step"] == 30
    masters, exact = a.state[models[0][0].weight]["master"], models[1][0]
    exact = torch.cat([exact.weight, exact.bias[:, None]], 1)
    torch.testing.assert_close(masters, exact, rtol=5e-3, atol=5e-3)


def test_half_precision_resumes_to_the_last_bit(tmp_path):
    def make():
        model = fcs().bfloat16()
        return model, RLS(model, momentum=0.5, max_grad_norm=1.0)

    def run(model, optimizer, steps):
        for s in steps:
            take(model, optimizer, *(each.bfloat16() for each in batch(4, s)))

    assert_resumes(make, run, tmp_path / "run.pt")


def test_weights_that_were_changed_win_over_the_copy():
    model = fcs().bfloat16()
    optimizer = RLS(model, lr=1e-4)
    take(model, optimizer, *(each.bfloat16() for each in batch(4, 0)))
    with torch.no_grad():
        model[0].weight.fill_(0.25)
    take(model, optimizer, *(each.bfloat16() for each in batch(4, 1)))
    torch.testing.assert_close(model[0].weight, torch.full((7, 5), 0.25).bfloat16())


# Groups


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [RLS, held(RLS)])
def test_groups_are_layers_of_their_own(kind, bias, transposed):
    make = nn.ConvTranspose2d if transposed else nn.Conv2d
    whole = randomise(nn.Sequential(make(6, 4, 3, padding=1, groups=2, bias=bias)))
    parts = nn.ModuleList(make(3, 2, 3, padding=1, bias=bias) for _ in range(2))
    parts.double()
    with torch.no_grad():
        for i, part in enumerate(parts):
            each = slice(3 * i, 3 * i + 3) if transposed else slice(2 * i, 2 * i + 2)
            part.weight.copy_(whole[0].weight[each])
            if bias:
                part.bias.copy_(whole[0].bias[2 * i : 2 * i + 2])
    a, b = kind(whole, **RULE), kind(parts, **RULE)
    for s in range(3):
        x, target = randn(4, 6, 5, 5, seed=s) + 0.5, randn(4, 4, 5, 5, seed=9)
        a.zero_grad(), b.zero_grad()
        loss_mse(whole(x), target).backward()
        y = torch.cat(
            [part(x[:, 3 * i : 3 * i + 3]) for i, part in enumerate(parts)], 1
        )
        loss_mse(y, target).backward()
        a.step(), b.step()
    assert_close([whole[0].weight], [torch.cat([part.weight for part in parts])], 1e-11)
    P = torch.stack([b.state[part.weight]["P"] for part in parts])
    assert_close([a.state[whole[0].weight]["P"]], [P], 1e-11)
    again = kind(copy.deepcopy(whole))
    again.load_state_dict(a.state_dict())


def test_depthwise_layers_fail_and_reset_like_others():
    model = randomise(nn.Sequential(nn.Conv1d(3, 3, 2, groups=3), nn.Flatten()))
    optimizer = RLS(model, momentum=0.5, l1=1e-3)
    data = randn(4, 3, 4), randn(4, 9)
    take(model, optimizer, *data)
    P = optimizer.state[model[0].weight]["P"]
    assert P.shape == (3, 3, 3)
    P[1].neg_()
    with pytest.raises(NumericalError, match="h, which must be at least forgetting"):
        take(model, optimizer, *data)
    optimizer.on_failure = "reset"
    take(model, optimizer, *data)
    assert torch.equal(optimizer.state[model[0].weight]["P"][1], torch.eye(3).double())
    with pytest.raises(
        ValueError, match="RunningMeanRLS cannot train '0': it has groups"
    ):
        RunningMeanRLS(model)


# One line for a model


def small_gpt(tied=True):
    embed, head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
    model = nn.Sequential(embed, nn.Linear(4, 4), nn.LayerNorm(4), head)
    if tied:
        head.weight = embed.weight
    return model


def test_muon_gets_matrices_and_adamw_the_rest():
    model = small_gpt()
    optimizer = Hybrid.for_model(model, partial(torch.optim.Muon, lr=0.01))
    kinds = [type(each).__name__ for each in optimizer.parts]
    assert kinds == ["RLS", "Muon", "AdamW"]
    assert [len(g["params"]) for g in optimizer.param_groups] == [2, 1, 2]
    before = [p.detach().clone() for p in model.parameters()]
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.arange(6)).logsumexp(1).mean().backward()
        optimizer.step()
    assert not any(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (torch.optim.AdamW([torch.ones(1)]), "a class or a function: rest=AdamW, or"),
        (None, "rest must be callable, parameters -> optimizer, got None"),
    ],
)
def test_the_rest_that_is_no_maker(rest, message):
    with pytest.raises(TypeError, match=message):
        Hybrid.for_model(small_gpt(), rest)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (fcs().to(torch.cfloat), "layer '0': its dtype is torch.complex64; RLS trains"),
        (nn.Sequential(nn.LayerNorm(3)), "layer '0': it is a LayerNorm, and RLS knows"),
        (small_gpt()[::3], "layer '0': it is a Embedding.*'3': too wide, or shared"),
    ],
)
def test_why_there_is_nothing_to_train(model, message):
    with pytest.raises(ValueError, match=f"nothing for RLS to train .*{message}"):
        Hybrid.for_model(model)


class DTensor(nn.Parameter):
    """Stands in for the parameters of fully_shard."""


def test_parameters_in_pieces_are_refused_at_once():
    model = fcs()
    model[0].weight = DTensor(model[0].weight.detach())
    message = r"'0\.weight' is cut in pieces over the workers \(FSDP\)"
    for make in (RLS, Hybrid.for_model):
        with pytest.raises(ValueError, match=message):
            make(model)


def test_a_bfloat16_model_trains_in_one_line():
    model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3)).bfloat16()
    optimizer = Hybrid.for_model(model, max_grad_norm=1.0)
    x = randn(8, 5).bfloat16()
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_last_outputs_of_a_grouped_model_and_recurrent_layers_together():
    """Blocks of several shapes in one step."""
    conv = nn.Conv1d(4, 4, 3, padding=1, groups=2)

    class Turned(nn.Module):
        def forward(self, x):
            return x.transpose(1, 2)

    model = nn.Sequential(conv, Turned(), nn.GRU(4, 5, batch_first=True), LastOutput())
    randomise(model)
    optimizer = RLS(model, **RULE, max_grad_norm=0.5)
    for s in range(3):
        take(model, optimizer, randn(3, 4, 6, seed=s), randn(3, 5, seed=9))
    assert len(optimizer.blocks) == 3
