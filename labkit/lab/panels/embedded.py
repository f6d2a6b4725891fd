"""Data in a page, with the module that shows them there without a kernel."""

import json
from pathlib import Path

HERE = Path(__file__).parent


def embedded(name: str, data, still: str = "") -> str:
    """HTML of the data with the module ``name.js`` and its style.

    ``still`` is HTML that stands in its place where no script runs.
    """
    inside = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    style, script = ((HERE / f"{name}.{k}").read_text("utf-8") for k in ("css", "js"))
    return (
        f'<div class="labkit-{name}"><script type="application/json">{inside}</script>'
        f'{still}</div><style>{style}</style><script type="module">{script}</script>'
    )
