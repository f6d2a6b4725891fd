"""A soak of everything: small steps by the ten thousand, kills, clicks on live panels.

    python -m tests.soak MINUTES

A third of the time each. The steps are those of all learners, optimisers and
estimators in turn; time per step and memory must be flat. Kills are those of
:mod:`tests.kills`, and panels those of :mod:`tests.browser.soak`, which needs Chromium.
"""

import gc
import importlib.util
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
import psutil
import torch
from torch import nn

from labkit.bpls import BPLSClassifier, BPLSRegressor
from labkit.broad import BroadLearningClassifier, BroadLearningRegressor
from labkit.hessian_free import Autoencoder, HessianFree, MartensHF
from labkit.rls import RLS, Hybrid
from labkit.rtrl import LEARNERS, LSTMCell
from tests import kills

TURN = 0.25  # seconds of the processor that one subject has before the next one's turn
ANEW = 2000  # steps after which an object is made anew: estimators keep a history
MORE = 60  # MB that the process may take at the end above what it took when warm
SLOWER = 1.5  # how many times as long a step may take at the end as when warm


def learner(name: str) -> Iterator[None]:
    """Step through random symbols, with the gradient of each."""
    cell = LSTMCell(2, 4, generator=torch.Generator().manual_seed(0))
    made = LEARNERS[name].make(cell, 2, batch_size=2)
    for k in range(ANEW):
        made.step(torch.randn(2, 2))
        made.gradient(torch.randn(2, 4))
        if k % 50 == 49:
            made.reset()
        yield


def optimiser(make: Callable) -> Iterator[None]:
    """Train a small net."""
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    made = make(model)
    for _ in range(ANEW):
        made.zero_grad()
        model(torch.randn(6, 5)).square().mean().backward()
        made.step()
        yield


def second_order(kind: type) -> Iterator[None]:
    """Train a small autoencoder, a new batch at each step."""
    made = kind(Autoencoder((5, 3, 5), incoming=3), maxiter=5)
    for _ in range(ANEW):
        made.step(torch.rand(8, 5))
        yield


def estimator(make: Callable, classes: int) -> Iterator[None]:
    """Take batches one after another, and predict."""
    made, rng = make(), np.random.default_rng(0)
    for k in range(ANEW // 10):
        X, y = rng.normal(size=(12, 4)), rng.normal(size=12)
        labels = {"classes": range(classes)} if classes and not k else {}
        made.partial_fit(X, np.arange(12) % classes if classes else y, **labels)
        made.predict(X)
        yield


def hybrid(model: nn.Module) -> Hybrid:
    """RLS for the first layer, AdamW for the last."""
    rls = RLS(model, layers=["0"], max_grad_norm=1.0)
    return Hybrid(rls, torch.optim.AdamW(model[2].parameters()))


BROAD = {"ridge": 0.1, "random_state": 0}
SUBJECTS = {
    **{f"learner {name}": lambda name=name: learner(name) for name in LEARNERS},
    "RLS": lambda: optimiser(lambda model: RLS(model, max_grad_norm=1.0)),
    "Hybrid": lambda: optimiser(hybrid),
    "HessianFree": lambda: second_order(HessianFree),
    "MartensHF": lambda: second_order(MartensHF),
    "BPLSRegressor": lambda: estimator(lambda: BPLSRegressor((4,)), 0),
    "BPLSClassifier": lambda: estimator(lambda: BPLSClassifier((4,)), 3),
    "BroadLearningRegressor": lambda: estimator(
        lambda: BroadLearningRegressor(2, 3, 5, **BROAD), 0
    ),
    "BroadLearningClassifier": lambda: estimator(
        lambda: BroadLearningClassifier(2, 3, 5, **BROAD), 3
    ),
}


class Subject:
    """One of those that step: its steps so far, and how long they took in each turn."""

    def __init__(self, name: str) -> None:
        self.name, self.steps, self.turns = name, 0, []
        self.run = SUBJECTS[name]()

    def turn(self) -> None:
        """Step for a quarter of a second of the processor."""
        begun, count = time.process_time(), 0
        while time.process_time() - begun < TURN:
            if next(self.run, self) is self:  # it is at its end
                self.run = SUBJECTS[self.name]()
            else:
                count += 1
        self.steps += count
        self.turns.append((time.process_time() - begun) / max(count, 1))

    def slower(self) -> float:
        """Return the time of a step in the last turns over that in the first ones."""
        share = max(1, len(self.turns) // 3)
        return median(self.turns[-share:]) / median(self.turns[:share])


def megabytes() -> float:
    """Return the memory that this process has now."""
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


def take_steps(minutes: float, say: Callable = print) -> list[str]:
    """Step for so long, tell the counts, and return what is not flat."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    subjects, memory = [Subject(name) for name in SUBJECTS], []
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end or len(memory) < 4:
        for subject in subjects:
            subject.turn()
        memory.append(megabytes())
    warm, last = memory[len(memory) // 4], memory[-1]
    for s in subjects:
        each = 1000 * median(s.turns)
        say(f"{s.name:26}{s.steps:8} steps, {each:7.3f} ms each, x{s.slower():.2f}")
    total = sum(subject.steps for subject in subjects)
    took = f"{warm:.0f} MB warm, {last:.0f} MB last"
    say(f"steps: {total} in {len(memory)} rounds, {took}")
    bad = [f"{s.name}: a step takes {s.slower():.2f} times as long" for s in subjects]
    bad = [told for told, s in zip(bad, subjects, strict=True) if s.slower() > SLOWER]
    if last - warm > MORE:
        bad.append(f"memory grew by {last - warm:.0f} MB")
    return bad


def main(minutes: float) -> int:
    """Soak for so many minutes; return the exit status."""
    bad = take_steps(minutes / 3, lambda line: print(line, flush=True))
    if kills.main(10_000, minutes=minutes / 3):
        bad.append("a kill changed a result")
    if importlib.util.find_spec("selenium") and shutil.which("chromedriver"):
        from tests.browser import soak

        if soak.main(minutes / 3):
            bad.append("panels grew")
    else:
        print("panels were left out: they need selenium, chromium and chromedriver")
    print("; ".join(bad) or "flat, and nothing lost")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
