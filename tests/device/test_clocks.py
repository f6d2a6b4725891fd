"""Seconds on an accelerator are those of the work, wherever its kernels still queue.

Time here is the number of kernels that the host has waited for: a clock that does not
drain the device reads launches as nothing, and what others launched as its own.
"""

from functools import partial
from itertools import islice
from types import SimpleNamespace

import pytest
import torch

from labkit import bpls, hessian_free, rls
from labkit.broad import BroadLearningRegressor
from labkit.broad.train import side_by_side
from labkit.clock import Clock
from labkit.lab.bpls import descend
from labkit.lab.compare import rules, sequences
from labkit.lab.datasets import Labelled
from labkit.lab.tuning import Sizes
from tests.device import bpls as walks, hessian_free as newton, rls as squares
from tests.device.rows import random, seeded
from tests.device.strict_device import NAME, strict


@pytest.fixture
def tally(monkeypatch):
    with strict() as tally:
        now = SimpleNamespace(perf_counter=lambda: float(tally.done))
        monkeypatch.setattr("labkit.clock.time", now)
        yield tally


def test_a_clock_counts_what_is_launched_inside(tally):
    x = torch.ones(3, device=NAME)
    x + 1
    with Clock(x.device) as clock:
        x + 1, x + 2
    x + 3
    assert clock.seconds == clock.lap == 2
    with clock:
        x + 1
    assert (clock.lap, clock.seconds) == (1, 3)


# Loops: seconds of each record


def descending():
    X, Y, weights = walks.problem(NAME)
    steps = descend(X, Y, weights, batch_size=10, generator=seeded())
    before = 0.0
    for step in steps:
        yield step.seconds - before
        before = step.seconds


def walking():
    X, Y, weights = walks.problem(NAME)
    return (record.seconds for record in bpls.train(X, Y, weights, max_walks=1))


def sweeping():
    X, Y, weights = walks.problem(NAME)
    return (end.seconds for end in bpls.refine(X, Y, weights[0], sweeps=3))


def by_squares(watch=None):
    model = squares.network("Linear").to(NAME)
    options = {"batch_size": 3, "epochs": 2, "watch": watch}
    records = rls.train(model, rls.RLS(model), *squares.batch(NAME), **options)
    return (record.seconds for record in records)


def by_newton(make=None):
    net, X = newton.autoencoder(NAME)
    made = newton.optimizer_of(net, NAME, maxiter=6)
    data = {"validation": X, "test": X, "batch_size": 10, "generator": seeded()}
    before = 0.0
    for record in islice(hessian_free.train(net, made, X, **data), 3):
        yield record.seconds - before
        before = record.seconds


def by_rule(rule):
    X = random(NAME, (40, 16))[0].float()
    fit = Labelled("random", X, torch.arange(40).to(NAME) % 10)
    run = rule.run(fit, Sizes(2, 20, 4), values_of(rule), 0)
    before = 0.0
    for _, seconds, _ in run:
        yield seconds - before
        before = seconds


def values_of(rule):
    return {name: low for name, (low, _) in rule.ranges.items()}


LOOPS = {"descend": descending, "bpls.train": walking, "refine": sweeping}
LOOPS |= {"rls.train": by_squares, "hessian_free.train": by_newton}
LOOPS |= {
    f"rule {k}": partial(by_rule, rules.CLASSIFIERS[k])
    for k in (
        "Adam",
        "Muon",
        "L-BFGS",
        "RLS",
        "Hessian-free",
        "BPLS",
        "BPLS-GN",
        "broad",
    )
}
LOOPS |= {
    f"rule {k}": partial(by_rule, sequences.SEQUENCES[k]) for k in ("OK", "2-TBPTT")
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_record_has_the_seconds_of_its_own_kernels(tally, name):
    x = torch.ones(3, device=NAME)
    next(iter(LOOPS[name]()))  # makes what is made once in a process
    tally.clear()
    own = list(LOOPS[name]())
    launched = tally.kernels.total()
    assert 0.5 * launched < sum(own) <= launched
    beside = []
    for seconds in LOOPS[name]():
        beside.append(seconds)
        for _ in range(50):  # the caller looks at something
            x + 1
    assert beside == own


def test_to_look_at_a_step_of_rls_costs_it_nothing(tally):
    x = torch.ones(3, device=NAME)
    assert list(by_squares(lambda: [x + i for i in range(50)])) == list(by_squares())


def test_no_solver_pays_for_another_or_for_what_they_share(tally):
    A, Y = random(NAME, (20, 9), (20, 2))

    def seconds(*solvers):
        records = side_by_side(A, (4, 6, 9), Y, 0.1, solvers)
        return {(r.solver, r.step): r.seconds for each in records for r in each}

    both = seconds("chol-1", "bordered")
    assert both == seconds("bordered", "chol-1")
    alone = seconds("chol-1")
    assert alone == {key: both[key] for key in alone}


def test_nodes_are_no_work_of_the_solver(tally):
    X, y = (x.numpy() for x in random("cpu", (30, 3), (30,)))
    made = BroadLearningRegressor(2, 3, 5, random_state=0, device=NAME)
    for grow in (lambda: made.fit(X, y), lambda: made.add_nodes(3)):
        tally.clear()
        grow()
        nodes = {n for (_, line), n in tally.kernels.items() if "nodes.py" in line}
        last = made.history_[-1]
        assert last.node_seconds >= sum(nodes) > 0
        assert last.seconds + last.node_seconds <= tally.kernels.total()
        assert last.seconds > 0
