"""Time a step of every online learner against the matrix product it cannot avoid.

    PYTHONPATH=. python benchmarks/rtrl.py [--device cuda] [--repeats N]

The floor of a learner with terms A (b, S, r K n) is H A alone: one ``torch.bmm`` into
preallocated memory. Floor and step alternate, so that both see the same noise of the
machine, and the best time of each is kept. One thread, float32, TF32 off, recurrent
highway cell, whole batch; ``step`` without the gradient. Needs only torch. The targets
are for one CPU core; a busy machine or an accelerator may miss them.
"""

from dataclasses import dataclass
from functools import partial

import torch

from benchmarks import shared
from labkit.rtrl import LEARNERS, RHNCell
from labkit.rtrl.learners import label

INPUTS, SYMBOLS = 50, 25


@dataclass(frozen=True)
class Setting:
    """One line of the table."""

    method: str
    rank: int
    n: int  # units
    b: int  # sequences
    target: float  # step / floor at most
    columns: int | None = None  # of the floor's A where it is not r K n


SETTINGS = [
    Setting("OK", 8, 64, 16, target=4.0),
    Setting("OK", 16, 128, 16, target=2.2),
    Setting("OK", 8, 256, 32, target=1.5),
    Setting("KF-AVG", 1, 256, 32, target=2.0),
    Setting("RTRL", 1, 128, 1, target=1.2, columns=(128 + INPUTS + 1) * 256),
]


def measure(setting, device, repeats):
    """Seconds of floor and step, and the floor's operations."""
    g = torch.Generator(device).manual_seed(0)
    cell = RHNCell(INPUTS, setting.n, generator=g, device=device)
    learner = LEARNERS[setting.method].make(
        cell, setting.rank, batch_size=setting.b, generator=g
    )
    shape = (SYMBOLS, setting.b, INPUTS)
    xs = torch.randn(shape, generator=g, device=device)
    position = 0

    def step():
        nonlocal position
        learner.step(xs[position % SYMBOLS])
        position += 1

    for _ in range(3):
        step()  # an estimator of full rank

    columns = setting.columns or setting.rank * cell.blocks * setting.n
    H = torch.randn(setting.b, setting.n, setting.n, generator=g, device=device)
    A = torch.randn(setting.b, setting.n, columns, generator=g, device=device)
    out = torch.empty_like(A)
    both = partial(torch.bmm, H, A, out=out), step
    floor, seconds = (min(laps) for laps in shared.laps(device, repeats, both))
    return floor, seconds, 2 * setting.b * setting.n**2 * columns


def main():
    args = shared.parser(__doc__, 40).parse_args()
    repeats = args.repeats

    device = shared.begin(args, f"float32, best of {repeats}")
    print(
        f"{'learner':10s} {'n':>4s} {'b':>3s} {'floor ms':>9s} {'GFLOP':>7s} "
        f"{'GF/s':>7s} {'step ms':>9s} {'ratio':>6s} {'target':>6s}  holds"
    )
    for s in SETTINGS:
        floor, seconds, flops = measure(s, device, repeats)
        line = f"{label(s.method, s.rank):10s} {s.n:4d} {s.b:3d} "
        name = f"{label(s.method, s.rank)}, n = {s.n}, b = {s.b}"
        shared.note(name, ms=1e3 * seconds, ratio=seconds / floor)
        ratio = seconds / floor
        print(
            line + f"{1e3 * floor:9.3f} {flops / 1e9:7.3f} {flops / floor / 1e9:7.1f} "
            f"{1e3 * seconds:9.3f} {ratio:6.2f} {s.target:6.1f}  "
            f"{'yes' if ratio <= s.target else 'NO'}"
        )


if __name__ == "__main__":
    main()
