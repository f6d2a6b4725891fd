"""Small examples of online gradients, whose runs decide the exercises of RTRL."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from labkit.lab.exercises.answers import called
from labkit.rtrl import LEARNERS, RTRL, Cell, Learner, LSTMCell, RHNCell, RNNCell
from labkit.rtrl.learners import Method
from labkit.theorems import Finding, rtrl as theorems

BATCH = 8


@dataclass(frozen=True)
class ExampleSizes:
    """ExampleSizes and scale of an example; all sizes of the default differ.

    With the two parts and four blocks of an LSTM, S = 6, m = 9 and K n = 12.
    """

    inputs: int = 5  # d_x
    units: int = 3  # n
    terms: int = 7  # r, or copies
    scale: float = 0.6  # of the weights, so large that they matter


def drawn(*shape: int, seed: int) -> Tensor:
    """Draw standard normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@cache
def cell(sizes: ExampleSizes) -> LSTMCell:
    """Return a small LSTM."""
    made = LSTMCell(sizes.inputs, sizes.units, dtype=torch.float64)
    made.weight.data = sizes.scale * drawn(*made.weight.shape, seed=0)
    return made


def make(name: str, sizes: ExampleSizes, batch_size: int) -> Learner:
    """Make a learner of the table."""
    generator = torch.Generator().manual_seed(0)
    row = LEARNERS[name]
    return row.make(
        cell(sizes), sizes.terms, batch_size=batch_size, generator=generator
    )


def steps_of(name: str, sizes: ExampleSizes) -> int:
    """Return after how many steps a learner draws all its signs."""
    return sizes.terms + 2 if name == "OK" else 3


def example(name: str) -> Sequence[Tensor]:
    """Take some steps from a random state; return all that they changed."""
    sizes = ExampleSizes()
    learner = make(name, sizes, BATCH)
    learner.state = 0.7 * drawn(BATCH, learner.cell.state_size, seed=1)
    found = []
    for x in drawn(steps_of(name, sizes), BATCH, sizes.inputs, seed=2):
        learner.step(x)
        found += [learner.influence(), *map(partial(getattr, learner), learner.tensors)]
    return found


# Theorems on an example, of which the sizes may be drawn; see ExampleSizes


def _start(
    name: str, sizes: ExampleSizes
) -> tuple[Callable[[int], Learner], Tensor, Tensor]:
    """Return what makes learners, a state to start from, and inputs."""
    start = 0.7 * drawn(1, cell(sizes).state_size, seed=1)
    xs = drawn(steps_of(name, sizes), sizes.inputs, seed=2)
    return partial(make, name, sizes), start, xs


def unbiased(name: str) -> Finding:
    """Judge the mean of a learner's last step over all its signs."""
    return theorems.unbiased(*_start(name, ExampleSizes()), free=1)


def unbiased_in_two_steps(name: str) -> Finding:
    """Judge the mean of two steps over the signs of both."""
    making, start, xs = _start(name, ExampleSizes())
    return theorems.unbiased(making, start, xs[:2])


def least_noise(name: str) -> Finding:
    """Judge the noise of a learner's last step."""
    sizes = ExampleSizes()
    started = _start(name, sizes)
    if name == "OK":
        return theorems.of_least_variance(*started, sizes.terms)
    return {"UORO": theorems.balanced_uoro, "KF-AVG": theorems.balanced_kf}[name](
        *started
    )


def apart(name: str) -> Finding:
    """Judge whether the sequences of a batch see each other."""
    sizes = ExampleSizes()
    xs = drawn(steps_of(name, sizes), 4, sizes.inputs, seed=2)
    return theorems.sequences_apart(partial(make, name, sizes), xs)


def carries(name: str, *, own_unit: bool = False) -> Finding:
    """Judge the recursion of the influence."""
    sizes = ExampleSizes()
    kept = theorems.own_unit(cell(sizes)) if own_unit else None
    xs = drawn(3, BATCH, sizes.inputs, seed=2)
    return theorems.recursion(make(name, sizes, BATCH), xs, kept)


def back_propagation() -> Finding:
    """Judge exact RTRL by back-propagation through four steps."""
    sizes = ExampleSizes()
    xs, dLs = (
        drawn(4, BATCH, sizes.inputs, seed=2),
        drawn(4, BATCH, sizes.units, seed=3),
    )
    return theorems.back_propagation(make("RTRL", sizes, BATCH), xs, dLs)


# Runs that decide the questions


def first_variances() -> dict[int, float]:
    """Return, by the number of signs, UORO's relative variance in a first step."""
    found = {}
    for units in range(2, 8):
        made = RNNCell(5, units, dtype=torch.float64)
        made.weight.data = 0.6 * drawn(*made.weight.shape, seed=units)
        making, start = partial(_of, LEARNERS["UORO"], made), drawn(1, units, seed=1)
        draw = theorems.every_draw(making, start, drawn(1, 5, seed=2))
        error = (draw.draws - draw.truth).square().sum((1, 2)).mean()
        found[units] = float(error / draw.truth.square().sum())
    return found


def _of(row: Method, cell: Cell, batch_size: int) -> Learner:
    return row.make(cell, batch_size=batch_size)


def judge_variance(answer: Callable, measured: dict[int, float]) -> tuple[bool, str]:
    """Compare a function of S with the variances that were measured."""
    said = {S: float(called(answer, S)) for S in measured}
    rows = ", ".join(
        f"S = {S}: {value:.3g}, and yours is {said[S]:.3g}"
        for S, value in measured.items()
    )
    right = all(abs(said[S] - value) < 1e-9 * S for S, value in measured.items())
    return right, f"Relative variance over all signs, {rows}."


def influences() -> list[tuple[Tensor, int]]:
    """Return influences (S, m K n) with m, an untrained network's and others."""
    untrained = RHNCell(4, 6, dtype=torch.float64)
    untrained.weight.data = 0.01 * drawn(*untrained.weight.shape, seed=0)
    learner = RTRL(untrained, batch_size=1)
    for x in drawn(12, 1, 4, seed=1):
        learner.step(x)
    found = [(learner.influence()[0], untrained.augmented_size)]
    for terms, m in ((2, 5), (3, 7), (6, 9)):
        u, A = drawn(1, terms, m, seed=terms), drawn(1, terms, 8, 4, seed=terms + 1)
        found.append((theorems.kronecker_sum(u, A)[0], m))
    return found


def kronecker_rank(G: Tensor, m: int) -> int:
    """Return how few Kronecker products u (x) A hold G (S, m K n) to 1e-6."""
    rows = G.reshape(len(G), m, -1).movedim(1, 0).reshape(m, -1)
    d = torch.linalg.svdvals(rows)
    left = d.square().flip(0).cumsum(0).flip(0).sqrt()
    return int((left > 1e-6 * left[0]).sum())


def judge_rank(answer: Callable, measured: list) -> tuple[bool, str]:
    """Compare a function of G and m with the ranks of some influences."""
    wanted = [kronecker_rank(*each) for each in measured]
    found = [called(answer, G.clone(), m) for G, m in measured]
    of = "the untrained network of 6 units after 12 steps, and three sums of products"
    said = f"For {of}, the ranks are {wanted}, and your function gives {found}."
    return found == wanted, said


def nearest() -> dict[str, dict[str, float]]:
    """Return relative errors of OK and B-OK, of one draw and of the mean of 400."""
    errors, lstm = {}, cell(ExampleSizes())
    xs, dL = drawn(40, 1, 5, seed=2), drawn(1, 3, seed=3)
    exact = RTRL(lstm, batch_size=1)
    for x in xs:
        exact.step(x)
    truth = exact.gradient(dL)
    for name, draws in (("OK", 400), ("B-OK", 1)):
        generator = torch.Generator().manual_seed(0)
        learner = LEARNERS[name].make(lstm, 1, batch_size=draws, generator=generator)
        for x in xs:
            learner.step(x.expand(draws, -1))
        each = learner.per_sequence_gradient(dL.expand(draws, -1))
        one = (each - truth).square().sum((1, 2)).mean().sqrt() / truth.norm()
        mean = (each.mean(0) - truth).norm() / truth.norm()
        errors[name] = {"one draw": float(one), "the mean of 400": float(mean)}
    return errors


def nearer(errors: dict) -> tuple[str, str]:
    """Return the names of the nearer one for one draw, and for the mean of 400."""
    of = lambda which: min(errors, key=lambda name: errors[name][which])  # noqa: E731
    return of("one draw"), of("the mean of 400")


def judge_nearer(answer: object, measured: dict) -> tuple[bool, str]:
    """Compare two names with those of the run."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise ValueError(f"got {answer!r}")
    if not set(answer) <= {"OK", "B-OK"}:
        raise ValueError(f"the names are 'OK' and 'B-OK', got {answer!r}")
    numbers = "; ".join(
        f"{name}: {each['one draw']:.2f} for one draw, "
        f"{each['the mean of 400']:.2f} for the mean of 400"
        for name, each in measured.items()
    )
    return tuple(answer) == nearer(measured), f"Relative errors, {numbers}."
