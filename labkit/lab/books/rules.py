"""The rules of notebook 06 that read rows: they classify, or give numbers, or rebuild.

A rule learns from rows ``fit`` by :class:`~labkit.lab.tuning.Sizes`, its tuned values
and a seed, and yields looks at its network; see :class:`~labkit.lab.tuning.Rule`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, pad

from labkit import bpls, hessian_free
from labkit.check import described
from labkit.clock import Clock
from labkit.lab import gauss_newton
from labkit.lab.books.rls_training import TrainingSetup, make_training
from labkit.lab.datasets import Labelled
from labkit.lab.problem import disturb, seeded
from labkit.lab.tuning import Rule, Sizes
from labkit.rls import loss_mse, train

LOOKS = 12  # at a run by minibatches, closer together at its start
CLIP = 5.0  # joint norm of the gradient

Values = Mapping[str, float]  # what is tuned of a rule
Looks = Iterator[tuple[float, float, Callable[[Tensor], Tensor]]]  # see Rule
Network = Callable[[Labelled, int, int], nn.Module]  # of rows, hidden units and a seed


# Minibatch by minibatch: the optimisers of torch, RLS and its hybrid


def optimizer_training(
    make: Callable, model: nn.Module, *, clip: float | None, **values: float
) -> TrainingSetup:
    """Return an optimiser that ``make`` builds, with the cross-entropy.

    Parameters
    ----------
    make : type or callable
        A subclass of ``torch.optim.Optimizer``, which gets the model's parameters, or a
        function, which gets the model. Both get ``values`` as keywords.
    """
    owned = isinstance(make, type) and issubclass(make, torch.optim.Optimizer)
    optimizer = make(model.parameters() if owned else model, **values)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"the function of an optimizer_rule must return a torch.optim.Optimizer, "
            f"got {described(optimizer)}"
        )
    return TrainingSetup(optimizer, cross_entropy, clip)


def clipped_outside(
    training: Callable[..., TrainingSetup],
    model: nn.Module,
    values: Values,
) -> TrainingSetup:
    """Return optimiser and loss, with the gradients clipped before each step.

    RLS that clips by itself does not form the gradients of wide layers, so that no
    noise could be put on them.
    """
    made = training(model, clip=None, **values)

    def before_each_step(*_: object) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)

    made.optimizer.register_step_pre_hook(before_each_step)
    return made


def network(fit: Labelled, hidden: int, seed: int) -> nn.Sequential:
    """Make a network features - hidden tanh - outputs, the same for every rule."""
    torch.manual_seed(seed)
    layers = nn.Linear(fit.inputs.shape[1], hidden), nn.Tanh()
    return nn.Sequential(*layers, nn.Linear(hidden, fit.outputs)).to(fit.inputs)


def descend(
    training: Callable[..., TrainingSetup],
    fit: Labelled,
    sizes: Sizes,
    values: Values,
    seed: int,
    *,
    make: Network = network,
    gradient_noise: float = 0.0,
) -> Looks:
    """Train ``make``'s network for all passes; look now and then, and at the end.

    Targets that are numbers are learned by their squared error.
    """
    model = make(fit, sizes.hidden, seed)
    if gradient_noise:
        made = clipped_outside(training, model, values)
        generator = seeded(seed + 2, fit.inputs.device)
        disturb(model, lambda: gradient_noise, generator)
    else:
        made = training(model, clip=CLIP, **values)
    N, batch = len(fit.inputs), min(sizes.batch, len(fit.inputs))
    steps = math.ceil(N / batch)
    # Dense at first, and at the last step.
    at, seconds = np.geomspace(1, steps * sizes.passes, LOOKS).round(), 0.0
    records = train(
        model,
        made.optimizer,
        fit.inputs,
        fit.targets,
        loss=loss_mse if fit.targets.is_floating_point() else made.loss,
        max_grad_norm=made.max_grad_norm,
        generator=seeded(seed),
        epochs=sizes.passes,
        batch_size=batch,
    )
    for record in records:
        seconds += record.seconds
        if record.step not in at:
            continue
        epochs, part = divmod(record.step, steps)
        rows = epochs * N + part * batch
        model.eval()
        yield rows / N, seconds, model


def by_minibatch(
    training: Callable[..., TrainingSetup], **ranges: tuple[float, float]
) -> Rule:
    """Return a rule of :func:`descend`."""
    return Rule(partial(descend, training), ranges, training, gradients=True)


def optimizer_rule(optimizer: Callable, **ranges: tuple[float, float]) -> Rule:
    """Return a rule for an optimiser of one's own.

    Parameters
    ----------
    optimizer : type or callable, see :func:`optimizer_training`
    ranges : (low, high) of each keyword that is tuned, on a logarithmic scale

    Raises
    ------
    TypeError
        If ``optimizer`` cannot be called, as an optimiser that is already made.
    ValueError
        If a range is not two numbers with 0 < low <= high.

    Examples
    --------
    >>> rule = optimizer_rule(torch.optim.RMSprop, lr=(1e-4, 1e-2))
    >>> rule.ranges
    {'lr': (0.0001, 0.01)}
    """
    if not callable(optimizer):
        raise TypeError(
            "optimizer must be a subclass of torch.optim.Optimizer or a function from "
            f"the model to an optimiser, got {described(optimizer)}: each run has a "
            "model of its own"
        )
    return by_minibatch(partial(optimizer_training, optimizer), **ranges)


def heavy_ball(model: nn.Module, lr: float) -> torch.optim.SGD:
    """Return SGD with momentum 0.9."""
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


class Together(torch.optim.Optimizer):
    """Two or more optimisers of torch as one, each over its own parameters."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        groups = (group for part in parts for group in part.param_groups)
        super().__init__(
            [parameter for group in groups for parameter in group["params"]], {}
        )
        self.parts = parts

    def step(self, closure: None = None) -> None:
        """Let each part take its step."""
        for part in self.parts:
            part.step()


def muon(model: nn.Module, lr: float, adam_lr: float) -> Together:
    """Return Muon for the hidden layers' matrices, AdamW for all else (Jordan, 2024).

    The output layer is AdamW's, as in the author's program: Muon makes the update of a
    matrix orthogonal, and that is meant for hidden layers.
    """
    *hidden, _ = (
        module.weight for module in model.modules() if isinstance(module, nn.Linear)
    )
    trained = set(map(id, hidden))
    rest = [
        parameter for parameter in model.parameters() if id(parameter) not in trained
    ]
    return Together(
        torch.optim.Muon(hidden, lr=lr), torch.optim.AdamW(rest, lr=adam_lr)
    )


def full_batch(
    fit: Labelled,
    sizes: Sizes,
    values: Values,
    seed: int,
    *,
    make: Network = network,
    gradient_noise: float = 0.0,
) -> Looks:
    """Train by torch's L-BFGS on all rows at once; each of its steps reads them all.

    Without a line search, so that a step is one pass; its rate is tuned instead.
    """
    model, clock = make(fit, sizes.hidden, seed), Clock(fit.inputs.device)
    loss = loss_mse if fit.targets.is_floating_point() else cross_entropy
    # With one iteration for each call the loss is evaluated once, and the curvature of
    # the steps before is kept.
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1, **values)
    disturb(model, lambda: gradient_noise, seeded(seed + 2, fit.inputs.device))

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(model(fit.inputs), fit.targets)
        value.backward()
        for parameter in model.parameters():
            parameter.grad = parameter.grad.contiguous()  # torch's L-BFGS asks for it
        return value

    for step in range(1, sizes.passes + 1):
        with clock:
            value = optimizer.step(closure)
        if not torch.isfinite(value):
            raise FloatingPointError(f"the loss of L-BFGS is {value} at pass {step}")
        yield float(step), clock.seconds, model


# Hessian-free, and what is solved


# The paper's 150, 60 and 100 iterations are for long runs of deep networks.
KRYLOV = {"maxiter": 20, "miniter": 10, "patience": 5}


def newton(
    fit: Labelled,
    sizes: Sizes,
    values: Values,
    seed: int,
    *,
    make: Network = network,
    krylov: Mapping[str, int] = KRYLOV,
) -> Looks:
    """Train by Hessian-free on squared errors, one-hot where targets are labels."""
    X, Y = fit.inputs, fit.targets
    if not Y.is_floating_point():
        Y = one_hot(Y, fit.outputs).to(X.dtype)
    model = make(fit, sizes.hidden, seed)
    options = {**krylov, **values, "generator": seeded(seed + 1, X.device)}
    solver = hessian_free.HessianFree(model, **options)
    N, n = len(X), len(X) - len(X) // 6  # the merit is of one in six of its own rows
    first = min(200, n)
    records = hessian_free.train(
        model,
        solver,
        X[:n],
        targets=Y[:n],
        validation=(X[n:], Y[n:]),
        batch_size=first,
        settings=hessian_free.Settings(max_batch_size=max(n // 2, first)),
        generator=seeded(seed),
    )
    for record in records:
        yield record.rows / N, record.seconds, model
        if record.rows + record.n_next > sizes.passes * N:  # no room for one more
            return


def with_ones(X: Tensor) -> Tensor:
    """Append a column of ones, the only bias of BPLS."""
    return pad(X, (0, 1), value=1)


def biased(outputs: Callable, *rest: object) -> Callable[[Tensor], Tensor]:
    """Return a function of rows to which the column of ones is appended."""
    return lambda X: outputs(with_ones(X), *rest)


def bpls_weights(
    X: Tensor, hidden: int, outputs: int, seed: int, **scale: float
) -> tuple[Tensor, ...]:
    """Draw the weights that BPLS and its refinement start from."""
    return bpls.random_weights(
        (X.shape[1], hidden, outputs),
        dtype=X.dtype,
        device=X.device,
        generator=seeded(seed),
        **scale,
    )


def walks(fit: Labelled, sizes: Sizes, values: Values, seed: int) -> Looks:
    """Train by BPLS: a walk over all rows, then over the misses; the best is kept."""
    X, hidden = with_ones(fit.inputs), [bpls.activation("sigmoid")]
    start = bpls_weights(X, sizes.hidden, fit.outputs, seed)
    seconds = rows = 0
    steps = bpls.train(X, fit.targets, start, hidden, **values)
    for end in (step.end for step in steps if step.end):
        rows, seconds = rows + end.samples, seconds + end.seconds
        if rows > sizes.passes * len(X):
            return
        yield rows / len(X), seconds, biased(bpls.scores, end.best, hidden)


def refined(fit: Labelled, sizes: Sizes, values: Values, seed: int) -> Looks:
    """Train by our Gauss-Newton refinement of BPLS; every sweep reads all rows."""
    X, seconds = with_ones(fit.inputs), 0.0
    W1, _ = bpls_weights(X, sizes.hidden, 1, seed, scale=0.3)
    sweeps = sizes.passes - 1
    for end in gauss_newton.refine(X, fit.targets, W1, sweeps=sweeps, **values):
        seconds += end.seconds
        yield end.walk + 1.0, seconds, biased(gauss_newton.refined_scores, end.best)


GROUPS = 8  # of feature nodes of broad learning
NODES = 10  # of a group
COLUMNS = 2000  # nodes of all kinds at most
GROWTHS = 3  # half of its enhancement nodes come in so many updates


def broad(fit: Labelled, sizes: Sizes, values: Values, seed: int) -> Looks:
    """Train by broad learning; half of the enhancement nodes join the fitted rest.

    It has as many output weights as the network has weights, up to `COLUMNS` columns.
    """
    from labkit.broad import BroadLearningClassifier, BroadLearningRegressor

    weights = sum(
        parameter.numel() for parameter in network(fit, sizes.hidden, seed).parameters()
    )
    enhancement = min(weights // fit.outputs, COLUMNS) - GROUPS * NODES
    each = max(enhancement, 2 * GROWTHS) // 2 // GROWTHS
    first = max(enhancement, 2 * GROWTHS) - GROWTHS * each
    numbers = fit.targets.is_floating_point()
    kind = BroadLearningRegressor if numbers else BroadLearningClassifier
    # The scaling is the paper's for images; a tuned value may replace it. Each row by
    # itself would leave one bit of two inputs, and nothing of one.
    wide = fit.inputs.shape[1] > 2
    options = {"scaling": "sample" if wide else "feature", **values}
    device = str(fit.inputs.device)
    model = kind(GROUPS, NODES, first, random_state=seed, device=device, **options)
    X, y = fit.inputs.double().cpu().numpy(), fit.targets.cpu().numpy()
    clock = Clock(fit.inputs.device)

    def outputs(x: Tensor) -> Tensor:
        rows = x.double().cpu().numpy()
        if numbers:
            return torch.as_tensor(model.predict(rows), device=x.device)
        raw = torch.as_tensor(model.decision_function(rows))
        raw = raw if raw.ndim > 1 else torch.stack([-raw, raw], 1)
        placed = raw.new_full((len(raw), fit.outputs), -math.inf)
        placed[:, model.classes_] = raw  # a class may lack rows to learn from
        return placed.to(x.device)

    for step in range(min(GROWTHS + 1, sizes.passes)):
        with clock:
            model.add_nodes(each) if step else model.fit(X, y)
        yield step + 1.0, clock.seconds, outputs


RATE = (1e-3, 0.1)
ETA = (0.1, 10.0)
DECAY = (1e-3, 1.0)  # of AdamW
ORTHOGONAL = (0.01, 1.0)  # the rate of Muon, whose updates have one length
CLASSIFIERS = {
    "SGD": optimizer_rule(heavy_ball, lr=(3e-3, 1.0)),
    "Adam": optimizer_rule(torch.optim.Adam, lr=RATE),
    "Adam (default)": optimizer_rule(torch.optim.Adam),
    "AdamW": optimizer_rule(torch.optim.AdamW, lr=RATE, weight_decay=DECAY),
    "Muon": optimizer_rule(muon, lr=ORTHOGONAL, adam_lr=RATE),
    "L-BFGS": Rule(full_batch, {"lr": (0.1, 1.0)}, gradients=True),
    "RLS": by_minibatch(partial(make_training, "RLS"), lr=ETA, mean_weight=(1e-2, 1.0)),
    "RLS+M": by_minibatch(partial(make_training, "RLS+M"), lr=ETA, momentum=(0.3, 0.9)),
    "HRLS+M": by_minibatch(partial(make_training, "HRLS+M"), lr=ETA, adam_lr=RATE),
    "Hessian-free": Rule(newton, {"damping": ETA, "damping_decay": (0.5, 0.95)}),
    "BPLS": Rule(walks, {"clamp": (1e-3, 0.3), "ridge": (1e-6, 1e-2)}),
    "BPLS-GN": Rule(refined, {"mu": (1e-3, 1.0), "ridge": (1e-5, 0.1)}),
    "broad": Rule(broad, {"ridge": (1e-4, 10.0), "shrink": (0.1, 3.0)}),
}
