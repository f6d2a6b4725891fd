"""Images read row by row: RLS, Adam, and online gradients, on one and the same LSTM."""

import time
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from labkit.datasets import Labelled
from labkit.labs.compare.classifiers import CLASSES, ENTROPY, SQUARES
from labkit.labs.compare.harness import Data, Job, Look, Rule, Setting, percent
from labkit.labs.compare.minibatch import descend, look_steps, training_of
from labkit.rls import SequenceClassifier
from labkit.rtrl import OK, TBPTT, LSTMCell, Readout

CLIP = 1.0  # joint norm of the gradient, of recurrent networks
GATES = (0, 1, 3, 2)  # torch has i, f, g, o; labkit.rtrl i, f, o, g


def side_of(inputs: Tensor) -> int:
    """Rows of a square image: time steps, and features of each."""
    return round(inputs.shape[1] ** 0.5)


def lstm(inputs: Tensor, hidden: int, seed: int) -> SequenceClassifier:
    """One LSTM layer and a linear layer on its last output."""
    torch.manual_seed(seed)
    model = SequenceClassifier(side_of(inputs), hidden, CLASSES, layers=1)
    return model.to(inputs)


def as_online(model: SequenceClassifier) -> tuple[LSTMCell, Readout]:
    """The same network as a cell of :mod:`labkit.rtrl` and its readout."""
    (layer,) = model.layers
    d, n = layer.input_size, layer.hidden_size
    options = {"dtype": layer.weight_hh_l0.dtype, "device": layer.weight_hh_l0.device}
    cell, readout = LSTMCell(d, n, **options), Readout(n, CLASSES, **options)
    bias = layer.bias_ih_l0 + layer.bias_hh_l0
    head = torch.cat([model.head.weight, model.head.bias[:, None]], 1)
    cell.weight.data.copy_(online_layout(layer.weight_hh_l0, layer.weight_ih_l0, bias))
    readout.weight.data.copy_(head.detach().T)
    return cell, readout


def online_layout(hh: Tensor, ih: Tensor, bias: Tensor) -> Tensor:
    """torch's (4 n, n), (4 n, d) and (4 n,) -> (n + d + 1, 4 n) of a cell."""
    W = torch.cat([hh, ih, bias[:, None]], 1).detach()
    return torch.cat([W.chunk(4)[gate] for gate in GATES]).T


def read(cell: LSTMCell, readout: Readout, X: Tensor) -> Tensor:
    """Outputs (b, classes) after the last row of images (b, pixels)."""
    state = cell.initial_state(len(X))
    for x in in_rows(X):
        state = cell(x, state)
    return readout(cell.hidden(state))


def in_rows(X: Tensor) -> list[Tensor]:
    """(b, pixels) -> one (b, side) for each time step."""
    return [x.contiguous() for x in X.unflatten(1, (-1, side_of(X))).unbind(1)]


def last_gradient(learner, readout, X: Tensor, y: Tensor):
    """Gradients of the loss after the last row: of the cell's weights, the readout's.

    The learner carries its estimate of the influence along as it reads.
    """
    learner.reset()
    for x in in_rows(X):
        h = learner.step(x)
    _, dL_dh, dL_dW = readout.loss(h, y)
    return learner.gradient(dL_dh), dL_dW


def online(make, fit: Labelled, setting: Setting, values, seed) -> Iterator[Look]:
    """A learner of :mod:`labkit.rtrl` under Adam and the others' clip."""
    X, y, N = fit.inputs, fit.targets, len(fit.inputs)
    batch = min(setting.batch, N)
    cell, readout = as_online(lstm(X, setting.hidden, seed))
    g = torch.Generator(X.device).manual_seed(seed)
    learner = make(setting)(cell, batch_size=batch, generator=g)
    weights = [cell.weight, readout.weight]
    optimizer = torch.optim.Adam(weights, lr=values["rate"])
    order = torch.Generator().manual_seed(seed)
    at = look_steps(N // batch * int(setting.passes))
    step, seconds = 0, 0.0
    for _ in range(int(setting.passes)):
        batches = torch.randperm(N, generator=order).to(X.device).split(batch)
        for rows in batches[: N // batch]:
            began = time.perf_counter()
            gradients = last_gradient(learner, readout, X[rows], y[rows])
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient
            nn.utils.clip_grad_norm_(weights, CLIP)
            optimizer.step()
            seconds += time.perf_counter() - began
            step += 1
            if step in at:
                outputs = partial(read, cell, readout)
                yield Look(step * batch / N, seconds, outputs)


def by_minibatch(name, fit: Labelled, setting, values, seed) -> Iterator[Look]:
    """Adam or a RLS, with gradients by autograd through all rows."""
    model = lstm(fit.inputs, setting.hidden, seed)
    training = training_of(name, model, values, clip=CLIP)
    yield from descend(model, training, fit, setting, seed, drop_last=True)


def ok(setting: Setting):
    """Optimal Kronecker sum of the setting's rank."""
    return partial(OK, rank=setting.rank)


def truncated(horizon: int, _setting: Setting):
    """Back-propagation through the last ``horizon`` rows only."""
    return partial(TBPTT, horizon=horizon)


# Higher than for dense networks: with theirs the best trial was at the upper end.
RATE, ETA = (3e-3, 0.3), (0.3, 30.0)
RULES = {
    "Adam": Rule(partial(by_minibatch, "Adam-CE"), {"rate": RATE}, ENTROPY),
    "RLS+M": Rule(
        partial(by_minibatch, "RLS+M"),
        {"eta": ETA, "momentum": (0.3, 0.9)},
        SQUARES,
    ),
    "HRLS+M": Rule(
        partial(by_minibatch, "HRLS+M"), {"eta": ETA, "rate": RATE}, ENTROPY
    ),
    "OK": Rule(partial(online, ok), {"rate": RATE}, ENTROPY),
    "2-TBPTT": Rule(partial(online, partial(truncated, 2)), {"rate": RATE}, ENTROPY),
}


def sequences(data: Data, *, passes=8, batch=40, hidden=16, rank=1) -> Job:
    """Which digit it is, known after its last row: share classified right."""
    setting = Setting(passes, batch, hidden, rank)
    name = f"sequences, rows of {data.fit.name}"
    return Job(name, data, RULES, setting, percent, "%", True)
