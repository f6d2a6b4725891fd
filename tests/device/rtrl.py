"""Steps of RTRL and its kin: one symbol of b = 2 sequences, and its gradient."""

from functools import partial

import torch

from labkit import rtrl
from tests.device.rows import Row, random, seeded

CELLS = {"RNN": rtrl.RNNCell, "LSTM": rtrl.LSTMCell, "RHN": rtrl.RHNCell}


def learner(device, name, rank, cell):
    cell = CELLS[cell](3, 12, generator=seeded(), dtype=torch.float64).to(device)
    options = {"batch_size": 2, "generator": seeded(device)}
    made = rtrl.LEARNERS[name].make(cell, rank, **options)
    x, dL_dh = random(device, (2, 3), (2, 12))
    return lambda: (made.step(x), made.backward(dL_dh))


def train(device, name, rank):
    cell = rtrl.RHNCell(4, 12, generator=seeded(), dtype=torch.float64).to(device)
    options = {"batch_size": 2, "generator": seeded(device)}
    made = rtrl.LEARNERS[name].make(cell, rank, **options)
    place = {"device": device, "dtype": torch.float64}
    task = rtrl.CopyTask(2, generator=seeded(device), level=4, **place)
    readout = rtrl.Readout(12, 4, generator=seeded(device), **place)
    weights = [cell.weight, readout.weight]
    adam = torch.optim.Adam(weights, fused=device != "cpu")
    return partial(next, rtrl.train(made, readout, task, optimizer=adam))


def row(name, rank, cell, waits, kernels, why=""):
    title = f"{rtrl.learners.label(name, rank)}, {cell}"
    make = partial(learner, name=name, rank=rank, cell=cell)
    return Row(title, make, waits, kernels, why)


ROWS = [
    row("RTRL", 1, "RNN", 0, 13),
    row("RTRL", 1, "LSTM", 0, 33),
    row("RTRL", 1, "RHN", 0, 23),
    row("UORO", 1, "RNN", 0, 36),
    row("UORO", 1, "LSTM", 0, 61),
    row("UORO", 1, "RHN", 0, 48),
    row("SNAP-1", 1, "RHN", 0, 23),
    row("TBPTT", 5, "RNN", 0, 14),
    row("TBPTT", 5, "LSTM", 0, 30),
    row("TBPTT", 5, "RHN", 0, 23),
    row("KF-AVG", 1, "RHN", 0, 47),
    row("KF-APPROX", 1, "RHN", 0, 170),
    row("KTP", 8, "RNN", 0, 171),
    row("KTP", 8, "LSTM", 0, 220),
    row("KTP", 8, "RHN", 0, 185),
    row("KTP-SHARED", 8, "RHN", 0, 202),
    row("OK", 8, "RNN", 0, 61),
    row("OK", 8, "LSTM", 0, 81),
    row("OK", 8, "RHN", 0, 71),
    row("B-OK", 8, "RHN", 0, 55),
    Row("train, UORO", partial(train, name="UORO", rank=1), 0, 127),
    Row("train, 8-OK", partial(train, name="OK", rank=8), 0, 150),
]
