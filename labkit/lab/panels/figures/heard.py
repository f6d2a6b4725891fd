"""A widget with a script of its own that always hears its kernel."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import anywidget
import traitlets

HEARING = Path(__file__).with_name("hearing.js").read_text("utf-8")


class Heard(anywidget.AnyWidget):
    """A widget whose script has :data:`HEARING` before it and calls ``hearing(model)``.

    Without it a widget whose script took more than two seconds to load hears nothing
    more of its kernel. ``own`` is its own name, by which the script finds it.
    """

    own = traitlets.Unicode().tag(sync=True)

    def __init__(self, **traits: Any):
        own = uuid4().hex
        super().__init__(model_id=own, own=own, **traits)
