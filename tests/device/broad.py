"""Starts and updates of the broad solvers, and their factorisations."""

from functools import partial

from labkit.broad import factor as factors
from labkit.broad import ldl as rootless
from labkit.broad.solvers import SOLVERS
from tests.device.rows import Row, random


def update(device, name):
    A, H, Y = random(device, (20, 6), (20, 3), (20, 2))
    solver = SOLVERS[name]
    state = solver.start(A, Y, 0.1)
    return lambda: solver.update(state, A, H, Y)


def start(device, name):
    A, Y = random(device, (20, 6), (20, 2))
    return lambda: SOLVERS[name].start(A, Y, 0.1)


def factor(device, call=factors.inverse_cholesky):
    (A,) = random(device, (20, 7))
    return partial(call, A.T @ A)


def extend(device):
    (A,) = random(device, (20, 7))
    R = A.T @ A
    F = factors.inverse_cholesky(R[:4, :4])
    return lambda: factors.extend_inverse_cholesky(F, R[:4, 4:], R[4:, 4:])


def row(make, name, waits, kernels):
    title = f"{name}, {make.__name__}"
    return Row(title, partial(make, name=name), waits, kernels, PIVOTS)


ldl = partial(factor, call=rootless.inverse_ldl)
division_free = partial(factor, call=rootless.division_free_inverse_ldl)
PIVOTS = "whether a pivot was lost, once for all"
ROWS = [
    row(update, "d-rdg", 1, 17),
    row(update, "orig", 1, 25),
    row(update, "exg-e", 1, 41),
    row(update, "chol-1", 1, 43),
    row(update, "chol-2", 1, 43),
    row(update, "r-inv", 1, 26),
    row(update, "bordered", 1, 32),
    row(start, "d-rdg", 1, 10),
    row(start, "orig", 1, 16),
    row(start, "exg-e", 1, 28),
    row(start, "chol-1", 1, 28),
    row(start, "chol-2", 1, 28),
    row(start, "r-inv", 1, 16),
    row(start, "bordered", 1, 19),
    Row("inverse_cholesky", factor, 1, 16, PIVOTS),
    Row("inverse_ldl, 7 columns", ldl, 1, 45, PIVOTS),
    Row("division_free_inverse_ldl, 7 columns", division_free, 1, 102, PIVOTS),
    Row("extend_inverse_cholesky", extend, 1, 28, PIVOTS),
]
