"""The rules of notebook 06 that read images row by row, by one and the same LSTM."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from labkit.clock import Clock
from labkit.lab.books.rls_training import SequenceClassifier
from labkit.lab.compare.rules import (
    DECAY,
    ENTROPY,
    HRLS_M,
    MOMENTUM,
    ORTHOGONAL,
    RECURRENT_CLIP,
    RLS_M,
    Looks,
    Values,
    by_minibatch,
    look_at,
    muon,
    optimizer_rule,
)
from labkit.lab.datasets import Labelled
from labkit.lab.problem import Problem, disturbed, in_classes, seeded
from labkit.lab.tuning import Rule, Sizes
from labkit.rtrl import TBPTT, LSTMCell, Readout
from labkit.rtrl.learner import Learner
from labkit.rtrl.learners import LEARNERS

# Higher than for dense networks: with theirs the best trial was at the upper end.
HIGH_RATE, HIGH_ETA = (3e-3, 0.3), (0.3, 30.0)
LEAST_ROWS = 4  # of which back-propagation through two leaves something out


def lstm(fit: Labelled, hidden: int, seed: int) -> SequenceClassifier:
    """Make one LSTM layer and a linear layer on its last output."""
    torch.manual_seed(seed)
    side = len(in_rows(fit.inputs))
    return SequenceClassifier(side, hidden, fit.outputs, layers=1).to(fit.inputs)


def in_rows(X: Tensor) -> list[Tensor]:
    """Cut square images (b, pixels) into one (b, side) for each time step."""
    side = round(X.shape[1] ** 0.5)
    return [x.contiguous() for x in X.unflatten(1, (side, side)).unbind(1)]


def as_squares(problem: Problem) -> Problem:
    """Lay inputs out as square images of at least four rows, for `in_rows` to cut.

    Columns keep their order and are shared out over the rows, which zeros fill up.
    Targets that are numbers become classes, see :func:`labkit.lab.in_classes`. Square
    images with labels stay as they are.
    """
    problem = in_classes(problem)
    width = problem.fit.inputs.shape[1]
    side = max(math.ceil(width**0.5), LEAST_ROWS)
    if width == side * side:
        return problem

    def square(X: Tensor) -> Tensor:
        rows = X.tensor_split(side, dim=1)
        return torch.cat([pad(row, (0, side - row.shape[1])) for row in rows], 1)

    filled = {
        name: replace(part, inputs=square(part.inputs))
        for name, part in vars(problem).items()
        if part is not None
    }
    return replace(problem, **filled)


def as_online(model: SequenceClassifier) -> tuple[LSTMCell, Readout]:
    """Return the same network as a cell of :mod:`labkit.rtrl` and its readout."""
    (layer,) = model.layers
    W = layer.weight_hh_l0
    options = {"dtype": W.dtype, "device": W.device}
    cell = LSTMCell(layer.input_size, layer.hidden_size, **options)
    readout = Readout(layer.hidden_size, model.head.out_features, **options)
    bias = layer.bias_ih_l0 + layer.bias_hh_l0
    head = torch.cat([model.head.weight, model.head.bias[:, None]], 1)
    cell.weight.data.copy_(online_layout(W, layer.weight_ih_l0, bias))
    readout.weight.data.copy_(head.detach().T)
    return cell, readout


def online_layout(hh: Tensor, ih: Tensor, bias: Tensor) -> Tensor:
    """Turn torch's (4 n, n), (4 n, d) and (4 n,) into (n + d + 1, 4 n) of a cell."""
    i, f, g, o = torch.cat([hh, ih, bias[:, None]], 1).detach().chunk(4)
    return torch.cat([i, f, o, g]).T


def read(cell: LSTMCell, readout: Readout, X: Tensor) -> Tensor:
    """Return the outputs (b, classes) after the last row of images (b, pixels)."""
    state = cell.initial_state(len(X))
    for x in in_rows(X):
        state = cell(x, state)
    return readout(cell.hidden(state))


def last_gradient(
    learner: Learner, readout: Readout, X: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the loss after the last row.

    They are those of the cell's weights and of the readout's. The learner carries its
    estimate of the influence along as it reads.
    """
    learner.reset()
    for x in in_rows(X):
        h = learner.step(x)
    _, dL_dh, dL_dW = readout.loss(h, y)
    return learner.gradient(dL_dh), dL_dW


def online(
    make: Callable[..., Learner],
    fit: Labelled,
    sizes: Sizes,
    values: Values,
    seed: int,
    *,
    gradient_noise: float = 0.0,
) -> Looks:
    """Train by a learner of :mod:`labkit.rtrl`, under Adam and the others' clip.

    ``make`` builds the learner from a cell, a rank and its keywords.
    """
    X, y, N = fit.inputs, fit.targets, len(fit.inputs)
    batch, clock, step = min(sizes.batch, N), Clock(X.device), 0
    cell, readout = as_online(lstm(fit, sizes.hidden, seed))
    g = seeded(seed, X.device)
    learner = make(cell, sizes.rank, batch_size=batch, generator=g)
    noise = seeded(seed + 2, X.device)
    weights, order = [cell.weight, readout.weight], seeded(seed)
    optimizer = torch.optim.Adam(weights, **values)
    at = look_at(N // batch * sizes.passes)
    for _ in range(sizes.passes):
        batches = torch.randperm(N, generator=order).to(X.device).split(batch)
        for rows in batches[: N // batch]:
            step += 1
            with clock:
                gradients = last_gradient(learner, readout, X[rows], y[rows])
                cell.weight.grad, readout.weight.grad = (
                    disturbed(each, gradient_noise, noise) for each in gradients
                )
                nn.utils.clip_grad_norm_(weights, RECURRENT_CLIP)
                optimizer.step()
            if step in at:
                yield step * batch / N, clock.seconds, partial(read, cell, readout)


def online_rule(make: Callable[..., Learner]) -> Rule:
    """Return a rule of :func:`online`."""
    return Rule(partial(online, make), {"lr": HIGH_RATE}, ENTROPY, gradients=True)


def two_rows(cell: LSTMCell, rank: int, **options: object) -> TBPTT:
    """Make back-propagation that is truncated after two rows."""
    return TBPTT(cell, horizon=2, **options)


# Learners that never look back, by their names in `LEARNERS`.
ONLINE = {"OK": "OK", "KF-RTRL": "KF-AVG", "UORO": "UORO", "SnAp-1": "SNAP-1"}
ONLINE |= {"RFLO": "RFLO"} if "RFLO" in LEARNERS else {}
SEQUENCES = {
    "Adam": optimizer_rule(torch.optim.Adam, lstm, lr=HIGH_RATE),
    "AdamW": optimizer_rule(torch.optim.AdamW, lstm, lr=HIGH_RATE, weight_decay=DECAY),
    "Muon": optimizer_rule(muon, lstm, lr=ORTHOGONAL, adam_lr=HIGH_RATE),
    "RLS+M": by_minibatch(RLS_M, lstm, lr=HIGH_ETA, momentum=MOMENTUM),
    "HRLS+M": by_minibatch(HRLS_M, lstm, ENTROPY, lr=HIGH_ETA, adam_lr=HIGH_RATE),
    **{name: online_rule(LEARNERS[learner].make) for name, learner in ONLINE.items()},
    "2-TBPTT": online_rule(two_rows),
}
