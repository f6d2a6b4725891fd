"""Small runs of RLS that decide the questions about its knobs."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from labkit.lab.datasets import load
from labkit.lab.exercises.answers import called, tensor_of
from labkit.rls import RLS, loss_mse, loss_one_hot, rls_step
from labkit.rls.update import descend
from labkit.theorems import rls as theorems

ALIKE = 1e-6  # relative; an answer may be computed in float32
FIT, TEST, BATCH, EPOCHS, SEEDS = 1000, 400, 128, 5, 3  # on digits
STEPS = 300  # after which a loss has run away, or not
LOST = 1.0  # points of accuracy


def growth(mu: Tensor, Sigma: Tensor, M: int, k: float) -> Tensor:
    """Return the mean growth of A in a step, (n, n)."""
    return k * (torch.outer(mu, mu) + Sigma / M)


def growths() -> list[tuple[tuple, Tensor]]:
    """Return the mean growth of A over all minibatches, with what it hangs on.

    Four inputs are all that there is; a minibatch draws M of them, one by one. Each
    minibatch of M = 1 to 4 enters P by a step of its own.
    """
    X, P, k = theorems.drawn(4, 3, seed=1) + 0.5, theorems.first_P(n=3), 0.3
    A, found = torch.linalg.inv(P), []
    for M in range(1, 5):
        grown = []
        for drawn in product(range(4), repeat=M):
            now, theta = P.clone(), torch.zeros(1, 3).double()
            x = X[list(drawn)].mean(0)
            rls_step(theta, now, x, torch.zeros_like(theta), mean_weight=k)
            grown.append(torch.linalg.inv(now) - A)
        args = X.mean(0), torch.cov(X.T, correction=0), M, k
        found.append((args, torch.stack(grown).mean(0)))
    return found


def judge_growth(answer: Callable, measured: list) -> tuple[bool, str]:
    """Compare a function of mu, Sigma, M and k with the mean growth."""
    off = {}
    for args, wanted in measured:
        found = tensor_of(called(answer, *args), 3, 3)
        off[args[2]] = float((found - wanted).norm() / wanted.norm())
    said = ", ".join(f"M = {M}: {error:.2g}" for M, error in off.items())
    return max(off.values()) < ALIKE, (
        f"Relative difference from the mean over all minibatches of 4 inputs, {said}."
    )


def largest_step(X: Tensor, P: Tensor) -> float:
    """Return the largest step factor with which the loss does not run away."""
    return float(2 / torch.linalg.eigvals(X.T @ X / len(X) @ P).real.max())


def largest_steps() -> dict[str, tuple[Tensor, Tensor, float]]:
    """Return rows, P, and the largest step factor that many steps survived."""
    X = load("digits").inputs.flatten(1)[:100].double()
    one, P = (torch.eye(64, dtype=torch.float64) for _ in range(2))
    theta = torch.zeros(1, 64).double()
    for rows in X.split(10):
        rls_step(theta, P, rows.mean(0), torch.zeros_like(theta))
    made = theorems.drawn(9, 5, seed=3), theorems.first_P()
    cases = {"digits and P = I": (X, one), "digits and the P of RLS": (X, P)}
    cases["other rows and another P"] = made
    return {name: (*case, _survived(*case)) for name, case in cases.items()}


def _survived(X: Tensor, P: Tensor) -> float:
    """Halve the gap between a factor that survives and one that does not."""
    low, high = 1e-3, 1e3
    while high > 1.005 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _survives(X, P, middle) else (low, middle)
    return low


def _survives(X: Tensor, P: Tensor, eta: float) -> bool:
    theta, h = theorems.drawn(2, X.shape[1], seed=5), X.new_ones(())
    loss = lambda: float((X @ theta.T).square().sum())  # noqa: E731
    first = loss()
    for _ in range(STEPS):
        gradient = (X @ theta.T).T @ X / len(X)
        descend(theta, None, gradient @ P, h, lr=eta)
        if not (last := loss()) < 1e9 * first:
            return False
    return last < first


def judge_largest(answer: Callable, measured: dict) -> tuple[bool, str]:
    """Compare a function of X and P with the largest factors that were found."""
    said, right = [], True
    for name, (X, P, found) in measured.items():
        yours = float(tensor_of(called(answer, X.clone(), P.clone())))
        right &= abs(yours - found) < 0.02 * found
        said.append(f"{name}: {found:.3g}, and yours is {yours:.3g}")
    return right, f"Largest factor that {STEPS} steps survive, {'; '.join(said)}."


def curve_of_h(k: float, q: float, s: int) -> float:
    """Return h of step s, from 1, where all minibatches have one mean input."""
    return 1 + k * q / (1 + (s - 1) * k * q)


def curves_of_h() -> dict[tuple[float, float], list[float]]:
    """Return h of 40 steps with one mean input, by k and its squared length."""
    found = {}
    for k, long in ((0.01, 3), (0.3, 3), (0.3, 1), (100.0, 3)):
        x = torch.linspace(0.5, 1.5, 4).double() * long
        P, theta = torch.eye(4).double(), torch.zeros(1, 4).double()
        key = k, float(x @ x)
        found[key] = [
            float(rls_step(theta, P, x, torch.zeros_like(theta), mean_weight=k))
            for _ in range(40)
        ]
    return found


def judge_curve(answer: Callable, measured: dict) -> tuple[bool, str]:
    """Compare a function of k, q and s with the runs."""
    said, right = [], True
    for (k, q), wanted in measured.items():
        yours = [float(called(answer, k, q, s)) for s in range(1, len(wanted) + 1)]
        right &= all(abs(a - b) < ALIKE * b for a, b in zip(yours, wanted, strict=True))
        rows = ", ".join(
            f"step {s}: {wanted[s - 1]:.4g} and yours {yours[s - 1]:.4g}"
            for s in (1, 2, 10, 40)
        )
        said.append(f"- k = {k:g}, q = {q:.3g}; {rows}")
    return right, "h of the runs, and your curve:\n\n" + "\n".join(said) + "."


@cache
def accuracy(l1: float) -> float:
    """Return the test accuracy [%] of RLS with this L1, a mean over seeds."""
    data = load("digits")
    X, y = data.inputs.flatten(1), data.targets
    found = []
    for seed in range(SEEDS):
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            layers = nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
            model = nn.Sequential(*layers)
        optimizer = RLS(model, l1=l1, max_grad_norm=5.0, on_failure="reset")
        for rows in _minibatches(seed):
            optimizer.zero_grad()
            loss_one_hot(model(X[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            wrong = model(X[FIT : FIT + TEST]).argmax(1) != y[FIT : FIT + TEST]
        found.append(100 * (1 - float(wrong.double().mean())))
    return sum(found) / SEEDS


def _minibatches(seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        yield from torch.randperm(FIT, generator=generator).split(BATCH)


def harmful(plain: float) -> float:
    """Return a strength that costs more than a point of an accuracy without L1."""
    l1 = 1e-4
    while plain - accuracy(l1) <= LOST:
        l1 *= 10**0.5
    return l1


def judge_harm(answer: Any, plain: float) -> tuple[bool, str]:
    """Run with the strength of the answer, and with a tenth of it."""
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        raise TypeError(f"got {answer!r}")
    if not 0 < answer < float("inf"):
        raise ValueError(f"got {answer}")
    at, tenth = accuracy(answer), accuracy(answer / 10)
    return plain - at > LOST >= plain - tenth, (
        f"The accuracy is {plain:.1f} % without L1, {at:.1f} % at {answer:g}, and "
        f"{tenth:.1f} % at a tenth of it, means over {SEEDS} seeds."
    )


def with_mean_weight_one(k: float, lr: float, P0_scale: float) -> tuple[float, float]:
    """Return the lr and the P0_scale that go with the mean weight 1."""
    return lr / k, k * P0_scale


def with_mean_weight() -> dict[tuple[float, float, float], Tensor]:
    """Return the weights after a run, by k, lr and P0_scale."""
    settings = (0.1, 1.0, 1.0), (0.3, 0.7, 2.0), (3.0, 0.5, 0.4)
    return {each: weights_after(*each) for each in settings}


def weights_after(k: float, lr: float, P0_scale: float) -> Tensor:
    """Train a small network with momentum, and return its weights as one vector."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        layers = nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)
        model = nn.Sequential(*layers).double()
    optimizer = RLS(model, mean_weight=k, lr=lr, P0_scale=P0_scale, momentum=0.5)
    X, Z = theorems.drawn(60, 4, seed=7) + 0.5, theorems.drawn(60, 2, seed=8)
    for x, z in zip(X.split(4), Z.split(4), strict=True):
        optimizer.zero_grad()
        loss_mse(model(x), z).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def judge_same(answer: Callable, measured: dict) -> tuple[bool, str]:
    """Run with the two numbers of the answer and the mean weight 1."""
    off = {}
    for settings, wanted in measured.items():
        lr, P0_scale = tensor_of(called(answer, *settings), 2).tolist()
        found = weights_after(1.0, lr, P0_scale)
        off[settings] = float((found - wanted).norm() / wanted.norm())
    said = "; ".join(
        f"k, lr and P0_scale of {k:g}, {lr:g} and {p:g}: {error:.2g}"
        for (k, lr, p), error in off.items()
    )
    return max(off.values()) < 10 * ALIKE, (
        f"Relative difference of the weights after 15 steps, {said}."
    )
