"""Steps of RTRL and its kin: one symbol of b = 2 sequences, and its gradient."""

from functools import partial

import torch

from labkit import rtrl
from labkit.rtrl import kronecker
from tests.device.rows import Row, on, random, seeded

CELLS = {"RNN": rtrl.RNNCell, "LSTM": rtrl.LSTMCell, "RHN": rtrl.RHNCell}
CELLS["GRU"] = rtrl.GRUCell


def made(device, name, rank, cell, inputs):
    """A cell and a learner of it."""
    dtype = torch.get_default_dtype()
    cell = CELLS[cell](inputs, 12, generator=seeded(), dtype=dtype).to(device)
    options = {"batch_size": 2, "generator": seeded(device)}
    return cell, rtrl.LEARNERS[name].make(cell, rank, **options)


def learner(device, name, rank, cell):
    _, learner = made(device, name, rank, cell, 3)
    x, dL_dh = random(device, (2, 3), (2, 12))
    return lambda: (learner.step(x), learner.backward(dL_dh))


def some(device, anew=False):
    """One of two sequences has ended, or begins anew."""
    _, learner = made(device, "OK", 8, "RHN", 3)
    (x,) = random(device, (2, 3))
    mask = torch.tensor([True, False]).to(device)

    def step():
        learner.step(x, mask=None if anew else mask)
        if anew:
            learner.reset(mask)
        return learner.state, learner.influence()

    return step


def gram(device):
    """Rows that are cut in pieces, three of them not into 128."""
    (A,) = random(device, (2, 3, 6, 20))
    return partial(kronecker.gram, A)


def drawn(device):
    (C,) = random(device, (4, 6, 5))
    return partial(rtrl.optimal_low_rank, C, 2, generator=seeded(device))


def train(device, name, rank):
    cell, learner = made(device, name, rank, "RHN", 4)
    place = on(device)
    task = rtrl.CopyTask(2, generator=seeded(device), level=4, **place)
    readout = rtrl.Readout(12, 4, generator=seeded(device), **place)
    adam = torch.optim.Adam([cell.weight, readout.weight], fused=device != "cpu")
    return partial(next, rtrl.train(learner, readout, task, optimizer=adam))


def row(name, rank, cell):
    title = f"{rtrl.learners.label(name, rank)}, {cell}"
    make = partial(learner, name=name, rank=rank, cell=cell)
    return Row(title, make)


ROWS = [
    *(row(name, 8, "RHN") for name in rtrl.LEARNERS),
    *(row(name, 8, cell) for name in ("OK", "RTRL") for cell in ("RNN", "LSTM", "GRU")),
    Row("8-OK, one masked", some),
    Row("8-OK, one reset", partial(some, anew=True)),
    Row("Gram matrices of long rows, of OK", gram),
    Row("optimal_low_rank", drawn, 1),  # cuSOLVER's decomposition, once
    Row("train, UORO", partial(train, name="UORO", rank=1)),
    Row("train, 8-OK", partial(train, name="OK", rank=8)),
]
