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

INPUTS = 50
SYMBOLS = 25


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
    """Seconds of floor and step."""
    generator = torch.Generator(device).manual_seed(0)
    cell = RHNCell(INPUTS, setting.n, generator=generator, device=device)
    learner = LEARNERS[setting.method].make(
        cell, setting.rank, batch_size=setting.b, generator=generator
    )
    shape = (SYMBOLS, setting.b, INPUTS)
    xs = torch.randn(shape, generator=generator, device=device)
    position = 0

    def step():
        nonlocal position
        learner.step(xs[position % SYMBOLS])
        position += 1

    for _ in range(3):
        step()  # an estimator of full rank

    columns = setting.columns or setting.rank * cell.blocks * setting.n
    H = torch.randn(setting.b, setting.n, setting.n, generator=generator, device=device)
    A = torch.randn(setting.b, setting.n, columns, generator=generator, device=device)
    out = torch.empty_like(A)
    both = partial(torch.bmm, H, A, out=out), step
    return [min(laps) for laps in shared.laps(device, repeats, both)]


def main():
    args = shared.parser(__doc__, 40).parse_args()
    device = shared.begin(args, f"float32, best of {args.repeats}")
    for each in SETTINGS:
        floor, seconds = measure(each, device, args.repeats)
        name = f"{label(each.method, each.rank)}, n = {each.n}, b = {each.b}"
        shared.tell(f"{name}, its product", seconds=floor)
        shared.tell(name, seconds=seconds, ratio=seconds / floor, most=each.target)


if __name__ == "__main__":
    main()
