"""What a GPU shows, in parts that each end within nine minutes and can be resumed.

    PYTHONPATH=. python benchmarks/gpu.py [--device cuda] [--part a] [--json FILE]

A source tree, torch 2.11 or newer, NumPy, SciPy, scikit-learn, pandas, typer and pytest
are enough. Each part does its items one after the other, writes a line of JSON for
each, and leaves out those that FILE has from the same device, torch and commit.

    a  every step function, in float64 and float32, beside the CPU's numbers
    b  OK's own decomposition beside LAPACK's: sizes 2 to 33, hard matrices among them
    c  recorded steps (CUDA graphs) beside plain ones, 1,000 steps, settings turned
    d  mixed precision beside float32
    e  torch.compile of the steps: the same numbers, and the time
    f  milliseconds and kernels of every step beside fused Adam, then all benchmarks
    g  the summary

With ``--docs`` the results in FILE and FILE.bench go to docs/devices.jsonl, in place of
those of the same part on the same device, and make the tables of docs/devices.md.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmarks import shared
from benchmarks.device import best, counts
from labkit import rls, rtrl
from labkit.clock import Clock
from labkit.lab.datasets import available
from labkit.lab.runs.jobs import commit
from labkit.rtrl import low_rank
from labkit.scale import graphed
from tests.device.rows import in_dtype, numbers, seeded, two
from tests.device.table import TABLE, beside

HERE = Path(__file__).resolve().parents[1]
FILE = Path("build/gpu.jsonl")
KEPT = HERE / "docs/devices.jsonl"  # of which docs/devices.md shows the tables
PAGE = HERE / "docs/devices.md"
BEGIN, END = "<!-- gpu: python benchmarks/gpu.py --docs -->\n", "<!-- gpu end -->\n"
PARTS = "abcdefg"
# Data sets, and how the commands of the benchmarks end that need them.
NEEDED = {"mnist": ("broad speed", " mnist"), "fashion-mnist": (" fashion-mnist",)}
ORDERS = range(2, 34)  # of the matrices of part b
RECORDED = "recorded"  # which tests of the strict device part c runs
Item = tuple[str, Callable[[], dict]]  # a name, and what measures it
CHECKS = {  # what the page says of a part, and which numbers of it are differences
    "a": ("steps in float64, beside the CPU's", ("float64",)),
    "b": (
        "orders of OK's own decomposition, beside LAPACK's",
        ("normal", "graded", "short of rank", "zero", "large and small"),
    ),
    "c": ("recorded steps, beside plain ones", ("largest difference",)),
    "d": ("runs in mixed precision, beside float32", ("change",)),
    "e": ("compiled steps, beside plain ones", ("largest difference",)),
}

# Part a. Rounding in float64; in float32 ten times what the CPU's own float32 differs
# from float64, and at least 1e-5 of the largest number. The CPU's difference is the
# largest of a few runs whose data differ by rounding: one run may be right by chance.
EXACT, FACTOR, LEAST, NUDGES = 1e-6, 10.0, 1e-5, range(4)


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
        filled = None
        if name in self.IN_PLACE:  # torch.nn.init gives all arguments by name
            filled = args[0] if args else kwargs.pop("tensor")
        elif name not in self.MADE:
            return func(*args, **kwargs)
        generator = kwargs.get("generator")
        if generator is not None:
            kwargs["generator"] = self.twin(generator)
        if filled is not None:
            drawn = torch.empty(filled.shape, dtype=torch.float64)
            with torch.no_grad():
                return filled.copy_(self.nudged(func(drawn, *args[1:], **kwargs)))
        kwargs.pop("pin_memory", None)
        device = kwargs.pop("device", None) or "cpu"
        whole = name in ("randint", "randperm")
        dtype = kwargs.pop("dtype", None)
        dtype = dtype or (torch.int64 if whole else torch.get_default_dtype())
        drawn = func(*args, dtype=torch.int64 if whole else torch.float64, **kwargs)
        return (drawn if whole else self.nudged(drawn)).to(device, dtype)

    def nudged(self, drawn: Tensor) -> Tensor:
        """Return numbers as they are, or each changed by about half a unit of float32.

        Whole numbers, such as zeros and signs, stay what they are.
        """
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
    assert len(found) == len(wanted)
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        both = b.isfinite()
        assert a.shape == b.shape and torch.equal(a.isfinite(), both)
        a, b = a[both], b[both]
        if b.numel():
            worst = max(
                worst, float((a - b).abs().max() / b.abs().max().clamp_min(1e-12))
            )
    return worst


def steps(device: torch.device) -> Iterator[Item]:
    """Part a: every row of the strict device's table."""
    cpu = torch.device("cpu")

    def measure(row):
        exact = outcome(row.make, cpu, torch.float64)
        in_64 = error(outcome(row.make, device, torch.float64), exact)
        own = max(
            error(outcome(row.make, cpu, torch.float32, each), exact) for each in NUDGES
        )
        in_32 = error(outcome(row.make, device, torch.float32), exact)
        ok = in_64 <= EXACT and in_32 <= max(FACTOR * own, LEAST)
        return {"ok": ok, "float64": in_64, "float32": in_32, "float32_cpu": own}

    for room, rows in TABLE.items():
        for row in rows:
            yield f"{room}: {row.step}", lambda row=row: measure(row)


def matrices(q: int) -> Iterator[tuple[str, Tensor]]:
    """Yield square matrices of one size: easy, graded, short of rank, and zero."""
    g = seeded(seed=q)
    C = torch.randn(64, q, q, generator=g, dtype=torch.float64)
    yield "normal", C
    U, _, Vh = torch.linalg.svd(C)
    scale = torch.logspace(0, -12, q, dtype=torch.float64)
    yield "graded", U * scale @ Vh
    rank = (torch.arange(q) < max(q // 2, 1)).double()
    yield "short of rank", U * rank @ Vh
    yield "zero", torch.zeros_like(C)
    yield (
        "large and small",
        C * torch.logspace(-60, 60, 64, dtype=C.dtype)[:, None, None],
    )


def decompositions(device: torch.device) -> Iterator[Item]:
    """Part b: the operator's form for this device beside LAPACK's."""

    def measure(q):
        worst = {}
        for name, C in matrices(q):
            U, d, V = (x.cpu() for x in torch.ops.labkit.jacobi(C.to(device)))
            size = torch.linalg.vector_norm(C, dim=(-2, -1)).clamp_min(1e-300)
            wanted = torch.linalg.svdvals(C)
            again = U * d[..., None, :] @ V.mT
            gaps = [(d - wanted).abs().amax(-1), (again - C).abs().amax((-2, -1))]
            eye = torch.eye(q, dtype=C.dtype)
            turn = float((V.mT @ V - eye).abs().max())
            worst[name] = max(*(float((gap / size).max()) for gap in gaps), turn)
        return {"ok": all(each < 1e-12 for each in worst.values()), **worst}

    for q in ORDERS:
        yield f"jacobi, order {q}", lambda q=q: measure(q)


def recorded(device: torch.device) -> Iterator[Item]:
    """Part c: 1,000 recorded steps beside plain ones, a rate and a size turned.

    Without a GPU, the tests of recorded steps on the strict device take their place.
    """
    if device.type != "cuda":
        yield "recorded steps on the strict device", on_strict_device
        return

    def with_rls(capture):
        torch.manual_seed(0)
        model = rls.dense_network(20, 16, 3).to(device)
        optimizer = rls.RLS(model, momentum=0.5, max_grad_norm=1.0)
        x = torch.randn(1000, 20, generator=seeded()).to(device)
        y = (torch.arange(1000) % 3).to(device)
        settings = rls.Settings(batch_size=32)
        run = rls.train(
            model,
            optimizer,
            x,
            y,
            epochs=32,
            batch_size=settings,
            generator=seeded(),
            record=graphed if capture else None,
        )
        for record in run:
            if record.step == 300:
                optimizer.param_groups[0]["lr"] = 0.5
            if record.step == 600:
                settings.batch_size = 16
            if record.step == 1000:
                break
        return [p.detach().cpu() for p in model.parameters()]

    def with_rtrl(name):
        def work(capture):
            cell = rtrl.RHNCell(4, 16, generator=seeded()).to(device)
            readout = rtrl.Readout(16, 4, generator=seeded()).to(device)
            learner = rtrl.LEARNERS[name].make(
                cell, batch_size=8, generator=seeded(device.type)
            )
            weights = [cell.weight, *readout.parameters()]
            optimizer = torch.optim.Adam(weights, lr=1e-3, capturable=True)
            task = rtrl.CopyTask(8, generator=seeded(device.type), device=device)
            run = rtrl.train(
                learner,
                readout,
                task,
                optimizer=optimizer,
                record=graphed if capture else None,
            )
            for record in run:
                if record.step == 500:
                    optimizer.param_groups[0]["lr"] /= 3
                if record.step == 1000:
                    break
            return [w.detach().cpu() for w in weights]

        return work

    def measure(work):
        work(False)  # which loads and compiles the kernels
        clock = Clock(device)
        with clock:
            plain = work(False)
        ms = {"plain ms": clock.lap}  # of 1,000 steps in s, so of one in ms
        with warnings.catch_warnings():  # steps that are not recorded in the end
            warnings.simplefilter("error", RuntimeWarning)
            with clock:
                found = work(True)
        ms["recorded ms"] = clock.lap  # with the recordings themselves
        gap = error([x.double() for x in found], [x.double() for x in plain])
        return {"ok": gap <= 1e-4, "largest difference": gap, **ms}

    yield "RLS, recorded", lambda: measure(with_rls)
    for name in ("UORO", "OK"):
        yield f"{name}, recorded", lambda name=name: measure(with_rtrl(name))


def on_strict_device() -> dict:
    """Run the tests of recorded steps on the strict device, in their own process."""
    files = ("tests/device/test_rtrl_capture.py", "tests/device/test_rls.py")
    flags = ("-q", "-o", "addopts=", "--confcutdir=tests/device", "-k", RECORDED)
    command = [sys.executable, "-m", "pytest", *flags, *files]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    return {"ok": done.returncode == 0, "result": done.stdout.strip().splitlines()[-1]}


def mixed(device: torch.device) -> Iterator[Item]:
    """Part d: RLS under autocast, with a scaler where it is float16."""

    def final_loss(dtype):
        torch.manual_seed(0)
        model = rls.dense_network(20, 32, 3).to(device)
        optimizer = rls.RLS(model, momentum=0.5, max_grad_norm=1.0)
        scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
        g = seeded()
        x = torch.randn(256, 20, generator=g).to(device)
        y = torch.tanh(x[:, :3])
        for _ in range(100):
            optimizer.zero_grad()
            on = dtype != torch.float32
            with torch.autocast(device.type, dtype=dtype if on else None, enabled=on):
                loss = rls.loss_mse(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return float(loss.detach())

    def measure(dtype):
        plain, found = final_loss(torch.float32), final_loss(dtype)
        change = abs(found / plain - 1)
        losses = {"loss": found, "float32": plain}
        return {"ok": change < 0.25, "change": change, **losses}

    for dtype in (torch.bfloat16, torch.float16):
        yield f"RLS, {str(dtype)[6:]}", lambda dtype=dtype: measure(dtype)


def compiled(device: torch.device) -> Iterator[Item]:
    """Part e: torch.compile of two steps, and the time of both ways."""
    g = seeded()

    def draw(*shape):
        return torch.randn(shape, generator=g).to(device)

    def timed(step, given):
        step(*given())
        laps = []
        for _ in range(20):
            fresh = given()
            synchronize(device)
            start = time.perf_counter()
            step(*fresh)
            synchronize(device)
            laps.append(time.perf_counter() - start)
        return 1e3 * min(laps)

    def measure(step, given):
        fast = torch.compile(step)
        torch.manual_seed(0)
        one = given()
        gap = error(numbers(fast(*copies(one))), numbers(step(*copies(one))))
        times = {"eager ms": timed(step, given), "compiled ms": timed(fast, given)}
        return {"ok": gap < 1e-4, "largest difference": gap, **times}

    def low_rank_step():
        C = draw(32, 9, 9)
        return (C,)

    def product(C):
        return low_rank.minimum_variance(C.square().sum(-1).sort(-1, True)[0], 8)

    def gain_step():
        x = draw(129)
        P = torch.eye(129, device=device)
        return P, x

    def gain(P, x):
        u = P @ x
        h = 1 / (1 + 0.1 * (x @ u))
        return P - 0.1 * h * torch.outer(u, u)

    yield "compile: the update of P", lambda: measure(gain, gain_step)
    yield "compile: minimum_variance", lambda: measure(product, low_rank_step)


def copies(tensors: tuple) -> list[Tensor]:
    """Return copies of tensors."""
    return [each.clone() for each in tensors]


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def kernels_of(make: Callable, device: torch.device) -> int | None:
    """Count the kernels of a step by the profiler; None on a CPU."""
    if device.type != "cuda":
        return None
    with in_dtype():
        prepare, step = two(make(str(device)))
        prepare()
        step()
        prepare()
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            step()
            synchronize(device)
    return sum(event.device_type.name == "CUDA" for event in profile.events())


def speeds(device: torch.device, file: Path) -> Iterator[Item]:
    """Part f: each step's milliseconds and kernels, then the benchmarks."""
    strict = {}

    def measure(room, row):
        strict.update(strict or counts(TABLE))
        found = strict[room, row.step]
        adam = beside(room, row)
        ms = 1e3 * best(row.make, device)
        line = {
            "ok": True,
            "room": room,
            "ms": ms,
            "kernels": kernels_of(row.make, device),
            "strict kernels": found["kernels"],
            "waits": found["waits"],
        }
        if adam:
            line["over fused Adam"] = ms / (1e3 * best(adam.make, device))
        return line

    for room, rows in TABLE.items():
        for row in rows:
            name = f"{room}: {row.step}, speed"
            yield name, lambda room=room, row=row: measure(room, row)
    from benchmarks.__main__ import COMMANDS, run

    flags = (f"--device={device}", f"--json={file.resolve()}.bench")
    here = {name for name, each in available().items() if each.here}
    for command in COMMANDS:
        if command == "device":
            continue
        needed = next((x for x, ends in NEEDED.items() if command.endswith(ends)), None)
        if needed and needed not in here:
            print(
                f"f  left out: {command} needs {needed}; LABKIT_DATA names its folder"
            )
            continue
        yield (
            f"benchmark: {command}",
            lambda command=command: told(run(command, HERE / "benchmarks", flags)),
        )


def told(words: str) -> dict:
    """Return a benchmark's end as a result."""
    return {"ok": words != "FAILED", "result": words}


def read(file: Path) -> list[dict]:
    """Return the results that a file has; a line that was cut off is left out."""
    if not file.is_file():
        return []
    found = []
    for line in file.read_text("utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def do(part: str, device: torch.device, file: Path, seconds: float) -> bool:
    """Do what is left of a part; return whether all of it is done and right."""
    where = {"device": name_of(device), "torch": torch.__version__}
    where |= {"commit": commit() or "unknown"}
    made = {
        "a": steps,
        "b": decompositions,
        "c": recorded,
        "d": mixed,
        "e": compiled,
        "f": lambda device: speeds(device, file),
    }[part](device)
    kept = {r["name"]: r for r in read(file) if {**r, **where} == r}
    if file.is_file() and not file.read_text("utf-8").endswith("\n"):
        file.write_text(file.read_text("utf-8") + "\n", "utf-8")  # a line was cut off
    start, right = time.monotonic(), True
    for name, measure in made:
        if name in kept:
            right &= kept[name]["ok"]
            continue
        if time.monotonic() - start > seconds:
            print(f"part {part}: the time is over; the same command goes on")
            return False
        try:
            found = measure()
        except Exception as problem:
            traceback.print_exc()
            found = {"ok": False, "error": f"{type(problem).__name__}: {problem}"}
        right &= found["ok"]
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"part": part, "name": name} | where | found) + "\n")
        print(f"{part}  {'ok  ' if found['ok'] else 'FAIL'}  {name}", flush=True)
    return right


def name_of(device: torch.device) -> str:
    """Return the device's own name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {os.cpu_count()} cores"


def summary(file: Path) -> str:
    """Return how many items of each part are right, and what is not."""
    found = {(each["part"], each["name"]): each for each in read(file)}
    lines = []
    for part in PARTS[:-1]:
        mine = [each for (p, _), each in found.items() if p == part]
        right = sum(each["ok"] for each in mine)
        lines.append(f"part {part}: {right} of {len(mine)} right")
        lines += [f"  {e['name']}: {e.get('error', e)}" for e in mine if not e["ok"]]
    return "\n".join(lines)


def write_page(file: Path) -> None:
    """Keep the results of a file, and write the tables of docs/devices.md."""
    new = read(file) + read(file.with_name(f"{file.name}.bench"))
    again = {_what(each) for each in new}
    old = [each for each in read(KEPT) if _what(each) not in again]
    lines = [json.dumps(each) + "\n" for each in old + new]
    KEPT.write_text("".join(lines), "utf-8")
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}{page(KEPT)}{END}{after}", "utf-8")


def _what(found: dict) -> tuple[str, str]:
    """Return the device of a result and the part or the benchmark that it is of."""
    return found["device"], found.get("part") or found["benchmark"]


def page(file: Path) -> str:
    """Return the tables of docs/devices.md.

    What was checked on the GPU, its benchmarks, and the steps on CPU, GPU and strict
    device side by side. Of each kind of device it shows the one that was measured last.
    """
    found = read(file)
    speed = [each for each in found if "strict kernels" in each]
    if not speed:
        return "Nothing has been measured.\n"
    is_cpu = lambda each: each["device"].startswith("cpu")  # noqa: E731
    kinds = {
        "CPU": _last([each for each in speed if is_cpu(each)]),
        "GPU": _last([each for each in speed if not is_cpu(each)]),
    }
    lines = []
    for kind, rows in kinds.items():
        if rows:
            one = next(iter(rows.values()))
            lines += [
                f"{kind}: {one['device']}, torch {one['torch']}, at {one['commit']}.\n"
            ]
        else:
            lines += [f"{kind}: none was at hand, and its columns are empty.\n"]
    if kinds["GPU"]:
        device = next(iter(kinds["GPU"].values()))["device"]
        mine = [each for each in found if each["device"] == device]
        lines += [*checked(mine), *benchmarks(mine)]
    lines += [
        "| step | CPU, ms | over Adam | GPU, ms | over Adam | GPU, kernels "
        "| strict device, kernels | waits |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in dict.fromkeys(each["name"] for each in speed):
        cells = [name.removesuffix(", speed")]
        for kind, rows in kinds.items():
            keys = ("ms", "over fused Adam", *["kernels"] * (kind == "GPU"))
            cells += [_shown(rows.get(name, {}).get(key)) for key in keys]
        either = next(rows[name] for rows in kinds.values() if name in rows)
        cells += [_shown(either[key]) for key in ("strict kernels", "waits")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def checked(found: list[dict]) -> list[str]:
    """Return the table of what was compared on a device, a row for each part."""
    lines = ["| what | right | largest difference |", "|---|---:|---:|"]
    for part, (words, keys) in CHECKS.items():
        mine = [each for each in found if each.get("part") == part]
        if mine:
            values = [v for each in mine for k, v in each.items() if k in keys]
            right = sum(each["ok"] for each in mine)
            largest = _shown(max(values, default=None))
            lines.append(f"| {words} | {right} of {len(mine)} | {largest} |")
    return [*lines, ""]


def benchmarks(found: list[dict]) -> list[str]:
    """Return the table of the benchmarks, which use sizes of the papers."""
    mine = [each for each in found if "benchmark" in each and "ms" in each]
    lines = ["| benchmark | ms | ratio that it prints |", "|---|---:|---:|"]
    for each in mine:
        name = f"{each['benchmark']}: {each['name']}"
        cells = name, _shown(each["ms"]), _shown(each.get("ratio"))
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""] if mine else []


def _last(rows: list[dict]) -> dict[str, dict]:
    """Return the rows of the device that was measured last, by name."""
    return {r["name"]: r for r in rows if r["device"] == rows[-1]["device"]}


def _shown(value: float | None) -> str:
    """Return a count as it is, another number with three digits, and None as empty."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def main(arguments: list[str]) -> int:
    """Do the parts that were asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=shared.known, help="cuda if not given")
    parser.add_argument("--part", choices=PARTS, help="all of them if not given")
    parser.add_argument("--json", type=Path, default=FILE)
    parser.add_argument("--seconds", type=float, default=540, help="of a part, at most")
    parser.add_argument("--docs", action="store_true", help="write the page and end")
    args = parser.parse_args(arguments)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    if args.docs:
        write_page(args.json)
        return 0
    if args.device is None:  # not before: the page is written without a GPU, too
        args = parser.parse_args([*arguments, "--device=cuda"])
    device = args.device
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    parts = args.part or PARTS
    right = [do(p, device, args.json, args.seconds) for p in parts if p != "g"]
    if "g" in parts:
        print(summary(args.json))
    return int(not all(right))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
