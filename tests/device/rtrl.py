"""Steps of RTRL and its kin: one symbol of b = 2 sequences, and its gradient."""

from functools import partial

import torch

from labkit import rtrl
from labkit.rtrl import kronecker
from labkit.rtrl.kronecker import LONG
from tests.device.rows import Row, on, random, seeded

CELLS = {"RNN": rtrl.RNNCell, "LSTM": rtrl.LSTMCell, "RHN": rtrl.RHNCell}
CELLS["GRU"] = rtrl.GRUCell


def learner(device, name, rank, cell):
    cell = CELLS[cell](3, 12, generator=seeded(), dtype=torch.get_default_dtype()).to(
        device
    )
    options = {"batch_size": 2, "generator": seeded(device)}
    made = rtrl.LEARNERS[name].make(cell, rank, **options)
    x, dL_dh = random(device, (2, 3), (2, 12))
    return lambda: (made.step(x), made.backward(dL_dh))


def masked(device):
    """One of two sequences has ended; and d L / d x of the other's step."""
    cell = rtrl.RHNCell(3, 12, generator=seeded(), dtype=torch.get_default_dtype()).to(
        device
    )
    made = rtrl.OK(cell, batch_size=2, rank=8, generator=seeded(device))
    x, dL_dh = random(device, (2, 3), (2, 12))
    mask = torch.tensor([True, False]).to(device)
    return lambda: (made.step(x, mask=mask), made.input_gradient(dL_dh))


def gram(device):
    """Rows long enough to be cut in pieces."""
    (rows,) = random(device, (2, 3, LONG))
    return partial(kronecker.gram_of_rows, rows)


def low_rank(device, call=rtrl.best_low_rank, **options):
    return partial(call, *random(device, (4, 6, 5)), 2, **options)


def drawn(device):
    return low_rank(device, rtrl.optimal_low_rank, generator=seeded(device))


def train(device, name, rank, module=False):
    cell = rtrl.RHNCell(4, 12, generator=seeded(), dtype=torch.get_default_dtype()).to(
        device
    )
    options = {"batch_size": 2, "generator": seeded(device)}
    made = rtrl.LEARNERS[name].make(cell, rank, **options)
    place = on(device)
    task = rtrl.CopyTask(2, generator=seeded(device), level=4, **place)
    readout = rtrl.Readout(12, 4, generator=seeded(device), **place)
    if module:
        readout = torch.nn.Sequential(readout, torch.nn.Tanh())
    weights = [cell.weight, *readout.parameters()]
    adam = torch.optim.Adam(weights, fused=device != "cpu")
    return partial(next, rtrl.train(made, readout, task, optimizer=adam))


def row(name, rank, cell, waits, why=""):
    title = f"{rtrl.learners.label(name, rank)}, {cell}"
    make = partial(learner, name=name, rank=rank, cell=cell)
    return Row(title, make, waits, why)


SVD = "cuSOLVER's decomposition, once"
ROWS = [
    row("RTRL", 1, "RNN", 0),
    row("RTRL", 1, "LSTM", 0),
    row("RTRL", 1, "RHN", 0),
    row("RTRL", 1, "GRU", 0),
    row("UORO", 1, "RNN", 0),
    row("UORO", 1, "LSTM", 0),
    row("UORO", 1, "RHN", 0),
    row("SNAP-1", 1, "RHN", 0),
    row("RFLO", 1, "RHN", 0),
    row("TBPTT", 5, "RNN", 0),
    row("TBPTT", 5, "LSTM", 0),
    row("TBPTT", 5, "RHN", 0),
    row("KF-AVG", 1, "RHN", 0),
    row("KF-APPROX", 1, "RHN", 0),
    row("KTP", 8, "RNN", 0),
    row("KTP", 8, "LSTM", 0),
    row("KTP", 8, "RHN", 0),
    row("KTP-SHARED", 8, "RHN", 0),
    row("OK", 8, "RNN", 0),
    row("OK", 8, "LSTM", 0),
    row("OK", 8, "RHN", 0),
    row("OK", 8, "GRU", 0),
    row("B-OK", 8, "RHN", 0),
    Row("8-OK, one masked, and its input_gradient", masked, 0),
    Row("Gram matrices of long rows, of OK", gram, 0),
    Row("optimal_low_rank", drawn, 1, SVD),
    Row("best_low_rank", low_rank, 1, SVD),
    Row("train, UORO", partial(train, name="UORO", rank=1), 0),
    Row(
        "train, UORO, a module",
        partial(train, name="UORO", rank=1, module=True),
        0,
    ),
    Row("train, 8-OK", partial(train, name="OK", rank=8), 0),
]
