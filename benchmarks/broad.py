"""What growing costs on MNIST.

    PYTHONPATH=. python benchmarks/broad.py [--repeats N] [--images N]

10,000 images, 60 + 1000 nodes and five updates of 10 + 190 + 300 nodes,
1060 to 3560 columns. The solvers grow over the same columns, take turns at every size,
and keep the best time of each size; nodes are made beforehand. scikit-learn's ``Ridge``
is fitted anew at every size, and a square product gives the rate of the machine, all in
turn with the solvers. One thread, float64.

MNIST is read as :func:`labkit.lab.datasets.load` finds it.
"""

from itertools import pairwise

import numpy as np
import torch
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from benchmarks import shared
from labkit.broad import SOLVERS, SharedColumns, Update
from labkit.broad.solvers import start_operations, update_operations
from labkit.clock import Clock
from labkit.lab.datasets import load

CLASSES = 10
SPLITS = ("train", "test")


# Nodes at the start and in every update
FEATURES = 6 * [Update(10)]
SMALL = [*FEATURES, Update(extra=1000)], Update(10, 190, 300)


def grown(fit, test, size, updates, seed):
    """All columns of the start and the updates."""
    start, update = size
    room = sum(each.columns for each in start) + updates * update.columns
    columns = SharedColumns(fit, test, room, seed=seed)
    columns.add(*start)
    for _ in range(updates):
        columns.add(update)
    return columns


def images(count, device):
    """Inputs and classes, to learn from and of the test."""
    train, test = (load("mnist", part, dtype=torch.float64) for part in SPLITS)
    fit = train.inputs[:count].to(device), train.targets[:count].to(device)
    return fit, (test.inputs.to(device), test.targets.to(device))


def speed(args):
    """Print seconds by size, totals, and every ratio beside its target."""
    device = args.device
    fit, test = images(args.images, device)
    columns = grown(fit, [part[:9] for part in test], SMALL, 5, seed=0)
    A, Y, widths = columns.A, columns.Y, columns.widths
    l, ridge = len(A), args.ridge  # noqa: E741
    names = ["orig", "exg-e", "chol-1", "bordered"]
    square = torch.rand(2000, 2000, dtype=A.dtype, device=device)
    best = {name: [float("inf")] * len(widths) for name in [*names, "Ridge"]}
    clock, gemm = Clock(device), float("inf")
    with threadpool_limits(1):
        for _ in range(args.repeats):
            states = {}
            for i, k in enumerate(widths):
                before = A[:, : widths[i - 1]]
                new = A[:, (widths[i - 1] if i else 0) : k]
                for name in names:
                    start, update, _ = SOLVERS[name]
                    with clock:
                        if i == 0:
                            states[name] = start(new, Y, ridge)
                        else:
                            states[name] = update(states[name], before, new, Y)
                    best[name][i] = min(best[name][i], clock.lap)
                model = Ridge(alpha=ridge, fit_intercept=False)
                dense = np.ascontiguousarray(A[:, :k].cpu()), Y.cpu().numpy()
                with clock:
                    model.fit(*dense)
                best["Ridge"][i] = min(best["Ridge"][i], clock.lap)
                with clock:
                    square @ square
                gemm = min(gemm, clock.lap)
    rate = 2 * len(square) ** 3 / gemm / 1e9
    W = states["chol-1"].W.cpu().numpy()
    gap = abs(W - model.coef_.T).max() / abs(W).max()

    words = f"float64, ridge {ridge:g}, {l} images, best of {args.repeats}"
    shared.begin(args, f"{words}; chol-1 and Ridge differ by {gap:.1e}")
    print(
        f"{'seconds at columns':20s}" + "".join(f"{k:8d}" for k in widths) + "   total"
    )
    for name, row in best.items():
        cells = "".join(f"{t:8.3f}" for t in row)
        print(f"{name:20s}{cells}{sum(row):8.3f}")
        shared.note(f"{name}, total of all sizes", ms=1e3 * sum(row))
    counts = {name: _operations(name, l, widths) for name in names}
    total = {name: sum(row) for name, row in best.items()}
    share = [
        n / t / 1e9 / rate
        for n, t in zip(counts["chol-1"], best["chol-1"], strict=True)
    ]
    by_count = {n: sum(c) / sum(counts["chol-1"]) for n, c in counts.items()}
    print(f"\n{'ratio':44s}{'measured':>9s}{'target':>9s}{'by count':>9s}")
    _line(
        "orig / chol-1, total",
        total["orig"] / total["chol-1"],
        ">=",
        2.2,
        by_count["orig"],
    )
    _line(
        "exg-e / chol-1, total",
        total["exg-e"] / total["chol-1"],
        ">=",
        1.5,
        by_count["exg-e"],
    )
    _line(
        "chol-1 / bordered, total",
        total["chol-1"] / total["bordered"],
        "<=",
        1.15,
        1 / by_count["bordered"],
    )
    _line("chol-1 update / product rate, worst size", min(share[1:]), ">=", 0.65, 1.0)
    _line(
        "chol-1 growth / Ridge at every size",
        total["chol-1"] / total["Ridge"],
        "<=",
        0.35,
        sum(counts["chol-1"]) / sum(l * k**2 + k**3 / 3 for k in widths),
    )


def _line(name, value, sign, target, count):
    holds = "yes" if (value >= target if sign == ">=" else value <= target) else "NO"
    print(f"{name:44s}{value:9.3f}{sign:>4s}{target:5.2f}{count:9.2f}  {holds}")
    shared.note(name, ratio=value)


def _operations(name, l, widths):  # noqa: E741
    ops = [start_operations(name, l, widths[0], CLASSES)]
    for k, grown in pairwise(widths):
        ops.append(update_operations(name, l, k, grown - k, CLASSES))
    return ops


def main():
    parser = shared.parser(__doc__, 3)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--ridge", type=float, default=1e-4)
    speed(parser.parse_args())


if __name__ == "__main__":
    main()
