"""A row of the table of step functions: how it is made, and the waits of a step."""

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Row:
    """One step function on one setting."""

    step: str  # its name
    make: Callable[[str], Any]  # device -> a step without arguments, or (before, step)
    waits: int = 0  # of the host, a step; a comment has the reason


def counted(make) -> tuple[Counter, list]:
    """The waits of the second step on the strict device, and its numbers on the CPU.

    The first step may make what stays.
    """
    # Here, since where it is imported, torch has no other accelerator.
    from tests.device.strict_device import NAME, strict

    with in_dtype(), strict() as tally:
        before, step = two(make(NAME))
        for _ in range(2):
            before()
            tally.clear()
            found = step()
        return Counter(tally.waits), numbers(found)


def on_the_cpu(make) -> list:
    """What the second step comes to there."""
    with in_dtype():
        before, step = two(make("cpu"))
        for _ in range(2):
            before()
            found = step()
        return numbers(found)


def two(made):
    """What comes before a step and is not counted, and the step."""
    return made if isinstance(made, tuple) else (tuple, made)


def numbers(tree) -> list:
    """All tensors and numbers of a tree but seconds, on the CPU, in float64."""
    if isinstance(tree, torch.Tensor):
        return [tree.detach().cpu().double()]
    if is_dataclass(tree):
        tree = {k: getattr(tree, k) for k in tree.__dataclass_fields__}
    if isinstance(tree, dict):
        tree = [v for k, v in tree.items() if "seconds" not in str(k)]
    if isinstance(tree, list | tuple):
        return [x for each in tree for x in numbers(each)]
    is_number = isinstance(tree, bool | int | float)
    return [torch.tensor(tree, dtype=torch.float64)] if is_number else []


def seeded(device="cpu", seed=0) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def random(device, *shapes):
    """Normal numbers, the same on every device and in every dtype."""
    generator = seeded()
    drawn = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    return [x.to(**on(device)) for x in drawn]


def on(device):
    """Where the tensors of a row lie, and in which dtype: torch's default."""
    return {"device": device, "dtype": torch.get_default_dtype()}


@contextmanager
def in_dtype(dtype=torch.float64):
    """Make rows in a dtype: it is torch's default as long as this lasts."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def estimator(device, make, classes=False, change="fit"):
    """Fit, grow or nothing, and predict; the rows are NumPy's, and come and go."""
    (X,) = random("cpu", (40, 4))
    y = torch.arange(40) % 3 if classes else X[:, 0]
    X, y = X.numpy(), y.numpy()
    made = make(random_state=0, device=device).fit(X, y)

    def step():
        if change == "fit":
            made.fit(X, y)
        elif change == "add_nodes":
            made.add_nodes(3)
        return torch.from_numpy(made.predict(X))

    return step
