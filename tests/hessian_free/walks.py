"""Real steps of Hessian-free, to be recorded; each made anew at every call."""

from functools import partial

from labkit import hessian_free
from labkit.hessian_free.batch_size import batch_gradient_variance, grow
from labkit.hessian_free.linearise import linearise
from labkit.hessian_free.preconditioner import KINDS
from tests.device.hessian_free import train, train_martens
from tests.draws import seeded
from tests.walks import Walk, random


def autoencoder():
    net = hessian_free.Autoencoder((6, 3, 6), generator=seeded(), incoming=3)
    return net.double(), random((20, 6))[0].sigmoid()


def hf_step(preconditioner):
    net, X = autoencoder()
    generator = seeded(1)
    optimizer = hessian_free.HessianFree(
        net, damping=0.3, maxiter=8, preconditioner=preconditioner, generator=generator
    )
    optimizer.step(X)
    call = partial(optimizer.step, X, validation=X[:9])
    kept = lambda: (list(net.parameters()), optimizer.state_dict(), generator)  # noqa: E731
    return Walk(
        call, kept, {hessian_free.HessianFree.step: "1 2 3 4 5 6 7 8 A1 A2 B1 B2 B3"}
    )


def hf_martens():
    net, X = autoencoder()
    optimizer = hessian_free.MartensHF(net, damping=0.3, maxiter=8)
    optimizer.step(X)
    kept = lambda: (list(net.parameters()), optimizer.state_dict())  # noqa: E731
    shows = {hessian_free.MartensHF.step: "1 2 3 4 5 6 7 8"}
    return Walk(partial(optimizer.step, X, chunk=X[:9]), kept, shows)


def hf_lsmr():
    A, b, c = random((12, 5), 12, 5)
    call = partial(hessian_free.lsmr, A, b, damping=0.5, scale=c.exp())
    return Walk(call, lambda: (A, b, c), {hessian_free.lsmr: "1 2 3 4 5 6 7 8 9"})


def hf_cg():
    A, b = random((12, 5), 5)
    B = A.T @ A
    call = partial(hessian_free.cg, lambda x: B @ x, b)
    return Walk(call, lambda: (B, b), {hessian_free.cg: "1 2 3 4 5 6"})


def hf_variance():
    net, X = autoencoder()
    point = linearise(net, X)
    call = partial(batch_gradient_variance, point)
    return Walk(call, lambda: X, {batch_gradient_variance: "1"})


def hf_next_size():
    call = partial(hessian_free.next_batch_size, 4.0, 1.0, 1000, 0.5)
    return Walk(call, tuple, {hessian_free.next_batch_size: "2 3"})


def hf_grow(n):
    call = partial(grow, n, 150, [90] * 6, [1.0] * 6, 2000)
    return Walk(call, tuple, {grow: "4 5 6 7"})


WALKS = {f"HessianFree {kind}": partial(hf_step, kind) for kind in KINDS}
WALKS |= {"MartensHF": hf_martens, "LSMR": hf_lsmr, "CG": hf_cg}
WALKS |= {"gradient variance": hf_variance, "next batch size": hf_next_size}
WALKS |= {
    "growth, stalled": partial(hf_grow, 100),
    "growth, variance": partial(hf_grow, 50),
}


# The walked function, and a step of the table of devices that goes through it.
STEPS = {
    # all of the steps below, which training draws one by one
    hessian_free.lsmr: lambda device: hf_lsmr().call,
    hessian_free.HessianFree.step: train,
    hessian_free.lsmr_steps: train,
    batch_gradient_variance: train,
    hessian_free.next_batch_size: train,
    grow: train,
    hessian_free.MartensHF.step: train_martens,
    hessian_free.cg: train_martens,
}
