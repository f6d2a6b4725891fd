"""The rules of notebook 06: what classifies images, rebuilds them, or reads their rows.

A rule learns from rows ``fit`` by :class:`~labkit.lab.tuning.Sizes`, its tuned values
and a seed, and yields looks at its network; see :class:`~labkit.lab.tuning.Rule`.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, pad

from labkit import bpls, hessian_free
from labkit.broad import BroadLearningClassifier
from labkit.clock import Clock
from labkit.lab.datasets import Labelled
from labkit.lab.hessian_free.training import looks
from labkit.lab.problem import seeded
from labkit.lab.rls.training import Training, make_training
from labkit.lab.tuning import Rule
from labkit.rls import SequenceClassifier, loss_mse, train
from labkit.rtrl import OK, TBPTT, LSTMCell, Readout

CLASSES = 10
LOOKS = 12  # at a run by minibatches, closer together at its start
CLIP, RECURRENT_CLIP = 5.0, 1.0  # joint norm of the gradient
ENTROPY = "cross-entropy"


# Minibatch by minibatch: SGD, Adam, RLS and its hybrid


def look_at(steps: int) -> set:
    """Some of the steps 1 .. steps: dense at first, and the last one."""
    return set(np.geomspace(1, steps, LOOKS).round())


def training_of(name, model, values, clip) -> Training:
    """Optimiser and loss of a classifier's rule."""
    if name == "SGD":
        sgd = torch.optim.SGD(model.parameters(), momentum=0.9, **values)
        return Training(sgd, cross_entropy, clip)
    if name == "Adam":
        name, values = "Adam-CE", {"adam_lr": values["lr"]}
    return make_training(name, model, clip=clip, **values)


def descend(name, make, fit, sizes, values, seed):
    """Train ``make``'s network for all passes; a look now and then, at the end too.

    By squares where the targets are no labels. A recurrent network has a tighter clip,
    and takes whole minibatches only.
    """
    model = make(fit, sizes.hidden, seed)
    recurrent = isinstance(model, SequenceClassifier)
    made = training_of(name, model, values, RECURRENT_CLIP if recurrent else CLIP)
    N, batch = len(fit.inputs), min(sizes.batch, len(fit.inputs))
    steps = N // batch if recurrent else math.ceil(N / batch)
    at, seconds = look_at(steps * sizes.passes), 0.0
    options = {"loss": loss_mse if fit.targets.is_floating_point() else made.loss}
    options |= {"max_grad_norm": made.max_grad_norm, "generator": seeded(seed)}
    options |= {"epochs": sizes.passes, "batch_size": batch, "drop_last": recurrent}
    for record in train(model, made.optimizer, fit.inputs, fit.targets, **options):
        seconds += record.seconds
        if record.step in at:
            epochs, part = divmod(record.step, steps)
            rows = epochs * min(steps * batch, N) + part * batch
            model.eval()
            yield rows / N, seconds, model


def by_minibatch(name, make, loss="squares", **ranges) -> Rule:
    """A rule of :func:`descend`."""
    return Rule(partial(descend, name, make), ranges, loss)


# Classifiers: one hidden layer, or a broad network


def network(fit: Labelled, hidden: int, seed: int) -> nn.Sequential:
    """Features - hidden tanh - classes; the same weights for every rule."""
    torch.manual_seed(seed)
    layers = nn.Linear(fit.inputs.shape[1], hidden), nn.Tanh()
    return nn.Sequential(*layers, nn.Linear(hidden, CLASSES)).to(fit.inputs)


# The paper's 150, 60 and 100 iterations are for long runs of deep networks.
KRYLOV = {"maxiter": 20, "miniter": 10, "patience": 5}


def newton(make, krylov, fit, sizes, values, seed):
    """Hessian-free on squared error, towards one-hot targets if they are labels."""
    X, Y = fit.inputs, fit.targets
    if not Y.is_floating_point():
        Y = one_hot(Y, CLASSES).to(X.dtype)
    model = make(fit, sizes.hidden, seed)
    options = krylov | values | {"generator": seeded(seed + 1, X.device)}
    solver = hessian_free.HessianFree(model, **options)
    N, n = len(X), len(X) - len(X) // 6  # the merit is of one in six of its own rows
    first, parts = min(200, n), {"targets": Y[:n], "validation": (X[n:], Y[n:])}
    most = hessian_free.Settings(max_batch_size=max(n // 2, first))
    given = parts | {"batch_size": first, "settings": most, "generator": seeded(seed)}
    records = hessian_free.train(model, solver, X[:n], **given)
    with_next = lambda r: r.rows + r.n_next  # noqa: E731 the last must leave no room
    for record, _ in looks(records, with_next, sizes.passes * N + 1):
        yield record.rows / N, record.seconds, model


def with_ones(X: Tensor) -> Tensor:
    """A column of ones, the only bias of BPLS."""
    return pad(X, (0, 1), value=1)


def biased(outputs: Callable, *rest) -> Callable[[Tensor], Tensor]:
    """Outputs of rows to which the column of ones is put."""
    return lambda X: outputs(with_ones(X), *rest)


def bpls_weights(X: Tensor, hidden: int, outputs: int, seed: int, **scale):
    """Where BPLS and its refinement start."""
    place = {"dtype": X.dtype, "device": X.device, "generator": seeded(seed)}
    return bpls.random_weights((X.shape[1], hidden, outputs), **place, **scale)


def walks(fit, sizes, values, seed):
    """BPLS: a walk over all rows, then over the misses; the best is kept."""
    X, hidden = with_ones(fit.inputs), [bpls.activation("sigmoid")]
    start = bpls_weights(X, sizes.hidden, CLASSES, seed)
    seconds = rows = 0
    steps = bpls.train(X, fit.targets, start, hidden, **values)
    for end in (step.end for step in steps if step.end):
        rows, seconds = rows + end.samples, seconds + end.seconds
        if rows > sizes.passes * len(X):
            return
        yield rows / len(X), seconds, biased(bpls.scores, end.best, hidden)


def refined(fit, sizes, values, seed):
    """The Gauss-Newton refinement of BPLS (ours); every sweep reads all rows."""
    X, seconds = with_ones(fit.inputs), 0.0
    W1, _ = bpls_weights(X, sizes.hidden, 1, seed, scale=0.3)
    sweeps = sizes.passes - 1
    for end in bpls.refine(X, fit.targets, W1, "tanh", sweeps=sweeps, **values):
        seconds += end.seconds
        yield end.walk + 1.0, seconds, biased(bpls.refined_scores, end.best, "tanh")


GROUPS, NODES, COLUMNS = 8, 10, 2000  # feature nodes of broad learning; all at most
GROWTHS = 3  # half of its enhancement nodes come in so many updates


def broad(fit, sizes, values, seed):
    """Broad learning, half of its enhancement nodes added to the fitted rest.

    As many output weights as the network has weights, but for `COLUMNS`.
    """
    weights = sum(p.numel() for p in network(fit, sizes.hidden, seed).parameters())
    n = min(weights // CLASSES, COLUMNS) - GROUPS * NODES
    each = max(n, 2 * GROWTHS) // 2 // GROWTHS
    first = max(n, 2 * GROWTHS) - GROWTHS * each
    place = {"random_state": seed, "device": str(fit.inputs.device)}
    place |= {"scaling": "sample"} | values  # as the paper has it with images
    model = BroadLearningClassifier(GROUPS, NODES, first, **place)
    X, y = fit.inputs.double().cpu().numpy(), fit.targets.cpu().numpy()
    clock = Clock(fit.inputs.device)

    def outputs(x):
        raw = model.decision_function(x.double().cpu().numpy())
        return torch.as_tensor(raw, device=x.device)

    for step in range(min(GROWTHS + 1, sizes.passes)):
        with clock:
            model.add_nodes(each) if step else model.fit(X, y)
        yield step + 1.0, clock.seconds, outputs


RATE, ETA, MOMENTUM = (1e-3, 0.1), (0.1, 10.0), (0.3, 0.9)
CURVED = {"damping": (0.1, 10.0), "damping_decay": (0.5, 0.95)}
CLASSIFIERS = {
    "SGD": by_minibatch("SGD", network, ENTROPY, lr=(3e-3, 1.0)),
    "Adam": by_minibatch("Adam", network, ENTROPY, lr=RATE),
    "RLS": by_minibatch("RLS", network, lr=ETA, mean_weight=(1e-2, 1.0)),
    "RLS+M": by_minibatch("RLS+M", network, lr=ETA, momentum=MOMENTUM),
    "HRLS+M": by_minibatch("HRLS+M", network, ENTROPY, lr=ETA, adam_lr=RATE),
    "Hessian-free": Rule(partial(newton, network, KRYLOV), CURVED),
    "BPLS": Rule(walks, {"clamp": (1e-3, 0.3), "ridge": (1e-6, 1e-2)}, "targets"),
    "BPLS-GN": Rule(refined, {"mu": (1e-3, 1.0), "ridge": (1e-5, 0.1)}),
    "broad": Rule(broad, {"ridge": (1e-4, 10.0), "shrink": (0.1, 3.0)}),
}


# Autoencoders, from the same sparse weights


def autoencoder(fit: Labelled, hidden: int, seed: int) -> hessian_free.Autoencoder:
    """Pixels - h - h/2 - h/4 - h/2 - h - pixels, logistic."""
    encoder = fit.inputs.shape[1], hidden, max(hidden // 2, 1), max(hidden // 4, 1)
    layers, sparse = hessian_free.mirrored(encoder), {"incoming": 10}
    place = {"generator": seeded(seed), "dtype": fit.inputs.dtype}
    return hessian_free.Autoencoder(layers, **sparse, **place).to(fit.inputs.device)


def in_layers(fit: Labelled, hidden: int, seed: int) -> nn.Sequential:
    """The same net of torch's own layers."""
    return hessian_free.as_sequential(autoencoder(fit, hidden, seed))


LONGER = {"maxiter": 50, "miniter": 20, "patience": 5}
AUTOENCODERS = {
    "Adam": by_minibatch("Adam", in_layers, lr=RATE),
    "RLS": by_minibatch("RLS", in_layers, lr=ETA, mean_weight=(1e-2, 1.0)),
    "RLS+M": by_minibatch("RLS+M", in_layers, lr=ETA, momentum=MOMENTUM),
    "Hessian-free": Rule(partial(newton, autoencoder, LONGER), CURVED),
}


# Images read row by row, by one and the same LSTM


def lstm(fit: Labelled, hidden: int, seed: int) -> SequenceClassifier:
    """One LSTM layer and a linear layer on its last output."""
    torch.manual_seed(seed)
    side = len(in_rows(fit.inputs))
    return SequenceClassifier(side, hidden, CLASSES, layers=1).to(fit.inputs)


def in_rows(X: Tensor) -> list[Tensor]:
    """Square images (b, pixels) -> one (b, side) for each time step."""
    side = round(X.shape[1] ** 0.5)
    return [x.contiguous() for x in X.unflatten(1, (side, side)).unbind(1)]


def as_online(model: SequenceClassifier) -> tuple[LSTMCell, Readout]:
    """The same network as a cell of :mod:`labkit.rtrl` and its readout."""
    (layer,) = model.layers
    W = layer.weight_hh_l0
    place = {"dtype": W.dtype, "device": W.device}
    cell = LSTMCell(layer.input_size, layer.hidden_size, **place)
    readout = Readout(layer.hidden_size, CLASSES, **place)
    bias = layer.bias_ih_l0 + layer.bias_hh_l0
    head = torch.cat([model.head.weight, model.head.bias[:, None]], 1)
    cell.weight.data.copy_(online_layout(W, layer.weight_ih_l0, bias))
    readout.weight.data.copy_(head.detach().T)
    return cell, readout


def online_layout(hh: Tensor, ih: Tensor, bias: Tensor) -> Tensor:
    """torch's (4 n, n), (4 n, d) and (4 n,) -> (n + d + 1, 4 n) of a cell."""
    i, f, g, o = torch.cat([hh, ih, bias[:, None]], 1).detach().chunk(4)
    return torch.cat([i, f, o, g]).T


def read(cell: LSTMCell, readout: Readout, X: Tensor) -> Tensor:
    """Outputs (b, classes) after the last row of images (b, pixels)."""
    state = cell.initial_state(len(X))
    for x in in_rows(X):
        state = cell(x, state)
    return readout(cell.hidden(state))


def last_gradient(learner, readout, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the loss after the last row: of the cell's weights, the readout's.

    The learner carries its estimate of the influence along as it reads.
    """
    learner.reset()
    for x in in_rows(X):
        h = learner.step(x)
    _, dL_dh, dL_dW = readout.loss(h, y)
    return learner.gradient(dL_dh), dL_dW


def online(kind, fit, sizes, values, seed):
    """A learner of :mod:`labkit.rtrl` under Adam and the others' clip."""
    X, y, N = fit.inputs, fit.targets, len(fit.inputs)
    batch, clock, step = min(sizes.batch, N), Clock(X.device), 0
    cell, readout = as_online(lstm(fit, sizes.hidden, seed))
    own = {OK: {"rank": sizes.rank}, TBPTT: {"horizon": 2}}[kind]
    learner = kind(cell, batch_size=batch, generator=seeded(seed, X.device), **own)
    weights, order = [cell.weight, readout.weight], seeded(seed)
    optimizer = torch.optim.Adam(weights, **values)
    at = look_at(N // batch * sizes.passes)
    for _ in range(sizes.passes):
        batches = torch.randperm(N, generator=order).to(X.device).split(batch)
        for rows in batches[: N // batch]:
            step += 1
            with clock:
                gradients = last_gradient(learner, readout, X[rows], y[rows])
                cell.weight.grad, readout.weight.grad = gradients
                nn.utils.clip_grad_norm_(weights, RECURRENT_CLIP)
                optimizer.step()
            if step in at:
                yield step * batch / N, clock.seconds, partial(read, cell, readout)


# Higher than for dense networks: with theirs the best trial was at the upper end.
HIGH_RATE, HIGH_ETA = (3e-3, 0.3), (0.3, 30.0)
SEQUENCES = {
    "Adam": by_minibatch("Adam", lstm, ENTROPY, lr=HIGH_RATE),
    "RLS+M": by_minibatch("RLS+M", lstm, lr=HIGH_ETA, momentum=MOMENTUM),
    "HRLS+M": by_minibatch("HRLS+M", lstm, ENTROPY, lr=HIGH_ETA, adam_lr=HIGH_RATE),
    "OK": Rule(partial(online, OK), {"lr": HIGH_RATE}, ENTROPY),
    "2-TBPTT": Rule(partial(online, TBPTT), {"lr": HIGH_RATE}, ENTROPY),
}
