"""Every benchmark, one after the other; a summary comes last.

    PYTHONPATH=. python benchmarks [--device cuda] [--json FILE]

One whose data set is not on this machine and cannot be had is left out, and the summary
says so; one that fails makes the whole fail. FILE is written anew, a line a result.
"""

import re
import subprocess
import sys
from pathlib import Path

from benchmarks import shared

COMMANDS = (
    "rtrl",
    "rls",
    "hessian_free",
    "broad",
    "bpls --data mnist",
    "bpls --data fashion-mnist",
    "instruments",
)
MISSING = re.compile(r"^labkit\.\S*DatasetUnavailable: (\S+) ", re.MULTILINE)


def run(command, folder, flags=()):
    """Run one benchmark; return what became of it."""
    script, *arguments = command.split()
    print(f"--- {command}", flush=True)
    done = subprocess.run(
        [sys.executable, folder / f"{script}.py", *flags, *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    missing = MISSING.search(done.stderr)
    if done.returncode and missing:
        return f"left out: {missing[1]} is not on this machine (see data/README.md)"
    sys.stderr.write(done.stderr)
    return "FAILED" if done.returncode else "done"


def main(arguments=(), commands=COMMANDS, folder=Path(__file__).parent):
    """Run the benchmarks; print the summary; return the exit status."""
    args = shared.parser(__doc__).parse_args(arguments)
    flags = [f"--device={args.device}"]
    if args.json:
        args.json.unlink(missing_ok=True)
        flags.append(f"--json={args.json.resolve()}")
    results = {command: run(command, folder, flags) for command in commands}
    print("\n--- summary")
    for command, result in results.items():
        print(f"{command:34}{result}")
    return int("FAILED" in results.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
