"""The rules of notebook 06: what classifies images, rebuilds them, or reads their rows.

A rule learns from rows ``fit`` by :class:`~labkit.labs.rules.Sizes`, its tuned values
and a seed, and yields looks at its network; see :class:`~labkit.labs.rules.Rule`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, pad

from labkit import bpls, hessian_free
from labkit.broad import BroadLearningClassifier
from labkit.clock import Clock
from labkit.datasets import Labelled
from labkit.labs.problem import Problem, noisy_labels, percent
from labkit.labs.race import FAILURES
from labkit.labs.rules import (
    ENTROPY,
    RECURRENT_CLIP,
    SQUARES,
    Rule,
    Sizes,
    by_minibatch,
    descend,
    look_at,
    minibatch_step,
    seeded,
)
from labkit.panels import Experiment, Lines, knob
from labkit.rls import SequenceClassifier
from labkit.rtrl import OK, TBPTT, LSTMCell, Readout

CLASSES = 10


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
    N, n = len(X), len(X) - len(X) // 6  # the merit is of one in six of its own rows
    first = min(200, n)
    for record in hessian_free.train(
        model,
        hessian_free.HessianFree(model, **options),
        X[:n],
        targets=Y[:n],
        validation=(X[n:], Y[n:]),
        batch_size=first,
        settings=hessian_free.Settings(max_batch_size=max(n // 2, first)),
        generator=seeded(seed),
    ):
        yield record.rows / N, record.seconds, model
        if record.rows + record.n_next > sizes.passes * N:
            return


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
    place = {"random_state": seed, "device": fit.inputs.device.type}
    model = BroadLearningClassifier(GROUPS, NODES, first, **place, **values)
    X, y = fit.inputs.double().cpu().numpy(), fit.targets.cpu().numpy()
    clock = Clock()

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
    "SGD": by_minibatch("SGD", network, lr=(3e-3, 1.0)),
    "Adam": by_minibatch("Adam", network, lr=RATE),
    "RLS": by_minibatch("RLS", network, lr=ETA, mean_weight=(1e-2, 1.0)),
    "RLS+M": by_minibatch("RLS+M", network, lr=ETA, momentum=MOMENTUM),
    "HRLS+M": by_minibatch("HRLS+M", network, lr=ETA, adam_lr=RATE),
    "Hessian-free": Rule(partial(newton, network, KRYLOV), CURVED, SQUARES),
    "BPLS": Rule(walks, {"clamp": (1e-3, 0.3), "ridge": (1e-6, 1e-2)}, "targets"),
    "BPLS-GN": Rule(refined, {"mu": (1e-3, 1.0), "ridge": (1e-5, 0.1)}, SQUARES),
    "broad": Rule(broad, {"ridge": (1e-4, 10.0), "shrink": (0.1, 3.0)}, SQUARES),
}
# Of colours: one for a rule in every figure, none twice where there are enough.
ORDER = ("SGD", "Hessian-free", "RLS", "broad", "Adam", "RLS+M", "HRLS+M")
ORDER += ("BPLS", "BPLS-GN", "OK", "2-TBPTT")


# Autoencoders, from the same sparse weights


def autoencoder(fit: Labelled, hidden: int, seed: int) -> hessian_free.Autoencoder:
    """Pixels - h - h/2 - h/4 - h/2 - h - pixels, logistic."""
    encoder = fit.inputs.shape[1], hidden, max(hidden // 2, 1), max(hidden // 4, 1)
    layers, sparse = hessian_free.mirrored(encoder), {"incoming": 10}
    place = {"generator": seeded(seed), "dtype": fit.inputs.dtype}
    return hessian_free.Autoencoder(layers, **sparse, **place).to(fit.inputs.device)


def as_sequential(fit: Labelled, hidden: int, seed: int) -> nn.Sequential:
    """The same net of torch's own layers."""
    layers = []
    for W in autoencoder(fit, hidden, seed).parameters():
        layer = nn.Linear(len(W) - 1, W.shape[1]).to(W)
        layer.weight.data, layer.bias.data = W.data[:-1].T.clone(), W.data[-1].clone()
        layers += [layer, nn.Sigmoid()]
    return nn.Sequential(*layers)


LONGER = {"maxiter": 50, "miniter": 20, "patience": 5}
AUTOENCODERS = {
    "Adam": Rule(partial(descend, "Adam", as_sequential), {"lr": RATE}, SQUARES),
    "RLS": by_minibatch("RLS", as_sequential, lr=ETA, mean_weight=(1e-2, 1.0)),
    "RLS+M": by_minibatch("RLS+M", as_sequential, lr=ETA, momentum=MOMENTUM),
    "Hessian-free": Rule(partial(newton, autoencoder, LONGER), CURVED, SQUARES),
}


# Images read row by row, by one and the same LSTM

GATES = (0, 1, 3, 2)  # torch has i, f, g, o; labkit.rtrl i, f, o, g


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
    W = torch.cat([hh, ih, bias[:, None]], 1).detach()
    return torch.cat([W.chunk(4)[gate] for gate in GATES]).T


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
    "Adam": by_minibatch("Adam", lstm, lr=HIGH_RATE),
    "RLS+M": by_minibatch("RLS+M", lstm, lr=HIGH_ETA, momentum=MOMENTUM),
    "HRLS+M": by_minibatch("HRLS+M", lstm, lr=HIGH_ETA, adam_lr=HIGH_RATE),
    "OK": Rule(partial(online, OK), {"lr": HIGH_RATE}, ENTROPY),
    "2-TBPTT": Rule(partial(online, TBPTT), {"lr": HIGH_RATE}, ENTROPY),
}


# All classifiers on the same minibatches, while noise is turned up and down

NEWTON, SOLVED = "Hessian-free", ("BPLS", "BPLS-GN", "broad")
WINDOW = 1500  # newest rows that a rule without minibatches is solved on
EVERY = 4  # steps between two looks at the test rows, and between two solves
NEXT = {"low": 0.0, "step": 0.05, "restart": False}


@dataclass(frozen=True)
class RaceKnobs:
    """What can be turned while all rules run."""

    input_noise: float = knob(
        0.0,
        **NEXT | {"high": 1.0, "unit": "sd"},
        help="of the pixels' range, on minibatches to come",
        look_for="Which curve rises at once, and which only as noisy rows pile up?",
    )
    label_noise: float = knob(
        0.0,
        **NEXT | {"high": 0.9, "unit": "share"},
        help="labels drawn at random, in minibatches to come",
        look_for="Put it back to 0: which curve comes down first?",
    )
    batch: int = knob(
        32,
        **NEXT | {"low": 4, "high": 128, "step": 4, "unit": "rows"},
        help="of the minibatches to come",
        look_for="Which rule suffers most from small ones?",
    )
    seed: int = knob(
        0, low=0, high=99, look_for="Does the order of the curves survive another seed?"
    )


def race_rows(settings, problem: Problem, chosen: Mapping, hidden=64) -> Iterator[dict]:
    """One row per minibatch; errors [%] on clean test rows, at every fourth.

    A rule that fails keeps its curve up to there, and the others go on. Rules without
    minibatches are solved anew, once every class has been seen.
    """
    fit, test, seed = problem.fit, problem.test, settings.seed
    models = {k: network(fit, hidden, seed) for k in CLASSIFIERS if k not in SOLVED}
    takes = {k: minibatch_step(k, models[k], chosen[k]) for k in models if k != NEWTON}
    options = KRYLOV | chosen[NEWTON] | {"generator": seeded(seed, fit.inputs.device)}
    newton = hessian_free.HessianFree(models[NEWTON], **options)
    takes[NEWTON] = lambda X, y: newton.step(X, one_hot(y, CLASSES).to(X.dtype))
    g, (X_seen, y_seen), ended = seeded(seed), (fit.inputs[:0], fit.targets[:0]), []
    for step in count(1):
        X, y = draw(fit, settings, g)
        X_seen, y_seen = (torch.cat(p)[-WINDOW:] for p in ((X_seen, X), (y_seen, y)))
        for label in [label for label in takes if label not in ended]:
            try:
                takes[label](X, y)
            except FAILURES:
                ended.append(label)
        row, outputs = {"step": step, "ended": ", ".join(ended)}, {}
        if step % EVERY == 0 or step == 1:
            outputs = {k: model.eval() for k, model in models.items() if k not in ended}
            if len(y_seen.unique()) == CLASSES:
                seen = Labelled("seen", X_seen, y_seen)
                outputs |= solved(seen, hidden, chosen, seed)
        for label, rule in outputs.items():
            with torch.no_grad():
                row[label] = 100 - percent(rule(test.inputs), test.targets)
        yield row


def draw(fit: Labelled, settings, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """A fresh minibatch with fresh noise."""
    rows = torch.randint(len(fit.targets), (settings.batch,), generator=g)
    X, y = fit.inputs[rows], fit.targets[rows]
    X = X + settings.input_noise * torch.randn(X.shape, generator=g).to(X)
    return X, noisy_labels(y, settings.label_noise, g, CLASSES)


def solved(seen: Labelled, hidden, chosen, seed) -> dict[str, Callable]:
    """Outputs of the rules without minibatches; a failure has none."""
    sizes, outputs = Sizes(passes=4, batch=1, hidden=hidden), {}
    for label in SOLVED:
        try:
            *_, last = CLASSIFIERS[label].run(seen, sizes, chosen[label], seed)
            outputs[label] = last[-1]
        except FAILURES:
            pass
    return outputs


def race_status(row: Mapping) -> str:
    """The lowest error, and who has failed."""
    ended = f"; ended by a failure: {row['ended']}" if row["ended"] else ""
    errors = {label: row[label] for label in CLASSIFIERS if label in row}
    best = min(errors, key=errors.get, default=None)
    lowest = f": lowest {best}, {errors[best]:.1f} %" if errors else ""
    return f"minibatch {row['step']}{lowest}{ended}"


PANELS = {
    "Gradients, and a Hessian": ("Adam", "SGD", NEWTON),
    "Recursive least squares, beside Adam": ("Adam", "RLS", "RLS+M", "HRLS+M"),
    "Solved on the rows so far, beside Adam": ("Adam", *SOLVED),
}
LOOK = {"log": True, "y_range": (1.0, 100.0), "order": ORDER}
RACE = Experiment(
    "race",
    RaceKnobs,
    race_rows,
    [
        Lines(each, t, "test error, %", "minibatch", **LOOK)
        for t, each in PANELS.items()
    ],
    caption="Turn a noise up and down again: in the upper panels a curve follows the "
    "newest minibatches, in the lower one all rows that the rule still has.",
    status=race_status,
)
