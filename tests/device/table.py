"""All rows: every step function of the package, room by room."""

from tests.device import bpls, broad, hessian_free, instruments, rls, rtrl
from tests.device.rows import Row

TABLE: dict[str, list[Row]] = {
    "rtrl": rtrl.ROWS,
    "rls": rls.ROWS,
    "hessian_free": hessian_free.ROWS,
    "bpls": bpls.ROWS,
    "broad": broad.ROWS,
    "instruments": instruments.ROWS,
}
STEPS = {f"{room}: {row.step}": row for room, rows in TABLE.items() for row in rows}
