"""What a GPU shows, in parts that go on where they were cut off.

    PYTHONPATH=. python benchmarks/gpu.py [--device cuda] [--part a] [--json FILE]

A source tree, torch 2.11 or newer, NumPy, SciPy, scikit-learn, pandas, typer and pytest
are enough. Each part does its items one after the other, writes a line of JSON for
each, and leaves out those that FILE has from the same device, torch and commit.

    a  every step function, in float64 and float32, beside the CPU's numbers
    b  OK's own decomposition beside LAPACK's: sizes 2 to 33, hard matrices among them
    c  recorded steps (CUDA graphs) beside plain ones, 1,000 steps, settings turned
    d  the kernels of a training step of Table 2, their microseconds beside a floor
    e  what TF32 costs there: the bias of 3,200 draws of a gradient

The benchmarks run there by ``make bench DEVICE=cuda``.
"""

import argparse
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmarks import shared
from labkit import rls, rtrl
from labkit.clock import Clock
from labkit.lab.books.rls_training import dense_network
from labkit.lab.books.rtrl_training import (
    estimates,
    make_learner,
    new_network,
    read_text,
    train_network,
)
from labkit.lab.runs.jobs import commit
from labkit.scale import graphed
from reproduction.rtrl_online import tensor_cores
from tests.device.rows import in_dtype, numbers, seeded, two
from tests.device.table import STEPS

FILE = Path("build/gpu.jsonl")
ORDERS = range(2, 34)  # of the matrices of part b
# Part a. Rounding in float64; in float32 ten times what the CPU's own float32 differs
# from float64, and at least 1e-5 of the largest number. The CPU's difference is the
# largest of a few runs whose data differ by rounding: one run may be right by chance.
EXACT = 1e-6
FACTOR = 10.0
LEAST = 1e-5
NUDGES = range(4)
# Parts d and e
HIDDEN = 256  # units
TIMED = 10  # steps
SHOWN = 12  # kernels
UPDATES = 200  # before the draws
DRAWS = 3200  # of the gradient
AFTER = 25  # steps before it
BIASED = 3.0  # a larger ratio is a bias


class HostDraws(TorchFunctionMode):
    """Have all random numbers come from the CPU, in float64, whatever is asked for.

    A generator of a device then draws what one of the CPU draws from the same seed, and
    a step sees the same numbers in every dtype. ``nudge`` is the seed of relative
    changes of the size of float32's rounding, or 0 for none.
    """

    MADE = ("rand", "randn", "randint", "randperm")
    IN_PLACE = ("normal_", "uniform_", "bernoulli_")
    IN_PLACE += ("kaiming_uniform_", "xavier_uniform_", "orthogonal_")  # torch.nn.init

    def __init__(self, nudge: int = 0):
        super().__init__()
        self.twins, self.nudges = {}, nudge and seeded(seed=nudge)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if name not in self.MADE + self.IN_PLACE:
            return func(*args, **kwargs)
        if kwargs.get("generator") is not None:
            kwargs["generator"] = self.twin(kwargs["generator"])
        if name in self.IN_PLACE:  # torch.nn.init gives all arguments by name
            filled = args[0] if args else kwargs.pop("tensor")
            drawn = torch.empty(filled.shape, dtype=torch.float64)
            with torch.no_grad():
                return filled.copy_(self.nudged(func(drawn, *args[1:], **kwargs)))
        device = kwargs.pop("device", None) or "cpu"
        whole = name in ("randint", "randperm")
        default = torch.int64 if whole else torch.get_default_dtype()
        dtype = kwargs.pop("dtype", None) or default
        drawn = func(*args, dtype=torch.int64 if whole else torch.float64, **kwargs)
        return (drawn if whole else self.nudged(drawn)).to(device, dtype)

    def nudged(self, drawn: Tensor) -> Tensor:
        """Return numbers, those with fractions changed by half a unit of float32."""
        if not self.nudges:
            return drawn
        half = torch.finfo(torch.float32).eps / 2
        change = torch.empty_like(drawn).uniform_(-half, half, generator=self.nudges)
        return torch.where(drawn == drawn.round(), drawn, drawn * (1 + change))

    def twin(self, generator: torch.Generator) -> torch.Generator:
        """Return the generator of the CPU that draws in the place of another one."""
        if generator.device.type == "cpu":
            return generator
        made = generator, seeded(seed=generator.initial_seed())
        return self.twins.setdefault(id(generator), made)[1]


def outcome(
    make: Callable, device: torch.device, dtype: torch.dtype, nudge: int = 0
) -> list[Tensor]:
    """Return what the second step of a row comes to, on the CPU, in float64."""
    with in_dtype(dtype), HostDraws(nudge):
        prepare, step = two(make(str(device)))
        for _ in range(2):
            prepare()
            found = step()
        return numbers(found)


def error(found: list[Tensor], wanted: list[Tensor]) -> float:
    """Return the largest difference over the largest number, tensor by tensor."""
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        finite = b.isfinite()
        assert a.shape == b.shape and torch.equal(a.isfinite(), finite)
        a, b = a[finite], b[finite]
        if b.numel():
            gap = (a - b).abs().max() / b.abs().max().clamp_min(1e-12)
            worst = max(worst, float(gap))
    return worst


def steps(device: torch.device) -> Iterator[tuple[str, Callable[[], dict]]]:
    """Part a: every row of the strict device's table."""
    cpu = torch.device("cpu")

    def measure(row):
        exact = outcome(row.make, cpu, torch.float64)
        in_64 = error(outcome(row.make, device, torch.float64), exact)
        own = max(
            error(outcome(row.make, cpu, torch.float32, nudge), exact)
            for nudge in NUDGES
        )
        in_32 = error(outcome(row.make, device, torch.float32), exact)
        ok = in_64 <= EXACT and in_32 <= max(FACTOR * own, LEAST)
        return {"ok": ok, "float64": in_64, "float32": in_32, "float32_cpu": own}

    for name, row in STEPS.items():
        yield name, partial(measure, row)


def matrices(q: int) -> Iterator[tuple[str, Tensor]]:
    """Yield square matrices of one size: easy, graded, short of rank, and zero."""
    generator = seeded(seed=q)
    C = torch.randn(64, q, q, generator=generator, dtype=torch.float64)
    U, _, Vh = torch.linalg.svd(C)
    yield "normal", C
    yield "graded", U * torch.logspace(0, -12, q, dtype=C.dtype) @ Vh
    yield "short of rank", U * (torch.arange(q) < max(q // 2, 1)) @ Vh
    yield "zero", torch.zeros_like(C)
    yield "sizes", C * torch.logspace(-60, 60, 64, dtype=C.dtype)[:, None, None]


def decompositions(device: torch.device) -> Iterator[tuple[str, Callable[[], dict]]]:
    """Part b: the operator's form for this device beside LAPACK's."""

    def measure(q):
        worst = {}
        for name, C in matrices(q):
            U, d, V = (factor.cpu() for factor in torch.ops.labkit.jacobi(C.to(device)))
            size = torch.linalg.vector_norm(C, dim=(-2, -1)).clamp_min(1e-300)
            again = U * d[..., None, :] @ V.mT
            values = (d - torch.linalg.svdvals(C)).abs().amax(-1) / size
            product = (again - C).abs().amax((-2, -1)) / size
            turn = (V.mT @ V - torch.eye(q, dtype=C.dtype)).abs().max()
            worst[name] = max(float(values.max()), float(product.max()), float(turn))
        return {"ok": all(gap < 1e-12 for gap in worst.values()), **worst}

    for q in ORDERS:
        yield f"jacobi, order {q}", partial(measure, q)


def recorded_rls(device: torch.device, record: Callable | None) -> list[Tensor]:
    """Return the weights after 1,000 steps of RLS, a rate and a size turned."""
    torch.manual_seed(0)
    model = dense_network(20, 16, 3).to(device)
    optimizer = rls.RLS(model, momentum=0.5, max_grad_norm=1.0)
    x = torch.randn(1000, 20, generator=seeded()).to(device)
    y = (torch.arange(1000) % 3).to(device)
    size = rls.Settings(batch_size=32)
    options = {"epochs": 32, "batch_size": size, "generator": seeded()}
    run = rls.train(model, optimizer, x, y, record=record, **options)
    for row in islice(run, 1000):
        optimizer.param_groups[0]["lr"] = 0.5 if row.step > 300 else 1.0
        size.batch_size = 16 if row.step > 600 else 32
    return [parameter.detach().cpu().double() for parameter in model.parameters()]


def training(
    method: str,
    hidden: int,
    task: rtrl.CopyTask | rtrl.CharStream,
    *,
    device: torch.device,
    record: Callable | None,
) -> tuple[rtrl.Learner, torch.optim.Adam, Iterator[rtrl.Record]]:
    """Return a learner of rank 8, its optimiser, and the steps of its training."""
    network = new_network(task.input_size, hidden, device=device)
    batch = task.batch_size
    learner = make_learner(method, 8, network.cell, batch_size=batch, seed=0)
    adam = network.adam(1e-3, capturable=device.type == "cuda")
    steps = rtrl.train(learner, network.readout, task, optimizer=adam, record=record)
    return learner, adam, steps


def recorded_rtrl(
    device: torch.device, record: Callable | None, method: str
) -> list[Tensor]:
    """Return the weights after 1,000 steps of a learner, a rate turned."""
    task = rtrl.CopyTask(8, generator=seeded(device.type), device=device)
    _, adam, steps = training(method, 16, task, device=device, record=record)
    for row in islice(steps, 1000):
        adam.param_groups[0]["lr"] = 3e-4 if row.step > 500 else 1e-3
    return [weight.detach().cpu().double() for weight in adam.param_groups[0]["params"]]


def recorded(device: torch.device) -> Iterator[tuple[str, Callable[[], dict]]]:
    """Part c: recorded steps beside plain ones; a CPU records none."""

    def measure(work):
        work(device, None)  # which loads and compiles the kernels
        with (plainly := Clock(device)):
            plain = work(device, None)
        with warnings.catch_warnings(), (again := Clock(device)):
            warnings.simplefilter("error", RuntimeWarning)  # what is not recorded
            found = work(device, graphed)
        gap = error(found, plain)
        ms = {"plain ms": plainly.lap, "recorded ms": again.lap}  # of one in 1,000
        return {"ok": gap <= 1e-4, "largest difference": gap, **ms}

    works = {"RLS": recorded_rls}
    works |= {name: partial(recorded_rtrl, method=name) for name in ("UORO", "OK")}
    for name, work in works.items() if device.type == "cuda" else ():
        yield f"{name}, recorded", partial(measure, work)


def kernels(device: torch.device) -> Iterator[tuple[str, Callable[[], dict]]]:
    """Part d: on a GPU the kernels of a recorded step, on the CPU its operators."""
    record = graphed if device.type == "cuda" else None

    def measure(method, tf32):
        text = read_text("text", device)
        task = rtrl.CharStream(text.tokens, len(text.symbols), 32, device=device)
        learner, _, steps = training(method, HIDDEN, task, device=device, record=record)
        room = torch.empty_like(learner.A)
        both = (lambda: next(steps)), (lambda: room.copy_(learner.A))
        with tensor_cores(tf32):
            laps, copies = shared.laps(device, TIMED, both)
            with torch.profiler.profile() as profile:
                next(steps)
        found = [
            (event.self_cpu_time_total + event.self_device_time_total, event)
            for event in profile.key_averages()
            if event.device_type.name == device.type.upper()
        ]
        found.sort(key=itemgetter(0), reverse=True)
        for us, event in found[:SHOWN]:
            print(f"{us:10.1f} us {event.count:4} x {event.key[:60]}")
        return {
            "ok": True,
            "ms": 1e3 * min(laps),
            "copy of A, ms": 1e3 * min(copies),
            "kernels": sum(event.count for _, event in found),
            "us": {event.key: us for us, event in found},
        }

    for tf32 in (False, True) if record else (False,):
        for method in ("OK", "KF-AVG"):
            words = "TF32" if tf32 else "float32"
            yield f"8-{method}, {words}, kernels", partial(measure, method, tf32)


def bias(device: torch.device, tf32: bool) -> dict:
    """Compare the mean of N draws of 8-OK's gradient with the exact one.

    Without a bias the square of their distance is about the draws' variance over N.
    """
    text = read_text("text", device)
    *_, (_, network) = train_network(text, HIDDEN, updates=UPDATES)
    total, squares = 0, 0
    for seed in range(DRAWS // 32):
        learner = make_learner("OK", 8, network.cell, batch_size=32, seed=seed)
        with tensor_cores(tf32):
            *_, (drawn, _) = islice(estimates(network, {"": learner}, text), AFTER)
        drawn = drawn[""].double()
        total, squares = total + drawn.sum(0), squares + drawn.square().sum()
    *_, (_, exact) = islice(estimates(network, {}, text), AFTER)
    mean, exact = total / DRAWS, exact.double()
    variance = (squares / DRAWS - mean.square().sum()) / (DRAWS - 1)
    ratio = float((mean - exact).square().sum() / variance)
    along = float((mean * exact).sum() / exact.square().sum())
    return {"ok": ratio <= BIASED, "square / variance": ratio, "along": along}


def rounding(device: torch.device) -> Iterator[tuple[str, Callable[[], dict]]]:
    """Part e: 8-OK in TF32 beside float32; a CPU has no TF32."""
    for tf32 in (False, True) if device.type == "cuda" else ():
        yield (
            f"8-OK, {'TF32' if tf32 else 'float32'}, bias",
            partial(bias, device, tf32),
        )


PARTS = {"a": steps, "b": decompositions, "c": recorded, "d": kernels, "e": rounding}


def do(part: str, device: torch.device, file: Path) -> bool:
    """Do what is left of a part; return whether all of it is right."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    where = {"device": name, "torch": torch.__version__, "commit": commit()}
    lines = file.read_text("utf-8").splitlines() if file.is_file() else ()
    known = {
        row["name"]: row for row in map(json.loads, lines) if {**row, **where} == row
    }
    right, count = 0, 0
    for name, measure in PARTS[part](device):
        count += 1
        if name in known:
            right += known[name]["ok"]
            continue
        try:
            found = measure()
        except Exception as problem:
            traceback.print_exc()
            found = {"ok": False, "error": f"{type(problem).__name__}: {problem}"}
        right += found["ok"]
        with file.open("a", encoding="utf-8") as kept:
            kept.write(json.dumps({"part": part, "name": name} | where | found) + "\n")
        print(f"{part}  {'ok  ' if found['ok'] else 'FAIL'}  {name}", flush=True)
    print(f"part {part}: {right} of {count} right", flush=True)
    return right == count


def main(arguments: list[str]) -> int:
    """Do the parts that were asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=shared.known, default="cuda")
    parser.add_argument("--part", choices=PARTS, help="all of them if not given")
    parser.add_argument("--json", type=Path, default=FILE)
    args = parser.parse_args(arguments)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    shared.begin(args, "float64 and float32")
    parts = args.part or PARTS
    return int(not all([do(part, args.device, args.json) for part in parts]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
