"""Online learning on two workers equals one process with all sequences."""

import math

import pytest
import torch

from labkit.rtrl import LEARNERS, CopyTask, DivergedError, Readout, Symbols, train
from labkit.rtrl.low_rank import random_signs
from labkit.scale import workers as of_group
from tests.draws import randn, seeded
from tests.rtrl.conftest import make_cell

V, N, B = 4, 5, 6  # symbols of the Copy task, units, sequences in all
STEPS, RANK = 8, 3  # terms, copies, steps of TBPTT's window
PARTS = slice(0, 1), slice(1, B)  # the sequences of each worker
LEARNED = [("rhn", name) for name in LEARNERS] + [("lstm", "OK")]


class Part:
    """Some of the sequences of a task, which runs as a whole on every worker."""

    def __init__(self, part):
        generator = seeded(2)
        self.task = CopyTask(B, generator=generator, dtype=torch.float64, level=3)
        self.task.error = 0.16  # so that the level rises soon
        self.part = part

    level = property(lambda self: self.task.level)

    def __iter__(self):
        return self

    def __next__(self):
        return Symbols(*(each[self.part] for each in next(self.task)))

    def observe(self, bits):
        self.task.observe(bits)


def run(rank, world, kind, name, optimizer=torch.optim.SGD):
    """Weights, losses and levels of a few steps; ``world`` None: in one process."""
    part = slice(0, B) if world is None else PARTS[rank]
    cell = make_cell(kind, V, N)
    generator = seeded(rank)
    b = len(range(B)[part])
    learner = LEARNERS[name].make(cell, RANK, batch_size=b, generator=generator)
    # The signs that a learner of all sequences would draw for these ones.
    h = seeded(5)
    learner._signs = lambda *shape: random_signs((B, *shape), learner.state, h)[part]
    readout = Readout(N, V, dtype=torch.float64)
    readout.weight.data = 0.5 * randn(N + 1, V, seed=1)
    weights = [cell.weight, readout.weight]
    for weight in weights:
        weight.data += float(rank)  # what others begin with does not matter
    records = train(
        learner,
        readout,
        Part(part),
        steps=STEPS,
        clip=0.05,
        optimizer=optimizer and optimizer(weights, lr=0.1),
        workers=None if world is None else of_group(),
    )
    seen = [(r.loss, float(r.level), float(r.updated)) for r in records]
    return [w.detach() for w in weights], torch.tensor(seen)


def run_all(rank, world, cases):
    return [run(rank, world, *case) for case in cases]


def test_workers_end_with_what_one_process_has(workers):
    cases = [*LEARNED, ("rhn", "OK", None)]  # frozen: everyone has the mean loss
    one, two = workers(run_all, cases)
    for case, (first, seen), (second, same) in zip(cases, one, two, strict=True):
        weights, wanted = run(0, None, *case)
        assert torch.equal(seen, same) and all(map(torch.equal, first, second))
        torch.testing.assert_close(seen, wanted, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(first, weights, rtol=1e-11, atol=1e-12)
        updates = (
            0 if len(case) == 3 else STEPS // RANK if case[1] == "TBPTT" else STEPS
        )
        assert wanted[:, 2].sum() == updates


def refused(rank, world, name, diverged=False):
    """What a run says, of equal generators, or of a loss that is not finite on one."""
    cell, generator = make_cell("rhn", V, N), seeded(rank * diverged)
    learner = LEARNERS[name].make(cell, RANK, batch_size=2, generator=generator)
    readout, task = Readout(N, V).double(), CopyTask(2, dtype=torch.float64)
    records = train(learner, readout, task, workers=of_group())
    try:
        next(records)
        if diverged and rank:
            learner.state.fill_(math.nan)
        next(records)
    except (ValueError, DivergedError) as error:
        return str(error)


def test_workers_that_would_draw_the_same_noise_are_refused(workers):
    for message in workers(refused, "UORO"):
        assert "two workers would draw the same noise" in message
        assert "manual_seed(seed + rank)" in message


@pytest.mark.parametrize("name", ["RTRL", "TBPTT", "B-OK"])
def test_learners_that_draw_nothing_need_no_seed(workers, name):
    assert workers(refused, name) == [None, None]


def test_all_workers_stop_at_the_same_step(workers):
    one, two = workers(refused, "RTRL", True)
    assert one == two and "the loss is nan at step 2" in one
