"""What `load` gives, set by set."""

import pytest
import torch

from labkit.lab.datasets import available, load, load_ptb


def tensors(data):
    values = vars(data).values()
    return [value for value in values if isinstance(value, torch.Tensor)]


OFFLINE = [("text", "valid"), ("digits", "train")]
PLACED = [("mnist", "test"), ("fashion-mnist", "test"), ("usps", "valid")]
PLACED = [pytest.param(*each, marks=pytest.mark.real_data) for each in PLACED]


@pytest.mark.parametrize(("name", "split"), OFFLINE + PLACED)
def test_every_call_gives_the_same_and_a_device_moves_all(name, split):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second = load(name, split), load(name, split)
    assert torch.equal(before, torch.get_rng_state())
    assert first.name == name and available()[name].here
    for a, b in zip(tensors(first), tensors(second), strict=True):
        assert torch.equal(a, b)
    data = load(name, split, device="meta")
    assert {tensor.device.type for tensor in tensors(data)} == {"meta"}


def test_text_is_pythons_reference_in_fifty_symbols():
    from pydoc_data.topics import topics

    parts = [load("text", split) for split in ("train", "valid", "test")]
    symbols = parts[0].symbols
    assert all(part.symbols == symbols for part in parts)
    assert len(symbols) == len(set(symbols)) == 50 and symbols[-1] == "\ufffd"
    sizes = [len(part.tokens) for part in parts]
    assert sizes[0] == sum(sizes) * 90 // 100 and abs(sizes[1] - sizes[2]) <= 1
    used = torch.bincount(parts[0].tokens, minlength=50)
    assert (used > 0).all() and used[-1] < 0.01 * sizes[0]
    wanted = " ".join("\n".join(topics[x] for x in sorted(topics)).lower().split())
    spelt = "".join(symbols[i] for part in parts for i in part.tokens.tolist())
    assert spelt == "".join(c if c in symbols else "\ufffd" for c in wanted)


@pytest.mark.real_data
def test_ptb_is_as_in_the_literature():
    sizes = {"train": 5_017_482, "valid": 393_042, "test": 442_423}
    distinct = {"train": 50, "valid": 50, "test": 48}
    symbols = load("ptb").symbols
    assert len(symbols) == 50 and list(symbols) == sorted(symbols)
    for split, size in sizes.items():
        data = load("ptb", split)
        assert data.symbols == symbols
        assert data.tokens.shape == (size,) and data.tokens.dtype == torch.int64
        assert len(data.tokens.unique()) == distinct[split]
    assert len(load_ptb("valid", blanks=True).tokens) == 393_042 + 2 * 3_370
    lines = "".join(symbols[i] for i in load("ptb", "valid").tokens).splitlines()
    assert len(lines) == 3370
    assert any("_<unk>_" in line for line in lines)
    assert not any(line.startswith("_") or line.endswith("_") for line in lines)
