"""Real steps of RTRL and its kin, to be recorded; each made anew at every call."""

from functools import partial

import torch

from labkit import rtrl
from labkit.rtrl import kronecker, ktp, uoro
from labkit.rtrl.exact import rtrl_step
from labkit.rtrl.low_rank import mixing_matrix
from tests.walks import Walk, generator, random


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
WALKS = {
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


def train(kind, **options):
    task = rtrl.CopyTask(batch_size=2, generator=generator())
    cell = rtrl.RHNCell(len(task.symbols), 4, generator=generator())
    made = kind(cell, batch_size=2, generator=generator(1), **options)
    readout = rtrl.Readout(4, len(task.symbols), generator=generator())
    return list(rtrl.train(made, readout, task, steps=3))


# The walked function, and a training run that goes through it.
STEPS = {
    rtrl.OK.step: partial(train, rtrl.OK, rank=2),
    kronecker.ok_step: partial(train, rtrl.OK, rank=2),
    kronecker.kf_step: partial(train, rtrl.KFRTRL),
    uoro.uoro_step: partial(train, rtrl.UORO),
    ktp.ktp_step: partial(train, rtrl.KTP, rank=2),
    ktp.ktp_shared_step: partial(train, rtrl.KTP, rank=2, shared=True),
    rtrl_step: partial(train, rtrl.RTRL),
}
