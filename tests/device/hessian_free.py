"""Steps of Hessian-free, and iterations of its solvers."""

from functools import partial

import torch

from labkit import hessian_free
from labkit.hessian_free.batch_size import batch_gradient_variance
from labkit.hessian_free.cg import cg_steps
from labkit.hessian_free.linearise import linearise
from labkit.hessian_free.lsmr import lsmr_steps
from labkit.hessian_free.system import build_system
from tests.device.rows import Row, random, seeded

WIDTHS = {2: (6, 3, 6), 6: (6, 5, 4, 3, 4, 5, 6)}


def autoencoder(device, layers=2):
    sparse = {"generator": seeded(), "incoming": 3}
    net = hessian_free.Autoencoder(WIDTHS[layers], **sparse).double().to(device)
    return net, random(device, (20, 6))[0].sigmoid()


def optimizer_of(net, device, **options):
    given = {"damping": 0.3, "generator": seeded(device)} | options
    return hessian_free.HessianFree(net, **given)


def step(device, layers=2, **options):
    net, X = autoencoder(device, layers)
    made = optimizer_of(net, device, maxiter=6, **options)
    return lambda: (made.step(X, validation=X[:9]), list(net.parameters()))


def martens(device):
    net, X = autoencoder(device)
    made = hessian_free.MartensHF(net, damping=0.3, maxiter=6)
    return lambda: (made.step(X, chunk=X[:9]), list(net.parameters()))


def lsmr(device, layers):
    """An iteration on the system of a step."""
    net, X = autoencoder(device, layers)
    system = optimizer_of(net, device).subproblem(X).system()
    with torch.no_grad():
        steps = lsmr_steps(system)
        next(steps)
    return torch.no_grad()(lambda: list(next(steps).x))


def bare(device, solver):
    """An iteration where A costs one kernel and A' none; weights in six blocks."""
    b, c, *blocks = random(device, (36,), (36,), *[(2, 3)] * 6)

    def A(x):
        return torch.cat(x).reshape(-1)

    def At(u):
        return tuple(u.view(12, 3).split(2))

    given = {"damping": 0.3, "scale": At(c.exp()), "x0": tuple(blocks)}
    if solver == "LSMR":
        steps = lsmr_steps(build_system(A, At, b, **given))
    else:
        steps = cg_steps(lambda x: At(A(x)), At(b), given["x0"], given["scale"])
    with torch.no_grad():
        next(steps)
    return torch.no_grad()(lambda: list(next(steps).x))


def cg(device, layers):
    net, X = autoencoder(device, layers)
    problem = optimizer_of(net, device).subproblem(X)
    with torch.no_grad():
        steps = cg_steps(problem.normal_map, problem.normal_rhs())
        next(steps)
    return torch.no_grad()(lambda: list(next(steps).x))


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


fisher = partial(step, preconditioner="fisher")
READ = "the stopping rule, at each iteration"
STEP = "the stopping rule, at each iteration; merit, loss and ratio, in parts"
ROWS = [
    Row("LSMR itself, an iteration", partial(bare, solver="LSMR"), 1, 75, READ),
    Row("CG itself, an iteration", partial(bare, solver="CG"), 1, 84, READ),
    Row("LSMR, an iteration, 2 layers", partial(lsmr, layers=2), 1, 55, READ),
    Row("LSMR, an iteration, 6 layers", partial(lsmr, layers=6), 1, 111, READ),
    Row("CG, an iteration, 2 layers", partial(cg, layers=2), 1, 57, READ),
    Row("CG, an iteration, 6 layers", partial(cg, layers=6), 1, 125, READ),
    Row("HessianFree.step, 2 layers", step, 12, 540, STEP),
    Row("HessianFree.step, 6 layers", partial(step, layers=6), 12, 1126, STEP),
    Row("HessianFree.step, Fisher", fisher, 12, 534, STEP),
    Row("MartensHF.step", martens, 12, 511, STEP),
    Row("batch_gradient_variance", variance, 1, 31, "V and the squared norm"),
    Row("train", train, 16, 589, STEP),
    Row("train_martens", train_martens, 13, 520, STEP),
]
