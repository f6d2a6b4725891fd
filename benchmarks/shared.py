"""What all benchmarks share: where they run, the line that says so, results as JSON.

``--device cuda`` puts them on a GPU; ``--json FILE`` appends a line for every result,
with the benchmark, the device and the version of torch in it.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from labkit.clock import Clock

_kept = {"file": None}


def parser(text: str, repeats: int = 1) -> argparse.ArgumentParser:
    """A parser that knows ``--device``, ``--json`` and ``--repeats``."""
    made = argparse.ArgumentParser(description=text.splitlines()[0])
    made.add_argument("--repeats", type=int, default=repeats, help="rounds")
    made.add_argument("--device", type=known, default=known("cpu"))
    made.add_argument("--json", type=Path, help="append every result to this file")
    return made


def known(name: str) -> torch.device:
    """The device of a name, if torch sees it."""
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError(f"torch sees no CUDA device, so no {name!r}")
    return device


def begin(args, *words: str, threads: int = 1) -> torch.device:
    """Threads and precision for all; say where this runs; return the device."""
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    cuda = args.device.type == "cuda"
    name = torch.cuda.get_device_name(args.device) if cuda else str(args.device)
    head = f"torch {torch.__version__}", name, f"{threads} thread(s)"
    print(", ".join([*head, *words]), flush=True)
    _kept.update(file=args.json, benchmark=Path(sys.argv[0]).stem)
    _kept.update(device=name, torch=torch.__version__)
    return args.device


def tell(
    name: str,
    *,
    seconds: float | None = None,
    ratio: float | None = None,
    most: float | None = None,
) -> None:
    """Print a result, and keep it if a file was named.

    ``ratio`` is to what it cannot avoid or is compared with, and should be at most
    ``most``.
    """
    ms, words = seconds and 1e3 * seconds, f"{name:56}"
    if ms is not None:
        words += f"{ms:12.3f} ms"
    if ratio is not None:
        words += f"{ratio:9.3f} times"
    if most is not None:
        words += f", at most {most}: {'yes' if ratio <= most else 'NO'}"
    print(words, flush=True)
    record = _kept | {"name": name, "ms": ms, "ratio": ratio}
    if file := record.pop("file"):
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")


def laps(
    device: torch.device, repeats: int, functions: Iterable[Callable]
) -> list[list[float]]:
    """Seconds of each function, round by round; they take turns, the first warms up."""
    functions, rounds, clock = list(functions), [], Clock(device)
    for _ in range(repeats + 1):
        rounds.append([])
        for function in functions:
            with clock:
                function()
            rounds[-1].append(clock.lap)
    return [list(times) for times in zip(*rounds[1:], strict=True)]
