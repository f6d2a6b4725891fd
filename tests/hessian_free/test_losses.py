"""Softmax cross-entropy: dense matrices, steps, refusals (float64)."""

import itertools
import math

import pytest
import scipy.sparse.linalg
import torch
from torch import nn
from torch.func import functional_call, jacrev
from torch.nn.functional import cross_entropy

from labkit.hessian_free import (
    Autoencoder,
    HessianFree,
    MartensHF,
    batch_gradient_variance,
    linearise,
    mean_loss,
    train,
    train_martens,
)
from labkit.hessian_free.linearise import weights_of
from labkit.hessian_free.preconditioner import KINDS, diagonal_estimate
from labkit.lab.books.hessian_free_training import as_sequential
from labkit.theorems.hessian_free import dense, joined

from .conftest import randn, relative

N, C = 9, 3
X = randn(N, 4)
CLASSES = torch.arange(N) % C


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, C)).double()


def exact(model, T):
    """Loss, gradient and generalised Gauss-Newton matrix of torch.func, all dense."""
    names, w = [name for name, _ in model.named_parameters()], weights_of(model)

    def outputs(*weights):
        return functional_call(model, dict(zip(names, weights, strict=True)), (X,))

    def f(z):
        return cross_entropy(z.view(N, C), T)

    Z = outputs(*w).detach()
    blocks = jacrev(outputs, argnums=tuple(range(len(w))))(*w)
    J = torch.cat([b.reshape(Z.numel(), -1) for b in blocks], 1)
    H, g = jacrev(jacrev(f))(Z.flatten()), jacrev(f)(Z.flatten())
    return f(Z), (J.T @ g).detach(), (J.T @ H @ J).detach()


def test_products_are_those_of_the_dense_gauss_newton_matrix():
    model, T = net(), CLASSES
    value, g, G = exact(model, T)
    point = linearise(model, X, T, loss="softmax")
    A = dense(point.forward_map, point.weights)
    assert relative(A.T @ A, G) < 1e-10
    for i, row in enumerate(A[:5]):  # A' of a unit vector is a row of A
        e = torch.zeros_like(point.residual)
        e.view(-1)[i] = 1
        assert relative(joined(point.transpose_map(e)), row) < 1e-10
    assert relative(joined(point.transpose_map(point.residual)), g) < 1e-10
    assert math.isclose(point.loss(), value, rel_tol=1e-12)
    assert math.isclose(mean_loss(model, X, T, loss="softmax"), value, rel_tol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_is_that_of_the_dense_damped_solve(kind):
    model, T = net(), CLASSES
    _, g, G = exact(model, T)
    optimizer = HessianFree(model, loss="softmax", damping=0.3, preconditioner=kind)
    found = optimizer.subproblem(X, T).solve(atol=1e-14, maxiter=400)
    want = torch.linalg.solve(G + 0.09 * torch.eye(len(g)).to(G), -g)
    assert relative(joined(found.x), want) < 1e-8


def test_the_shortest_residual_and_that_its_choice_moves_no_iterate():
    """r is the pseudo-inverse's; (0, -g / lam), augmented, has the same iterates."""
    model, lam, k = net(), 0.3, 4
    _, g, _ = exact(model, CLASSES)
    point = linearise(model, X, CLASSES, loss="softmax")
    p, y = model(X).detach().softmax(1), nn.functional.one_hot(CLASSES, C)
    for i in range(N):
        L = torch.diag(p[i].sqrt()) - torch.outer(p[i], p[i].sqrt())
        want = torch.linalg.pinv(L, rtol=1e-10) @ (p[i] - y[i]) / N**0.5
        assert relative(point.residual[i], want) < 1e-10
    problem = HessianFree(model, loss="softmax", damping=lam, preconditioner="none")
    here = joined(problem.subproblem(X, CLASSES).solve(atol=0.0, maxiter=k).x)
    A = dense(point.forward_map, point.weights)
    K = torch.cat([A, lam * torch.eye(len(g)).to(A)]).numpy()
    right = torch.cat([0 * A[:, 0], -g / lam]).numpy()
    scipys = scipy.sparse.linalg.lsmr(K, right, atol=0, btol=0, conlim=0, maxiter=k)[0]
    assert relative(here, torch.from_numpy(scipys)) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_examples_sure_of_a_wrong_class_leave_the_gradient_exact(dtype):
    """Where a probability rounds to 0 the residual stays finite, and L r = p - y."""
    last = nn.Linear(4, C, bias=False).to(dtype)
    x = 300 * torch.eye(4, dtype=dtype)[:3]
    nn.init.eye_(last.weight)
    T = torch.tensor([1, 2, 2])
    (want,) = torch.autograd.grad(cross_entropy(last(x), T), [last.weight])
    point = linearise(last, x, T, loss="softmax")
    assert point.residual.abs().max() <= torch.finfo(dtype).eps ** -0.5
    g = point.transpose_map(point.residual)[0]
    assert relative(g, want) < 10 * torch.finfo(dtype).eps
    step = HessianFree(last, loss="softmax", damping=0.3).step(x, T)
    assert step.step_length and step.loss_after < step.loss


def test_noise_and_diagonal_are_the_losss():
    T = CLASSES
    point = linearise(net(), X, T, loss="softmax")
    own = []
    for i in range(N):
        one = linearise(net(), X[i : i + 1], T[i : i + 1], loss="softmax")
        own.append(joined(one.transpose_map(one.residual)))
    own = torch.stack(own)
    V, g2 = batch_gradient_variance(point)
    assert math.isclose(V, own.var(0).sum(), rel_tol=1e-10)
    assert math.isclose(g2, own.mean(0).square().sum(), rel_tol=1e-10)
    A = dense(point.forward_map, point.weights)
    # all signs of one example, in turn, average to the diagonal
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=C))).to(A)
    each = [joined(diagonal_estimate(point, s.expand(N, C))) for s in signs]
    assert relative(torch.stack(each).mean(0), A.square().sum(0)) < 1e-10


@pytest.mark.parametrize("kind", [HessianFree, MartensHF])
def test_steps_lower_the_loss_and_follow_validation(kind):
    model, T = net(), CLASSES
    optimizer = kind(model, loss="softmax", damping=0.1)
    start = cross_entropy(model(X[:6]), T[:6]).detach()
    if kind is HessianFree:
        first = optimizer.step(X, T, validation=(X[:6], T[:6]))
        assert math.isclose(first.merit[0][1], start, rel_tol=1e-12)
    else:
        first = optimizer.step(X, T, chunk=(X[:6], T[:6]))
    assert first.loss_after < first.loss
    for _ in range(5):
        step = optimizer.step(X, T)
    assert step.loss_after < first.loss
    after = cross_entropy(model(X), T).detach()
    assert math.isclose(step.loss_after, after, rel_tol=1e-9)


def test_an_autoencoder_and_its_layers_agree():
    """Hand-written maps under the loss, beside those of torch.func."""
    names = ("tanh", "linear")
    coder = Autoencoder((4, 3, 4), activations=names, dtype=torch.float64)
    T = torch.arange(N) % 4
    one = linearise(coder, X, T, loss="softmax")
    two = linearise(as_sequential(coder), X, T, loss="softmax")
    a, b = (p.transpose_map(p.residual) for p in (one, two))
    assert relative(one.residual, two.residual) < 1e-12
    rows = [torch.cat([b[i].T, b[i + 1][None]]) for i in (0, 2)]
    assert relative(joined(a), joined(rows)) < 1e-12
    assert math.isclose(one.gradient_moments()[1], two.gradient_moments()[1])
    step = HessianFree(coder, loss="softmax", damping=0.3).step(X, T, validation=(X, T))
    assert step.loss_after < step.loss


@pytest.mark.parametrize("loop", [train, train_martens])
def test_training_reports_the_mean_loss(loop):
    model = net()
    data = {"validation": (X, CLASSES), "test": (X, CLASSES), "targets": CLASSES}
    kind, sizes = HessianFree, {"batch_size": 4}
    if loop is train_martens:
        kind, sizes = MartensHF, {"chunks": 2}
    optimizer = kind(model, loss="softmax", damping=0.1)
    *_, last = loop(model, optimizer, X, steps=3, **data, **sizes)
    want = cross_entropy(model(X), CLASSES).detach()
    assert math.isclose(last.validation_error, want, rel_tol=1e-12)
    assert last.test_error == last.validation_error


def test_a_class_out_of_range_is_never_silent():
    for function in (linearise, mean_loss):
        with pytest.raises(ValueError, match=r"class indices in 0..2, but span 1..3"):
            function(net(), X, CLASSES + 1, loss="softmax")


@pytest.mark.parametrize("shape", [(), (3, 3), (3, 3, 3)])
def test_outputs_are_rows_of_classes(shape):
    """Not (n,), and not (n, positions, classes), nor images of classes."""
    width = math.prod(shape)
    flat = nn.Sequential(
        nn.Linear(4, width), nn.Unflatten(1, shape) if shape else nn.Flatten(0)
    )
    with pytest.raises(ValueError, match=r"outputs must be \(n, classes\), got shape"):
        HessianFree(flat.double(), loss="softmax").step(X, CLASSES)


def test_refuses_probabilities_for_logits_and_other_losses():
    images = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)).double()
    for model, name in ((images, "Softmax"), (Autoencoder((4, 3, 4)), "logistic")):
        with pytest.raises(ValueError, match=f"model ends in {name}: leave that out"):
            HessianFree(model, loss="softmax")
        with pytest.raises(ValueError, match="leave that out"):
            linearise(model, X, CLASSES, loss="softmax")
    with pytest.raises(ValueError, match="loss must be one of squared, softmax, got"):
        HessianFree(net(), loss="mse")
