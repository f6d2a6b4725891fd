"""Hessian-free training: ratios of cost, and memory of a step.

    PYTHONPATH=. python benchmarks/hessian_free.py speed [--repeats N]
    PYTHONPATH=. python benchmarks/hessian_free.py memory

``speed`` puts the maps, the Krylov loop and a whole step beside what they cannot avoid,
in turns, so that all see the same noise of the machine; best time of each, one thread,
float32, CURVES' net (784-400-200-100-50-25-6 mirrored), batch 250. ``memory`` runs a
step in a fresh process for two batch sizes.
"""

import argparse
import itertools
import resource
import subprocess
import sys

import torch

from benchmarks import shared
from labkit.clock import Clock
from labkit.hessian_free import (
    Autoencoder,
    HessianFree,
    batch_gradient_variance,
    linearise,
    lsmr,
    mirrored,
)

CURVES = mirrored((784, 400, 200, 100, 50, 25, 6))
N, ITERATIONS, PRODUCTS = 250, 10, 7


def best_of(repeats, functions, device):
    """Best time of each in milliseconds; they take turns."""
    for f in functions.values():
        f()
    times, clock = {name: [] for name in functions}, Clock(device)
    for _ in range(repeats):
        for name, f in functions.items():
            with clock:
                f()
            times[name].append(1e3 * clock.lap)
    return {name: min(t) for name, t in times.items()}


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


def speed(args):
    device = shared.begin(args, f"float32, best of {args.repeats}")
    g = torch.Generator().manual_seed(0)
    net = Autoencoder(CURVES, incoming=20, generator=g).to(device)
    X = torch.rand(N, CURVES[0], generator=g).to(device)
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
    start = [p.detach().clone() for p in net.parameters()]

    def step():
        with torch.no_grad():
            for p, value in zip(net.parameters(), start, strict=True):
                p.copy_(value)
        hf.step(X)

    functions = {
        "matmuls": product_floor(point),
        "pair": lambda: (point.forward_map(d), point.transpose_map(U)),
        "products": products,
        "lsmr": loop,
        "gradient": gradient,
        "step": step,
    }
    t = best_of(args.repeats, functions, device)

    print(f"net {'-'.join(map(str, CURVES))}, batch {N}; loss+backward by autograd")
    print(f"{'what':52s} {'ms':>8s} {'floor ms':>9s} {'ratio':>6s} {'bar':>5s}")
    pairs = ITERATIONS + 1

    def line(what, time, floor, bar):
        ratio = time / floor
        verdict = "yes" if ratio <= bar else "NO"
        print(f"{what:52s} {time:8.2f} {floor:9.2f} {ratio:6.2f} {bar:5.2f}  {verdict}")
        shared.note(what, ms=time, ratio=ratio)

    line("A then A' / their matmuls", t["pair"], t["matmuls"], 1.15)
    what = f"LSMR, damped, preconditioned, warm / its {pairs} products"
    line(what, t["lsmr"], t["products"], 1.25)
    what = f"SHF step, {PRODUCTS} products in all / one loss+backward"
    line(what, t["step"], t["gradient"], 12.0)


def resident(key):
    """A line of /proc/self/status in MB, or the high-water mark where there is none."""
    try:
        with open("/proc/self/status") as lines:
            for text in lines:
                if text.startswith(key):
                    return int(text.split()[1]) / 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory_of_one(n):
    """Peak of one SHF step with the batch estimate above what was held before it."""
    torch.set_num_threads(1)
    net = Autoencoder(CURVES, generator=torch.Generator().manual_seed(0))
    optimizer = HessianFree(net, damping=5.0, maxiter=PRODUCTS, atol=0.0)
    small = Autoencoder((9, 4, 9))  # so that libraries have their workspaces
    batch_gradient_variance(HessianFree(small, maxiter=2).step(torch.rand(5, 9)).point)
    X = torch.rand(n, CURVES[0])
    before = resident("VmRSS")
    batch_gradient_variance(optimizer.step(X).point)
    print(resident("VmHWM") - before)


def memory(args):
    if args.n:
        return memory_of_one(args.n)
    P = sum((a + 1) * b for a, b in itertools.pairwise(CURVES))
    print(f"net {'-'.join(map(str, CURVES))}, P = {P:,}, float32, one SHF step with")
    print(f"{PRODUCTS} products and the estimate of the next batch, fresh process each")
    print(
        f"{'n':>6s} {'peak MB':>9s} {'n P MB':>9s} {'vector MB':>10s} {'acts MB':>8s}"
    )
    for n in (250, 1000, 2500):
        command = [sys.executable, __file__, "memory", "--n", str(n)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        acts = 4 * n * sum(CURVES) / 2**20
        print(
            f"{n:6d} {float(done.stdout):9.1f} {4 * n * P / 2**20:9.0f} "
            f"{4 * P / 2**20:10.1f} {acts:8.1f}"
        )


def main():
    parser = shared.parser(__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("speed", help="ratios of cost")
    one.add_argument("--repeats", type=int, default=20, help="best of so many")
    one.set_defaults(run=speed)
    two = commands.add_parser("memory", help="peak memory of a step")
    two.add_argument("--n", type=int, help=argparse.SUPPRESS)
    two.set_defaults(run=memory)
    args = parser.parse_args(sys.argv[1:] or ["speed"])
    if args.run is speed and args.repeats < 1:
        parser.error(f"--repeats must be >= 1, got {args.repeats}")
    args.run(args)


if __name__ == "__main__":
    main()
