"""Golden numbers of Hessian-free: maps, solvers, steps and records of training."""

from dataclasses import fields

import torch
from torch import nn

from labkit import hessian_free as hf

ACTIVATIONS = {
    "logistic": None,
    "tanh": ("tanh", "linear", "tanh", "linear"),
    "relu": ("relu", "linear", "relu", "logistic"),
}
LEFT_OUT = "seconds", "detail", "direction_norm", "point", "problem"
LEFT_OUT += "cosine", "gamma", "rnorm", "arnorm", "q"
KINDS = "random_signs", "fisher", "jacobi", "none"


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def images(n=20, width=6, seed=1):
    return normal(n, width, seed=seed).sigmoid()


def coder(activations=None, seed=0):
    return hf.Autoencoder(
        (6, 5, 3, 5, 6),
        activations=activations,
        incoming=4,
        generator=seeded(seed),
        dtype=torch.float64,
    )


def module(outputs=6):
    layers = nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, outputs)
    net = nn.Sequential(*layers).double()
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(0.6 * normal(*p.shape, seed=40 + i))
    return net


def flat(blocks):
    return torch.cat([t.detach().reshape(-1) for t in blocks])


def numbers(record):
    """The numbers of a record or of a step, without its clock, in one row."""
    found = []
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name not in LEFT_OUT and not isinstance(value, str):
            value = float("nan") if value is None else value
            found.append(torch.tensor(value, dtype=torch.float64).reshape(-1))
    return torch.cat(found)


def maps(make, targets=None, loss="squared"):
    def case():
        net, X = make(), images()
        T = None if targets is None else targets()
        point = hf.linearise(net, X, T, loss=loss)
        d = tuple(normal(*W.shape, seed=i) for i, W in enumerate(point.weights))
        U = normal(*point.residual.shape, seed=9)
        gradient, squares = point.gradient_moments()
        found = {"residual": point.residual, "loss": point.loss()}
        found |= {"Ad": point.forward_map(d), "AtU": flat(point.transpose_map(U))}
        found |= {"squares": flat(point.sum_squares(U)), "gradient": flat(gradient)}
        found |= {"moment": squares, "mean": hf.mean_loss(net, X, T, loss=loss)}
        V, g2 = hf.batch_gradient_variance(point)
        found |= {"V": torch.tensor(V), "g2": torch.tensor(g2)}
        for kind in KINDS[:3]:
            c = hf.diagonal_preconditioner(
                point, kind, damping=0.3, generator=seeded(7)
            )
            found[kind] = flat(c)
        return found

    return case


def classes():
    return torch.arange(20) % 3


def steps(make, targets=None, loss="squared", validation=True, **options):
    def case():
        net, X, V = make(), images(), images(9, seed=2)
        T = None if targets is None else targets()
        held = None
        if validation:
            held = V if T is None else (V, T[:9])
        given = {"damping": 0.4, "damping_decay": 0.8, "maxiter": 30} | options
        made = hf.HessianFree(net, loss=loss, generator=seeded(3), **given)
        found = {}
        for step in range(4):
            done = made.step(X, T, validation=held)
            found[f"{step} record"] = numbers(done)
            found[f"{step} w"] = flat(net.parameters())
            found[f"{step} warm"] = flat(made.warm_start())
        return found

    return case


def martens(make, targets=None, loss="squared", chunked=True):
    def case():
        net, X, V = make(), images(), images(9, seed=2)
        T = None if targets is None else targets()
        chunk = None
        if chunked:
            chunk = V if T is None else (V, T[:9])
        made = hf.MartensHF(net, loss=loss, damping=2.0, maxiter=40)
        found = {}
        for step in range(4):
            done = made.step(X, T, chunk=chunk)
            found[f"{step} record"] = numbers(done)
            found[f"{step} w"] = flat(net.parameters())
            found[f"{step} warm"] = flat(made.warm_start())
        return found

    return case


def train(activations=None, noise=0.0, **options):
    def case():
        net = coder(activations)
        X, V, T = images(60).split((40, 10, 10))
        given = {"damping": 0.4, "damping_decay": 0.8, "maxiter": 15, "patience": 5}
        made = hf.HessianFree(net, generator=seeded(3), **given | options)
        records = hf.train(
            net,
            made,
            X,
            validation=V,
            test=T,
            batch_size=8,
            settings=hf.Settings(theta=0.5, max_batch_size=30, input_noise=noise),
            steps=10,
            generator=seeded(4),
        )
        found = {}
        for record in records:
            found[f"{record.step}"] = numbers(record)
        return found | {"w": flat(net.parameters())}

    return case


def train_martens(gradient):
    def case():
        net = coder()
        X, V = images(60).split((48, 12))
        records = hf.train_martens(
            net,
            hf.MartensHF(net, damping=2.0, maxiter=40),
            X,
            validation=V,
            chunks=4,
            gradient=gradient,
            steps=6,
            generator=seeded(4),
        )
        found = {}
        for record in records:
            found[f"{record.step}"] = numbers(record)
        return found | {"w": flat(net.parameters())}

    return case


def system():
    A = normal(14, 9) * torch.logspace(0, -2, 9, dtype=torch.float64)
    return A, normal(14, seed=1), normal(9, seed=2), 0.2 + normal(9, seed=3).sigmoid()


def solved(warm=True, scaled=True, blocks=False, **options):
    def case():
        A, b, x0, c = system()
        given = dict(options)

        def split(x):
            return (x[:4].view(2, 2), x[4:]) if blocks else x

        if warm:
            given["x0"] = split(x0)
        if scaled:
            given["scale"] = split(c)
        if blocks:
            found = hf.lsmr(
                lambda x: A @ flat(x), b, At=lambda u: split(A.T @ u), **given
            )
            x = flat(found.x)
        else:
            found = hf.lsmr(A, b, **given)
            x = found.x
        stats = found.stats
        merit = [list(pair) for pair in stats.merit]
        return {
            "x": x,
            "iterations": torch.tensor(stats.iterations),
            "best": torch.tensor(stats.best),
            "rnorm": torch.tensor(stats.rnorm),
            "arnorm": torch.tensor(stats.arnorm),
            "anorm": torch.tensor(stats.anorm),
            "merit": torch.tensor(merit, dtype=torch.float64),
        }

    return case


def conjugate(warm=True, scaled=True, **options):
    def case():
        A, b, x0, c = system()
        B = A.T @ A + 0.09 * torch.eye(9, dtype=torch.float64)
        given = dict(options)
        if warm:
            given["x0"] = x0
        if scaled:
            given["preconditioner"] = c
        found = hf.cg(lambda x: B @ x, A.T @ b, **given)
        kept = [k for k, _ in found.kept]
        return {
            "x": found.x,
            "iterations": torch.tensor(found.iterations),
            "q": torch.tensor(found.q),
            "rnorm": torch.tensor(found.rnorm),
            "kept": torch.tensor(kept),
        }

    return case


def watched(x):
    """A merit that falls and rises again."""
    return float((x - 0.3).square().sum())


def next_sizes():
    table = [(9.0, 1.2, 12, 0.8), (4.0, 2.5, 1000, 0.5), (900.0, 0.02, 10**5, 0.3)]
    return {"n": torch.tensor([hf.next_batch_size(*row) for row in table])}


STOP = {"atol": 0.0, "maxiter": 7}
CASES = {
    "next_batch_size": next_sizes,
    "lsmr plain": solved(False, False, **STOP),
    "lsmr damped": solved(False, False, damping=0.3, **STOP),
    "lsmr whole": solved(damping=0.3, **STOP),
    "lsmr blocks": solved(blocks=True, damping=0.3, **STOP),
    "lsmr to its end": solved(damping=0.3, atol=1e-6, maxiter=60),
    "lsmr merit": solved(
        damping=0.1, atol=0.0, maxiter=40, merit=watched, miniter=4, patience=3
    ),
    "lsmr as published": solved(
        damping=0.1,
        atol=0.0,
        maxiter=9,
        merit=watched,
        miniter=2,
        patience=1,
        as_published=True,
    ),
    "cg plain": conjugate(False, False, maxiter=6, tolerance=0.0),
    "cg whole": conjugate(maxiter=8, tolerance=0.0, keep=True),
    "cg to its end": conjugate(maxiter=60),
    "train": train(),
    "train noise": train(noise=0.2, preconditioner="fisher"),
    "train tanh": train(ACTIVATIONS["tanh"]),
    "train published": train(as_published=True, preconditioner="none"),
    "train_martens full": train_martens("full"),
    "train_martens batch": train_martens("batch"),
    "maps module": maps(module),
    "maps classes": maps(lambda: module(3), classes, "softmax"),
    "step module": steps(module),
    "step classes": steps(lambda: module(3), classes, "softmax"),
    "step without validation": steps(coder, validation=False),
    "martens": martens(coder),
    "martens batch": martens(coder, chunked=False),
    "martens module": martens(module),
    "martens classes": martens(lambda: module(3), classes, "softmax"),
}
for norm in ("identity", "scaled"):
    for towards in ("zero", "start"):
        form = {"damping_norm": norm, "damp_towards": towards}
        CASES[f"lsmr {norm} {towards}"] = solved(damping=0.3, **STOP, **form)
        CASES[f"step {norm} {towards}"] = steps(coder, **form)
for kind in KINDS:
    CASES[f"step {kind}"] = steps(coder, preconditioner=kind)
for name, activations in ACTIVATIONS.items():

    def make(activations=activations):
        return coder(activations)

    CASES[f"maps {name}"] = maps(make)
    CASES[f"step {name}"] = steps(make)
