"""RLS on two and three workers equals RLS on the whole minibatch in one process."""

import copy
import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit.rls import RLS, Hybrid, NumericalError, dense_network, loss_mse, train
from labkit.rls.ablations import AveragedRLS, KailathRLS, RunningMeanRLS

from .conftest import RULE, identical, randn, snapshot, take
from .test_optimizer import CASES
from .twins import fcs, randomise

pytestmark = pytest.mark.filterwarnings("ignore:with forgetting < 1")

ROWS, STEPS = 6, 4
OPTIONS = {
    "plain": {},
    "all": RULE,
    "clipped": {**RULE, "max_grad_norm": 0.05},
    "not clipped": {"max_grad_norm": math.inf},  # no gradient formed in one process
}


def wrapped(model, world):
    """The model as it is trained: on several workers, or bare for ``world`` None."""
    return model if world is None else DistributedDataParallel(model)


def minibatches(inputs, outputs, rank=0, world=None, rows=ROWS):
    """(x, target) of each step: the rows of this worker, or all."""
    for step in range(STEPS):
        x = randn(rows, *inputs, seed=step) + 0.5
        target = randn(rows, *outputs, seed=step + 100)
        part = slice(rank, None, world)
        yield x[part], target[part]


def few_steps(rank, world, model, make=RLS, batches=None, **options):
    """The optimiser after a few steps of a model on this worker's rows."""
    trained = wrapped(model, world)
    optimizer = make(trained, **options)
    for x, target in batches or minibatches((5,), (3,), rank, world):
        take(trained, optimizer, x, target)
    return optimizer


def run_case(rank, world, case, options):
    """Weights and state of a network of every layer kind, and every P."""
    model, inputs, outputs, layers = CASES[case]()
    batches = minibatches(inputs, outputs, rank, world)
    options = OPTIONS[options] | {"layers": layers, "batches": batches}
    optimizer = few_steps(rank, world, model, **options)
    Ps = [optimizer.state[block.weight]["P"] for block in optimizer.blocks]
    return [*snapshot(model, optimizer), optimizer.gradient_norm], Ps


def run_cases(rank, world, cases):
    return [run_case(rank, world, *case) for case in cases]


def assert_close(found, wanted, tolerance=1e-12):
    """Each tensor, relative to its own size."""
    for x, y in zip(found, wanted, strict=True):
        assert float((x - y).norm()) <= tolerance * max(float(y.norm()), 1e-3)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_workers_end_with_what_one_process_has(workers, world):
    cases = [
        (case, options)
        for case in CASES
        for options in (OPTIONS if case in ("fc", "conv", "lstm") else ["all"])
    ]
    ranks = workers(run_cases, cases, world=world)
    for i, case in enumerate(cases):
        everything, _ = run_case(0, None, *case)
        for rank in ranks:
            assert_close(rank[i][0], everything)
            assert identical(rank[i][0], ranks[0][i][0]), case
            for P in rank[i][1]:
                assert torch.equal(P, P.T)


def run_hybrid(rank, world):
    """Hidden layer by RLS, the last by Adam, clipped together."""
    model = fcs()

    def make(trained):
        rls = RLS(trained, layers=["0"], momentum=0.5, max_grad_norm=0.5)
        return Hybrid(rls, torch.optim.Adam(model[2].parameters(), lr=0.01))

    optimizer = few_steps(rank, world, model, make)
    assert optimizer.gradient_norm > 0.5
    return snapshot(model, optimizer.rls) + snapshot(model, optimizer.other)


def run_running_mean(rank, world):
    model, options = fcs(), {"mean_weight": 0.5, "momentum": 0.5}
    return snapshot(model, few_steps(rank, world, model, RunningMeanRLS, **options))


def run_accumulated(rank, world):
    """Two backward passes for each step."""
    model = fcs()
    trained = wrapped(model, world)
    optimizer = RLS(trained, momentum=0.5)
    for x, target in minibatches((5,), (3,), rank, world, rows=12):
        halves = list(zip(x.chunk(2), target.chunk(2), strict=True))
        optimizer.zero_grad()
        with trained.no_sync() if world else nullcontext():
            loss_mse(trained(halves[0][0]), halves[0][1]).backward()
        loss_mse(trained(halves[1][0]), halves[1][1]).backward()
        optimizer.step()
    return snapshot(model, optimizer)


def run_uneven(rank, world):
    """Workers with 1, 2, 3 rows; the loss is scaled to the mean over all rows."""
    model = fcs()
    trained = wrapped(model, world)
    optimizer = RLS(trained, **RULE)
    for x, target in minibatches((5,), (3,)):
        first, last = (rank * (rank + 1) // 2, (rank + 1) * (rank + 2) // 2)
        mine = slice(first, last) if world else slice(6)
        scale = world * (rank + 1) / 6 if world else 1.0
        take(trained, optimizer, x[mine], target[mine], scale)
    return snapshot(model, optimizer)


class Fork(nn.Module):
    """Rows with a negative first entry go one way, the others another."""

    def __init__(self):
        super().__init__()
        self.ways = nn.ModuleList(nn.Linear(5, 3) for _ in range(3))
        randomise(self)

    def forward(self, x):
        left = x[:, 0] < 0
        y = x.new_zeros(len(x), 3)
        for rows, way in ((left, self.ways[0]), (~left, self.ways[1])):
            if rows.any():
                y = y.index_put((rows.nonzero()[:, 0],), way(x[rows]))
        return y


def run_fork(rank, world):
    """A layer that this worker's rows do not reach, but another's do; one unused."""
    model = trained = Fork()
    if world:
        trained = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = RLS(trained)
    for x, target in minibatches((5,), (3,)):
        x[:, 0] = torch.tensor([-1.0, 1, 1] * 2)
        part = slice(rank, None, world)
        take(trained, optimizer, x[part], target[part])
    assert model.ways[2].weight not in optimizer.state
    return snapshot(model, optimizer)


VARIANTS = {run_hybrid: 2, run_running_mean: 2, run_accumulated: 2}
VARIANTS |= {run_uneven: 3, run_fork: 3}


@pytest.mark.parametrize(("function", "world"), VARIANTS.items())
def test_variants_end_with_what_one_process_has(workers, function, world):
    ranks = workers(function, world=world)
    everything = function(0, None)
    for rank in ranks:
        assert_close(rank, everything)
        assert identical(rank, ranks[0])


# Failures, which all workers must see alike


def run_unhealthy(rank, world, on_failure):
    """P of one block has lost its definiteness when the second step comes."""
    model = fcs()
    trained = wrapped(model, world)
    optimizer = RLS(trained, on_failure=on_failure)
    for step, (x, target) in enumerate(minibatches((5,), (3,), rank, world)):
        if step == 1:
            optimizer.state[model[2].weight]["P"].mul_(-1e6)
        before = snapshot(model, optimizer)
        try:
            take(trained, optimizer, x, target)
        except NumericalError as error:
            assert identical(before, snapshot(model, optimizer))
            return before, (error.layer, error.step, error.quantity)
    return snapshot(model, optimizer), None


def run_not_finite(rank, world):
    """The last worker has a row that is not finite."""
    model = fcs()
    trained = wrapped(model, world)
    optimizer = RLS(trained)
    x = randn(2, 5, seed=rank)
    x[0, 0] = math.nan if rank == world - 1 else 0.0
    loss_mse(trained(x), randn(2, 3)).backward()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(NumericalError, match="gradient's norm is nan"):
        optimizer.step()
    return identical(before, [p.detach() for p in model.parameters()])


def test_workers_reset_together(workers):
    everything, told = run_unhealthy(0, None, "reset")
    assert told is None
    ranks = workers(run_unhealthy, "reset", world=3)
    for found, told in ranks:
        assert told is None
        assert_close(found, everything)
        assert identical(found, ranks[0][0])


def test_workers_refuse_together(workers):
    _, wanted = run_unhealthy(0, None, "raise")
    assert wanted[:2] == ("2", 2)
    ranks = workers(run_unhealthy, "raise")
    assert [told for _, told in ranks] == [wanted] * 2
    assert workers(run_not_finite) == [True, True]


# Checkpoints


def run_half(rank, world, saved, steps, hybrid=False):
    """Some of the steps, from a checkpoint if there is one; returns the next one."""
    model = fcs()

    def make(trained):
        optimizer = RLS(trained, **RULE, layers=["0"] if hybrid else None)
        if hybrid:
            adam = torch.optim.Adam(model[2].parameters(), lr=0.01)
            optimizer = Hybrid(optimizer, adam)
        if saved:
            optimizer.load_state_dict(saved[1])
        return optimizer

    if saved:
        model.load_state_dict(saved[0])
    batches = list(minibatches((5,), (3,), rank, world))[slice(*steps)]
    optimizer = few_steps(rank, world, model, make, batches)
    return copy.deepcopy((model.state_dict(), optimizer.state_dict()))


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("sizes", [(3, 2), (2, None)])
def test_a_checkpoint_goes_on_with_another_number_of_workers(workers, sizes, hybrid):
    """By three workers and then two, by two and then one process."""
    first, second = sizes
    saved = workers(run_half, None, (0, 2), hybrid, world=first)[0]
    if second:
        weights, state = workers(run_half, saved, (2, STEPS), hybrid, world=second)[1]
    else:
        weights, state = run_half(0, None, saved, (2, STEPS), hybrid)
    wanted, wanted_state = run_half(0, None, None, (0, STEPS), hybrid)
    assert_close(list(weights.values()), list(wanted.values()))
    for key, entry in wanted_state["state"].items():
        found = state["state"][key]
        assert_close([found[k] for k in entry], list(entry.values()))


# The training loop


def run_train(rank, world):
    """Minibatches of 4: on each of two workers 2 rows, in an order of its own rows."""
    torch.manual_seed(0)
    model = dense_network(5, 7, 3).double()
    x, y = randn(12, 5), torch.arange(12) % 3
    order = torch.randperm(6, generator=torch.Generator().manual_seed(1))
    mine, size = slice(rank, None, world), 2
    if not world:
        # `train` permutes rows: undo that, so that pairs of rows come in this order
        pairs = torch.stack([2 * order, 2 * order + 1], 1).flatten()
        drawn = torch.randperm(12, generator=torch.Generator().manual_seed(1))
        mine, size = torch.empty_like(drawn), 4
        mine[drawn] = pairs
    trained = wrapped(model, world)
    options = {"batch_size": size, "generator": torch.Generator().manual_seed(1)}
    optimizer = RLS(trained, momentum=0.5)
    records = train(trained, optimizer, x[mine], y[mine], test=(x, y), **options)
    seen = [(r.loss, r.gradient_norm, r.test_accuracy or 0.0) for r in records]
    return [p.detach() for p in model.parameters()], seen


def test_train_gives_every_worker_the_records_of_the_whole(workers):
    weights, seen = run_train(0, None)
    ranks = workers(run_train)
    assert len(seen) == 3
    for found, records in ranks:
        assert_close(found, weights)
        assert_close([torch.tensor(records)], [torch.tensor(seen)])
        assert records == ranks[0][1]


# Refusals


def refused(rank, world):
    model = fcs()
    shared = DistributedDataParallel(model)
    for kind in (KailathRLS, AveragedRLS):
        with pytest.raises(ValueError, match=f"{kind.__name__} needs every row"):
            kind(shared)
    optimizer = RLS(model)
    with pytest.raises(ValueError, match=r"RLS\(ddp_model\)"):
        shared(randn(2, 5))
    optimizer.close()
    optimizer = RLS(shared)
    optimizer.step()  # without a gradient nothing happens
    assert not optimizer.state
    shared.eval()
    loss_mse(shared(randn(2, 5)), randn(2, 3)).backward()
    with pytest.raises(RuntimeError, match="layer '0' has a gradient, but no input"):
        optimizer.step()
    rows = 3 + rank
    with pytest.raises(ValueError, match="there are from 3 to 4, here"):
        next(train(shared, optimizer, randn(rows, 5), torch.zeros(rows).long()))
    return True


def test_what_cannot_be_right_is_refused(workers):
    assert workers(refused) == [True, True]
