"""The noise of more layer kinds, against gradients of single examples."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from labkit.instruments import GradientNoise

from .test_gradient_noise import Sequences, check, close, randn, randomise

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


class Words(nn.Module):
    """Two embeddings of the indices that the inputs are rounded to."""

    def __init__(self, **options):
        super().__init__()
        self.one, self.two = nn.Embedding(4, 3, **options), nn.Embedding(4, 3)

    def forward(self, x):
        tokens = (x.abs() * 2).long().clamp(max=3)
        return self.one(tokens) * self.two(tokens).cumsum(-1) + self.one(3 - tokens)


@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 5, 2)])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"sparse": False}])
def test_embedding(shape, options):
    assert len(check(Words(**options), randn(*shape)).per_layer) == 2
    if len(shape) > 1:
        check(Words(**options), randn(*shape).transpose(0, 1), 1, batch_first=False)


def stored(norm):
    """In evaluation mode, with statistics of its own."""
    norm.eval().running_mean.uniform_(-1, 1)
    norm.running_var.uniform_(0.5, 2)
    return norm


def instances():
    return nn.InstanceNorm1d(4, affine=True, track_running_stats=True)


NORMS = {
    "LayerNorm": (lambda: nn.LayerNorm(5), (6, 5)),
    "LayerNorm on sequences": (lambda: nn.LayerNorm(5), (6, 4, 5)),
    "LayerNorm of maps": (lambda: nn.LayerNorm((4, 5)), (6, 3, 4, 5)),
    "LayerNorm without bias": (lambda: nn.LayerNorm(5, bias=False), (6, 4, 5)),
    "RMSNorm": (lambda: nn.RMSNorm(5), (6, 4, 5)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (6, 4, 3, 2)),
    "BatchNorm1d": (lambda: stored(nn.BatchNorm1d(5)), (6, 5)),
    "BatchNorm1d on sequences": (lambda: stored(nn.BatchNorm1d(4)), (6, 4, 5)),
    "BatchNorm2d": (lambda: stored(nn.BatchNorm2d(4)), (6, 4, 3, 2)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(4, affine=True), (6, 4, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), (6, 4, 3, 2)),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(2, affine=True), (6, 2, 3, 2, 2)),
    "InstanceNorm, eval": (lambda: nn.InstanceNorm1d(4, affine=True).eval(), (6, 4, 5)),
    "InstanceNorm, stored": (lambda: stored(instances()), (6, 4, 5)),
    "InstanceNorm, storing": (lambda: stored(instances()).train(), (6, 4, 5)),
}


@pytest.mark.parametrize("case", NORMS)
def test_norms(case):
    make, shape = NORMS[case]
    torch.manual_seed(0)
    norm = make()
    model = nn.Sequential(nn.Tanh(), norm, nn.Softplus())
    check(model, randn(*shape))
    if case == "LayerNorm on sequences":
        check(model, randn(*shape).transpose(0, 1), 1, batch_first=False)
    twice = nn.Sequential(norm, nn.Tanh(), norm)
    check(twice, randn(*shape))


CONV = [{}, {"stride": 2, "padding": 1}, {"padding": "same", "dilation": 2}]
CONV += [{"bias": False}, {"out_channels": 24, "in_channels": 8}]


@pytest.mark.parametrize("options", CONV)
def test_conv1d(options):
    options = {"in_channels": 2, "out_channels": 3, "kernel_size": 3} | options
    model = nn.Sequential(nn.Conv1d(**options), nn.ReLU(inplace=True), nn.Flatten())
    check(model, randn(5, options["in_channels"], 7))


MAPS = [*CONV, {"kernel_size": (2, 1, 3), "padding": (1, 0, 2), "stride": (1, 2, 2)}]
MAPS += [{"kernel_size": 1, "out_channels": 2}]  # forming the gradients is cheaper
TRANSPOSED = [each for each in MAPS if each.get("padding") != "same"]
TRANSPOSED += [
    {"stride": 2, "padding": 1, "output_padding": 1},
    {"padding": 1, "dilation": 3, "output_padding": 2},  # places that no tap reaches
    {"stride": 3, "kernel_size": 2},
    {"kernel_size": 1, "padding": 1, "stride": 2, "output_padding": 1},
]
LAYERS = [(nn.Conv3d, each) for each in MAPS]
LAYERS += [
    (kind, each)
    for kind in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    for each in TRANSPOSED
    if kind is nn.ConvTranspose3d or not isinstance(each.get("stride"), tuple)
]


@pytest.mark.parametrize(("kind", "options"), LAYERS)
def test_maps_of_one_to_three_dimensions(kind, options):
    options = {"in_channels": 2, "out_channels": 3, "kernel_size": 3} | options
    sides = int(kind.__name__[-2])
    shape = 4, options["in_channels"], *(4, 3, 5)[-sides:]
    model = nn.Sequential(kind(**options), nn.ReLU(inplace=True), nn.Flatten())
    check(model, randn(*shape))
    noise = GradientNoise(model[0])
    model.zero_grad()
    model[0](
        randn(*shape)[0]
    ).square().sum().backward()  # one example, without its axis
    assert noise.total.examples == 1
    close(noise.total.squares, sum(p.grad.square().sum() for p in model.parameters()))


class Grown(nn.Module):
    """A transposed layer that is told the size it should give, and called twice."""

    def __init__(self):
        super().__init__()
        self.layer = nn.ConvTranspose2d(2, 2, 3, stride=2)

    def forward(self, x):
        y = self.layer(x, output_size=[8, 7])
        return self.layer(y.tanh()).flatten(1)


def test_a_transposed_layer_of_a_given_size_called_twice():
    check(Grown(), randn(4, 2, 3, 3))


@pytest.mark.parametrize("read", ["y", "last", "both"])
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "bias": False}])
def test_gru(options, read):
    for T, n, H, start in [(7, 3, 4, False), (2, 9, 12, True), (1, 3, 2, True)]:
        layer = nn.GRU(n, H, **options)
        dim = 0 if layer.batch_first else 1
        x = randn(*((5, T, n) if layer.batch_first else (T, 5, n)))
        check(Sequences(layer, read, start), x, dim)


@pytest.mark.parametrize("frozen", ["weight_ih_l0", "weight_hh_l0", "bias_hh_l0"])
def test_frozen_parameters_of_a_gru_are_left_out(frozen):
    model = Sequences(nn.GRU(3, 4))
    getattr(model.layer, frozen).requires_grad_(False)
    check(model, randn(7, 5, 3), dim=1)


class Attention(nn.Module):
    """Attention of a sequence to itself or to another, with masks."""

    def __init__(self, mask=None, cross=False, weights=False, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, **options)
        self.mask, self.cross, self.weights = mask, cross, weights

    def forward(self, x):
        batch_first, length = self.attention.batch_first, x.shape[1]
        length = length if batch_first else x.shape[0]
        masks = {}
        if self.mask == "causal":
            later = torch.ones(length, length, dtype=torch.bool).triu(1)
            masks = {"attn_mask": later, "is_causal": True}
        if self.mask == "padding":
            first = x[..., 0] if batch_first else x[..., 0].T
            away = torch.zeros_like(first, dtype=torch.bool)
            away[:, -1] = True
            masks = {"key_padding_mask": away, "attn_mask": x.new_ones(length, length)}
            masks["key_padding_mask"] = x.new_zeros(away.shape).masked_fill(away, -9.0)
        other = (x.flip(-1) ** 2, x.sin()) if self.cross else (x, x)
        y, A = self.attention(x, *other, need_weights=self.weights, **masks)
        if not self.weights:
            return y
        return y + A.square().sum(-1, keepdim=True).movedim(0, 0 if batch_first else 1)


ATTENTION = [{}, {"batch_first": True}, {"batch_first": True, "bias": False}]


@pytest.mark.parametrize("options", ATTENTION)
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("mask", [None, "causal", "padding"])
@pytest.mark.parametrize("weights", [False, True])
def test_attention(options, cross, mask, weights):
    model = Attention(mask, cross, weights, **options)
    shape = (5, 3, 4) if options else (3, 5, 4)
    found = check(model, randn(*shape), 0 if options else 1)
    assert [*found.per_layer] == ["attention"]


@pytest.mark.parametrize("options", [{}, {"batch_first": True, "bias": False}])
@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("weights", [False, True])
def test_attention_draws_its_dropout_again(options, mask, weights):
    torch.manual_seed(3)
    model = randomise(Attention(mask, weights=weights, dropout=0.4, **options))
    x, state = randn(*((5, 3, 4) if options else (3, 5, 4))), torch.get_rng_state()
    rows = 0 if options else 1

    def losses():
        torch.set_rng_state(state)
        return model(x).square().movedim(rows, 0).flatten(1).sum(1)

    parameters = [*model.parameters()]
    single = [torch.autograd.grad(losses()[i], parameters) for i in range(5)]
    g = torch.stack([torch.cat([p.flatten() for p in each]) for each in single])
    noise = GradientNoise(model, reduction="sum")
    losses().sum().backward()
    after = torch.get_rng_state()
    close(noise.total.squares, g.square().sum(), rtol=1e-10, atol=0)
    close(noise.total.norm2, g.mean(0).square().sum(), rtol=1e-10, atol=0)
    losses()
    assert torch.equal(after, torch.get_rng_state())  # measuring draws nothing
    model.attention.eval()
    check(model, x, rows)


def test_a_mask_that_cannot_be_drawn_again_is_never_silent(monkeypatch):
    model = Attention(dropout=0.4)
    noise = GradientNoise(model)
    loss = model(torch.randn(3, 5, 4)).square().sum()
    monkeypatch.setattr(torch, "set_rng_state", lambda state: None)
    with pytest.raises(RuntimeError, match="could not be drawn again; set its dropout"):
        loss.backward()
    assert noise.measured is None


@pytest.mark.parametrize("frozen", ["in_proj_weight", "out_proj.weight"])
def test_frozen_parameters_of_attention_are_left_out(frozen):
    model = Attention(batch_first=True)
    model.attention.get_parameter(frozen).requires_grad_(False)
    check(model, randn(5, 3, 4))


def test_a_transformer_block():
    block = nn.TransformerEncoderLayer(
        4, 2, 9, dropout=0.0, batch_first=True, norm_first=True
    )
    names = {"self_attn", "linear1", "linear2", "norm1", "norm2"}
    assert {*check(block, randn(5, 3, 4)).per_layer} == names


def test_batch_norm_back_in_training_mode_is_refused_in_the_pass():
    model = nn.Sequential(nn.Linear(3, 4), stored(nn.BatchNorm1d(4)))
    noise = GradientNoise(model, every=1)
    model(torch.randn(5, 3)).sum().backward()
    model.train()
    with pytest.raises(ValueError, match=r"'1' is a BatchNorm1d that mixes .* evalu"):
        model(torch.randn(5, 3))
    noise.close()
    with pytest.raises(ValueError, match="mixes"):
        GradientNoise(nn.BatchNorm1d(3, track_running_stats=False).eval())


def unsupported():
    layers = nn.Linear(4, 4), nn.Bilinear(4, 4, 4), nn.PReLU()
    return nn.ModuleDict(dict(zip("abc", layers, strict=True)))


def test_all_refusals_come_at_once_and_can_be_skipped_with_one_report():
    model = unsupported()
    message = r"layer 'b' cannot be .*; layer 'c' cannot be .* or skip_unsupported=True"
    with pytest.raises(ValueError, match=message):
        GradientNoise(model)
    with pytest.warns(UserWarning, match="leaves out layers 'b': .*; 'c': ") as told:
        noise = GradientNoise(model, skip_unsupported=True)
    assert len(told) == 1 and [*noise.skipped] == ["b", "c"]
    with pytest.raises(ValueError, match="layer '' cannot be watched: it is a PReLU"):
        GradientNoise(nn.PReLU(), skip_unsupported=True)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_pass_counts_once(use_reentrant):
    layers = nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4)
    model = randomise(nn.Sequential(*layers))
    twin = copy.deepcopy(model)
    noise, expected = GradientNoise(model, every=2), GradientNoise(twin, every=2)
    again = partial(checkpoint, model, use_reentrant=use_reentrant)
    for s in range(5):
        x = randn(6, 3, seed=s).requires_grad_()
        again(x).square().sum().backward()
        twin(x.detach()).square().sum().backward()
        assert noise.passes == expected.passes == s + 1
        assert noise.measured == expected.measured
        close(noise.variance, expected.variance)
