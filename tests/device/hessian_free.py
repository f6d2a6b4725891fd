"""Steps of Hessian-free, and iterations of its solvers."""

from functools import partial
from itertools import islice

import torch

from labkit import hessian_free
from labkit.hessian_free.batch_size import batch_gradient_variance
from labkit.hessian_free.cg import cg_steps
from labkit.hessian_free.linearise import linearise
from labkit.hessian_free.lsmr import lsmr_steps
from labkit.theorems.hessian_free import normal_map, normal_rhs
from tests.device.rows import Row, on, random, seeded


def autoencoder(device):
    sparse = {"generator": seeded(), "incoming": 3}
    net = hessian_free.Autoencoder((6, 5, 3, 5, 6), **sparse).to(**on(device))
    return net, random(device, (20, 6))[0].sigmoid()


def optimizer_of(net, device, **options):
    given = {"damping": 0.3, "generator": seeded(device)} | options
    return hessian_free.HessianFree(net, **given)


def step(device):
    net, X = autoencoder(device)
    made = optimizer_of(net, device, maxiter=6)
    return lambda: (made.step(X, validation=X[:9]), list(net.parameters()))


def classes(device):
    """Softmax over three classes, by the maps of torch.func."""
    torch.manual_seed(0)
    shapes = torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)
    net = torch.nn.Sequential(*shapes).to(**on(device))
    (X,), T = random(device, (20, 6)), (torch.arange(20) % 3).to(device)
    made = optimizer_of(net, device, maxiter=6, loss="softmax")
    held = X[:9], T[:9]
    return lambda: (made.step(X, T, validation=held), list(net.parameters()))


def martens(device):
    net, X = autoencoder(device)
    made = hessian_free.MartensHF(net, damping=0.3, maxiter=6)
    return lambda: (made.step(X, chunk=X[:9]), list(net.parameters()))


def ten(steps):
    """Ten iterations, after the first ten."""
    list(islice(steps, 11))
    return lambda: [list(step.x) for step in islice(steps, 10)]


def lsmr(device):
    """On the system of a step, whose damping is so small that it takes long."""
    net, X = autoencoder(device)
    system = optimizer_of(net, device, damping=1e-4).subproblem(X).system()
    return ten(lsmr_steps(system))


def cg(device):
    net, X = autoencoder(device)
    problem = optimizer_of(net, device).subproblem(X)
    B = partial(normal_map, problem)
    return ten(cg_steps(B, normal_rhs(problem)))


def products(device):
    """A and A'."""
    net, X = autoencoder(device)
    point = linearise(net, X)
    return lambda: point.transpose_map(point.forward_map(point.weights))


def variance(device):
    net, X = autoencoder(device)
    point = linearise(net, X)
    return partial(batch_gradient_variance, point)


def train(device):
    net, X = autoencoder(device)
    made = optimizer_of(net, device, maxiter=6)
    data = {"validation": X, "test": X, "batch_size": 10, "generator": seeded()}
    return partial(next, hessian_free.train(net, made, X, **data))


def train_martens(device):
    net, X = autoencoder(device)
    made = hessian_free.MartensHF(net, damping=0.3, maxiter=6)
    data = {"validation": X, "chunks": 2, "generator": seeded()}
    return partial(next, hessian_free.train_martens(net, made, X, **data))


ROWS = [
    Row("A and A'", products),
    # the scalars of an iteration
    Row("LSMR, 10 iterations", lsmr, 10),
    Row("CG, 10 iterations", cg, 10),
    # each iteration's scalars and its merit, then losses and ratio
    Row("HessianFree.step", step, 12),
    # the classes of batch and validation; then as above
    Row("HessianFree.step, softmax", classes, 14),
    # CG's iterations, two losses, loss and ratio
    Row("MartensHF.step", martens, 10),
    # V and the squared norm
    Row("batch_gradient_variance", variance, 1),
    # the step's; noise of the gradient and validation error, test error
    Row("train", train, 14),
    Row("train_martens", train_martens, 11),
]
