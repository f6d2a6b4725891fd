"""Cross-entropy and losses of one's own: dense matrices, steps, refusals."""

import copy
import itertools
import math
import pickle

import pytest
import scipy.sparse.linalg
import torch
from torch import nn
from torch.func import functional_call, jacrev

from labkit.hessian_free import (
    Autoencoder,
    CrossEntropy,
    HessianFree,
    Loss,
    MartensHF,
    Settings,
    as_sequential,
    batch_gradient_variance,
    check_loss,
    linearise,
    mean_loss,
    train,
    train_martens,
)
from labkit.hessian_free.linearise import weights_of
from labkit.hessian_free.optimizer import KINDS, diagonal_estimate
from labkit.theorems.hessian_free import dense, joined

from .conftest import rand, randn, relative

N, C = 9, 3
X = randn(N, 4)
CLASSES = torch.arange(N) % C


def net(*between, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), *between, nn.Tanh(), nn.Linear(5, C)).double()


class Sequence(nn.Module):
    """Logits of several positions of a row."""

    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, x):
        return self.inner(torch.stack((x, 2 * x), 1))


def counts(Z, T):
    s = (Z / 2).exp()
    return (Z.exp() - T) / s, lambda U: s * U


POISSON = Loss("poisson", lambda Z, T: (Z.exp() - T * Z).sum(1), counts)
soft = rand(N, C, seed=3).softmax(1)
ce = nn.functional.cross_entropy
bce = nn.functional.binary_cross_entropy_with_logits
# model, loss, targets, and the mean loss by torch
CASES = {
    "classes": (net, "softmax", CLASSES, lambda z, t: ce(z, t)),
    "probabilities": (net, "softmax", soft, lambda z, t: ce(z, t)),
    "positions": (
        Sequence,
        "softmax",
        torch.stack((CLASSES, CLASSES.flip(0)), 1),
        lambda z, t: ce(z.flatten(0, 1), t.flatten(), reduction="sum") / len(z),
    ),
    "logistic": (
        net,
        "logistic",
        rand(N, C, seed=4),
        lambda z, t: bce(z, t, reduction="sum") / len(z),
    ),
    "own": (net, POISSON, 1 + soft, lambda z, t: (z.exp() - t * z).sum() / len(z)),
}


def torchs(positions=False, **options):
    """Torch's own with these options, summed over positions and averaged over rows."""

    def f(z, t):
        if positions:
            z, t, rows = z.flatten(0, 1), t.flatten(0, 1), len(z)
        else:
            rows = len(z)
        given = {k: z.new_tensor(v) if k == "weight" else v for k, v in options.items()}
        return ce(z, t, reduction="sum", **given) / rows

    return f


IGNORED = torch.where(torch.arange(N) % 4 == 1, -100, CLASSES)
PLACES = torch.stack((IGNORED, CLASSES.flip(0)), 1)
PLACES[2] = -100  # a row without any loss
WEIGHT = (0.3, 2.0, 1.1)
OPTIONS = {
    "ignored": (net, {"ignore_index": -100}, IGNORED),
    "ignored positions": (Sequence, {"ignore_index": -100}, PLACES),
    "ignored class": (net, {"ignore_index": 1}, CLASSES),
    "smoothed": (net, {"label_smoothing": 0.2}, CLASSES),
    "smoothed probabilities": (net, {"label_smoothing": 0.2}, soft),
    "weighted": (net, {"weight": WEIGHT}, CLASSES),
    "weighted probabilities": (net, {"weight": WEIGHT}, soft),
    "a class without weight": (net, {"weight": (0.0, 1.0, 1.0)}, CLASSES),
    "all": (
        Sequence,
        {"weight": WEIGHT, "ignore_index": -100, "label_smoothing": 0.1},
        PLACES,
    ),
}
CASES |= {
    name: (make, CrossEntropy(**given), T, torchs(make is Sequence, **given))
    for name, (make, given, T) in OPTIONS.items()
}
cases = pytest.mark.parametrize("case", CASES)


def made(case, seed=0):
    make, loss, T, f = CASES[case]
    torch.manual_seed(seed)
    model = make()
    return model.double(), loss, T, f


def exact(model, f, T, x=X):
    """Loss, gradient and generalised Gauss-Newton matrix of torch.func, all dense."""
    names, w = [name for name, _ in model.named_parameters()], weights_of(model)

    def outputs(*weights):
        return functional_call(model, dict(zip(names, weights, strict=True)), (x,))

    Z = outputs(*w)
    blocks = jacrev(outputs, argnums=tuple(range(len(w))))(*w)
    J = torch.cat([b.reshape(Z.numel(), -1) for b in blocks], 1)
    H = jacrev(jacrev(lambda z: f(z.view_as(Z), T)))(Z.flatten())
    g = jacrev(lambda z: f(z.view_as(Z), T))(Z.flatten())
    return f(Z, T).detach(), (J.T @ g).detach(), (J.T @ H @ J).detach()


@cases
def test_products_are_those_of_the_dense_gauss_newton_matrix(case):
    model, loss, T, f = made(case)
    value, g, G = exact(model, f, T)
    point = linearise(model, X, T, loss=loss)
    A = dense(point.forward_map, point.weights)
    assert relative(A.T @ A, G) < 1e-10
    unit = torch.eye(A.shape[1], dtype=A.dtype)[:5]
    for e in unit:
        blocks = e.split([w.numel() for w in point.weights])
        pairs = zip(blocks, point.weights, strict=True)
        d = tuple(b.view_as(w) for b, w in pairs)
        product = point.transpose_map(point.forward_map(d))
        assert relative(joined(product), G @ e) < 1e-10
    assert relative(joined(point.transpose_map(point.residual)), g) < 1e-10
    assert math.isclose(point.loss(), value, rel_tol=1e-12)
    assert math.isclose(mean_loss(model, X, T, loss=loss), value, rel_tol=1e-12)


@cases
@pytest.mark.parametrize("kind", KINDS)
def test_the_step_is_that_of_the_dense_damped_solve(case, kind):
    model, loss, T, f = made(case)
    _, g, G = exact(model, f, T)
    optimizer = HessianFree(model, loss=loss, damping=0.3, preconditioner=kind)
    found = optimizer.subproblem(X, T).solve(atol=1e-14, maxiter=400)
    want = torch.linalg.solve(G + 0.09 * torch.eye(len(g)).to(G), -g)
    assert relative(joined(found.x), want) < 1e-8


def test_the_shortest_residual_and_that_its_choice_moves_no_iterate():
    """r is the pseudo-inverse's; (0, -g / lam), augmented, has the same iterates."""
    model, loss, T, f = made("classes")
    _, g, _ = exact(model, f, T)
    Z = model(X).detach()
    point, lam, k = linearise(model, X, T, loss=loss), 0.3, 4
    p, y = Z.softmax(1), nn.functional.one_hot(T, C)
    for i in range(N):
        L = torch.diag(p[i].sqrt()) - torch.outer(p[i], p[i].sqrt())
        want = torch.linalg.pinv(L, rtol=1e-10) @ (p[i] - y[i]) / N**0.5
        assert relative(point.residual[i], want) < 1e-10
    problem = HessianFree(model, loss=loss, damping=lam, preconditioner="none")
    ours = joined(problem.subproblem(X, T).solve(atol=0.0, maxiter=k).x)
    A = dense(point.forward_map, point.weights)
    K = torch.cat([A, lam * torch.eye(len(g)).to(A)]).numpy()
    right = torch.cat([0 * A[:, 0], -g / lam]).numpy()
    stops = {"atol": 0, "btol": 0, "conlim": 0, "maxiter": k}
    theirs = scipy.sparse.linalg.lsmr(K, right, **stops)[0]
    assert relative(ours, torch.from_numpy(theirs)) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_examples_sure_of_a_wrong_class_leave_the_gradient_exact(loss, dtype):
    """Where a probability rounds to 0 the residual stays finite, and L r = p - y."""
    last = nn.Linear(4, C, bias=False).to(dtype)
    x = 300 * torch.eye(4, dtype=dtype)[:3]
    nn.init.eye_(last.weight)
    T = torch.tensor([1, 2, 2])
    T = T if loss == "softmax" else nn.functional.one_hot(T, C).to(dtype)
    torch_loss = CASES["classes" if loss == "softmax" else "logistic"][3]
    f = torch_loss(last(x), T)
    (want,) = torch.autograd.grad(f, [last.weight])
    point = linearise(last, x, T, loss=loss)
    assert point.residual.isfinite().all()
    bound = torch.finfo(dtype).eps ** -0.5
    assert point.residual.abs().max() <= bound
    g = point.transpose_map(point.residual)[0]
    assert relative(g, want) < 10 * torch.finfo(dtype).eps
    step = HessianFree(last, loss=loss, damping=0.3).step(x, T)
    assert step.step_length and step.loss_after < step.loss


@cases
def test_noise_and_diagonal_are_the_losss(case):
    model, loss, T, _ = made(case)
    point = linearise(model, X, T, loss=loss)
    own = []
    for i in range(N):
        one = linearise(model, X[i : i + 1], T[i : i + 1], loss=loss)
        own.append(joined(one.transpose_map(one.residual)))
    own = torch.stack(own)
    V, g2 = batch_gradient_variance(point)
    assert math.isclose(V, own.var(0).sum(), rel_tol=1e-10)
    assert math.isclose(g2, own.mean(0).square().sum(), rel_tol=1e-10)
    A, R = dense(point.forward_map, point.weights), point.residual
    rows = R[0].numel()  # all signs of one example, in turn, average to the diagonal
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=rows)))
    each = [
        joined(diagonal_estimate(point, s.to(R).view(1, *R.shape[1:]).expand_as(R)))
        for s in signs
    ]
    assert relative(torch.stack(each).mean(0), A.square().sum(0)) < 1e-10


@cases
@pytest.mark.parametrize("kind", [HessianFree, MartensHF])
def test_steps_lower_the_loss_and_follow_validation(case, kind):
    model, loss, T, f = made(case)
    made_ = kind(model, loss=loss, damping=0.1)
    options = {"chunk": (X[:6], T[:6])}
    if kind is HessianFree:
        options = {"validation": (X[:6], T[:6])}
        start = f(model(X[:6]), T[:6]).detach()
    first = made_.step(X, T, **options)
    if kind is HessianFree:
        assert math.isclose(first.merit[0][1], start, rel_tol=1e-12)
    assert first.loss_after < first.loss
    for _ in range(5):
        step = made_.step(X, T)
    assert step.loss_after < first.loss
    assert math.isclose(step.loss_after, f(model(X), T).detach(), rel_tol=1e-9)


def test_a_logistic_autoencoder_and_its_layers_agree():
    """Hand-written maps under a loss, beside those of torch.func."""
    activations = ("tanh", "linear")
    coder = Autoencoder((4, 3, 4), activations=activations, dtype=torch.float64)
    T = rand(N, 4)
    one = linearise(coder, T, loss="logistic")
    two = linearise(as_sequential(coder), T, loss="logistic")
    U = randn(N, 4, seed=5)
    assert relative(one.residual, two.residual) < 1e-12
    for a, b in ((one.transpose_map(U), two.transpose_map(U)),):
        pairs = zip(b[::2], b[1::2], strict=True)
        rows = [torch.cat([w.T, c[None]]) for w, c in pairs]
        assert relative(joined(a), joined(rows)) < 1e-12
    assert math.isclose(one.gradient_moments()[1], two.gradient_moments()[1])
    step = HessianFree(coder, loss="logistic", damping=0.3).step(T, validation=T)
    assert step.loss_after < step.loss


@pytest.mark.parametrize("loop", ["train", "martens"])
def test_training_reports_the_mean_loss(loop):
    model, loss, T, f = made("classes")
    data = {"validation": (X, T), "test": (X, T), "targets": T, "steps": 3}
    if loop == "train":
        optimizer = HessianFree(model, loss=loss, damping=0.1)
        records = train(model, optimizer, X, batch_size=4, settings=Settings(), **data)
    else:
        optimizer = MartensHF(model, loss=loss, damping=0.1)
        records = train_martens(model, optimizer, X, chunks=2, **data)
    *_, last = records
    assert math.isclose(last.validation_error, f(model(X), T).detach(), rel_tol=1e-12)
    assert last.test_error == last.validation_error
    assert last.detail.loss == last.batch_error


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_keep_the_loss(again):
    model, loss, T, _ = made("classes")
    optimizer = HessianFree(model, loss=loss, damping=0.1)
    optimizer.step(X, T)
    other = again(optimizer)
    assert other.loss == optimizer.loss
    other.generator = None
    torch.manual_seed(1)
    one = optimizer.step(X, T).loss_after
    torch.manual_seed(1)
    assert other.step(X, T).loss_after == one


IMAGES = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)).double()
Z, T = randn(N, C, seed=6), 1 + soft
REFUSED = [
    ("softmax", CLASSES[:-1], ValueError, r"indices of shape \(9,\), or .* \(9, 3\), "),
    ("softmax", CLASSES[:, None], ValueError, r"indices of shape .* of shape \(9, 1\)"),
    ("softmax", soft[:, :1], ValueError, r"outputs' shape \(9, 3\), or .* got \(9, 1"),
    ("softmax", CLASSES + 1, ValueError, r"class indices in 0..2, but span 1..3"),
    ("softmax", CLASSES - 100, ValueError, r"class indices in 0..2, but span -100"),
    ("softmax", 2 * soft, ValueError, r"must be in \[0, 1\]|must sum to one"),
    ("softmax", 0.5 * soft, ValueError, r"sum to one over the classes, but miss"),
    ("softmax", soft.float(), TypeError, "the outputs' dtype torch.float64, got"),
    ("logistic", soft[:, 0], ValueError, r"the outputs' shape \(9, 3\), got \(9,\)"),
    ("logistic", 2 + soft, ValueError, r"'logistic' must be in \[0, 1\], but span"),
    ("logistic", CLASSES, ValueError, r"the outputs' shape"),
    ("squared", CLASSES, ValueError, r"the outputs' shape"),
    (POISSON, T[:-1], ValueError, "targets must have 9 rows, got 8"),
]


REFUSED += [
    (
        CrossEntropy(ignore_index=-100),
        CLASSES - 100,
        ValueError,
        "class indices in 0..2, but span -99..0",
    ),
    (CrossEntropy(weight=(1, 2)), CLASSES, ValueError, "each of the 3 classes, got 2"),
    (CrossEntropy(label_smoothing=0.1), soft[:, 0], ValueError, "outputs' shape"),
]


@pytest.mark.parametrize("where", ["batch", "validation", "Martens", "chunk"])
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[3])
def test_refuses_targets_before_anything_is_changed(case, where):
    loss, wrong, error, match = case
    model = net()
    good = {"softmax": CLASSES, POISSON: T}.get(loss, soft)
    if isinstance(loss, CrossEntropy) and loss.weight:  # wrong for any targets
        good = wrong
    before, drawn = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    kind = HessianFree if where in ("batch", "validation") else MartensHF
    optimizer = kind(model, loss=loss)
    given = wrong if where in ("batch", "Martens") else good
    other = {"validation": "validation", "chunk": "chunk"}.get(where)
    with pytest.raises(error, match=match):
        optimizer.step(X, given, **({other: (X, wrong)} if other else {}))
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state()) and not optimizer.state


BAD_OPTIONS = [
    ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\), got 1.0"),
    ({"ignore_index": 0.5}, "ignore_index must be an integer .*, got 0.5"),
    ({"weight": (1.0, -2.0)}, r"weight must be >= 0 and finite, got \(1.0, -2.0\)"),
    ({"weight": ()}, "weight must be >= 0 and finite"),
]


@pytest.mark.parametrize(("options", "match"), BAD_OPTIONS)
def test_refuses_options_of_cross_entropy(options, match):
    with pytest.raises(ValueError, match=match):
        CrossEntropy(**options)


def test_rows_without_loss_change_nothing_but_the_mean():
    """Padding by rows that are ignored: the same gradient, divided by more rows."""
    loss, f = CrossEntropy(ignore_index=-100), torchs(ignore_index=-100)
    padded = torch.cat([X, X[:3]]), torch.cat([CLASSES, torch.full((3,), -100)])
    one = linearise(net(), X, CLASSES, loss=loss)
    two = linearise(net(), *padded, loss=loss)
    share = N / (N + 3)
    assert math.isclose(two.loss(), share * one.loss(), rel_tol=1e-12)
    grads = [p.transpose_map(p.residual) for p in (one, two)]
    assert relative(joined(grads[1]), share * joined(grads[0])) < 1e-12
    assert math.isclose(two.loss(), f(net()(padded[0]), padded[1]).detach())


def test_a_softmax_over_rows_is_refused():
    flat = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)).double()
    with pytest.raises(
        ValueError, match=r"must be \(n, ..., classes\), got shape \(9,"
    ):
        HessianFree(flat, loss="softmax").step(X, soft[:, 0])


def test_a_class_out_of_range_is_never_silent():
    point = linearise(net(), X, CLASSES + 1, loss="softmax")
    assert point.loss().isnan()


def own(value=None, root=None):
    return Loss("mine", value or POISSON.value, root or counts)


def half(Z, T):
    r, L = counts(Z, T)
    return r, lambda U: 0.5 * L(U)


def flipped(Z, T):
    r, L = counts(Z, T)
    return -r, L


def affine(Z, T):
    r, L = counts(Z, T)
    return r, lambda U: L(U) + 1


def stretched(Z, T):
    r, L = counts(Z, T)
    return r / 2, lambda U: 2 * L(U)


WRONG = [
    (own(lambda Z, T: (Z.exp() - T * Z).sum()), r"value must give a loss a row, of sh"),
    (own(lambda Z, T: Z.exp().sum(1) - (T * Z).sum(1).mean()), "this row alone"),
    (own(root=affine), "L must be linear"),
    (own(root=flipped), "L r must be the gradient of value"),
    (own(root=half), "L r must be the gradient of value"),
    (own(root=stretched), "L L' must be the second derivative of value"),
    (
        own(root=lambda Z, T: (Z, lambda U: U[:, :1])),
        "L U must have the outputs' shape",
    ),
]


@pytest.mark.parametrize(
    ("loss", "match"), WRONG, ids=lambda x: x if isinstance(x, str) else ""
)
def test_a_loss_of_ones_own_is_held_against_autograd(loss, match):
    with pytest.raises(ValueError, match=f"loss 'mine': .*{match}"):
        check_loss(loss, Z, T)
    model = net()
    before = copy.deepcopy(model.state_dict())
    for kind in (HessianFree, MartensHF):
        with pytest.raises(ValueError, match=match):
            kind(model, loss=loss).step(X, T)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_right_loss_passes_in_both_types(dtype):
    check_loss(POISSON, Z.to(dtype), T.to(dtype))
    check_loss(POISSON, Z[:1].to(dtype), T[:1].to(dtype))


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_refuses_probabilities_for_logits(loss):
    coder = Autoencoder((4, 3, 4))
    for model, name in ((IMAGES, "Softmax"), (coder, "logistic")):
        with pytest.raises(ValueError, match=f"model ends in {name}: leave that out"):
            HessianFree(model, loss=loss)
        with pytest.raises(ValueError, match="leave that out"):
            linearise(model, X, CLASSES, loss=loss)
    with pytest.raises(ValueError, match="squared, softmax, logistic, a CrossEnt"):
        HessianFree(net(), loss="mse")
