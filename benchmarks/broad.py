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
from labkit.broad.solvers import update_operations
from labkit.clock import Clock
from labkit.lab.datasets import load

CLASSES = 10
NAMES = ("orig", "exg-e", "chol-1", "bordered")
BARS = {"orig": 0.45, "exg-e": 0.67, "bordered": 1.15, "Ridge": 0.35}
# Nodes at the start and in every update
GROWTH = [[*6 * [Update(10)], Update(extra=1000)], *5 * [[Update(10, 190, 300)]]]


def grown(images, device):
    """The columns of so many images, all sizes of them."""
    parts = []
    for split, count in (("train", images), ("test", 9)):
        read = load("mnist", split, dtype=torch.float64)
        parts.append([part[:count].to(device) for part in (read.inputs, read.targets)])
    room = sum(each.columns for added in GROWTH for each in added)
    fit, test = parts
    columns = SharedColumns(fit, test, room, seed=0)
    for added in GROWTH:
        columns.add(*added)
    return columns


def best_of(columns, ridge, repeats, device):
    """Best seconds at each size by name, and of the square product, of 2000 rows."""
    A, Y, widths = columns.A, columns.Y, columns.widths
    square = torch.rand(2000, 2000, dtype=A.dtype, device=device)
    best = {name: [float("inf")] * len(widths) for name in [*NAMES, "Ridge"]}
    clock, product = Clock(device), float("inf")
    for _ in range(repeats):
        states = {}
        for i, k in enumerate(widths):
            before = A[:, : widths[i - 1]]
            new = A[:, (widths[i - 1] if i else 0) : k]
            for name in NAMES:
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
            product = min(product, clock.lap)
    W = states["chol-1"].W.cpu().numpy()
    gap = abs(W - model.coef_.T).max() / abs(W).max()
    print(f"chol-1 and Ridge differ by {gap:.1e}")
    return best, product


def main():
    """Print seconds by size, totals, and every ratio beside its bar."""
    parser = shared.parser(__doc__, 3)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--ridge", type=float, default=1e-4)
    args = parser.parse_args()
    words = f"float64, ridge {args.ridge:g}, best of {args.repeats}"
    device = shared.begin(args, words)
    columns = grown(args.images, device)
    with threadpool_limits(1):
        best, product = best_of(columns, args.ridge, args.repeats, device)
    for name, row in best.items():
        for width, seconds in zip(columns.widths, row, strict=True):
            shared.tell(f"{name}, to {width} columns", seconds=seconds)
    total = {name: sum(row) for name, row in best.items()}
    for other, bar in BARS.items():
        ratio = total["chol-1"] / total[other]
        shared.tell(f"chol-1 / {other}, total", ratio=ratio, most=bar)
    rate, worst = 2 * 2000**3 / product, 0.0
    sizes = zip(pairwise(columns.widths), best["chol-1"][1:], strict=True)
    for (before, after), seconds in sizes:
        added = after - before
        count = update_operations("chol-1", len(columns.A), before, added, CLASSES)
        worst = max(worst, seconds * rate / count)
    name = "chol-1 update / a product of as many operations, worst"
    shared.tell(name, ratio=worst, most=1.54)


if __name__ == "__main__":
    main()
