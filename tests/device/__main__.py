"""Count waits and kernels beside the table: ``python -m tests.device rls broad``.

With ``-v`` the lines that wait, and the ten that launch most, are told as well.
"""

import sys

from tests.device.rows import counted
from tests.device.table import TABLE


def main(*rooms):
    told = "-v" in rooms
    for room in [room for room in rooms if room in TABLE] or TABLE:
        for row in TABLE[room]:
            tally = counted(row.make).tally
            now = f"{tally.waits.total():4} {tally.kernels.total():6}"
            print(f"{room:14}{row.step:40}{row.waits:4} {row.kernels:6}  now {now}")
            if told:
                for (name, line), n in tally.waits.items():
                    print(f"{'':18}{n:4} waits    {name:24}{line}")
                for (name, line), n in tally.kernels.most_common(10):
                    print(f"{'':18}{n:4} kernels  {name:24}{line}")


if __name__ == "__main__":
    main(*sys.argv[1:])
