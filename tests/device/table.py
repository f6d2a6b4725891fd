"""All rows: every step function of the package, room by room."""

from tests.device import adam, bpls, broad, hessian_free, instruments, rls, rtrl
from tests.device.rows import Row

VERSION = "2.13"  # of torch, which another may cut into other kernels
TABLE: dict[str, list[Row]] = {
    "rtrl": rtrl.ROWS,
    "rls": rls.ROWS,
    "hessian_free": hessian_free.ROWS,
    "bpls": bpls.ROWS,
    "broad": broad.ROWS,
    "instruments": instruments.ROWS,
    "fused Adam": adam.ROWS,
}


def beside(room: str, row: Row) -> Row | None:
    """Fused Adam's row on the same network."""
    name = f"{room}, {row.step.rpartition(', ')[2]}"
    return next((each for each in adam.ROWS if each.step == name), None)


def markdown() -> str:
    """The table as docs/devices.md has it."""
    lines = []
    for room, rows in TABLE.items():
        lines += [
            f"\n### {room}\n",
            "| step | kernels | Adam's | waits | drains | what waits |",
        ]
        lines += ["|---|---:|---:|---:|---:|---|"]
        for row in rows:
            adam = beside(room, row)
            cells = row.step, row.kernels, adam.kernels if adam else "", row.waits
            cells += (row.drains or "",)
            lines += ["| " + " | ".join(map(str, [*cells, row.why])) + " |"]
    return "\n".join(lines) + "\n\n"
