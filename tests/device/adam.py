"""Fused Adam on the networks of the other rows: of RLS the update alone, as there.

Of the others a whole step of training: forward pass, backward pass and update. A row is
named after the room and the network, the last word of the rows that it stands beside.
"""

from functools import partial

import torch

from labkit.hessian_free import as_sequential
from tests.device import hessian_free, rls, rtrl
from tests.device.rows import Row, on, random, seeded


def whole(model, loss):
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        return list(model.parameters())

    return step


def autoencoder(device, layers):
    net, X = hessian_free.autoencoder(device, layers)
    net = as_sequential(net)
    return whole(net, lambda: (net(X) - X).square().sum() / len(X))


def cell(device, kind):
    """Through one symbol, as online learning has it."""
    made = rtrl.CELLS[kind](3, 12, generator=seeded()).to(**on(device))
    x, dL_dh = random(device, (2, 3), (2, 12))
    state = made.initial_state(2)
    return whole(made, lambda: (made.hidden(made(x, state)) * dL_dh).sum())


def of_rls(layers):
    return partial(rls.update, layers=layers, make=rls.adam)


ROWS = [
    Row("rtrl, RNN", partial(cell, kind="RNN"), 0),
    Row("rtrl, LSTM", partial(cell, kind="LSTM"), 0),
    Row("rtrl, RHN", partial(cell, kind="RHN"), 0),
    Row("rls, Linear", of_rls("Linear"), 0),
    Row("rls, Conv2d", of_rls("Conv2d"), 0),
    Row("rls, RNN", of_rls("RNN"), 0),
    Row("rls, LSTM", of_rls("LSTM"), 0),
    Row("hessian_free, 2 layers", partial(autoencoder, layers=2), 0),
    Row("hessian_free, 6 layers", partial(autoencoder, layers=6), 0),
]
