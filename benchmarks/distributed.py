"""One step on one and on two processes, side by side; and on paper on many.

    python benchmarks/distributed.py speed [PART ...] [--repeats N]
    python benchmarks/distributed.py projection

``speed``: every part of PARTS, or those named. All ways of a part take turns in one
run, on groups of processes that stay; a turn's time is that of its slowest process. For
each way: the best time, its ratio to that of the plain step above it, the same without
a group, and the median of the turns' ratios; the ratio of the best processor times,
which other work on the machine disturbs less; the numbers that its collective calls
carry, what a process sends for them around a ring, and what it did send, as the least
that the loopback interface counted during a turn (Linux). One thread a process: two
processes need two free cores. gloo, CPU, float64.

``projection``: one update of broad learning at the last size of Zhu's experiments on
eight GPUs and on a thousand cores, from the formulas of labkit.broad.distributed and
the rates that are printed with it. Nothing there is measured.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the groups of processes
from benchmarks import shared
from labkit.broad import distributed as sharded
from labkit.broad.ridge import chol1_start, chol1_update
from labkit.instruments.traffic import Traffic
from labkit.rls import RLS, dense_network, loss_one_hot, small_cnn
from labkit.rtrl import LEARNERS, CopyTask, Readout, RHNCell, train
from tests.workers import Group

MEGA, GIGA = 1e6, 1e9
_STEPS = {}  # what a process repeats, by the name of the way


@dataclass(frozen=True)
class Way:
    """One line of the table; ways called plain have no group.

    ``prepare(rank, world, *args)`` runs on every process and returns the step, a
    function without arguments that leaves all as it was or goes on from there.
    """

    name: str
    world: int
    prepare: Callable
    args: tuple = ()
    times: int = 1  # steps of a turn, for those too short to be timed alone


# Broad learning: nodes or samples shared

BROAD = {"l": 6000, "k": 3000, "q": 500, "c": 10}


def broad_step(rank, world, shared):
    """One update of Chol-1 from k to k + q nodes, always the same one."""
    l, k, q, c = BROAD.values()  # noqa: E741
    g = torch.Generator().manual_seed(0)
    A = torch.randn(l, k + q, generator=g, dtype=torch.float64)
    Y = torch.randn(l, c, generator=g, dtype=torch.float64)
    if shared is None:
        state = chol1_start(A[:, :k], Y, 1.0, k + q)
        return lambda: chol1_update(state, A[:, :k], A[:, k:], Y)
    if shared == "samples":
        A, Y = (x.tensor_split(world)[rank].clone() for x in (A, Y))
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=(shared,))
    state = sharded.start(A[:, :k], Y, 1.0, mesh, k + q)
    own, H = A[:, :k][:, state.place.own(0)].clone(), A[:, k:].clone()
    return lambda: sharded.update(state, own, H, Y)


def broad():
    l, k, q, c = BROAD.values()  # noqa: E741
    title = f"broad: {l} samples, {k} to {k + q} nodes, {c} outputs"
    ways = [Way("plain", 1, broad_step, (None,))]
    for world in (1, 2):
        for cut in ("nodes", "samples"):
            ways.append(Way(f"{cut}, {world}", world, broad_step, (cut,)))
    return title, ways


# RLS: rows of the minibatch shared

NETWORKS = {  # of the minibatch, what trains it, and how many steps make a turn
    "FNN": (dense_network, 256, 10),
    "CNN": (lambda: small_cnn(28), 128, 2),
}


def rls_step(rank, world, network, shared, clip=None):
    """One training step, forward pass included."""
    make, rows, _ = NETWORKS[network]
    torch.manual_seed(0)
    model = make().double()
    x = torch.rand(rows, 784, dtype=torch.float64)[rank::world]
    y = torch.randint(10, (rows,))[rank::world]
    if shared:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = RLS(model, momentum=0.5, max_grad_norm=clip)

    def step():
        optimizer.zero_grad()
        loss_one_hot(model(x), y).backward()
        optimizer.step()

    step()  # at the second one DDP settles its buckets
    return step


def rls():
    title = "rls with momentum: FNN 784-512-10 on 256 rows, CNN 16-32 on 128 of 28 x 28"
    ways = []
    for name, clip in (("FNN", None), ("FNN clipped", 5.0), ("CNN", None)):
        network = name[:3]
        for way, world in (("plain", 1), ("1", 1), ("2", 2)):
            args = (network, way != "plain", clip)
            times = NETWORKS[network][-1]
            ways.append(Way(f"{name}, {way}", world, rls_step, args, times))
    return title, ways


# Online learning: sequences shared

SEQUENCES = 16


def rtrl_step(rank, world, shared, method, n):
    """One time step of training on the Copy task."""
    b = SEQUENCES // world
    g = torch.Generator().manual_seed(rank)
    cell = RHNCell(4, n, generator=g, dtype=torch.float64)
    readout = Readout(n, 4, generator=g, dtype=torch.float64)
    learner = LEARNERS[method].make(cell, 8, batch_size=b, generator=g)
    task = CopyTask(
        b, generator=torch.Generator().manual_seed(rank), level=10, dtype=torch.float64
    )
    optimizer = torch.optim.SGD([cell.weight, readout.weight], lr=1e-3)
    group = dist.group.WORLD if shared else None
    records = train(learner, readout, task, optimizer=optimizer, group=group)
    return lambda: next(records)


def rtrl():
    title = f"rtrl: highway cell, {SEQUENCES} sequences, update of the weights included"
    ways = []
    for name, method, n, times in (("8-OK", "OK", 128, 4), ("UORO", "UORO", 256, 10)):
        for way, world in (("plain", 1), ("1", 1), ("2", 2)):
            args = (way != "plain", method, n)
            ways.append(Way(f"{name} n = {n}, {way}", world, rtrl_step, args, times))
    return title, ways


PARTS = {"broad": broad, "rls": rls, "rtrl": rtrl}


# Side by side


def prepare(rank, world, way):
    """Build the step, warm up, and look at the collective calls of one step."""
    step = way.prepare(rank, world, *way.args)
    _STEPS[way.name] = step, way.times
    step()
    with Traffic() as traffic:
        step()
    return [(call.elements, call.wire) for call in traffic.calls]


def turn(rank, world, name):
    """Seconds and processor seconds of one step of this process."""
    step, times = _STEPS[name]
    if world > 1:
        dist.barrier()
    began = time.perf_counter(), time.process_time()
    for _ in range(times):
        step()
    ended = time.perf_counter(), time.process_time()
    return tuple((y - x) / times for x, y in zip(began, ended, strict=True))


def loopback() -> float:
    """Bytes that the loopback interface has carried; nan where that is not told."""
    try:
        lines = Path("/proc/net/dev").read_text().splitlines()
    except OSError:
        return float("nan")
    (counts,) = (line.split(":")[1] for line in lines if line.strip().startswith("lo:"))
    return float(counts.split()[0])


def speed(part: str, repeats: int) -> None:
    title, ways = PARTS[part]()
    groups = {world: Group(world) for world in {way.world for way in ways}}
    try:
        calls = [groups[w.world].run(prepare, w, seconds=300) for w in ways]
        turns, counted = [], []
        for _ in range(repeats):
            turns.append([])
            counted.append([])
            for way in ways:
                before = loopback()
                times = groups[way.world].run(turn, way.name, seconds=300)
                turns[-1].append(times)
                sent = loopback() - before
                counted[-1].append(sent / way.world / way.times)
    finally:
        for group in groups.values():
            group.close()
    print(f"\n{title}; {repeats} turns")
    print(f"{'way, processes':<20}{'best s':>9}{'/ plain':>9}{'median':>9}", end="")
    print(f"{'CPU':>9}{'calls':>7}{'numbers':>10}{'MB ring':>9}{'MB sent':>9}")
    wall, cpu = (  # (repeats, ways), of the slowest process
        np.array([[max(t[i] for t in way) for way in row] for row in turns])
        for i in (0, 1)
    )
    is_plain = np.array(["plain" in way.name for way in ways])
    plain = np.flatnonzero(is_plain)[is_plain.cumsum() - 1]  # the one above each way
    columns = zip(
        wall.min(0),
        wall.min(0) / wall.min(0)[plain],
        np.median(wall / wall[:, plain], 0),
        cpu.min(0) / cpu.min(0)[plain],
        strict=True,
    )
    counted = np.min(counted, 0) / MEGA
    for way, times, own, real in zip(ways, columns, calls, counted, strict=True):
        best, *ratios = times
        line = f"{way.name:<20}{best:9.4f}" + "".join(f"{r:9.3f}" for r in ratios)
        shared.note(f"{title}: {way.name}", ms=1e3 * best, ratio=ratios[0])
        numbers = max(sum(n for n, _ in each) for each in own)
        ring = max(sum(wire for _, wire in each) for each in own) / MEGA
        line += f"{len(own[0]):7d}{numbers:10d}{ring:9.3f}"
        print(line + (f"{real:9.3f}" if way.world > 1 else ""), flush=True)


# On paper


@dataclass(frozen=True)
class Machine:
    """What one worker is taken to do and to send in a second."""

    name: str
    product: float  # operations of matrix products, float64
    factor: float  # operations of an inverse Cholesky factor of q x q
    link: float  # bytes


MACHINES = {
    "core": Machine("core", 50 * GIGA, 18 * GIGA, 12.5 * GIGA / 16),
    "machine": Machine("machine of 16 cores", 800 * GIGA, 100 * GIGA, 12.5 * GIGA),
    "gpu": Machine("GPU", 30_000 * GIGA, 1000 * GIGA, 200 * GIGA),
}
LAST = {"l": 60_000, "k": 23_160, "q": 2010, "c": 10, "f": 160}
LAYOUTS = [  # workers along samples and along nodes
    ("gpu", [(1, 1), (8, 1), (1, 8), (2, 4)]),
    ("core", [(1, 1), (1000, 1), (1, 1000), (4, 250)]),
    ("machine", [(1, 63), (63, 1), (2, 32)]),
]


def on_paper(l, k, q, c, f, samples, nodes):  # noqa: E741
    """Operations, bytes sent and bytes held by one of samples x nodes workers.

    Returns
    -------
    Operations of products, of the factor of q x q and of making nodes; bytes sent;
    bytes kept from update to update and bytes needed during one.
    """
    rows, n, m = -(-l // samples), -(-k // nodes), -(-q // nodes)
    products = l * q * (2 * k + q) / (samples * nodes) + 2 * k * q * (k + q) / nodes
    sent = 2 * (samples - 1) / samples * (n * q + q * (q + c))
    shares = nodes * n * q + 2 * q * (q + c) + nodes * (m * k + n * c)
    sent += (nodes - 1) / nodes * shares
    kept = rows * n + n * k + 2 * n * c + rows * f
    needed = rows * q + 3 * k * q
    return products, 2 * q**3 / 3, 2 * rows * f * q, 8 * sent, 8 * kept, 8 * needed


def projection() -> None:
    size = "{k} nodes and {q} more, {l} samples, {c} outputs, {f} features"
    print(f"One update: {size.format(**LAST)}, float64")
    for name, layouts in LAYOUTS:
        machine = MACHINES[name]
        print(
            f"\n{machine.name}: products {machine.product / GIGA:g} GFLOP/s, factor "
            f"{machine.factor / GIGA:g} GFLOP/s, sends {machine.link / GIGA:.3g} GB/s"
        )
        print(f"{'samples x nodes':<16}{'s':>9}{'speed-up':>10}", end="")
        print(f"{'products':>10}{'factor':>9}{'making':>9}{'sending':>9}", end="")
        print(f"{'GB sent':>9}{'GB kept':>9}{'GB more':>9}")
        for index, (samples, nodes) in enumerate(layouts):
            *work, sent, kept, needed = on_paper(**LAST, samples=samples, nodes=nodes)
            rates = (machine.product, machine.factor, machine.product, machine.link)
            times = [x / y for x, y in zip([*work, sent], rates, strict=True)]
            if index == 0 and name != "machine":
                alone = sum(times)  # for machines: of a core
            line = f"{f'{samples} x {nodes}':<16}{sum(times):9.3f}"
            line += f"{alone / sum(times):10.1f}" + "".join(f"{t:9.3f}" for t in times)
            print(line + "".join(f"{x / GIGA:9.2f}" for x in (sent, kept, needed)))
        print(f"speed-up over one {'core' if name == 'machine' else name}")


def main() -> None:
    parser = shared.parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    timed = commands.add_parser("speed", help="on one and on two processes")
    timed.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    timed.add_argument("--repeats", type=int, default=9)
    commands.add_parser("projection", help="broad learning on many, on paper")
    args = parser.parse_args()
    if args.command == "projection":
        return projection()
    unknown = set(args.parts) - set(PARTS)
    if unknown or args.repeats < 1:
        parser.error(f"PART is one of {', '.join(PARTS)}; --repeats at least 1")
    if args.device.type != "cpu":
        parser.error(f"the workers are processes of the CPU, not of {args.device}")
    shared.begin(args)
    for part in args.parts or PARTS:
        speed(part, args.repeats)


if __name__ == "__main__":
    main()
