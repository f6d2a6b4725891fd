"""Keep what a run has measured as the records that notebooks show."""

import json
from pathlib import Path

from labkit.lab.runs.jobs import commit, write_atomically

RECORDS = Path(__file__).parents[1] / "records"


def keep_records(folder: Path) -> list[Path]:
    """Copy the traces of a run's measured experiments, and note the commit in them.

    Parameters
    ----------
    folder : Path, of a run that is finished
    """
    kept = []
    for trace in sorted((folder / "measured").glob("*.jsonl")):
        head, *rows = trace.read_text("utf-8").splitlines()
        header = json.dumps(json.loads(head) | {"commit": commit()})
        write_atomically(RECORDS / trace.name, "\n".join([header, *rows, ""]))
        kept.append(RECORDS / trace.name)
    return kept
