"""Questions of the comparison: a rank, a race after noise, and an optimiser."""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labkit.lab.datasets import load
from labkit.lab.exercises.judging import Question
from labkit.lab.exercises.running import described
from labkit.rls import RLS, loss_one_hot
from labkit.rtrl import OK, LSTMCell

FIT = 300  # rows
TEST = 500
BATCH = 32
BEFORE = 60  # minibatches
NOISY = 40
AFTER = 20
LR = 0.05  # of the optimiser that is asked for
RULES = "SGD", "Adam", "RLS"


def test_error(name: str) -> float:
    """Train by a rule, with wrong labels for a while; return its test error [%]."""
    data = load("digits")
    X, y = data.inputs.flatten(1), data.targets
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        layers = nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)
        model = nn.Sequential(*layers)
    loss, parameters = cross_entropy, model.parameters()
    if name == "RLS":
        optimizer, loss = RLS(model), loss_one_hot
    elif name == "Adam":
        optimizer = torch.optim.Adam(parameters, lr=3e-3)
    else:
        optimizer = torch.optim.SGD(parameters, lr=0.1)
    generator = torch.Generator().manual_seed(0)
    for step in range(BEFORE + NOISY + AFTER):
        rows = torch.randint(FIT, (BATCH,), generator=generator)
        wrong = torch.rand(BATCH, generator=generator) < 0.8
        labels = torch.randint(10, (BATCH,), generator=generator)
        noisy = wrong & (BEFORE <= step < BEFORE + NOISY)
        optimizer.zero_grad()
        loss(model(X[rows]), torch.where(noisy, labels, y[rows])).backward()
        optimizer.step()
    with torch.no_grad():
        found = model(X[FIT : FIT + TEST]).argmax(1)
    return 100 * float((found != y[FIT : FIT + TEST]).double().mean())


@cache
def recovered() -> list[tuple[tuple[str], str]]:
    """Return the test errors a while after labels were noisy, with the best rule."""
    errors = {name: test_error(name) for name in RULES}
    words = ", ".join(f"{name} {error:.1f} %" for name, error in errors.items())
    return [((f"Test errors: {words}",), min(errors, key=errors.get))]


def one_of(answer: Any, _words: str) -> str:
    """Return the name of a rule; ValueError if it is another answer."""
    if answer not in RULES:
        raise ValueError(f"The rules are {', '.join(RULES)}, got {answer!r}.")
    return answer


@cache
def least_ranks() -> list[tuple[tuple[int], int]]:
    """Return the rows of a sequence, with the least rank at which OK has no noise."""
    generator = torch.Generator().manual_seed(0)
    cell = LSTMCell(5, 3, dtype=torch.float64)
    cell.weight.data.normal_(0, 0.6, generator=generator)
    xs = torch.randn(6, 1, 5, generator=generator, dtype=torch.float64)
    found = []
    for T in range(2, 7):
        for rank in range(1, T + 1):
            learner = OK(cell, batch_size=20, rank=rank, generator=generator)
            for x in xs[:T]:
                learner.step(x.expand(20, -1))
            G = learner.influence()
            if (G - G.mean(0)).norm() < 1e-5 * G.norm():
                found.append(((T,), rank))
                break
    return found


def gradient(s: int) -> Tensor:
    """Return the gradient of step s, (7,)."""
    return torch.cos(torch.arange(7) * (s + 1.5)).double()


@cache
def sign_steps() -> list[tuple[tuple[float], Tensor]]:
    """Return weight decays, with the weights after three steps by a mean's sign."""
    found = []
    for decay in (0.0, 0.3):
        weights, mean = torch.linspace(-2, 3, 7).double(), torch.zeros(7).double()
        for step in range(3):
            mean = 0.9 * mean + 0.1 * gradient(step)
            weights = weights * (1 - LR * decay) - LR * mean.sign()
        found.append(((decay,), weights))
    return found


def stepped(answer: Any, decay: float) -> Tensor:
    """Take three steps of an optimiser; without a decay it has to be the default."""
    if not (isinstance(answer, type) and issubclass(answer, torch.optim.Optimizer)):
        raise TypeError(f"This is {described(answer)}.")
    weights = torch.linspace(-2, 3, 7).double().split((3, 4))
    weights = [part.clone().requires_grad_() for part in weights]
    if decay:
        optimizer = answer(weights, lr=LR, weight_decay=decay)
    else:
        optimizer = answer(weights, lr=LR)
    for step in range(3):
        for parameter, grad in zip(weights, gradient(step).split((3, 4)), strict=True):
            parameter.grad = grad
        optimizer.step()
    return torch.cat(weights).detach()


TASKS = (
    Question(
        name="compare-rank",
        title="Find the least rank at which OK draws nothing on T rows.",
        wants="a function of one whole number T that returns a whole number",
        measured=least_ranks,
        hints=(
            "Before the first row the influence is 0, and after it one Kronecker "
            "product.",
            r"Each row adds one product, $\hat h_t \otimes D_t$.",
            "A sum of r products holds r of them without any mixing.",
        ),
        solution="`T`. On eight rows rank 8 leaves nothing to mix: the cosine is 1 but "
        "for rounding. OK is then level with Adam, at many times its seconds.",
    ),
    Question(
        name="compare-noise",
        title="Predict which rule has the lowest error a while after noisy labels.",
        wants="one of the names 'SGD', 'Adam' and 'RLS'",
        measured=recovered,
        use=one_of,
        hints=(
            "The noise disturbs all of them. What counts is how fast each one learns.",
            "In the live race, put *label noise* up and back to 0, and look at the "
            "curves after it.",
            "The rule that needs the fewest minibatches from the start also needs the "
            "fewest here.",
        ),
        solution="RLS here. In the live race Hessian-free and RLS+M come first, then "
        "Muon, and Adam and SGD last. "
        "No rule is undisturbed: rules that are solved anew suffer as noisy rows pile "
        "up, and recover as clean ones dilute them.",
    ),
    Question(
        name="compare-decay",
        title="Put a decay of the weights into an optimiser of your own.",
        wants="a subclass of torch.optim.Optimizer that takes lr and weight_decay",
        measured=sign_steps,
        use=stepped,
        hints=(
            "Add `weight_decay=0.0` to `__init__`, and to the defaults that it hands "
            "on.",
            'A step finds it as `group["weight_decay"]`.',
            '`p.mul_(1 - group["lr"] * group["weight_decay"])` stands before the step.',
        ),
        solution="`p.mul_(1 - group['lr'] * group['weight_decay'])` before the step. "
        "In the race its range is one more keyword of `rules.optimizer_rule`.",
    ),
)
