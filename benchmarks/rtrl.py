"""Time a step of every online learner against the matrix product it cannot avoid.

    PYTHONPATH=. python benchmarks/rtrl.py [--device cuda] [--repeats N] [--quick]

The floor of a learner with terms A (b, S, r K n) is H A alone: one ``torch.bmm`` into
preallocated memory. Floor and step alternate, so that both see the same noise of the
machine, and the best time of each is kept. One thread, float32, TF32 off, recurrent
highway cell, whole batch; ``step`` without the gradient, except for TBPTT, whose work
is the gradient: there a window of steps with its ``backward``, per step. Needs only
torch. The targets are for one CPU core; a busy machine or an accelerator may miss them.
"""

from dataclasses import dataclass

import torch

from benchmarks import shared
from labkit.clock import Clock
from labkit.rtrl import LEARNERS, RHNCell
from labkit.rtrl.kronecker import mix
from labkit.rtrl.learners import label

HORIZON = 25  # steps of the TBPTT window


@dataclass(frozen=True)
class Setting:
    """One line of the table; without a target there is no floor."""

    method: str
    rank: int
    n: int  # units
    b: int  # sequences
    target: float | None = None  # step / floor at most
    inputs: int = 50
    columns: int | None = None  # of the floor's A where it is not r K n


SETTINGS = [
    Setting("OK", 8, 64, 16, target=4.0),
    Setting("OK", 16, 128, 16, target=2.2),
    Setting("OK", 8, 256, 32, target=1.5),
    Setting("KF-AVG", 1, 256, 32, target=2.0),
    Setting("RTRL", 1, 128, 1, target=1.2, columns=(128 + 50 + 1) * 256),
    Setting("UORO", 1, 128, 16),
    Setting("SNAP-1", 1, 128, 16),
    Setting("KTP", 16, 128, 16),
    Setting("TBPTT", HORIZON, 128, 16),
]


def best(device, repeats, *functions) -> list[float]:
    """Best time of each; they take turns."""
    for f in functions:  # warm up
        f(), f()
    rounds = [[time_of(device, f) for f in functions] for _ in range(repeats)]
    return [min(times) for times in zip(*rounds, strict=True)]


def time_of(device, f) -> float:
    with (clock := Clock(device)):
        f()
    return clock.lap


def measure(setting, device, repeats):
    """Seconds of floor and step, and the floor's operations; floor may be None."""
    g = torch.Generator(device).manual_seed(0)
    cell = RHNCell(setting.inputs, setting.n, generator=g, device=device)
    learner = LEARNERS[setting.method].make(
        cell, setting.rank, batch_size=setting.b, generator=g
    )
    shape = (HORIZON, setting.b, setting.inputs)
    xs = torch.randn(shape, generator=g, device=device)
    position = 0

    def step():
        nonlocal position
        learner.step(xs[position % HORIZON])
        position += 1

    for _ in range(3):
        step()  # an estimator of full rank

    if setting.method == "TBPTT":
        dL_dh = torch.randn(setting.b, setting.n, generator=g, device=device)

        def window():
            for x in xs:
                learner.step(x)
                learner.backward(dL_dh)

        (whole,) = best(device, max(2, repeats // HORIZON), window)
        return None, whole / HORIZON, 0
    if setting.target is None:
        (seconds,) = best(device, repeats, step)
        return None, seconds, 0

    columns = setting.columns or setting.rank * cell.blocks * setting.n
    H = torch.randn(setting.b, setting.n, setting.n, generator=g, device=device)
    A = torch.randn(setting.b, setting.n, columns, generator=g, device=device)
    out = torch.empty_like(A)
    floor, seconds = best(device, repeats, lambda: torch.bmm(H, A, out=out), step)
    return floor, seconds, 2 * setting.b * setting.n**2 * columns


def decomposition(device, repeats, b, r):
    """Seconds of ``mix`` where the tensors are, and by way of the host."""
    g = torch.Generator(device).manual_seed(0)
    terms = torch.randn(2, b, r + 1, 8 * r, generator=g, device=device)
    G_u, G_A = terms @ terms.mT
    signs = torch.ones(b, r + 1, device=device)

    def by_host():
        X, Z, _, _ = mix(G_u.cpu(), G_A.cpu(), signs.cpu())
        return X.to(device), Z.to(device)

    return best(device, repeats, lambda: mix(G_u, G_A, signs), by_host)


def main():
    parser = shared.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=40, help="best of so many")
    parser.add_argument("--quick", action="store_true", help="5 repeats, n < 256")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error(f"--repeats must be >= 1, got {args.repeats}")
    repeats = min(args.repeats, 5) if args.quick else args.repeats

    device = shared.begin(args, f"float32, best of {repeats}")
    print(
        f"{'learner':10s} {'n':>4s} {'b':>3s} {'floor ms':>9s} {'GFLOP':>7s} "
        f"{'GF/s':>7s} {'step ms':>9s} {'ratio':>6s} {'target':>6s}  holds"
    )
    for s in SETTINGS:
        if args.quick and s.n >= 256:
            continue
        floor, seconds, flops = measure(s, device, repeats)
        line = f"{label(s.method, s.rank):10s} {s.n:4d} {s.b:3d} "
        name = f"{label(s.method, s.rank)}, n = {s.n}, b = {s.b}"
        shared.note(name, ms=1e3 * seconds, ratio=floor and seconds / floor)
        if floor is None:
            print(line + f"{'':9s} {'':7s} {'':7s} {1e3 * seconds:9.3f}")
            continue
        ratio = seconds / floor
        print(
            line + f"{1e3 * floor:9.3f} {flops / 1e9:7.3f} {flops / floor / 1e9:7.1f} "
            f"{1e3 * seconds:9.3f} {ratio:6.2f} {s.target:6.1f}  "
            f"{'yes' if ratio <= s.target else 'NO'}"
        )

    print("\nmixing matrices of r-OK, b problems of size r + 1, float64 inside, ms")
    for b, r in [(16, 8), (16, 16), (32, 8)]:
        here, host = decomposition(device, repeats, b, r)
        line = f"b = {b:2d}, r = {r:2d}: {1e3 * here:7.3f} on {args.device}"
        if device.type == "cuda":
            line += f", {1e3 * host:7.3f} by way of the host"
        print(line)


if __name__ == "__main__":
    main()
