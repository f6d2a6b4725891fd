"""Every collective call is seen, with the bytes that were sent; nothing is changed."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from labkit.instruments import Collective, Traffic, traffic, wire_bytes

PLAIN = ["all_reduce", "broadcast", "reduce", "barrier"]


def call(kind, rank, world):
    """One call of each kind on 6 float64 numbers a worker (12 or 18 for scatters)."""
    x = torch.arange(6.0, dtype=torch.float64)
    whole = torch.arange(6.0 * world, dtype=torch.float64)
    parts = list(whole.split(6))
    match kind:
        case "all_reduce":
            dist.all_reduce(x)
        case "broadcast":
            dist.broadcast(x, 0)
        case "reduce":
            dist.reduce(x, 0)
        case "all_gather":
            dist.all_gather([torch.empty_like(x) for _ in range(world)], x)
        case "reduce_scatter":
            dist.reduce_scatter(torch.empty_like(x), parts)
        case "all_to_all":
            dist.all_to_all_single(torch.empty_like(whole), whole)
        case "gather":
            dist.gather(x, [torch.empty_like(x) for _ in parts] if not rank else None)
        case "scatter":
            dist.scatter(x, parts if not rank else None)
        case "barrier":
            dist.barrier()
        case "send":
            if rank == 0:
                dist.send(x, 1)
            elif rank == 1:
                dist.recv(x, 0)


def record(rank, world, kind):
    with Traffic() as traffic:
        torch.ones(3) + 1
        call(kind, rank, world)
    return traffic.calls


WHOLE = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("kind", [*PLAIN, *sorted(WHOLE)])
def test_a_call_is_one_record_with_the_whole_payload(workers, kind, world):
    elements = 0 if kind == "barrier" else 6 * (world if kind in WHOLE else 1)
    expected = [Collective(kind, elements, 8 * elements, world)]
    assert workers(record, kind, world=world) == [expected] * world


def test_sender_and_receiver_each_have_theirs(workers):
    sent, received, idle = workers(record, "send", world=3)
    assert sent == [Collective("send", 6, 48, 3)] and sent[0].wire == 48
    assert received == [Collective("recv", 6, 48, 3)] and received[0].wire == 0
    assert idle == []


def dtensors(rank, world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    A = torch.arange(24.0).view(6, 4)
    rows = distribute_tensor(A, mesh, [Shard(0)])
    with Traffic() as traffic:
        gathered = rows.redistribute(mesh, [Replicate()]).to_local()
        G = rows.T @ rows
        assert G.placements[0] == Partial()
        reduced = G.redistribute(mesh, [Replicate()]).to_local()
        G.redistribute(mesh, [Shard(0)]).to_local()
    assert torch.equal(gathered, A) and torch.allclose(reduced, A.T @ A)
    return traffic.calls


@pytest.mark.parametrize("world", [2, 3])
def test_what_dtensors_send_is_seen(workers, world):
    gathered, reduced, scattered = workers(dtensors, world=world)[0]
    assert gathered == Collective("all_gather", 24, 96, world)
    assert reduced == Collective("all_reduce", 16, 64, world)
    # 4 rows on 3 workers are padded to 6
    rows = 4 if world == 2 else 6
    assert scattered == Collective("reduce_scatter", 4 * rows, 16 * rows, world)


def gradients(rank, world, watched):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    model = nn.parallel.DistributedDataParallel(model)
    x = torch.randn(5, 3, dtype=torch.float64)
    model(x).square().sum().backward()
    model(x)  # has settled the buckets
    with Traffic() if watched else torch.enable_grad() as traffic:
        for _ in range(2):
            model.zero_grad()
            model(x).square().sum().backward()
    frame = traffic.frame() if watched else None
    return [p.grad for p in model.parameters()], frame


def test_what_ddp_sends_is_seen_and_not_changed(workers):
    (seen, frame), _ = workers(gradients, True)
    (plain, _), _ = workers(gradients, False)
    assert all(map(torch.equal, seen, plain))
    reduced = frame[frame.kind == "all_reduce"]
    P = sum(g.numel() for g in seen)
    assert reduced.elements.sum() == 2 * P and reduced.bytes.sum() == 16 * P
    assert reduced.wire.sum() == 16 * P  # 2 (p - 1) / p = 1 of two workers
    # the running mean and variance of the batch norm, and its counter of batches
    assert frame[frame.kind == "broadcast"].elements.sum() == 2 * (4 + 4 + 1)


def twice(rank, world):
    with Traffic() as traffic:
        dist.all_reduce(torch.ones(8))
        dist.all_reduce(torch.ones(2, 4))
        dist.barrier()
    return traffic.totals(), traffic.bytes, traffic.wire


def test_totals_add_up(workers):
    totals, size, wire = workers(twice, world=3)[0]
    assert totals.loc["all_reduce"].tolist() == [2, 16, 64, pytest.approx(64 * 4 / 3)]
    assert totals.loc["barrier"].tolist() == [1, 0, 0, 0]
    assert size == 64 and wire == pytest.approx(64 * 4 / 3)
    with Traffic() as nothing:
        torch.ones(2) + 1
    assert nothing.frame().empty and nothing.totals().empty


@pytest.mark.parametrize("p", [1, 2, 3, 8])
def test_a_ring_by_hand(p):
    """An all-reduce is a reduce-scatter and an all-gather, of p - 1 parts each."""
    N = 840
    sent = sum(N / p for _ in range(p - 1))  # each time one part to the neighbour
    assert wire_bytes("reduce_scatter", N, p) == pytest.approx(sent)
    assert wire_bytes("all_gather", N, p) == pytest.approx(sent)
    assert wire_bytes("all_reduce", N, p) == pytest.approx(2 * sent)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"all_gather.*got 'allgather'"):
        wire_bytes("allgather", 1, 2)


def test_every_operator_of_torch_is_known_or_refused():
    """What a new torch brings is counted before it is trusted."""
    found = {
        tuple(schema.name.split("::"))
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.split("::")[0] in traffic._OPERATORS
    }
    known = {(space, name) for space, ops in traffic._OPERATORS.items() for name in ops}
    silent = {(space, name) for space, name in found if name in traffic._SILENT}
    assert found - known - silent <= {("_c10d_functional", "batch_p2p_ops")}
