"""What `load` gives, set by set."""

import dataclasses
import sys

import pytest
import torch

from labkit.lab.datasets import (
    DatasetUnavailable,
    available,
    copy_sequences,
    encode,
    load,
    load_ptb,
)


def as_string(indices, symbols):
    return "".join(symbols[i] for i in indices.tolist())


def tensors(data):
    values = vars(data).values()
    return [value for value in values if isinstance(value, torch.Tensor)]


HERE = ("text", "digits", "copy", "curves")
OFFLINE = [(name, split) for name in HERE for split in available()[name].splits]
SLOW = ("curves", "train")  # as `test`, and drawn for seconds
OFFLINE = [pytest.param(*p, marks=[pytest.mark.long] * (p == SLOW)) for p in OFFLINE]
PLACED = [("mnist", "test"), ("fashion-mnist", "test"), ("usps", "valid")]
PLACED = [pytest.param(*each, marks=pytest.mark.real_data) for each in PLACED]


@pytest.mark.parametrize(("name", "split"), OFFLINE + PLACED)
def test_every_call_gives_the_same_and_a_device_moves_all(name, split):
    first, second = load(name, split), load(name, split)
    assert first.name == name
    for a, b in zip(tensors(first), tensors(second), strict=True):
        assert torch.equal(a, b)
    data = load(name, split, device="meta")
    assert {tensor.device.type for tensor in tensors(data)} == {"meta"}


def test_results_are_frozen_and_tokens_have_their_own_type():
    assert load("text", "test", dtype=torch.float64).tokens.dtype == torch.int64
    with pytest.raises(dataclasses.FrozenInstanceError, match="tokens"):
        load("text").tokens = None


def test_unknown_names_are_told():
    known = "text, ptb, digits, copy, mnist, fashion-mnist, cifar10, usps, curves, imdb"
    with pytest.raises(ValueError, match=f"'mnits'; there are: {known}, iris"):
        load("mnits")
    with pytest.raises(ValueError, match=r"'digits' has no split 'valid'.*train, test"):
        load("digits", "valid")
    with pytest.raises(ValueError, match="'text' has no split None"):
        load("text", None)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, "float32"])
@pytest.mark.parametrize("name", ["digits", "text"])
def test_only_floating_point_types_are_taken(name, dtype):
    with pytest.raises(ValueError, match=r"floating-point torch\.dtype, got"):
        load(name, dtype=dtype)


def test_digits():
    train, test = load("digits"), load("digits", "test", dtype=torch.float16)
    assert train.inputs.shape == (1437, 64)
    assert test.inputs.shape == (360, 64)
    assert (train.inputs.dtype, test.inputs.dtype) == (torch.float32, torch.float16)
    for part in (train, test):
        assert part.inputs.min() == 0 and part.inputs.max() == 1
        assert part.targets.shape == part.inputs.shape[:1]
        assert part.targets.dtype == torch.int64
        assert torch.equal(part.targets.unique(), torch.arange(10))
    assert torch.bincount(test.targets).min() >= 33


def test_text_splits_and_symbols():
    parts = {split: load("text", split) for split in ("train", "valid", "test")}
    symbols = parts["train"].symbols
    assert all(part.symbols == symbols for part in parts.values())
    assert len(symbols) == len(set(symbols)) == 50
    assert {*"abcdefghijklmnopqrstuvwxyz ", "\ufffd"} < set(symbols)
    assert symbols[-1] == "\ufffd" and list(symbols[:-1]) == sorted(symbols[:-1])
    sizes = {split: len(part.tokens) for split, part in parts.items()}
    total = sum(sizes.values())
    assert 300_000 < total < 1_000_000
    assert sizes["train"] == total * 90 // 100
    assert abs(sizes["valid"] - sizes["test"]) <= 1
    used = torch.bincount(parts["train"].tokens, minlength=50)
    assert (used > 0).all() and used[-1] < 0.01 * sizes["train"]


def test_text_round_trip_and_without_its_source(monkeypatch):
    from pydoc_data.topics import topics

    parts = [load("text", split) for split in ("train", "valid", "test")]
    text = "".join(as_string(part.tokens, part.symbols) for part in parts)
    joined = "\n".join(topics[name] for name in sorted(topics)).lower()
    wanted = " ".join(joined.split())
    kept = set(parts[0].symbols)
    assert text == "".join(c if c in kept else "\ufffd" for c in wanted)
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(DatasetUnavailable, match=r"pydoc_data\.topics"):
        load("text")


def test_encode():
    assert as_string(encode("#01*", "01#*"), "01#*") == "#01*"
    assert encode("", "ab").shape == (0,)
    assert encode("a\U0001f600b", "ab?", other="?").tolist() == [0, 2, 1]
    with pytest.raises(ValueError, match="'c' is not one of the symbols 'ab'"):
        encode("abca", "ab")


def test_copy_example():
    data = copy_sequences(200, 5, generator=torch.Generator().manual_seed(3))
    assert data.vocabulary == ("0", "1", "#", "*")
    pairs = {
        (as_string(x, data.vocabulary), as_string(y, data.vocabulary))
        for x, y in zip(data.inputs, data.targets, strict=True)
    }
    assert ("#01101******", "******#01101") in pairs
    bits = {x[1:6] for x, _ in pairs}
    assert len(bits) == 32
    assert pairs == {(f"#{b}******", f"******#{b}") for b in bits}
    for n, length in [(1, 1), (3, 8)]:
        data = copy_sequences(n, length, generator=torch.Generator())
        assert data.inputs.shape == data.targets.shape == (n, 2 * length + 2)
        assert data.inputs.dtype == data.targets.dtype == torch.int64


def test_copy_draws_from_the_generator_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    load("copy")
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(load("copy").inputs, load("copy", "valid").inputs)
    with pytest.raises(ValueError, match=r"length must be an integer in .*, got 0"):
        copy_sequences(1, 0, generator=torch.Generator())
    with pytest.raises(ValueError, match=r"n must be an integer in .*, got -2"):
        copy_sequences(-2, 5, generator=torch.Generator())


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
    data = load("ptb", "valid")
    lines = as_string(data.tokens, data.symbols).splitlines()
    assert len(lines) == 3370
    assert lines[0].startswith("consumers_may_want_to_move_their_telephones_a_little")
    assert " " not in data.symbols and "\n" in data.symbols
    assert any("_<unk>_" in line for line in lines)
    assert not any(line.startswith("_") or line.endswith("_") for line in lines)
