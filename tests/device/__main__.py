"""Count waits and kernels beside the table: ``python -m tests.device rls broad``.

With ``-v`` the lines that wait, and the ten that launch most, are told as well; with
``--json`` every row is a line of JSON; ``--docs`` writes the table into the docs.
"""

import json
import sys

from tests.device.docs import write
from tests.device.rows import counted
from tests.device.table import TABLE


def main(*words):
    if "--docs" in words:
        return write()
    for room in [room for room in words if room in TABLE] or TABLE:
        for row in TABLE[room]:
            tell(room, row, counted(row.make).tally, words)


def tell(room, row, tally, words):
    waits, kernels = tally.waits.total(), tally.kernels.total()
    if "--json" in words:
        found = {"room": room, "step": row.step, "waits": waits, "kernels": kernels}
        found |= {"drains": tally.drains}
        found |= {"bytes": tally.bytes, "operations": tally.operations}
        return print(json.dumps(found))
    print(
        f"{room:14}{row.step:40}{row.waits:4}"
        f"   now {waits:4} {kernels:6} {tally.drains:3} drains"
    )
    if "-v" in words:
        for (name, line), n in tally.waits.items():
            print(f"{'':18}{n:4} waits    {name:24}{line}")
        for (name, line), n in tally.kernels.most_common(10):
            print(f"{'':18}{n:4} kernels  {name:24}{line}")


if __name__ == "__main__":
    main(*sys.argv[1:])
