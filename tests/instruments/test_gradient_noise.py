"""The live noise of a gradient, against explicit gradients of single examples."""

import copy
import gc
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.nn.utils.rnn import pack_sequence
from torch.utils.checkpoint import checkpoint

from labkit.instruments import GradientNoise, Noise, gradient_variance
from labkit.rls import RLS
from tests.draws import randn

F64 = torch.float64
close = torch.testing.assert_close


def randomise(model, seed=7):
    model.double()
    for k, p in enumerate(model.parameters()):
        p.data = 0.5 * randn(*p.shape, seed=seed + k)
    return model


def square(outputs, targets):
    """Loss of examples, (M,)."""
    return (outputs - targets).square().flatten(1).sum(1)


def explicit(model, x, targets, dim=0):
    """Gradients of single examples, {parameter name: (M, ...)}, one by one."""
    twin = copy.deepcopy(model)
    weights = {n: p for n, p in twin.named_parameters() if p.requires_grad}
    rows = []
    for one, target in zip(x.movedim(dim, 0), targets, strict=True):
        value = square(twin(one.unsqueeze(dim)).movedim(dim, 0), target[None]).sum()
        rows.append(torch.autograd.grad(value, [*weights.values()]))
    stacked = map(torch.stack, zip(*rows, strict=True))
    return dict(zip(weights, stacked, strict=True))


def assert_equal(noise: Noise, gradients):
    """All numbers of a Noise, from (M, P) gradients, by other formulas."""
    g = torch.cat([each.flatten(1) for each in gradients], 1)
    M = len(g)
    mean = g.mean(0)
    variance = gradient_variance(g)
    # McCandlish et al., A.1, at batch sizes M and 1
    signal = (M * mean @ mean - (g * g).sum(1).mean()) / (M - 1)
    expected = {
        "squares": (g * g).sum(),
        "norm2": mean @ mean,
        "variance": variance,
        "signal": signal,
        "noise_scale": variance / signal if signal > 0 else torch.tensor(math.inf),
    }
    assert noise.examples == M
    for name, value in expected.items():
        found = getattr(noise, name)
        assert found.shape == () and not found.requires_grad
        rtol = 1e-10 if "scale" not in name else 1e-8  # S may be a small difference
        atol = 1e-10 * float(noise.norm2) if name == "signal" else 0
        close(found, value.to(found), rtol=rtol, atol=atol)


def check(model, x, dim=0, **options):
    """Measure one pass and compare every layer and the total with torch.func."""
    model = randomise(model)
    M = x.shape[dim]
    with torch.no_grad():
        y = model(x).movedim(dim, 0)
    targets = randn(*y.shape, seed=99)
    single = explicit(model, x, targets, dim)
    for reduction in ("mean", "sum"):
        model.zero_grad()
        noise = GradientNoise(model, reduction=reduction, **options)
        total = square(model(x).movedim(dim, 0), targets).sum()
        (total / M if reduction == "mean" else total).backward()
        assert_equal(noise.total, single.values())
        for name, found in noise.per_layer.items():
            prefix = f"{name}." if name else ""
            assert_equal(found, [g for n, g in single.items() if n.startswith(prefix)])
        noise.close()
    return noise


# Every layer kind against torch.func


class Sequences(nn.Module):
    """A recurrent layer, with its outputs or its last states as outputs."""

    def __init__(self, layer, read="y", start=False):
        super().__init__()
        self.layer, self.read, self.start = layer, read, start

    def forward(self, x):
        dim = 0 if self.layer.batch_first else 1
        M, hx = x.shape[dim], None
        if self.start:
            h = torch.linspace(-1, 1, self.layer.hidden_size, dtype=x.dtype)
            h = h.expand(1, M, -1)
            hx = (h, 0.5 * h) if isinstance(self.layer, nn.LSTM) else h
        y, last = self.layer(input=x, hx=hx)
        last = torch.cat(last, 2) if isinstance(last, tuple) else last
        last = last.movedim(1, dim)
        if self.read == "y":
            return y.relu_()
        if self.read == "last":
            return last
        return (y * last.narrow(-1, 0, y.shape[-1])).cumsum(1 - dim)


class Words(nn.Module):
    """Two embeddings of the indices that the inputs are rounded to."""

    def __init__(self, **options):
        super().__init__()
        self.one, self.two = nn.Embedding(4, 3, **options), nn.Embedding(4, 3)

    def forward(self, x):
        tokens = (x.abs() * 2).long().clamp(max=3)
        return self.one(tokens) * self.two(tokens).cumsum(-1) + self.one(3 - tokens)


def dense(n, N, J, **options):
    first, last = nn.Linear(n, N, **options), nn.Linear(N, J, **options)
    return nn.Sequential(first, nn.ReLU(inplace=True), last)


def flat(kind, C, N, size, **options):
    layer = kind(C, N, size, **options)
    return nn.Sequential(layer, nn.ReLU(inplace=True), nn.Flatten())


def twice(layer):
    return nn.Sequential(layer, nn.Tanh(), layer)


# what is watched -> the model and the shape of its inputs
LAYERS = {
    "Linear": (lambda: dense(5, 4, 3), (6, 5)),
    "Linear, wide": (lambda: dense(40, 30, 2, bias=False), (6, 40)),
    "Linear on sequences": (lambda: dense(5, 9, 3), (6, 4, 5)),
    "Linear on long sequences": (lambda: dense(5, 9, 3), (6, 50, 5)),
    "Conv1d": (lambda: flat(nn.Conv1d, 2, 3, 3, stride=2, padding=1), (5, 2, 7)),
    "Conv2d, its last row and column not seen": (
        lambda: flat(nn.Conv2d, 2, 3, 3, stride=2),
        (5, 2, 6, 6),
    ),
    "Conv2d, dilated, uneven padding": (
        lambda: flat(nn.Conv2d, 2, 3, (2, 4), padding="same", dilation=(1, 2)),
        (5, 2, 7, 7),
    ),
    "Conv2d by Gram matrices": (lambda: flat(nn.Conv2d, 8, 24, 3), (5, 8, 4, 4)),
    "Conv2d, called twice": (
        lambda: twice(nn.Conv2d(2, 2, 3, padding=1)),
        (5, 2, 4, 4),
    ),
    "Conv3d": (
        lambda: flat(nn.Conv3d, 2, 3, (2, 1, 3), padding=(1, 0, 2), stride=(1, 2, 2)),
        (4, 2, 4, 3, 5),
    ),
    "Embedding of words": (Words, (6,)),
    "Embedding of texts": (lambda: Words(padding_idx=1), (6, 5)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("case", LAYERS)
def test_a_layer_kind_against_gradients_of_single_examples(case):
    make, shape = LAYERS[case]
    model = make()
    layers = {n for n, m in model.named_modules() if [*m.parameters(recurse=False)]}
    assert {*check(model, randn(*shape)).per_layer} == layers


@pytest.mark.parametrize("case", ["Linear on sequences", "Embedding of texts"])
def test_inputs_with_the_time_first(case):
    check(LAYERS[case][0](), randn(4, 6, 5), dim=1, batch_first=False)


@pytest.mark.parametrize("read", ["y", "last", "both"])
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "bias": False}])
@pytest.mark.parametrize("kind", ["tanh", "relu", "lstm"])
def test_recurrent(kind, options, read):
    for T, n, H, start in [(7, 3, 4, False), (2, 9, 12, True), (1, 3, 2, True)]:
        named = {} if kind == "lstm" else {"nonlinearity": kind}
        layer = (nn.LSTM if kind == "lstm" else nn.RNN)(n, H, **named, **options)
        dim = 0 if layer.batch_first else 1
        x = randn(*((5, T, n) if layer.batch_first else (T, 5, n)))
        check(Sequences(layer, read, start), x, dim)


class OneNode(torch.autograd.Function):
    """Outputs of one node, as cuDNN's: what the loss does not read gets no gradient."""

    @staticmethod
    def forward(ctx, *outputs):
        ctx.set_materialize_grads(False)
        return tuple(each.clone() for each in outputs)

    @staticmethod
    def backward(ctx, *gradients):
        return gradients


@pytest.mark.parametrize("read", ["y", "last", "both"])
def test_an_output_of_a_recurrent_layer_may_have_no_gradient(read, monkeypatch):
    lstm = torch._VF.lstm
    as_cudnn = lambda *given: OneNode.apply(*lstm(*given))  # noqa: E731
    monkeypatch.setattr(torch._VF, "lstm", as_cudnn, raising=False)
    test_recurrent("lstm", {}, read)


def test_what_is_frozen_is_left_out():
    for frozen in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"):
        model = Sequences(nn.LSTM(3, 4))
        getattr(model.layer, frozen).requires_grad_(False)
        check(model, randn(7, 5, 3), dim=1)
    model = dense(5, 8, 3)
    model[0].requires_grad_(False)
    assert {*check(model, randn(6, 5), layers=["0", model[2]]).per_layer} == {"2"}
    model[0].bias.requires_grad_(True)
    assert {*check(model, randn(6, 5)).per_layer} == {"0", "2"}


def test_one_example_has_no_variance():
    alone = {nn.Linear(3, 2): (3,), nn.RNN(3, 2): (4, 3), nn.LSTM(3, 2): (4, 3)}
    for model, shape in (alone | {nn.Conv2d(1, 2, 2): (1, 3, 3)}).items():
        noise = GradientNoise(model.double())
        y = model(randn(*shape))
        (y[0] if isinstance(y, tuple) else y).square().sum().backward()
        g2 = sum(p.grad.square().sum() for p in model.parameters())
        assert noise.total.examples == 1
        close(noise.total.norm2, g2)
        close(noise.total.squares, g2)
        assert noise.variance.isnan() and noise.noise_scale.isnan()


# The estimates


def test_the_estimates_are_unbiased():
    # All 6^2 samples of size 2 with replacement: the mean is the expectation.
    model = randomise(nn.Linear(3, 2))
    x, targets = randn(6, 3), randn(6, 2, seed=1)
    g = torch.cat([e.flatten(1) for e in explicit(model, x, targets).values()], 1)
    mean = g.mean(0)
    trace = (g - mean).square().sum(1).mean()
    noise = GradientNoise(model, every=1)
    found = []
    for pair in torch.cartesian_prod(torch.arange(6), torch.arange(6)):
        square(model(x[pair]), targets[pair]).mean().backward()
        found.append((noise.variance, noise.total.signal))
    variance, signal = torch.tensor(found, dtype=F64).mean(0)
    close(variance, trace)
    close(signal, mean.square().sum())


def test_no_signal_is_an_infinite_scale_and_no_gradient_is_nan():
    model = nn.Linear(1, 1, bias=False)
    noise = GradientNoise(model, every=1)
    signs = torch.tensor([[1.0], [-1.0]])
    (model(torch.ones(2, 1)) * signs).mean().backward()
    assert noise.noise_scale == math.inf and noise.total.signal == -1
    (0 * model(torch.ones(2, 1))).mean().backward()
    assert noise.variance == 0 and noise.noise_scale.isnan()


# The schedule


def step(model, x=None):
    model(randn(4, 3) if x is None else x).square().mean().backward()


def watched(**options):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return randomise(model), GradientNoise(model, **options)


@pytest.mark.parametrize("every", [1, 3])
def test_schedule(every):
    model, noise = watched(every=every)
    assert noise.measured is None and noise.per_layer == {}
    seen = []
    for i in range(8):
        step(model, randn(4, 3, seed=i))
        seen.append((noise.measured, noise.variance.item()))
    assert [m for m, _ in seen] == [i // every * every for i in range(8)]
    assert noise.passes == 8 and len(set(seen)) == len(range(0, 8, every))


def test_a_backward_pass_to_the_inputs_alone_has_no_effect():
    model, noise = watched(every=1)
    x = randn(7, 3).requires_grad_()
    torch.autograd.grad(model(x).sum(), x)
    step(model)
    assert noise.total.examples == 4


def test_while_a_pass_is_under_way_the_last_measurement_is_shown():
    model, noise = watched(every=1)
    step(model)
    before = noise.variance
    y = model(randn(4, 3, seed=1))
    assert noise.measured == 0 and torch.equal(noise.variance, before)
    y.sum().backward()
    assert noise.measured == 1 and not torch.equal(noise.variance, before)
    noise.close()
    after = noise.variance
    step(model, randn(4, 3, seed=2))
    assert noise.measured == 1 and torch.equal(noise.variance, after)
    assert not model._forward_pre_hooks and not model[0]._forward_hooks


# Hygiene


def evaluate(model):
    model.eval()
    step(model, randn(9, 3))
    model.train()


def discard(model):
    """A pass without a backward pass, with gradients and without."""
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            model(randn(9, 3))


def deep_copy(model):
    step(copy.deepcopy(model), randn(9, 3))


@pytest.mark.parametrize("other", [evaluate, discard, deep_copy])
def test_what_else_the_model_does_is_not_measured(other):
    model, noise = watched()
    other(model)  # before a pass, inside it, and after it
    y = model(randn(4, 3))
    other(model)
    y.square().mean().backward()
    other(model)
    twin, expected = watched()
    step(twin)
    assert noise.total.examples == 4
    close(noise.variance, expected.variance, rtol=1e-12, atol=0)


def test_accumulated_passes_are_measured_one_by_one():
    model, noise = watched(every=2)
    whole = explicit(model, randn(4, 3, seed=2), torch.zeros(4, 2, dtype=F64))
    for i in range(4):  # no zero_grad: .grad adds up
        loss = square(model(randn(4, 3, seed=i)), torch.zeros(4, 2, dtype=F64))
        (loss.mean() / 4).backward()
    assert noise.measured == 2
    assert_equal(noise.total, [g / 4 for g in whole.values()])


def test_calls_before_one_backward_pass_are_positions():
    model, noise = watched()
    a, b = randn(4, 3), randn(4, 3, seed=1)
    loss = model(a).square().sum(1) + model(b).square().sum(1)
    single = explicit(model, torch.stack([a, b], 1), torch.zeros(4, 2, 2, dtype=F64))
    loss.mean().backward()
    assert_equal(noise.total, single.values())


def test_a_first_backward_pass_by_the_inputs_counts_only_once():
    model, noise = watched()
    x = randn(4, 3).requires_grad_()
    loss = model(x).square().mean()
    torch.autograd.grad(loss, x, retain_graph=True)
    assert noise.measured is None
    weights = list(model.parameters())
    torch.autograd.grad(loss, weights, retain_graph=True)
    found = noise.variance
    loss.backward()  # measured already
    twin, expected = watched()
    step(twin)
    close(found, expected.variance)
    assert torch.equal(noise.variance, found)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_pass_counts_once(use_reentrant):
    (model, noise), (twin, expected) = watched(every=2), watched(every=2)
    for seed in range(5):
        x = randn(4, 3, seed=seed).requires_grad_()
        y = checkpoint(model, x, use_reentrant=use_reentrant)
        y.square().mean().backward()
        step(twin, x.detach())
        assert noise.passes == expected.passes == seed + 1
        assert noise.measured == expected.measured
        close(noise.variance, expected.variance)


def test_an_update_within_the_backward_pass_comes_too_late_to_matter():
    def update(p):
        with torch.no_grad():
            p.sub_(p.grad)

    model = randomise(nn.LSTM(3, 4))
    twin = copy.deepcopy(model)
    for p in twin.parameters():
        p.register_post_accumulate_grad_hook(update)
    found = []
    for each in (model, twin):
        noise = GradientNoise(each)
        each(randn(5, 4, 3))[0].square().sum().backward()
        found.append(noise.variance)
    assert torch.equal(*found) and not torch.equal(model.bias_hh_l0, twin.bias_hh_l0)


def test_the_instrument_and_the_model_let_each_other_go():
    model, noise = watched()
    y = model(randn(4, 3))
    del noise
    gc.collect()
    y.sum().backward()
    step(model)
    assert not model._forward_pre_hooks and not model[0]._forward_hooks
    two = GradientNoise(model, every=1), GradientNoise(model, every=1)
    step(model)
    assert torch.equal(two[0].variance, two[1].variance)


class Mixed(nn.Module):
    """Every kind of layer, with dropout drawing from the global generator."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.rnn = nn.RNN(8, 5, batch_first=True)
        self.lstm = nn.LSTM(5, 6, batch_first=True)
        self.drop, self.out = nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x):
        x = F.relu(self.conv(x), inplace=True).transpose(1, 2).flatten(2)
        y, _ = self.lstm(self.rnn(x)[0])
        return self.out(self.drop(y)).mean(1)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("every", [1, 2])
def test_weights_are_bit_identical_with_and_without(every, dtype):
    results = []
    for watched in (False, True):
        torch.manual_seed(0)
        model = Mixed().to(dtype)
        noise = GradientNoise(model, every=every) if watched else None
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses = []
        for i in range(6):
            optimizer.zero_grad()
            y = model(randn(8, 1, 6, 4, seed=i).to(dtype))
            loss = F.cross_entropy(y, torch.arange(8) % 3)
            loss.backward()
            if watched:
                assert noise.variance.dtype is dtype and noise.variance > 0
            optimizer.step()
            losses.append(loss.detach())
        results.append([*losses, *(p.detach() for p in model.parameters())])
    assert noise.measured == 5 // every * every and len(noise.per_layer) == 4
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_half_precision_is_measured_in_float32():
    model = nn.Linear(64, 64).bfloat16()
    noise = GradientNoise(model, reduction="sum")
    (1e3 * model(1e3 * torch.ones(8, 64).bfloat16())).sum().backward()
    assert noise.variance.dtype is torch.float32 and noise.total.norm2.isfinite()


# What is refused


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            nn.Tanh(),
            "it is a Tanh, and GradientNoise reads Linear, .* opacus and backp",
        ),
        (nn.GRU(2, 2), "it is a GRU"),
        (nn.Conv2d(2, 2, 1, groups=2), "groups=2 is not written"),
        (nn.Embedding(3, 2, max_norm=1.0), "max_norm=1.0 is not written"),
        (nn.RNN(2, 2, num_layers=2), "num_layers=2"),
        (prune.identity(nn.Linear(2, 2), "weight"), "it has a parameter 'weight_orig'"),
    ],
)
def test_layers_that_are_not_understood_are_refused_or_skipped(layer, message):
    model = nn.Sequential(nn.Linear(2, 2), layer)
    with pytest.raises(ValueError, match=f"layer '1' cannot be watched: .*{message}"):
        GradientNoise(model, layers=["0", "1"])
    with pytest.warns(UserWarning, match=f"leaves out layers '1': .*{message}"):
        noise = GradientNoise(model, layers=["0", "1"], skip_unsupported=True)
    assert [*noise.skipped] == ["1"]
    with pytest.raises(ValueError, match="layer '1' cannot be watched"):
        GradientNoise(model, layers=["1"], skip_unsupported=True)


def test_a_batch_norm_that_mixes_the_examples_is_refused():
    norm = nn.BatchNorm1d(4, affine=False)
    model = nn.Sequential(nn.Linear(3, 4), norm).double()
    with pytest.raises(
        ValueError, match="'1' is a BatchNorm1d that mixes the examples"
    ):
        GradientNoise(model)
    norm.eval()
    noise = GradientNoise(model, every=1)
    step(model)
    assert {*noise.per_layer} == {"0"}
    model.train()
    with pytest.raises(ValueError, match=r"'1' is a BatchNorm1d that mixes .* evalu"):
        model(randn(5, 3))


def test_layers_that_share_a_weight_are_refused_or_left_out():
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3), nn.Linear(3, 5))
    model[2].weight = model[0].weight
    for layers in (None, ["2"]):
        with pytest.raises(ValueError, match="'0' and '2' share a parameter"):
            GradientNoise(model, layers=layers)
    message = "'0': layers '0' and '2' share a parameter.*'2': layers '0' and '2'"
    with pytest.warns(UserWarning, match=message):
        skipping = GradientNoise(model, skip_unsupported=True)
    naming = GradientNoise(model, layers=["1"])
    model(torch.arange(5)).square().sum().backward()
    assert {*skipping.skipped} == {"0", "2"} and not naming.skipped
    for noise in (skipping, naming):
        assert {*noise.per_layer} == {"1"} and noise.variance > 0
    assert torch.equal(skipping.variance, naming.variance)


class Past(nn.Module):
    """A network of words, and perhaps positions, that a function calls."""

    def __init__(self, read, index=None):
        super().__init__()
        self.wte, self.out, self.read = nn.Embedding(6, 3), nn.Linear(3, 3), read
        self.index, self.pos = index, None if index is None else nn.Embedding(4, 3)

    def forward(self, tokens):
        return self.read(self, tokens)


def tied(net, tokens):
    return net.out(net.wte(tokens)) @ net.wte.weight.T


def decoded(net, tokens):
    return F.linear(net.out(net.wte(tokens)), net.out.weight.T)


def sliced(net, tokens):
    return net.out(net.wte(tokens) + net.wte.weight[:1])


def penalised(net, tokens):
    return net.out(net.wte(tokens)) + net.out.bias.square().sum()


def twofold(net, tokens):
    return net.out(net.wte(tokens) + net.wte(torch.arange(4)[None]))


def placed(net, tokens):
    return net.out(net.wte(tokens) + net.pos(net.index))


T4 = torch.arange(4)
# the network and its rows, the layer that is left out, and a part of the reason
PAST = {
    "a tied head": (tied, None, 4, "wte", "do not add up to its gradient"),
    "a decoder": (decoded, None, 4, "out", "do not add up to its gradient"),
    "a sliced table": (sliced, None, 4, "wte", "do not add up to its gradient"),
    "a penalty": (penalised, None, 4, "out", "do not add up to its gradient"),
    "one table for both": (twofold, None, 3, "wte", "do not add up|table of pos"),
    "positions (1, T)": (placed, T4[None], 3, "pos", "1 indices need not be .* of 3"),
    "positions (T,)": (placed, T4, 3, "pos", "4 indices need not be those of 3"),
    "as many rows": (placed, T4, 4, "pos", "as in a table of positions"),
}


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("case", PAST)
def test_a_layer_is_left_out_whose_gradient_is_not_all_of_examples(case, skip):
    read, index, rows, left, why = PAST[case]
    model = randomise(Past(read, index))
    tokens = torch.tensor([[0, 1, 2, 2], [3, 3, 5, 0], [1, 4, 4, 4], [5, 0, 1, 2]])
    tokens = tokens[:rows]
    single = explicit(model, tokens, torch.zeros(rows, 1, 1))
    kept = {n: g for n, g in single.items() if not n.startswith(left)}
    noise = GradientNoise(model, every=1, reduction="sum", skip_unsupported=skip)
    model(tokens).square().sum().backward()
    with pytest.warns(UserWarning, match=f"leaves out layers '{left}': .*({why})"):
        assert noise.variance > 0
    for _ in range(2):  # the layer is not watched again, and nothing more is said
        assert [*noise.skipped] == [left] and left not in noise.per_layer
        assert_equal(noise.total, kept.values())
        model(tokens).square().sum().backward()


def test_inputs_whose_examples_cannot_be_told_are_refused():
    noise = GradientNoise(model := dense(3, 4, 2).insert(1, nn.Flatten(0, 1)))
    with pytest.raises(ValueError, match=r"layer '0' saw 5 examples, others .* 10"):
        model(torch.ones(5, 2, 3)).sum().backward()
    noise = GradientNoise(model := nn.LSTM(3, 2))
    with pytest.raises(ValueError, match="got a PackedSequence"):
        model(pack_sequence([torch.ones(3, 3), torch.ones(2, 3)]))
    del noise


@pytest.mark.parametrize("clip", [None, 1.0])
def test_an_optimiser_made_later_hides_no_layer(clip):
    """With a clip RLS forms no gradient of wide layers and puts outputs of its own."""
    layers = nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 30), nn.Linear(30, 2)
    model = randomise(nn.Sequential(*layers))
    plain = copy.deepcopy(model)
    noise, expected = (GradientNoise(each, every=1) for each in (model, plain))
    rls = RLS(model, max_grad_norm=clip)
    for _ in range(2):
        step(model)
        step(plain)
        assert (model[2].weight.grad is None) == (clip is not None)
        assert noise.per_layer.keys() == expected.per_layer.keys() == {"0", "2", "3"}
        close(noise.variance, expected.variance, rtol=1e-12, atol=0)
        rls.zero_grad()
