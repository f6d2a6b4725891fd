"""Real steps of all five rooms, to be recorded; each made anew at every call."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from labkit import bpls, hessian_free, rls, rtrl
from labkit.bpls.activations import activation
from labkit.bpls.refine import sweep, with_output
from labkit.bpls.solve import factor
from labkit.bpls.targets import READINGS, hidden_targets
from labkit.bpls.walk import hidden_values, layer_step, walked
from labkit.broad import factor as factors
from labkit.broad.solvers import SOLVERS
from labkit.hessian_free.batch_size import gradient_variance, grow
from labkit.hessian_free.linearise import linearise
from labkit.rtrl import kronecker, ktp, uoro
from labkit.rtrl.exact import rtrl_step
from labkit.rtrl.low_rank import mixing_matrix


class Walk(NamedTuple):
    """One real step, made anew at each call of its maker."""

    call: Callable[[], Any]
    kept: Callable[[], Any]  # all that the step may change
    shows: Mapping[Callable, str] = {}  # tags met in a function and what it calls
    follow: tuple[str, ...] | None = None


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random(*shapes, dtype=torch.float64):
    g = generator()
    return [torch.randn(shape, generator=g, dtype=dtype) for shape in shapes]


# RLS


def rls_function():
    x, gradient, theta, V = random(6, (3, 6), (3, 6), (3, 6))
    state = rls.LayerState(theta, V, torch.eye(6).double())
    call = partial(rls.rls_step, state, x, gradient, momentum=0.5, l1=0.1)
    return Walk(call, lambda: state, {rls.rls_step: "37 38 39 99 100"})


class LastOfLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(8, 5), nn.Linear(5, 3)

    def forward(self, X):
        return self.out(self.lstm(X.transpose(0, 1))[0][-1])


def rls_optimizer(layers, shows="37 38 39 99 100", **options):
    torch.manual_seed(0)
    conv = (nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
    model = {
        "FC": lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 3)
        ),
        "CONV": lambda: nn.Sequential(*conv, nn.Linear(144, 3)),
        "LSTM": LastOfLSTM,
    }[layers]()
    kind = options.pop("kind", rls.RLS)
    optimizer = kind(model, **options)
    (X,) = random((7, 8, 8), dtype=torch.float32)
    for step in range(2):
        optimizer.zero_grad()
        rls.squared_error(model(X), torch.arange(7) % 3).backward()
        if not step:
            optimizer.step()
    kept = lambda: (list(model.parameters()), optimizer.state_dict())  # noqa: E731
    return Walk(optimizer.step, kept, {kind.step: shows})


def rls_hybrid():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    first = rls.RLS(model, layers=["0"], max_grad_norm=1.0)
    both = rls.Hybrid(first, torch.optim.Adam(model[2].parameters()))
    (X,) = random((7, 4), dtype=torch.float32)
    nn.functional.cross_entropy(model(X), torch.arange(7) % 3).backward()
    kept = lambda: (list(model.parameters()), both.state_dict())  # noqa: E731
    return Walk(both.step, kept, {rls.RLS.apply: "37 38 39 99 100"})


RLS_WALKS = {
    "rls_step": rls_function,
    **{
        f"RLS {layers}": partial(rls_optimizer, layers, momentum=0.5, l1=1e-3)
        for layers in ("FC", "CONV", "LSTM")
    },
    "RLS plain, clipped": partial(rls_optimizer, "FC", max_grad_norm=1.0),
    "RLS running mean": partial(rls_optimizer, "FC", "99 100", kind=rls.RunningMeanRLS),
    "Hybrid": rls_hybrid,
}

# BPLS


def bpls_layer(reading, method=None, second_solve=False):
    H, B = random((30, 5), (30, 2))
    a = activation("tanh")
    options = {"reading": reading, "method": method, "second_solve": second_solve}
    call = partial(layer_step, 2, H.tanh(), B, a, **options)
    both = "5 6 7 8 9" if second_solve else "5 6 7 8"
    names = {"per_neuron": "5a", "gauss_seidel": "5b", "mean": "5c", "cyclic": "5d"}
    names |= {"label": "5e", 1: "5f", "min_norm": "5'", "none": ""}
    return Walk(
        call, lambda: (H, B), {layer_step: both, hidden_targets: names[reading]}
    )


def bpls_walk():
    X, Y = random((30, 4), (30, 2))
    a = [activation("tanh")] * 2
    weights = bpls.random_weights((4, 6, 5, 2), generator=generator(), dtype=X.dtype)
    call = partial(walked, X, Y, weights, a)
    shows = {bpls.walk: "5 6 7 8", hidden_values: "2 3"}
    return Walk(call, lambda: (X, Y, weights), shows)


def bpls_train():
    (X,) = random((40, 6))
    Y = torch.arange(40) % 3
    weights = bpls.random_weights((6, 5, 3), generator=generator(), dtype=X.dtype)

    def call():
        records = list(bpls.train(X, Y, weights, max_walks=2))
        return [dataclasses.replace(r, seconds=0, end=None) for r in records]

    shows = {bpls.train: "1 2 3 5 6 7 8 9 20"}
    return Walk(call, lambda: weights, shows, ("labkit.bpls",))


def bpls_sweep():
    X, B, W1 = random((30, 4), (30, 2), (4, 5))
    a, regular = activation("tanh"), factor(X, 1e-3)
    state = with_output(X, B, W1, a, 1e-3)
    call = partial(sweep, X, B, state, regular, a, alpha=1.0, mu=0.1, ridge=1e-3)
    return Walk(call, lambda: state, {sweep: "1 2 3 4 5 6"})


BPLS_WALKS = {
    **{
        f"BPLS {reading}": partial(bpls_layer, reading)
        for reading in (*READINGS[:-1], 1)
    },
    "BPLS eigh": partial(bpls_layer, "min_norm", "eigh", True),
    "BPLS svd": partial(bpls_layer, "min_norm", "svd", True),
    "BPLS walk": bpls_walk,
    "BPLS train": bpls_train,
    "BPLS refinement": bpls_sweep,
}

# Hessian-free


def autoencoder():
    net = hessian_free.Autoencoder((6, 3, 6), generator=generator(), incoming=3)
    return net.double(), random((20, 6))[0].sigmoid()


def hf_step(preconditioner="random_signs", shows="1 2 3 4 5 6 7 8"):
    net, X = autoencoder()
    g = generator(1)
    optimizer = hessian_free.HessianFree(
        net, damp=0.3, maxiter=8, preconditioner=preconditioner, generator=g
    )
    optimizer.step(X)
    call = partial(optimizer.step, X, validation=X[:9])
    kept = lambda: (list(net.parameters()), optimizer.state_dict(), g)  # noqa: E731
    return Walk(call, kept, {hessian_free.HessianFree.step: shows + " A1 A2 B1 B2 B3"})


def hf_martens():
    net, X = autoencoder()
    optimizer = hessian_free.MartensHF(net, damp=0.3, maxiter=8)
    optimizer.step(X)
    kept = lambda: (list(net.parameters()), optimizer.state_dict())  # noqa: E731
    shows = {hessian_free.MartensHF.step: "1 2 3 4 5 6 7 8"}
    return Walk(partial(optimizer.step, X, chunk=X[:9]), kept, shows)


def hf_lsmr():
    A, b, c = random((12, 5), 12, 5)
    call = partial(hessian_free.lsmr, A, None, b, damp=0.5, scale=c.exp())
    return Walk(call, lambda: (A, b, c), {hessian_free.lsmr: "1 2 3 4 5 6 7 8 9"})


def hf_cg():
    A, b = random((12, 5), 5)
    B = A.T @ A
    call = partial(hessian_free.cg, lambda x: B @ x, b)
    return Walk(call, lambda: (B, b), {hessian_free.cg: "1 2 3 4 5 6"})


def hf_variance():
    net, X = autoencoder()
    point = linearise(net, X)
    return Walk(partial(gradient_variance, point), lambda: X, {gradient_variance: "1"})


def hf_next_size():
    call = partial(hessian_free.next_batch_size, 4.0, 1.0, 1000, 0.5)
    return Walk(call, tuple, {hessian_free.next_batch_size: "2 3"})


def hf_grow(n):
    call = partial(grow, n, 150, [90] * 6, [1.0] * 6, 2000)
    return Walk(call, tuple, {grow: "4 5 6 7"})


HESSIAN_FREE_WALKS = {
    **{
        f"HessianFree {kind}": partial(hf_step, kind)
        for kind in ("random_signs", "fisher", "jacobi", "none")
    },
    "MartensHF": hf_martens,
    "LSMR": hf_lsmr,
    "CG": hf_cg,
    "gradient variance": hf_variance,
    "next batch size": hf_next_size,
    "growth, stalled": partial(hf_grow, 100),
    "growth, variance": partial(hf_grow, 50),
}

# Broad

UPDATES = {
    "d-rdg": "35 6",
    "orig": "23 22 21a 20 24",
    "exg-e": "30 22 32a 32b 33 41",
    "chol-1": "a 42a 42b 41 50",
    "chol-2": "51 52 57 59 61 41",
    "r-inv": "67 52 68 64 66",
    "bordered": "1 2 3 4 5",
}


def broad_update(name):
    A, H, Y = random((20, 6), (20, 3), (20, 2))
    solver = SOLVERS[name]
    state = solver.start(A, Y, 0.1)
    call = partial(solver.update, state, A, H, Y)
    return Walk(call, lambda: state, {solver.update: UPDATES[name]})


def broad_start(name, shows):
    A, Y = random((20, 6), (20, 2))
    start = SOLVERS[name].start
    return Walk(partial(start, A, Y, 0.1), lambda: (A, Y), {start: shows})


def broad_factor(function, shows, **options):
    (A,) = random((20, 7))
    R = A.T @ A
    return Walk(partial(function, R, **options), lambda: R, {function: shows})


def broad_extend():
    (A,) = random((20, 7))
    R = A.T @ A
    extend = factors.extend_inverse_cholesky
    F = factors.inverse_cholesky(R[:4, :4])
    call = partial(extend, F, R[:4, 4:], R[4:, 4:])
    return Walk(call, lambda: (F, R), {extend: "a 42a 42b 41"})


BROAD_WALKS = {
    **{f"broad {name}": partial(broad_update, name) for name in UPDATES},
    "broad start d-rdg": partial(broad_start, "d-rdg", "35 6"),
    "broad start chol-1": partial(broad_start, "chol-1", "34 49"),
    "broad start r-inv": partial(broad_start, "r-inv", "7 6"),
    "broad start bordered": partial(broad_start, "bordered", "1 2 3"),
    "inverse Cholesky, panels": partial(
        broad_factor, factors.inverse_cholesky, "124a 124b 124c 124d a", panel=3
    ),
    "inverse Cholesky, columns": partial(
        broad_factor, factors.inverse_cholesky, "107a 107b", method="columns"
    ),
    "inverse Cholesky, extended": broad_extend,
    "inverse LDL": partial(broad_factor, factors.inverse_ldl, "222 223a 223b 223c a"),
    "division free": partial(
        broad_factor, factors.division_free_inverse_ldl, "1 2 3 4 5 6"
    ),
}

# RTRL


def learner(kind, cell, shows, method="step", **options):
    cell = cell(3, 4, generator=generator(), dtype=torch.float64)
    made = kind(cell, batch_size=2, generator=generator(1), **options)
    inputs = random(*[(2, 3)] * 4)
    for x in inputs:
        made.step(x)
    call = partial(made.step, inputs[0])
    if method == "backward":
        call = partial(made.backward, random((2, 4))[0])
    kept = lambda: (list(cell.parameters()), made.state_dict())  # noqa: E731
    return Walk(call, kept, shows)


def highway(kind, shows, **options):
    return learner(kind, rtrl.RHNCell, shows, **options)


def low_rank():
    (C,) = random((5, 4))
    g = generator(1)
    call = partial(rtrl.optimal_low_rank, C, 2, generator=g)
    shows = {rtrl.optimal_low_rank: "1 2 3", mixing_matrix: "1 2 3 4"}
    return Walk(call, lambda: (C, g), shows)


CELLS = {
    rtrl.RNNCell: "1 2",
    rtrl.RHNCell: "1 2 3 4",
    rtrl.LSTMCell: "1 2 3 4 5 6",
}
OK_STEP = {kronecker.ok_step: "1 2 3 4 5 6 7 8"}
KF_STEP = {kronecker.kf_step: "1 2 3 4"}
RTRL_WALKS = {
    **{
        f"OK {cell.__name__}": partial(
            learner, rtrl.OK, cell, OK_STEP | {cell.linearise: shows}, rank=2
        )
        for cell, shows in CELLS.items()
    },
    "OK biased": partial(highway, rtrl.OK, OK_STEP, rank=2, biased=True),
    "KF": partial(highway, rtrl.KFRTRL, KF_STEP, copies=2),
    "KF, D of rank 2": partial(highway, rtrl.KFRTRL, KF_STEP, diagonal_rank=2),
    "UORO": partial(highway, rtrl.UORO, {uoro.uoro_step: "1 2 3 4 5"}),
    "KTP": partial(highway, rtrl.KTP, {ktp.ktp_step: "1 2 3 4"}, rank=2),
    "KTP shared": partial(
        highway, rtrl.KTP, {ktp.ktp_shared_step: "1 2 3 4 5"}, rank=2, shared=True
    ),
    "RTRL": partial(highway, rtrl.RTRL, {rtrl_step: "1 2"}),
    "TBPTT": partial(
        highway, rtrl.TBPTT, {rtrl.RHNCell.vjp: "1 2"}, method="backward", horizon=4
    ),
    "optimal low rank": low_rank,
}

WALKS = RLS_WALKS | BPLS_WALKS | HESSIAN_FREE_WALKS | BROAD_WALKS | RTRL_WALKS
