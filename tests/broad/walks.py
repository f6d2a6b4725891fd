"""Real steps of broad learning, to be recorded; each made anew at every call."""

from functools import partial

from labkit.broad import (
    BroadLearningRegressor,
    factor as factors,
    ldl,
    leave_one_out,
    sweep,
)
from labkit.broad.solvers import SOLVERS
from tests.device.rows import estimator
from tests.walks import Walk, random

UPDATES = {
    "d-rdg": "35 6",
    "orig": "23 22 21a 20 24",
    "exg-e": "30 22 32a 32b 33 41",
    "chol-1": "40 a 42a 42b 41 50",
    "chol-2": "51 52 57 59 61 41",
    "r-inv": "67 52 68 64 66",
    "bordered": "1 2 3 4 5",
}


def broad_update(name, size=1, shows=None):
    A, H, Y = random((20, 6), (20, 3), (20, 2))
    solver = SOLVERS[name]
    state = solver.start(A, Y, 0.1)
    call = partial(solver.update, state, A, size * H, Y)
    return Walk(call, lambda: state, {solver.update: shows or UPDATES[name]})


def broad_start(name):
    A, Y = random((20, 6), (20, 2))
    start = SOLVERS[name].start
    return Walk(partial(start, A, Y, 0.1), lambda: (A, Y), {start: STARTS[name]})


def broad_leave_one_out():
    A, Y = random((20, 6), (20, 2))
    function = leave_one_out.leave_one_out
    call = partial(function, A, Y, [0.1, 1.0])
    return Walk(call, lambda: (A, Y), {function: "1 2 3"})


def broad_factor(call, shows):
    (A,) = random((20, 7))
    R, function = A.T @ A, getattr(call, "func", call)
    return Walk(partial(call, R), lambda: R, {function: shows})


def broad_extend():
    (A,) = random((20, 7))
    R = A.T @ A
    extend = factors.extend_inverse_cholesky
    F = factors.inverse_cholesky(R[:4, :4])
    call = partial(extend, F, R[:4, 4:], R[4:, 4:])
    return Walk(call, lambda: (F, R), {extend: "a 42a 42b 41"})


def broad_block_form(call, factorise, shows):
    (A,) = random((20, 7))
    R = A.T @ A
    old = factorise(R[:4, :4])
    return Walk(partial(call, *old, R[:4, 4:], R[4:, 4:]), lambda: old, {call: shows})


by_panels = partial(factors.inverse_cholesky, panel=3)
by_columns = partial(factors.inverse_cholesky, method="columns")
by_blocks = partial(sweep.block_inverse_ldl, edges=[0, 3, 7])
FACTORS = {
    "inverse Cholesky, panels": (by_panels, "124a 124b 124c 124d a"),
    "inverse Cholesky, columns": (by_columns, "107a 107b"),
    "inverse LDL": (ldl.inverse_ldl, "222 223a 223b 223c a"),
    "block sweep": (by_blocks, "222 223a 223b 223c a"),
    "division free": (ldl.division_free_inverse_ldl, "1 2 3 4 5 6 a b c d e"),
}
BLOCKS = {
    "209": (ldl.extend_inverse_ldl, ldl.inverse_ldl, "a b c 209"),
    "231": (
        ldl.extend_division_free_inverse_ldl,
        ldl.division_free_inverse_ldl,
        "a b c 231",
    ),
}.items()
STARTS = {"d-rdg": "35 6", "chol-1": "34 49", "r-inv": "7 6", "bordered": "1 2 3"}
WALKS = {
    **{f"broad {name}": partial(broad_update, name) for name in UPDATES},
    **{f"broad start {name}": partial(broad_start, name) for name in STARTS},
    **{name: partial(broad_factor, *how) for name, how in FACTORS.items()},
    "broad orig, C = 0": partial(broad_update, "orig", 0, "23 22 21b 20 24"),
    "inverse Cholesky, extended": broad_extend,
    **{f"block form {name}": partial(broad_block_form, *how) for name, how in BLOCKS},
    "broad leave one out": broad_leave_one_out,
}


def fit(device, name, **options):
    make = partial(BroadLearningRegressor, 2, 3, 20, solver=name, **options)
    return estimator(device, make, change="add_nodes")


# The walked function, and a step of the table of devices that goes through it.
STEPS = {
    **{SOLVERS[name].update: partial(fit, name=name) for name in SOLVERS},
    **{SOLVERS[name].start: partial(fit, name=name) for name in SOLVERS},
    factors.panel_sweep: partial(fit, name="chol-1"),
    leave_one_out.leave_one_out: partial(fit, name="chol-1", ridge=[0.1, 1.0]),
}
