"""All rows: every step function of the package, room by room."""

from collections.abc import Mapping

from tests.device import adam, bpls, broad, hessian_free, instruments, rls, rtrl
from tests.device.rows import Row, counted

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


def counts() -> dict[tuple[str, str], int]:
    """Kernels of each step, by room and name, counted here and now."""
    return {
        (room, row.step): counted(row.make).tally.kernels.total()
        for room, rows in TABLE.items()
        for row in rows
    }


def markdown(kernels: Mapping[tuple[str, str], int]) -> str:
    """The table as docs/devices.md has it, with these counts of kernels."""
    lines = []
    for room, rows in TABLE.items():
        lines += [
            f"\n### {room}\n",
            "| step | kernels | Adam's | waits | drains | what waits |",
        ]
        lines += ["|---|---:|---:|---:|---:|---|"]
        for row in rows:
            adam = beside(room, row)
            cells = [
                row.step,
                kernels[room, row.step],
                kernels["fused Adam", adam.step] if adam else "",
                row.waits,
                row.drains or "",
                row.why,
            ]
            lines += ["| " + " | ".join(map(str, cells)) + " |"]
    return "\n".join(lines) + "\n\n"
