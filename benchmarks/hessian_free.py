"""Hessian-free training: ratios of cost, memory of a step, and error against time.

    PYTHONPATH=. python benchmarks/hessian_free.py speed [--repeats N]
    PYTHONPATH=. python benchmarks/hessian_free.py memory
    PYTHONPATH=. python benchmarks/hessian_free.py accuracy --data digits --seconds 45
    PYTHONPATH=. python benchmarks/hessian_free.py classes --data mnist --seconds 60

``speed`` puts the maps, the Krylov loop and a whole step beside what they cannot avoid,
in turns, so that all see the same noise of the machine; best time of each, one thread,
float32, CURVES' net (784-400-200-100-50-25-6 mirrored), batch 250. ``memory`` runs a
step in a fresh process for two batch sizes. ``accuracy`` runs SHF, Martens' HF with the
gradient of all rows and of the batch, and Adam on the same split and prints squared
error per image against seconds and against rows drawn. ``classes`` trains a classifier
by cross-entropy, HessianFree beside Adam, and prints the seconds (of the processor) and
rows drawn after which given accuracies on test data were reached first.
"""

import argparse
import itertools
import math
import resource
import statistics
import subprocess
import sys
import time
import warnings
from dataclasses import replace

import numpy as np
import scipy.sparse.linalg
import torch
from torch import nn

from benchmarks import shared
from labkit.clock import Clock
from labkit.errors import DivergedError
from labkit.hessian_free import (
    PAPER,
    Autoencoder,
    HessianFree,
    MartensHF,
    Settings,
    as_sequential,
    batch_gradient_variance,
    linearise,
    lsmr,
    mirrored,
    squared_error,
    train,
    train_martens,
)
from labkit.lab.datasets import load

CURVES = mirrored(PAPER["curves"].encoder)
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


def curvlinops_pair(net, X):
    """A then A' by curvlinops on the same net, or None where it is not installed."""
    try:
        from curvlinops import JacobianLinearOperator
    except ImportError:
        return None
    parameters = list(net.parameters())
    J = JacobianLinearOperator(net, parameters, [(X, X)], check_deterministic=False)
    v, u = torch.randn(J.shape[1]), torch.randn(J.shape[0])
    Jt = J.adjoint() if callable(getattr(J, "adjoint", None)) else J.H
    return lambda: (J @ v, Jt @ u)


def speed(args):
    device = shared.begin(args, f"float32, best of {args.repeats}")
    g = torch.Generator().manual_seed(0)
    net = Autoencoder(CURVES, incoming=20, generator=g).to(device)
    seq = as_sequential(net)
    X = torch.rand(N, CURVES[0], generator=g).to(device)
    point, module = linearise(net, X), linearise(seq, X)
    d = tuple(0.01 * torch.randn_like(w) for w in point.weights)
    dq = tuple(torch.randn_like(w) for w in module.weights)
    U = torch.randn_like(X)
    c = tuple(0.1 + 0.9 * torch.rand_like(w) for w in point.weights)

    def products():
        for _ in range(ITERATIONS + 1):
            point.forward_map(d)
            point.transpose_map(U)

    def loop(**options):
        return lsmr(
            *(point.forward_map, point.transpose_map, -point.residual),
            **{"x0": d, "atol": 0.0, "maxiter": ITERATIONS} | options,
        )

    sizes = [w.numel() for w in point.weights]

    def apart(x):
        parts = torch.from_numpy(x.astype(np.float32)).split(sizes)
        return tuple(
            p.view(w.shape).to(w) for p, w in zip(parts, point.weights, strict=True)
        )

    def together(blocks):
        return torch.cat([t.reshape(-1) for t in blocks]).cpu().numpy()

    operator = scipy.sparse.linalg.LinearOperator(
        (X.numel(), sum(sizes)),
        matvec=lambda x: together([point.forward_map(apart(x.ravel()))]),
        rmatvec=lambda u: together(
            point.transpose_map(
                torch.from_numpy(u.astype(np.float32)).view(X.shape).to(X)
            )
        ),
        dtype=np.float32,
    )
    b_numpy, x0_numpy = together([-point.residual]), together(d)

    def scipy_loop():
        with np.errstate(over="ignore"):  # of its condition estimate in float32
            scipy.sparse.linalg.lsmr(
                *(operator, b_numpy),
                **{"damp": 1.0, "x0": x0_numpy, "maxiter": ITERATIONS},
                **{"atol": 0, "btol": 0, "conlim": 0},
            )

    def gradient():
        loss = 0.5 * (seq(X) - X).square().sum() / N
        return torch.autograd.grad(loss, list(seq.parameters()))

    # The residual of the warm start is a product of A'A too, so one iteration less.
    hf = HessianFree(net, damping=5.0, maxiter=PRODUCTS - 1, atol=0.0)
    longer = HessianFree(net, damping=5.0, maxiter=PRODUCTS, atol=0.0)
    martens = MartensHF(net, damping=5.0, maxiter=PRODUCTS, tolerance=0.0)
    start = [p.detach().clone() for p in net.parameters()]

    def restored(step):
        def run():
            with torch.no_grad():
                for p, value in zip(net.parameters(), start, strict=True):
                    p.copy_(value)
            return step()

        return run

    def anew():
        torch.func.jvp(module.residual_map, module.weights, dq)
        torch.func.vjp(module.residual_map, *module.weights)[1](U)

    functions = {
        "matmuls": product_floor(point),
        "pair": lambda: (point.forward_map(d), point.transpose_map(U)),
        "module": lambda: (module.forward_map(dq), module.transpose_map(U)),
        "anew": anew,
        "products": products,
        "lsmr": lambda: loop(damping=1.0, scale=c),
        "plain": lambda: loop(),
        "scipy": scipy_loop,
        "gradient": gradient,
        "step": restored(lambda: hf.step(X)),
        "with n": restored(lambda: batch_gradient_variance(hf.step(X).point)),
        "longer": restored(lambda: longer.step(X)),
        "merit": restored(lambda: hf.step(X, validation=X)),
        "martens": restored(lambda: martens.step(X)),
    }
    other = curvlinops_pair(seq, X)
    if other:
        functions["curvlinops"] = other
    t = best_of(args.repeats, functions, device)

    print(f"net {'-'.join(map(str, CURVES))}, batch {N}; loss+backward by autograd")
    print(f"{'what':52s} {'ms':>8s} {'floor ms':>9s} {'ratio':>6s} {'bar':>5s}")
    pairs = ITERATIONS + 1

    def line(what, time, floor, bar=None):
        ratio = time / floor
        verdict = "" if bar is None else "yes" if ratio <= bar else "NO"
        limit = "" if bar is None else f"{bar:.2f}"
        print(
            f"{what:52s} {time:8.2f} {floor:9.2f} {ratio:6.2f} {limit:>5s}  {verdict}"
        )
        shared.note(what.strip(), ms=time, ratio=ratio)

    line("A then A' / their matmuls", t["pair"], t["matmuls"], 1.15)
    line("  by torch.func, graph kept (any module)", t["module"], t["matmuls"])
    line("  by torch.func, jvp and vjp anew", t["anew"], t["matmuls"])
    if other:
        line("  by curvlinops", t["curvlinops"], t["matmuls"])
    else:
        print("  by curvlinops: not installed")
    what = f"LSMR, damped, preconditioned, warm / its {pairs} products"
    line(what, t["lsmr"], t["products"], 1.25)
    line("  LSMR, plain, warm", t["plain"], t["products"])
    line("  SciPy's LSMR over the same maps", t["scipy"], t["products"])
    what = f"SHF step, {PRODUCTS} products in all / one loss+backward"
    line(what, t["step"], t["gradient"], 12.0)
    line(
        f"  {PRODUCTS} iterations after the start's product", t["longer"], t["gradient"]
    )
    line("  with the estimate of the next batch", t["with n"], t["gradient"])
    line("  with the merit, 250 validation rows", t["merit"], t["gradient"])
    line(f"  Martens' step, {PRODUCTS} iterations", t["martens"], t["gradient"])


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


# Error against time and rows


DIGITS = replace(
    PAPER["usps"],
    encoder=(64, 32, 16, 8),
    **{"batch_size": 60, "max_batch_size": 650, "theta": 0.5},
    **{"damping": 1.0, "damping_decay": 0.9, "ftol": 1e-5, "table2": {}},
)
# Short runs want a smaller, faster falling lambda than the paper's.
SHORT = {"digits": {}, "usps": {"damping": 0.5, "damping_decay": 0.7, "theta": 0.5}}
SHORT["mnist"] = SHORT["usps"]
KNOBS = {
    "theta": float,
    "max_batch_size": int,
    "damping": float,
    "damping_decay": float,
    "maxiter": int,
}
HF_DAMP = {"digits": 3.0, "usps": 4.0, "mnist": 4.0}
CHUNKS = {"digits": 4, "usps": 8, "mnist": 8}
ADAM_BATCH = {"digits": 64, "usps": 100, "mnist": 100}
ADAM_RATES = (1e-3, 2e-3, 4e-3, 8e-3)


class Run:
    """Errors of one run at marks of time and of rows drawn, and at its best."""

    def __init__(self, times, rows):
        self.marks = {"s": list(times), "rows": list(rows)}
        self.at = {"s": {}, "rows": {}}
        self.best = (math.inf, math.nan, math.nan, 0.0, 0.0)
        self.end = "budget"

    def note(self, seconds, drawn, errors):
        """``errors``: function -> train, validation and test error."""
        found = None
        for axis, value in (("s", seconds), ("rows", drawn)):
            while self.marks[axis] and value >= self.marks[axis][0]:
                found = found or errors()
                self.at[axis][self.marks[axis].pop(0)] = found
        return found

    def candidate(self, validation, train_error, test_error, drawn, seconds):
        """Keep the errors at the lowest validation error."""
        if validation < self.best[0]:
            self.best = (validation, train_error, test_error, drawn, seconds)


def run_second_order(method, name, setting, data, seed, budget, marks, options):
    X, V, _ = data
    g = torch.Generator().manual_seed(seed)
    net = Autoencoder(
        mirrored(setting.encoder),
        incoming=setting.incoming,
        generator=g,
        dtype=X.dtype,
    ).to(X.device)
    if method == "shf":
        signs = torch.Generator(X.device).manual_seed(1000 + seed)
        optimizer = HessianFree(
            net,
            **{k: getattr(setting, k) for k in ("damping", "damping_decay", "gamma")},
            **{k: getattr(setting, k) for k in ("maxiter", "atol", "ftol")},
            patience=options.patience,
            damping_floor=options.floor,
            generator=signs,
        )
        records = train(
            *(net, optimizer, X),
            **{"validation": V, "batch_size": setting.batch_size, "generator": g},
            settings=Settings(setting.theta, setting.max_batch_size),
        )
    else:
        optimizer = MartensHF(net, damping=HF_DAMP[name])
        kind = "full" if method == "martens" else "batch"
        records = train_martens(
            *(net, optimizer, X),
            **{"validation": V, "chunks": CHUNKS[name], "gradient": kind},
            generator=g,
        )
    run = Run(*marks)

    def errors():
        return tuple(float(squared_error(net, D)) for D in data)

    try:
        for r in records:
            found = run.note(r.seconds, r.rows / len(X), errors)
            if r.improved:
                e = found or errors()
                run.candidate(e[1], e[0], e[2], r.rows / len(X), r.seconds)
            if r.seconds > budget:
                break
        run.end = f"step {r.step}, n = {r.n}, lambda = {r.damping:.2g}"
    except (DivergedError, FloatingPointError) as error:
        run.end = f"diverged: {error}"
    return run


def run_adam(name, setting, data, seed, budget, marks, rate):
    X = data[0]
    g = torch.Generator().manual_seed(seed)
    start = Autoencoder(
        mirrored(setting.encoder),
        incoming=setting.incoming,
        generator=g,
        dtype=X.dtype,
    )
    net = as_sequential(start).to(X.device)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    run, n = Run(*marks), ADAM_BATCH[name]
    seconds, drawn, look = 0.0, 0, 0.0
    while seconds < budget:
        begin = time.perf_counter()
        order = torch.randperm(len(X), generator=g).to(X.device)
        for rows in order.split(n):
            batch = X[rows]
            loss = (net(batch) - batch).square().sum() / len(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            drawn += len(batch)
        if X.is_cuda:
            torch.cuda.synchronize()
        seconds += time.perf_counter() - begin

        def errors():
            return tuple(float(squared_error(net, D)) for D in data)

        found = run.note(seconds, drawn / len(X), errors)
        if seconds >= look:
            e = found or errors()
            run.candidate(e[1], e[0], e[2], drawn / len(X), seconds)
            look = seconds + budget / 200
    run.end = f"{drawn // len(X)} epochs, rate {rate:g}"
    return run


def accuracy(args):
    from labkit.lab.hessian_free import load_images

    shared.begin(args, threads=args.threads)
    dtype = torch.float64 if args.double else torch.float32
    name = args.data
    setting = DIGITS if name == "digits" else PAPER[name]
    if not args.paper:
        setting = replace(setting, **SHORT[name])
    given = {k: getattr(args, k) for k in KNOBS if getattr(args, k) is not None}
    setting = replace(setting, **given)
    data = tuple(load_images(name, dtype=dtype, device=args.device).parts.values())
    budget = args.seconds
    marks = (
        [budget * share for share in (0.05, 0.1, 0.25, 0.5, 1.0)],
        [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000],
    )
    print(
        f"{name}: {'/'.join(str(len(x)) for x in data)} rows, net "
        f"{'-'.join(map(str, mirrored(setting.encoder)))}, torch {torch.__version__}, "
        f"{args.device}, {args.threads} thread(s), {dtype}"
    )
    print(
        f"SHF: batch {setting.batch_size} to {setting.max_batch_size}, theta "
        f"{setting.theta}, damping {setting.damping}, decay {setting.damping_decay}, "
        f"maxiter {setting.maxiter}, atol {setting.atol}, ftol {setting.ftol}, "
        f"patience {args.patience}, floor {args.floor}; Martens: damping "
        f"{HF_DAMP[name]}, {CHUNKS[name]} chunks; "
        f"{budget:g} s a run, seeds 0-{args.seeds - 1}"
    )
    print("squared error per image, train/test, means over seeds; best: at the lowest")
    print(
        "validation error, per seed in brackets; rows in multiples of the training set"
    )
    rate = None
    for method in args.methods:
        if method == "adam" and rate is None:
            rate = tuned(name, setting, data, budget, marks)
        runs = []
        for seed in range(args.seeds):
            if method == "adam":
                run = run_adam(name, setting, data, seed, budget, marks, rate)
            else:
                run = run_second_order(
                    method, name, setting, data, seed, budget, marks, args
                )
            runs.append(run)
        report(method, runs, marks, len(data[0]))
    if setting.table2:
        print("Table 2 (five seeds; SHF at the lowest validation error, Martens at the")
        print(f"lowest test error), train/test: {setting.table2}")


def tuned(name, setting, data, budget, marks):
    """Adam's rate of lowest validation error, seed 0, a quarter of the budget each."""
    runs = {
        rate: run_adam(name, setting, data, 0, budget / 4, marks, rate)
        for rate in ADAM_RATES
    }
    print("Adam's rates, lowest validation error in a quarter of the time:", end=" ")
    print(", ".join(f"{rate:g}: {run.best[0]:.3f}" for rate, run in runs.items()))
    return min(runs, key=lambda rate: runs[rate].best[0])


def report(method, runs, marks, n_train):
    print(f"\n{method}")
    for axis, values in zip(("s", "rows"), marks, strict=True):
        cells = []
        for value in values:
            found = [run.at[axis][value] for run in runs if value in run.at[axis]]
            if len(found) == len(runs):
                mean = [statistics.fmean(e) for e in zip(*found, strict=True)]
                cells.append(f"{value:g}: {mean[0]:.3f}/{mean[2]:.3f}")
        print(f"  at {axis:4s} {'  '.join(cells)}")
    validation, train_error, test, rows, seconds = zip(
        *(run.best for run in runs), strict=True
    )
    mean = statistics.fmean
    each = " ".join(f"{e:.3f}" for e in test)
    print(
        f"  best    validation {mean(validation):.3f}, train {mean(train_error):.3f}, "
        f"test {mean(test):.3f} ({each}), rows {min(rows):.0f}-{max(rows):.0f} N, "
        f"after {min(seconds):.0f}-{max(seconds):.0f} s"
    )
    for seed, run in enumerate(runs):
        print(f"  end     seed {seed}: {run.end}")


# Classes: cross-entropy, HessianFree beside Adam


RATES = {"shf": (0.1, 0.3, 1.0), "adam": (3e-4, 1e-3, 3e-3)}  # damping, learning rate
GOALS = {"mnist": (90, 95, 97, 98), "cifar10": (30, 40, 45, 50, 55)}


def classifier(name):
    if name == "mnist":
        widths = itertools.pairwise((784, 200, 100, 10))
        layers = [m for pair in widths for m in (nn.Linear(*pair), nn.Tanh())][:-1]
        return nn.Sequential(*layers)
    conv = {"stride": 2, "padding": 1}
    first = nn.Conv2d(3, 16, 3, **conv), nn.Tanh(), nn.Conv2d(16, 32, 3, **conv)
    return nn.Sequential(*first, nn.Tanh(), nn.Flatten(), nn.Linear(32 * 64, 10))


def labelled(name, device):
    """Rows to train on, 1,000 to steer by, and test rows: pixels about 0, classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a part of CIFAR-10 is fine, and said below
        train_set, test = load(name, "train"), load(name, "test")
    order = torch.randperm(len(train_set.inputs), generator=seeded(0))
    X, T = train_set.inputs[order], train_set.targets[order]
    mean, std = X.mean(), X.std()
    parts = (X[1000:], T[1000:]), (X[:1000], T[:1000]), (test.inputs, test.targets)
    return [(((X - mean) / std).to(device), T.to(device)) for X, T in parts]


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def percent(net, data):
    X, T = data
    outputs = torch.cat([net(x) for x in X.split(2000)])
    return 100 * float((outputs.argmax(1) == T).double().mean())


def shf_steps(net, data, damping, seed):
    """Rows drawn by each step; the batch grows by Algorithm 2."""
    (X, T), validation, _ = data
    options = {"damping_decay": 0.8, "damping_floor": 1e-2, "preconditioner": "none"}
    options |= {"maxiter": 40, "miniter": 5, "patience": 4, "ftol": 1e-3, "gamma": 0.5}
    optimizer = HessianFree(net, loss="softmax", damping=damping, **options)
    given = {"validation": validation, "batch_size": 500, "generator": seeded(seed)}
    given["settings"] = Settings(theta=0.7, max_batch_size=5000)
    for record in train(net, optimizer, X, targets=T, **given):
        yield record.n


def adam_steps(net, data, rate, seed):
    """Rows drawn by twenty steps of 100 rows each, without replacement."""
    X, T = data[0]
    optimizer, g = torch.optim.Adam(net.parameters(), lr=rate), seeded(seed)
    rows = iter(())
    while True:
        for _ in range(20):
            batch = next(rows, None)
            if batch is None:
                rows = iter(torch.randperm(len(X), generator=g).split(100))
                batch = next(rows)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X[batch]), T[batch]).backward()
            optimizer.step()
        yield 2000


def race(name, method, rate, seed, data, seconds, judged):
    """Seconds and rows at which the goals were first reached; the best, and when."""
    torch.manual_seed(seed)
    net = classifier(name).to(data[0][0].device)
    steps = {"shf": shf_steps, "adam": adam_steps}[method](net, data, rate, seed)
    goals, reached, best = list(GOALS[name]), {}, (0.0, 0.0, 0)
    spent, rows, begin = 0.0, 0, time.process_time()
    while spent < seconds:
        rows += next(steps)
        spent += time.process_time() - begin
        found = percent(net, judged)
        best = max(best, (found, -spent, rows))
        while goals and found >= goals[0]:
            reached[goals.pop(0)] = spent, rows
        begin = time.process_time()
    return reached, best


def classes(args):
    shared.begin(args, f"{args.data}, cross-entropy, processor's seconds")
    data = labelled(args.data, args.device)
    (X, _), validation, test = data
    P = sum(p.numel() for p in classifier(args.data).parameters())
    print(f"{len(X)}/1000/{len(test[0])} rows, {P} weights, {args.seconds:g} s a run;")
    print(
        "rate (Adam), damping (SHF) of the best validation accuracy in a quarter of it"
    )
    for method, rates in RATES.items():
        short = data, args.seconds / 4, validation
        tuned = {r: race(args.data, method, r, 0, *short)[1][0] for r in rates}
        rate = max(tuned, key=tuned.get)
        print(f"\n{method}, {rate:g} of", {r: f"{a:.1f} %" for r, a in tuned.items()})
        for seed in range(args.seeds):
            given = method, rate, seed, data, args.seconds, test
            reached, (best, spent, rows) = race(args.data, *given)
            for goal, (s, n) in reached.items():
                print(f"  seed {seed}: {goal} % after {s:6.1f} s, {n:8d} rows")
                shared.note(f"{method} {goal} %", seed=seed, seconds=s, rows=n)
            print(f"  seed {seed}: best {best:.2f} % after {-spent:.1f} s, {rows} rows")


def main():
    parser = shared.parser(__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("speed", help="ratios of cost")
    one.add_argument("--repeats", type=int, default=20, help="best of so many")
    one.set_defaults(run=speed)
    two = commands.add_parser("memory", help="peak memory of a step")
    two.add_argument("--n", type=int, help=argparse.SUPPRESS)
    two.set_defaults(run=memory)
    three = commands.add_parser("accuracy", help="error against time and rows")
    three.add_argument("--data", choices=["digits", "usps", "mnist"], default="digits")
    methods = ["shf", "martens", "martens-batch", "adam"]
    three.add_argument("--methods", nargs="+", choices=methods, default=methods)
    three.add_argument("--seeds", type=int, default=3, help="so many, from 0")
    three.add_argument("--seconds", type=float, default=45, help="of each run")
    three.add_argument("--paper", action="store_true", help="lambda_1, drop as printed")
    for knob, kind in KNOBS.items():
        flag = f"--{knob.replace('_', '-')}"
        three.add_argument(flag, type=kind, help="of SHF, in place of the table")
    three.add_argument("--patience", type=int, default=100)
    three.add_argument("--floor", type=float, default=0.0, help="least lambda")
    three.add_argument("--double", action="store_true", help="float64")
    three.add_argument("--threads", type=int, default=1)
    three.set_defaults(run=accuracy)
    four = commands.add_parser("classes", help="HessianFree and Adam, classification")
    four.add_argument("--data", choices=list(GOALS), default="mnist")
    four.add_argument("--seconds", type=float, default=60, help="of each run")
    four.add_argument("--seeds", type=int, default=2, help="so many, from 0")
    four.set_defaults(run=classes)
    args = parser.parse_args(sys.argv[1:] or ["speed"])
    for name in ("repeats", "seeds", "threads"):
        if getattr(args, name, 1) < 1:
            parser.error(f"--{name} must be >= 1, got {getattr(args, name)}")
    args.run(args)


if __name__ == "__main__":
    main()
