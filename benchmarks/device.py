"""Kernels and waits of every step function, and what a GPU would need at the least.

    PYTHONPATH=. python benchmarks/device.py [--device cuda] [--rooms rls rtrl]

Kernels and waits of the host are counted on the pretend accelerator of the tests, on
the small networks of their table (``tests/device``); a library's decomposition counts
as one. Beside them stand the kernels of fused Adam on the same network, and an
estimate: the largest of 4 us a launch, bytes at 2 TB/s and operations at 10 TFLOP/s,
waits not counted. What is measured is the time on ``--device``, best of five.
"""

import json
import subprocess
import sys
from contextlib import suppress

from benchmarks import shared
from labkit.clock import Clock
from tests.device.rows import in_dtype, two
from tests.device.table import TABLE, beside

LAUNCH, BANDWIDTH, RATE = 4e-6, 2e12, 1e13  # seconds, bytes and operations a second


def counts(rooms) -> dict:
    """What is counted, in a process of its own: it has no other accelerator."""
    command = [sys.executable, "-m", "tests.device", "--json", *rooms]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    rows = map(json.loads, lines.stdout.splitlines())
    return {(row.pop("room"), row.pop("step")): row for row in rows}


def estimate(found) -> float:
    """Seconds on a GPU at the least."""
    by = found["kernels"] * LAUNCH, found["bytes"] / BANDWIDTH
    return max(*by, found["operations"] / RATE)


def best(make, device, repeats=5) -> float:
    """Seconds of a step, the least of several; fewer where it ends before."""
    laps, clock = [], Clock(device)
    with in_dtype(), suppress(StopIteration):
        before, step = two(make(str(device)))
        for _ in range(repeats + 1):
            before()
            with clock:
                step()
            laps.append(clock.lap)
    return min(laps[1:] or laps)


def main():
    """Print the table."""
    parser = shared.parser(__doc__)
    parser.add_argument("--rooms", nargs="+", choices=TABLE, default=list(TABLE))
    args = parser.parse_args()
    device = shared.begin(args, "float64, the networks of tests/device")
    found = counts([*args.rooms, "fused Adam"])
    print(f"{'':53}{'kernels':>8}{'Adam':>8}{'waits':>6}{'estimate ms':>12}{'ms':>9}")
    for room in args.rooms:
        for row in TABLE[room]:
            each = found[room, row.step]
            ms, least = 1e3 * best(row.make, device), 1e3 * estimate(each)
            adam = beside(room, row)
            line = f"{room:13}{row.step:40}{each['kernels']:8}"
            beside_it = found["fused Adam", adam.step]["kernels"] if adam else ""
            line += f"{beside_it:>8}{each['waits']:6}"
            print(f"{line}{least:12.3f}{ms:9.3f}", flush=True)
            shared.note(f"{room}: {row.step}", **each, estimate_ms=least, ms=ms)


if __name__ == "__main__":
    main()
