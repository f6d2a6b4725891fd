"""RLS on two workers is RLS on the whole minibatch in one process."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit import scale
from labkit.lab.books.rls_training import dense_network
from labkit.rls import (
    RLS,
    Hybrid,
    KailathRLS,
    NumericalError,
    loss_mse,
    train,
)
from tests.draws import randn, seeded
from tests.rls.conftest import RULE, identical, snapshot, take
from tests.rls.twins import CASES, fcs, randomise

pytestmark = pytest.mark.filterwarnings("ignore:with forgetting < 1")
STEPS = 4


def several(world):
    """The workers, or None in one process."""
    return scale.workers() if world else None


def minibatches(inputs, outputs, rank=0, world=None):
    """(x, target) of each step: the rows of this worker, or all."""
    for step in range(STEPS):
        x = randn(6, *inputs, seed=step) + 0.5
        target = randn(6, *outputs, seed=step + 100)
        yield x[rank::world], target[rank::world]


def assert_close(found, wanted):
    """Each tensor, relative to its own size."""
    for x, y in zip(found, wanted, strict=True):
        assert (x - y).norm() <= 1e-12 * y.norm().clamp(1e-3)


def of_layers(rank, world, case, **options):
    """Weights and state of a network of some layer kind."""
    model, inputs, outputs, layers = CASES[case]()
    optimizer = RLS(model, **options, layers=layers, workers=several(world))
    for x, target in minibatches(inputs, outputs, rank, world):
        take(model, optimizer, x, target)
    return [*snapshot(model, optimizer), optimizer.gradient_norm]


class Counted(scale.Workers):
    """Workers that count their sums."""

    sums = 0

    def sum(self, tensors):
        self.sums += 1
        return super().sum(tensors)


def hybrid(rank, world):
    """From rank 0's weights, though each worker begins with its own; one sum a step."""
    model, shared = fcs(seed=rank), Counted(scale.workers().group) if world else None
    rls = RLS(model, layers=["0"], max_grad_norm=0.5, workers=shared)
    optimizer = Hybrid(rls, torch.optim.Adam(model[2].parameters(), lr=0.01))
    for x, target in minibatches((5,), (3,), rank, world):
        take(model, optimizer, x, target)
    assert optimizer.gradient_norm > 0.5
    assert not world or shared.sums == STEPS
    return snapshot(model, optimizer)


def uneven(rank, world):
    """Workers with 1 and 5 rows; the loss is scaled to the mean over all rows."""
    model = fcs()
    optimizer = RLS(model, **RULE, workers=several(world))
    rows = slice(0, 1) if rank == 0 else slice(1, 6)
    for x, target in minibatches((5,), (3,)):
        x, target = (x[rows], target[rows]) if world else (x, target)
        take(model, optimizer, x, target, len(x) / 3 if world else 1.0)
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


def fork(rank, world):
    """A layer that this worker's rows do not reach, but another's do; one unused."""
    model = Fork()
    rls = RLS(model, layers=["ways.0", "ways.2"], workers=several(world))
    optimizer = Hybrid(rls, torch.optim.Adam(model.ways[1].parameters()))
    for x, target in minibatches((5,), (3,)):
        x[:, 0] = torch.tensor([-1.0, 1, -1, 1, -1, 1])
        take(model, optimizer, x[rank::world], target[rank::world])
    assert model.ways[2].weight not in optimizer.state
    return snapshot(model, optimizer)


def restarted(rank, world):
    """P of one block has lost its definiteness when the second step comes."""
    model = fcs()
    optimizer = RLS(model, on_failure="reset", workers=several(world))
    for step, (x, target) in enumerate(minibatches((5,), (3,), rank, world)):
        if step == 1:
            optimizer.state[model[2].weight]["P"].neg_()
        take(model, optimizer, x, target)
    assert optimizer.state[model[2].weight]["resets"] == 1
    return snapshot(model, optimizer)


RUNS = {
    "not formed in one process": partial(of_layers, case="fc", max_grad_norm=math.inf),
    "clipped": partial(of_layers, case="fc", **RULE, max_grad_norm=0.05),
    "conv": partial(of_layers, case="conv", **RULE),
    "lstm": partial(of_layers, case="lstm", **RULE),
    "hybrid": hybrid,
    "uneven": uneven,
    "fork": fork,
    "restarted": restarted,
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_workers_end_with_what_one_process_has(workers, run):
    everything = run(0, None)
    first, second = workers(run)
    assert_close(first, everything)
    assert identical(first, second)


def not_finite(rank, world):
    """The last worker has a row that is not finite, and all refuse."""
    model = fcs()
    optimizer = RLS(model, workers=scale.workers())
    x = randn(2, 5, seed=rank)
    x[0, 0] = math.nan if rank == world - 1 else 0.0
    loss_mse(model(x), randn(2, 3)).backward()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(NumericalError, match="gradient's norm is nan"):
        optimizer.step()
    return identical(before, [p.detach() for p in model.parameters()])


def test_workers_refuse_together(workers):
    assert workers(not_finite) == [True, True]


def trained(rank, world):
    """Minibatches of 4: on each of two workers 2 rows, in an order of its own rows."""
    torch.manual_seed(0)
    model = dense_network(5, 7, 3).double()
    x, y = randn(12, 5), torch.arange(12) % 3
    order = torch.randperm(6, generator=seeded(1))
    share, size = slice(rank, None, world), 2
    if not world:
        # `train` permutes rows: undo that, so that pairs of rows come in this order
        pairs = torch.stack([2 * order, 2 * order + 1], 1).flatten()
        drawn = torch.randperm(12, generator=seeded(1))
        share, size = torch.empty_like(drawn), 4
        share[drawn] = pairs
    options = {"batch_size": size, "generator": seeded(1)}
    optimizer = RLS(model, momentum=0.5, workers=several(world))
    records = train(model, optimizer, x[share], y[share], test=(x, y), **options)
    seen = [(r.loss, r.gradient_norm, r.test_accuracy or 0.0) for r in records]
    return [p.detach() for p in model.parameters()], seen


def test_train_gives_every_worker_the_records_of_the_whole(workers):
    weights, seen = trained(0, None)
    ranks = workers(trained)
    assert len(seen) == 3
    for found, records in ranks:
        assert_close(found, weights)
        assert_close([torch.tensor(records)], [torch.tensor(seen)])
        assert records == ranks[0][1]


def refused(rank, world):
    model = fcs()
    with pytest.raises(ValueError, match=r"RLS\(ddp.module, workers=labkit.scale"):
        RLS(DistributedDataParallel(model))
    shared = scale.workers()
    with pytest.raises(ValueError, match="KailathRLS needs every row"):
        KailathRLS(model, workers=shared)
    optimizer = RLS(model, workers=shared)
    optimizer.step()  # without a gradient nothing happens
    assert not optimizer.state
    rows = 3 + rank
    with pytest.raises(ValueError, match="there are from 3 to 4, here"):
        next(train(model, optimizer, randn(rows, 5), torch.zeros(rows).long()))
    return True


def test_what_cannot_be_right_is_refused(workers):
    assert workers(refused) == [True, True]
