"""Hessian-free training: ratios of cost.

    PYTHONPATH=. python benchmarks/hessian_free.py [--repeats N]

It puts the maps, the Krylov loop and a whole step beside what they cannot avoid, in
turns, so that all see the same noise of the machine; best time of each, one thread,
float32, CURVES' net (784-400-200-100-50-25-6 mirrored), batch 250. LSMR is damped and
preconditioned; loss and backward pass are autograd's.
"""

import torch

from benchmarks import shared
from labkit.hessian_free import (
    Autoencoder,
    HessianFree,
    linearise,
    lsmr,
    mirrored,
)

CURVES = mirrored((784, 400, 200, 100, 50, 25, 6))
N = 250
ITERATIONS = 10
PRODUCTS = 7


def product_floor(point):
    """The matrix products of A and A' alone, into preallocated memory."""
    W, S = point.weights, point.inputs
    n = point.n
    D = [torch.randn_like(w) for w in W]
    F = [w.new_ones(n, w.shape[1]) for w in W]
    below = [w.new_empty(n, len(w) - 1) for w in W]
    out, grads = [torch.empty_like(f) for f in F], [torch.empty_like(w) for w in W]

    def run():
        for i in range(len(W)):
            if i:
                torch.mm(F[i - 1], W[i][:-1], out=out[i])
            torch.mm(S[i], D[i], out=out[i])
        for i in range(len(W) - 1, -1, -1):
            torch.mm(S[i].T, F[i], out=grads[i])
            if i:
                torch.mm(F[i], W[i][:-1].T, out=below[i])

    return run


def main():
    """Read the command line and print the table."""
    args = shared.parser(__doc__, 20).parse_args()
    device = shared.begin(args, f"float32, best of {args.repeats}")
    generator = torch.Generator().manual_seed(0)
    net = Autoencoder(CURVES, incoming=20, generator=generator).to(device)
    X = torch.rand(N, CURVES[0], generator=generator).to(device)
    point = linearise(net, X)
    d = tuple(0.01 * torch.randn_like(w) for w in point.weights)
    U = torch.randn_like(X)
    c = tuple(0.1 + 0.9 * torch.rand_like(w) for w in point.weights)

    def products():
        for _ in range(ITERATIONS + 1):
            point.forward_map(d)
            point.transpose_map(U)

    def loop():
        return lsmr(
            point.forward_map,
            -point.residual,
            At=point.transpose_map,
            x0=d,
            atol=0.0,
            maxiter=ITERATIONS,
            damping=1.0,
            scale=c,
        )

    def gradient():
        loss = 0.5 * (net(X) - X).square().sum() / N
        return torch.autograd.grad(loss, list(net.parameters()))

    # The residual of the warm start is a product of A'A too, so one iteration less.
    hf = HessianFree(
        net, damping=5.0, damping_decay=0.99, maxiter=PRODUCTS - 1, atol=0.0
    )
    start = [parameter.detach().clone() for parameter in net.parameters()]

    def step():
        with torch.no_grad():
            for parameter, value in zip(net.parameters(), start, strict=True):
                parameter.copy_(value)
        hf.step(X)

    functions = {
        "matmuls": product_floor(point),
        "pair": lambda: (point.forward_map(d), point.transpose_map(U)),
        "products": products,
        "lsmr": loop,
        "gradient": gradient,
        "step": step,
    }
    times = shared.laps(device, args.repeats, functions.values())
    best = {name: min(laps) for name, laps in zip(functions, times, strict=True)}

    pairs = ITERATIONS + 1
    for what, time, floor, bar in (
        ("A then A' / their matmuls", "pair", "matmuls", 1.15),
        (f"LSMR, warm / its {pairs} products", "lsmr", "products", 1.25),
        (f"SHF step, {PRODUCTS} products / loss+backward", "step", "gradient", 12.0),
    ):
        shared.tell(what, seconds=best[time], ratio=best[time] / best[floor], most=bar)


if __name__ == "__main__":
    main()
