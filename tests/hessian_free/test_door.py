"""What a step refuses, with nothing changed, and models that it must take."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import skip_init
from torch.optim import lr_scheduler

from labkit.hessian_free import Autoencoder, HessianFree, MartensHF, linearise
from labkit.hessian_free.vectors import dot
from labkit.theorems.hessian_free import joined
from tests.draws import seeded

from .conftest import rand, randn, relative

X, T = rand(10, 3), rand(10, 2)
INDICES = torch.ones(10, 1).long()


def doubled(make):
    torch.manual_seed(0)
    return make().double()


def mlp(*between):
    return lambda: nn.Sequential(nn.Linear(3, 4), *between, nn.Linear(4, 2))


class First(nn.Module):
    """A linear layer on the first thing that another one returns."""

    def __init__(self, inner, width=4):
        super().__init__()
        self.inner, self.out = inner, nn.Linear(width, 2)

    def forward(self, x):
        given = (x,) * 3 if isinstance(self.inner, nn.MultiheadAttention) else (x,)
        return self.out(self.inner(*given)[0])


def coder():
    return Autoencoder((3, 2, 3))


def twice(shared="module"):
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)
    if shared == "module":
        two = one
    two.weight = one.weight
    return nn.Sequential(one, nn.Tanh(), two, nn.Linear(3, 2))


def state(model, generator):
    """All that may not change."""
    held = [t.clone() for t in model.state_dict().values()]
    return [*held, generator.get_state(), torch.random.get_rng_state()]


REFUSED = {
    "no rows": (mlp(), (X[:0], T[:0]), r"inputs must have rows, got shape \(0, 3\)"),
    "a closure": (
        mlp(),
        (lambda: 0.0, T),
        r"got function; a step takes the batch, step\(inputs, targets\)",
    ),
    "an array": (mlp(), (X.numpy(), T), "inputs must be a tensor, got ndarray"),
    "dtype": (mlp(), (X.float(), T), r"does not take .* torch.float32, .* same dtype"),
    "width": (mlp(), (X[:, :2], T), r"does not take inputs of shape \(10, 2\)"),
    "targets' shape": (mlp(), (X, T[:, :1]), r"shape \(10, 2\), got \(10, 1\)"),
    "several outputs": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.MaxPool1d(1, return_indices=True)),
        (X, T),
        "must return a tensor, got tup",
    ),
    "no rows of outputs": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Flatten(0), nn.Unflatten(0, (-1, 1))),
        (X, T),
        r"a row for each row, \(n, ...\), but for one row it returns the shape \(2, 1",
    ),
    "recurrence": (
        lambda: First(nn.LSTM(3, 4)),
        (X, T),
        "no per-example gradients of nn.RNN, nn.LSTM and nn.GRU",
    ),
    "batch norm": (
        mlp(nn.BatchNorm1d(4)),
        (X, T),
        r"BatchNorm1d in training mode .*al",
    ),
    "dropout": (mlp(nn.Dropout()), (X, T), "draws random numbers .* call model.eval"),
    "spectral norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))),
        (X, T),
        r"changes its buffer .*_u in its forward pass",
    ),
    "running averages": (
        mlp(
            nn.Unflatten(1, (2, 2)),
            nn.InstanceNorm1d(2, track_running_stats=True),
            nn.Flatten(),
        ),
        (X, T),
        "changes its buffer 2.running_mean in its forward pass",
    ),
    "dtype, autoencoder": (coder, (X.float(),), "inputs must have the dtype torch.fl"),
    "width, autoencoder": (coder, (X[:, :2],), r"inputs must have shape \(n, 3\), got"),
    "targets, autoencoder": (coder, (X, T), r"must have shape \(10, 3\), got"),
}
CLASSES = torch.arange(10) % 2
WRONG_CLASSES = {
    "count": (CLASSES[:-1], r"must have shape \(10,\), got \(9,\)"),
    "column": (CLASSES[:, None], r"must have shape \(10,\), got \(10, 1\)"),
    "from one": (CLASSES + 1, r"class indices in 0..1, but span 1..2"),
    "ignored": (CLASSES - 100, r"class indices in 0..1, but span -100"),
    "shares": (T, "must have the dtype torch.int64 or .*, got torch.float64"),
}
REFUSED |= {
    f"classes, {name}": (mlp(), (X, wrong), match)
    for name, (wrong, match) in WRONG_CLASSES.items()
}


@pytest.mark.parametrize("where", ["batch", "validation", "Martens", "chunk"])
@pytest.mark.parametrize("case", REFUSED)
def test_refuses_before_anything_is_changed(case, where):
    """With the preconditioner, and without, which then draws nothing by itself."""
    make, data, match = REFUSED[case]
    model = doubled(make)
    good = (X,) if isinstance(model, Autoencoder) else (X, T)
    options = {"loss": "squared"}
    if case.startswith("classes"):
        good, options = (X, CLASSES), {"loss": "softmax"}
    given, more = data, {}
    if where in ("validation", "chunk"):
        match = match.replace("inputs must", f"{where} must")
        given, more = good, {where: data[0] if len(data) == 1 else data}
    generator = seeded()
    kinds = [MartensHF(model, **options)]
    if where in ("batch", "validation"):
        bare = HessianFree(model, preconditioner="none", **options)
        kinds = [HessianFree(model, generator=generator, **options), bare]
    before = state(model, generator)
    for made in kinds:
        with pytest.raises((ValueError, TypeError), match=match):
            made.step(*given, **more)
        assert all(map(torch.equal, before, state(model, generator))) and not made.state


class Distances(nn.Linear):
    def forward(self, x):
        return torch.cdist(x, self.weight)


LACKING = {
    "cdist": (lambda: Distances(3, 2), X, "_cdist_backward"),
    "bag": (lambda: nn.EmbeddingBag(7, 2), INDICES, "_embedding_bag_backward"),
    "sparse": (
        lambda: nn.Sequential(nn.Embedding(7, 2, sparse=True), nn.Flatten()),
        INDICES,
        "parse",
    ),
}


@pytest.mark.parametrize("kind", ["none", "random_signs"])
@pytest.mark.parametrize("case", LACKING)
def test_what_torch_has_no_products_of_is_named(case, kind):
    make, inputs, match = LACKING[case]
    with pytest.raises(ValueError, match=f"torch lacks a derivative .*{match}"):
        HessianFree(doubled(make), preconditioner=kind).step(inputs, T)


MODELS = {
    "attention": (
        lambda: First(nn.MultiheadAttention(3, 1, batch_first=True), 3),
        True,
    ),
    "module used twice": (twice, False),
    "tied weights": (lambda: twice("weight"), False),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))),
        False,
    ),
    "dropout, batch norm in eval mode": (
        lambda: mlp(nn.Dropout(), nn.BatchNorm1d(4))().eval(),
        False,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_products_and_sums_of_squares_are_autograds_and_steps_are_taken(name):
    make, sequences = MODELS[name]
    model = doubled(make)
    x, t = (rand(4, 5, 3), rand(4, 5, 2)) if sequences else (X[:4], T[:4])
    point = linearise(model, x, t)
    held = [p.detach().clone() for p in model.parameters()]
    d, U = [randn(*p.shape, seed=i) for i, p in enumerate(held)], randn(*t.shape)
    forward, back = point.forward_map(d), point.transpose_map(U)
    squares = point.sum_squares(U)
    assert all(map(torch.equal, held, model.parameters()))
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())
    assert math.isclose((forward * U).sum(), dot(d, back), rel_tol=1e-12)
    loss = 0.5 * (model(x) - t).square().sum() / len(t)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    assert relative(joined(point.gradient_moments()[0]), joined(grads)) < 1e-12
    one = [torch.zeros_like(p) for p in held]
    for i in range(len(x)):
        out = model(x[i : i + 1])
        found = torch.autograd.grad(out, list(model.parameters()), U[i : i + 1])
        one = [a + g.square() for a, g in zip(one, found, strict=True)]
    assert relative(joined(squares), joined(one)) < 1e-12
    buffers = [b.clone() for b in model.buffers()]
    for kind in (HessianFree, MartensHF):
        done = kind(model, damping=0.1).step(x, t)
        assert done.step_length and done.loss_after < done.loss
    assert all(map(torch.equal, buffers, model.buffers()))


def test_a_step_without_a_batch_says_what_it_takes():
    for kind in (HessianFree, MartensHF):
        with pytest.raises(TypeError, match="got None; a step takes the batch, step"):
            kind(doubled(mlp())).step()


def test_refuses_to_compute_within_autocast():
    with torch.autocast("cpu"), pytest.raises(ValueError, match="leave the autocast"):
        HessianFree(coder().double()).step(X)


def test_refuses_parameters_of_two_kinds_and_a_second_group():
    mixed = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double())
    with pytest.raises(TypeError, match=r"1\.weight must have the dtype"):
        HessianFree(mixed)
    with pytest.raises(ValueError, match="on all parameters of its model at once"):
        HessianFree(doubled(mlp())).add_param_group({"params": [nn.Parameter(X)]})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_validation_that_is_not_finite_is_no_merit(value):
    model = doubled(mlp())
    before = [p.clone() for p in model.parameters()]
    for made in ((X * value, T), (X, T * value)):
        with pytest.raises(FloatingPointError, match=r"the merit is .* at the start"):
            HessianFree(model).step(X, T, validation=made)
    assert all(map(torch.equal, before, model.parameters()))


KINDS = pytest.mark.parametrize("kind", [HessianFree, MartensHF])


@KINDS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64])
def test_refuses_parameters_in_half_precision_and_complex_ones(kind, dtype):
    """In bfloat16 a step's length would shrink without a word."""
    words = "parameter 0.weight must have the dtype torch.float32 or torch.float64, got"
    with pytest.raises(TypeError, match=words):
        kind(mlp()().to(dtype))


@KINDS
def test_refuses_what_is_no_model_of_whole_weights(kind):
    with pytest.raises(TypeError, match=r"model must be .* not its parameters, got"):
        kind(mlp()().parameters())
    with pytest.raises(ValueError, match="on the device meta, where it holds no num"):
        kind(skip_init(nn.Linear, 3, 2, device="meta"))
    parallel = DistributedDataParallel.__new__(DistributedDataParallel)
    with pytest.raises(TypeError, match=r"takes the model without its Dist"):
        kind(parallel)


@KINDS
def test_a_scheduler_hears_that_there_is_no_lr(kind):
    made = kind(doubled(mlp()))
    with pytest.raises(
        ValueError, match=r"has no lr, for its length is searched, .*damp"
    ):
        lr_scheduler.StepLR(made, 3)
    assert "lr" not in made.param_groups[0] and made.param_groups[0].get("lr") is None
    with pytest.raises(KeyError, match="momentum"):
        made.param_groups[0]["momentum"]


@KINDS
def test_a_layer_that_the_loss_does_not_reach_stands_still(kind):
    model = doubled(mlp())
    model.unused = nn.Linear(5, 5).double()
    model.forward = lambda x: model[1](model[0](x))
    before = [p.clone() for p in model.unused.parameters()]
    done = kind(model, damping=0.1).step(X, T)
    assert done.step_length and done.loss_after < done.loss
    assert all(map(torch.equal, before, model.unused.parameters()))


@KINDS
def test_gradients_are_neither_read_nor_written(kind):
    one, two = doubled(mlp()), doubled(mlp())
    for p in one.parameters():
        p.grad = torch.full_like(p, 7.0)
    for model in (one, two):
        options = {"generator": seeded()} if kind is HessianFree else {}
        kind(model, damping=0.1, **options).step(X, T)
    assert all(map(torch.equal, one.parameters(), two.parameters()))
    assert all(bool((p.grad == 7).all()) for p in one.parameters())


@KINDS
def test_a_broken_state_changes_nothing(kind):
    made = kind(doubled(mlp()), damping=0.3)
    made.step(X, T)
    before = copy.deepcopy(made.state_dict())
    kind(mlp()(), damping=0.3).load_state_dict(before)  # a network in float32
    broken = copy.deepcopy(before)
    broken["state"].pop(0)
    with pytest.raises(ValueError, match="direction must have 4 tensors, got 3"):
        made.load_state_dict(broken)
    now = made.state_dict()
    assert now["param_groups"] == before["param_groups"]
    for i, kept in before["state"].items():
        assert torch.equal(now["state"][i]["warm"], kept["warm"])


@KINDS
def test_an_option_that_was_set_out_of_its_range_is_named_by_the_next_step(kind):
    made = kind(doubled(mlp()), damping=0.3)
    made.param_groups[0]["maxiter"] = 0
    with pytest.raises(ValueError, match="maxiter must be an integer >= 1, got 0"):
        made.step(X, T)


@KINDS
def test_a_state_without_a_newer_option_has_the_constructors(kind):
    made = kind(doubled(mlp()), damping=0.3, maxiter=7)
    old = copy.deepcopy(made.state_dict())
    del old["param_groups"][0]["maxiter"]
    made.load_state_dict(old)
    assert made.param_groups[0]["maxiter"] == 7
    assert made.step(X, T).iterations <= 7
