"""What several of these tests ask for."""

import pytest

from labkit.scale import graphs
from tests.device.tape import on_tape


@pytest.fixture
def taped(monkeypatch):
    """Recordings without a GPU, on a CPU that is told nothing at once."""
    monkeypatch.setattr(graphs, "record", on_tape)
    monkeypatch.setattr(graphs, "aside", lambda run: run())
    monkeypatch.setattr(graphs, "check", lambda *_: None)
