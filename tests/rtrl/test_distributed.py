"""Online learning on several workers equals one process with all sequences."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise

import psutil
import pytest
import torch
import torch.distributed as dist

from labkit.rtrl import (
    LEARNERS,
    CharStream,
    CopyTask,
    DivergedError,
    Readout,
    Symbols,
    train,
)
from labkit.rtrl.low_rank import random_signs

from .conftest import make_cell, randn

V, N, B = 4, 5, 6  # symbols of the Copy task, units, sequences in all
STEPS, RANK = 8, 3  # terms, copies, steps of TBPTT's window


def shares(world, even=True):
    """First and last sequence of each worker."""
    sizes = [B // world] * world if even else [1, 5] if world == 2 else [1, 2, 3]
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return [slice(*pair) for pair in pairwise(ends)]


class Part:
    """Some of the sequences of a task, which runs as a whole on every worker."""

    def __init__(self, part):
        g = torch.Generator().manual_seed(2)
        self.task = CopyTask(B, generator=g, dtype=torch.float64, level=3)
        self.task.error = 0.16  # so that the level rises soon
        self.part, self.seen = part, []

    level = property(lambda self: self.task.level)

    def __iter__(self):
        return self

    def __next__(self):
        return Symbols(*(each[self.part] for each in next(self.task)))

    def observe(self, bits):
        self.seen.append(bits)
        self.task.observe(bits)


def make(kind, name, part, seed=0):
    cell, b = make_cell(kind, V, N), len(range(B)[part])
    g = torch.Generator().manual_seed(seed)
    learner = LEARNERS[name].make(cell, RANK, batch_size=b, generator=g)
    # The signs that a learner of all sequences would draw for these ones.
    h = torch.Generator().manual_seed(5)
    learner._signs = lambda *shape: random_signs((B, *shape), learner.state, h)[part]
    readout = Readout(N, V, dtype=torch.float64)
    with torch.no_grad():
        readout.weight.copy_(0.5 * randn(N + 1, V, seed=1))
    return learner, readout


def run(rank, world, kind, name, even=True, frozen=False):
    """Weights, losses and levels of a few steps; ``world`` None: in one process."""
    part = slice(0, B) if world is None else shares(world, even)[rank]
    learner, readout = make(kind, name, part, seed=rank)
    weights = [learner.cell.weight, readout.weight]
    if rank:  # what it begins with does not matter
        with torch.no_grad():
            for weight in weights:
                weight += 1.0
    optimizer = None if frozen else torch.optim.SGD(weights, lr=0.1, momentum=0.5)
    group = None if world is None else dist.group.WORLD
    options = {"optimizer": optimizer, "group": group}
    records = train(learner, readout, Part(part), steps=STEPS, clip=0.05, **options)
    seen = [(r.loss, r.bits, float(r.level), float(r.updated)) for r in records]
    return [w.detach() for w in weights], seen


def run_all(rank, world, cases):
    return [run(rank, world, *case) for case in cases]


def assert_close(found, wanted):
    for x, y in zip(found, wanted, strict=True):
        assert float((x - y).norm()) <= 1e-12 * float(y.norm())


@pytest.mark.parametrize("world", [1, 2, 3])
def test_workers_end_with_what_one_process_has(workers, world):
    cases = [("rhn", name) for name in LEARNERS]
    cases += [("lstm", "OK"), ("lstm", "RTRL"), ("rnn", "OK")]
    if world > 1:
        cases += [("rhn", name, False) for name in ("OK", "TBPTT")]
    cases += [("rhn", "OK", True, True)]  # frozen: everyone has the mean loss
    ranks = workers(run_all, cases, world=world)
    for i, case in enumerate(cases):
        weights, seen = run(0, None, *case)
        start = make(*case[:2], slice(0, B))[0].cell.weight.detach()
        frozen = case[3:] == (True,)
        assert float((weights[0] - start).norm()) > 1e-3 or frozen
        updates = 0 if frozen else STEPS // RANK if case[1] == "TBPTT" else STEPS
        assert sum(updated for *_, updated in seen) == updates
        for rank in ranks:
            found, records = rank[i]
            assert_close(found, weights)
            assert_close([torch.tensor(records)], [torch.tensor(seen)])
            assert all(map(torch.equal, found, ranks[0][i][0]))
            assert records == ranks[0][i][1]


# What they do alike


def diverge(rank, world):
    """Only the last worker's loss is not finite."""
    learner, readout = make("rhn", "RTRL", slice(0, B))
    task = CharStream(torch.arange(100) % V, V, B, dtype=torch.float64)
    weights = [learner.cell.weight, readout.weight]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    records = train(learner, readout, task, optimizer=optimizer, group=dist.group.WORLD)
    last = [next(records).loss for _ in range(3)][-1]
    if rank == world - 1:
        learner.state.fill_(math.nan)
    with pytest.raises(DivergedError) as caught:
        next(records)
    assert f"at step 4; the last finite one was {last}" in str(caught.value)
    return str(caught.value), [w.detach() for w in weights]


def test_all_workers_stop_at_the_same_step(workers):
    (told, weights), (also_told, same) = workers(diverge)
    assert told == also_told
    assert all(map(torch.equal, weights, same))


# At the door


def same_noise(rank, world, name):
    learner = LEARNERS[name].make(make_cell("rhn", V, N), RANK, batch_size=2)
    readout = Readout(N, V, dtype=torch.float64)
    task = CopyTask(2, dtype=torch.float64)
    try:
        next(train(learner, readout, task, group=dist.group.WORLD))
    except ValueError as error:
        return str(error)


def test_workers_that_would_draw_the_same_noise_are_refused(workers):
    for told in workers(same_noise, "UORO", world=3):
        assert "two workers would draw the same noise" in told
        assert "manual_seed(seed + rank)" in told


@pytest.mark.parametrize("name", ["RTRL", "TBPTT", "SNAP-1", "B-OK"])
def test_learners_that_draw_nothing_need_no_seed(workers, name):
    assert workers(same_noise, name) == [None, None]


def in_a_part_of_the_world(rank, world):
    """Ranks 1 and 2 train together; 0 is no part of it."""
    group = dist.new_group([1, 2])
    if rank == 0:
        return None
    learner, readout = make("rhn", "RTRL", shares(2)[rank - 1], seed=rank)
    weights = [learner.cell.weight, readout.weight]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    task = Part(shares(2)[rank - 1])
    list(train(learner, readout, task, steps=2, optimizer=optimizer, group=group))
    return [w.detach() for w in weights]


def test_a_group_may_be_a_part_of_the_world(workers):
    nothing, first, second = workers(in_a_part_of_the_world, world=3)
    assert nothing is None
    assert all(map(torch.equal, first, second))


# A worker that dies

SCRIPT = """\
import os, sys
from datetime import timedelta

import torch
import torch.distributed as dist

from labkit.instruments import Trace
from labkit.rtrl import OK, CopyTask, Readout, RNNCell, train

dist.init_process_group("gloo", timeout=timedelta(seconds=50))
rank = dist.get_rank()
with open(f"{sys.argv[1]}/{rank}.pid", "w") as file:
    print(os.getpid(), file=file, flush=True)
seed = torch.Generator().manual_seed(rank)
cell, readout = RNNCell(4, 8), Readout(8, 4)
learner = OK(cell, batch_size=2, rank=2, generator=seed)
optimizer = torch.optim.SGD([cell.weight, readout.weight], lr=0.1)
task = CopyTask(2, generator=torch.Generator().manual_seed(rank))
options = {"optimizer": optimizer, "steps": 50_000}  # an end, should pytest be gone
records = train(learner, readout, task, **options, group=dist.group.WORLD)
trace = Trace(f"{sys.argv[1]}/trace.jsonl", parameters={}) if rank == 0 else None
for record in records:
    if rank == 0:
        trace.log(record.step, bits=record.bits)
"""


@pytest.mark.long  # tests/broad/test_distributed.py kills one in every run
def test_a_killed_worker_is_named_and_ends_the_run(tmp_path):
    """By torchrun, within a minute; what rank 0 has measured is on disk."""
    victim = 1
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(tmp_path / "script.py"), str(tmp_path)]
    trace = tmp_path / "trace.jsonl"
    with open(tmp_path / "told", "w") as told:
        options = {"env": os.environ | {"OMP_NUM_THREADS": "1"}, "stderr": told}
        process = subprocess.Popen(command, start_new_session=True, **options)
        try:
            wait_for(lambda: trace.exists() and trace.read_text().count("\n") > 20)
            pids = [int((tmp_path / f"{r}.pid").read_text()) for r in (0, 1)]
            os.kill(pids[victim], signal.SIGKILL)
            written = trace.read_text().count("\n")
            assert process.wait(60) == 1
            wait_for(lambda: not any(map(psutil.pid_exists, pids)))
        finally:
            if process.poll() is None:  # its workers have sessions of their own
                torchrun = psutil.Process(process.pid)
                for each in [*torchrun.children(recursive=True), torchrun]:
                    each.kill()
    named = rf"rank +: {victim} .*\n +exitcode +: -9 .*\(SIGKILL\)"
    assert re.search(named, (tmp_path / "told").read_text())
    lines = trace.read_text().splitlines(keepends=True)
    assert len(lines) >= written and lines[-1].endswith("\n")
    steps = [json.loads(line)["step"] for line in lines[1:]]
    assert steps == list(range(1, len(steps) + 1))


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
