"""How fast BPLS is on the image sets, beside gradient descent.

    PYTHONPATH=. python benchmarks/bpls.py [--data NAME] [--repeats N]

It measures side by side in one run: a first walk of 40,000 images and 50 hidden units
against its Gram product and Cholesky factor, and the seconds of Table II, those of a
walk and of an epoch of Adam, whose ratio is printed there for Fashion-MNIST and batch 1
as 3578 / 2.87; float32, one thread.
"""

import torch

from benchmarks import shared
from labkit.bpls import random_weights, train
from labkit.lab.datasets import load
from reproduction.bpls_rivals import descend

DATA = ("mnist", "fashion-mnist")
TRAIN = 40_000
SIZES = (784, 50, 10)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def weights(X):
    """Where a network for the rows of X starts."""
    place = {"dtype": X.dtype, "device": X.device, "generator": generator(0)}
    return random_weights((X.shape[1], *SIZES[1:]), **place)


def first_walk(X, y, repeats):
    """Best seconds of the Gram product, the Cholesky factor and a first walk."""
    start, G = weights(X), X.T @ X + torch.eye(X.shape[1]).to(X)

    def whole():
        for _ in train(X, y, start, "sigmoid", max_walks=0):
            pass

    parts = (lambda: X.T @ X, lambda: torch.linalg.cholesky(G), whole)
    return [min(laps) for laps in shared.laps(X.device, repeats, parts)]


def epoch_of_adam(X, y, batch_size):
    """Seconds of an epoch."""
    options = {"batch_size": batch_size, "epochs": 1, "generator": generator(1)}
    *_, last = descend(X, y, weights(X), "softmax", **options)
    return last.seconds


def main():
    """Read the command line and print the table."""
    parser = shared.parser(__doc__, 5)
    parser.add_argument("--data", choices=DATA, action="append")
    args = parser.parse_args()
    shared.begin(args, f"float32, best of {args.repeats}")
    for name in args.data or DATA[1:]:
        images = load(name, "train", dtype=torch.float32)
        X, y = images.inputs[:TRAIN].to(args.device), images.targets[:TRAIN]
        y = y.to(args.device)
        product, cholesky, walk = first_walk(X, y, args.repeats)
        floor = product + cholesky
        shared.tell(f"{name}, Gram product", seconds=product)
        shared.tell(f"{name}, Cholesky factor", seconds=cholesky)
        ratio = walk / floor
        shared.tell(f"{name}, first walk", seconds=walk, ratio=ratio, most=1.5)
        records = train(X, y, weights(X), "sigmoid")
        laps = [record.end.seconds for record in records if record.end]
        of_a_walk = sum(laps) / len(laps)
        shared.tell(f"{name}, a walk of BPLS", seconds=of_a_walk)
        for batch_size in (1, 128):
            epoch = epoch_of_adam(X, y, batch_size)
            words = f"{name}, Adam {batch_size}"
            shared.tell(words, seconds=epoch, ratio=epoch / of_a_walk)


if __name__ == "__main__":
    main()
