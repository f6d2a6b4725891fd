"""What labkit asks of torch's layers, and the private function that it needs."""

import copy
import gc
import pickle

import pytest
import torch
from torch import nn

from labkit.layers import WeakHook, current_backward, find_layer


def test_torch_still_numbers_its_backward_passes():
    """Without this private function inputs cannot be told apart by their pass."""
    assert callable(torch._C._current_graph_task_id), "torch dropped it"
    seen = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda _: seen.append(current_backward()))
    for _ in range(2):
        (2 * x).sum().backward()
    assert current_backward() == -1 < min(seen) and len({*seen}) == 2


def test_a_layer_is_found_by_its_name_or_itself():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    for wanted in ("0", model[0]):
        assert find_layer(model, wanted, lambda m: True) == ("0", model[0])
    with pytest.raises(ValueError, match="no layer 'head'; it has '0'"):
        find_layer(model, "head", lambda module: isinstance(module, nn.Linear))


def test_a_hook_keeps_nobody_alive_and_ignores_copies():
    class Listener:
        def __init__(self, module):
            self.module, self.heard = module, 0
            module.register_forward_hook(WeakHook(self.hear))

        def hooked(self, module):
            return module is self.module

        def hear(self, *_):
            self.heard += 1

    model = nn.Identity()
    listener = Listener(model)
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        each(torch.ones(1))
    assert listener.heard == 1
    (hook,) = model._forward_hooks.values()
    assert hook.owner is listener
    del listener
    gc.collect()
    assert hook.owner is None and model(torch.ones(1)) == 1
