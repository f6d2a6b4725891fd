"""The pure step of every row as one graph, without a break."""

import inspect

import pytest
import torch
from torch.utils._pytree import tree_map

from labkit.rtrl import LEARNERS
from tests.draws import randn

from .conftest import make, make_cell, read

STEPS = [name for name in LEARNERS if name != "TBPTT"]  # its loop is on the host


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_one_graph(name, backend, monkeypatch):
    step, seen = LEARNERS[name].step, []

    def spy(*given, **options):
        seen[:] = copied((given, options))
        return step(*given, **options)

    monkeypatch.setattr(inspect.getmodule(step), step.__name__, spy)
    monkeypatch.setattr("labkit.rtrl.decompose.on_host", lambda _: False)
    read(make(name, 2, make_cell("rhn", 2, 3)), randn(3, 3, 2))
    given, options = copied(seen)
    torch._dynamo.reset()
    one = torch.compile(step, fullgraph=True, backend=backend)(*given, **options)
    two = step(*seen[0], **seen[1])
    torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-12)


def copied(values):
    return tree_map(lambda x: x.clone() if torch.is_tensor(x) else x, values)
