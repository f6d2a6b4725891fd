"""The streams of symbols: Copy with its curriculum, text with its restarts."""

import math
from itertools import islice, pairwise

import pytest
import torch

from labkit.rtrl import CharStream, CopyTask
from tests.draws import seeded


def copy_task(batch_size=4, **kwargs):
    return CopyTask(batch_size, generator=seeded(), **kwargs)


def strings(symbols):
    """Whole sequences of each element: [[(input, target), ...], ...]."""
    symbols = list(symbols)
    found = []
    for b in range(len(symbols[0].restart)):
        pairs = []
        for x, target, restart in symbols:
            assert x[b].sum() == 1 and x[b].max() == 1
            if restart[b]:
                pairs.append(["", ""])
            pairs[-1][0] += CopyTask.symbols[int(x[b].argmax())]
            pairs[-1][1] += CopyTask.symbols[int(target[b])]
        found.append([tuple(pair) for pair in pairs[:-1]])  # the last may be unfinished
    return found


def check_copy(read, written):
    """``#bits***`` and ``***#bits``; returns T."""
    T = len(read) // 2 - 1
    bits = read[1 : T + 1]
    assert len(read) == len(written) == 2 * T + 2 and set(bits) <= {"0", "1"}
    assert read == "#" + bits + "*" * (T + 1)
    assert written == "*" * (T + 1) + "#" + bits
    return T


# Copy


def test_copy_writes_the_papers_example():
    """At T = 5 all strings are ``#01101******`` -> ``******#01101`` in form."""
    found = strings(islice(copy_task(level=5, fixed=True), 3000))
    pairs = [pair for element in found for pair in element]
    lengths = {check_copy(*pair) for pair in pairs}
    assert lengths == {1, 2, 3, 4, 5}
    assert ("#01101******", "******#01101") in pairs
    assert len({read for read, _ in pairs if len(read) == 12}) == 32


@pytest.mark.parametrize("level", [1, 2, 5, 6, 7, 12])
def test_lengths_are_uniform_up_to_the_level(level):
    found = strings(islice(copy_task(8, level=level, fixed=True), 1500))
    lengths = [check_copy(*pair) for element in found for pair in element]
    allowed = range(max(1, level - 5), level + 1)
    assert set(lengths) == set(allowed)
    # Each element's first 50 sequences: all of them ended in time.
    first = [check_copy(*pair) for element in found for pair in element[:50]]
    p, n = 1 / len(allowed), len(first)
    for length in allowed:
        assert abs(first.count(length) / n - p) <= 5 * math.sqrt(p * (1 - p) / n)


def test_elements_are_not_aligned_but_begin_together():
    task = copy_task(6, level=5, fixed=True, dtype=torch.float64)
    symbols = list(islice(task, 200))
    x = symbols[0].x
    assert x.shape == (6, task.input_size) == (6, 4) and x.dtype == torch.float64
    assert symbols[0].restart.all()
    restarts = torch.stack([s.restart for s in symbols])
    assert (restarts.any(1) & ~restarts.all(1)).sum() > 50
    read = torch.stack([s.x.argmax(-1) for s in symbols])
    assert torch.equal(restarts, read == CopyTask.symbols.index("#"))


def test_the_level_rises_when_the_error_is_low():
    task, error = copy_task(), 1.0
    bits = torch.rand(5000, generator=seeded(1)).mul(0.25).tolist()
    levels = 1
    for value in bits:
        task.observe(value)
        error = 0.999 * error + 0.001 * value
        if error < 0.15:
            levels, error = levels + 1, 0.3
        assert (task.level, task.error) == (levels, error)
    assert levels > 1


def test_a_level_takes_at_least_693_perfect_steps():
    task, fixed, raised = copy_task(), copy_task(level=3, fixed=True), []
    for step in range(1, 8001):
        before = task.level
        task.observe(0.0), fixed.observe(0.0)
        if task.level > before:
            assert task.level == before + 1 and task.error == 0.3
            raised.append(step)
    # ln(1 / 0.15) and ln(0.3 / 0.15) thousand steps, nearly.
    assert raised[0] == math.ceil(math.log(0.15) / math.log(0.999)) == 1897
    assert {b - a for a, b in pairwise(raised)} == {693}
    assert fixed.level == 3 and fixed.error < 0.01


def test_the_level_may_rise_inside_a_sequence():
    task = copy_task(5, level=3)
    symbols = []
    for step in range(4000):
        symbols.append(next(task))
        if step % 61 == 60:
            task.level += 1
        task.error = 1.0
    found = strings(symbols)
    lengths = [[check_copy(*pair) for pair in element] for element in found]
    assert max(map(max, lengths)) > 20
    for element in lengths:
        begin = 0
        for T in element:  # uniform in the range of the step at which it began
            level = 3 + begin // 61
            assert max(1, level - 5) <= T <= level
            begin += 2 * T + 2


def test_copy_refuses_a_level():
    with pytest.raises(ValueError, match=r"level must be an integer >= 1, got 2\.5"):
        CopyTask(1, level=2.5)


def test_a_state_of_other_sequences_is_refused_and_changes_nothing():
    task = copy_task(2, level=4)
    with pytest.raises(ValueError, match="must be of 2 sequences"):
        task.load_state_dict(copy_task(3, level=9).state_dict())
    assert task.level == 4


# Text


def tokens(n):
    return torch.randint(7, (n,), generator=seeded())


@pytest.mark.parametrize(("n", "b"), [(60, 4), (61, 4), (5, 4), (10, 1)])
def test_pointers_are_spread_evenly_and_wrap_around(n, b):
    text = tokens(n)
    for t, (x, target, _) in enumerate(islice(CharStream(text, 7, b), 2 * n + 3)):
        at = torch.tensor([k * (n // b) + t for k in range(b)])
        assert torch.equal(x, torch.eye(7)[text[at % n]])
        assert torch.equal(target, text[(at + 1) % n])


def restarts(steps, b, **kwargs):
    stream = CharStream(tokens(500), 7, b, **kwargs)
    return torch.stack([s.restart for s in islice(stream, steps)])


@pytest.mark.parametrize(
    ("b", "period"), [(4, None), (1, 10), (3, 10), (10, 10), (25, 10)]
)
def test_each_stream_restarts_at_its_period_staggered(b, period):
    r = restarts(1000, b, **{"reset_every": period} if period else {})
    assert r[0].all() and r.device.type == "cpu"
    for k in range(b):
        at = r[1:, k].nonzero().flatten()
        assert set(at.diff().tolist()) == {period or 100} and at[0] < (period or 100)
    if b <= 10:
        assert r[1:].sum(1).max() == 1  # never two at once
    none = restarts(1000, b, reset_every=0)
    assert none[0].all() and not none[1:].any() and none.dtype == torch.bool


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": tokens(4)}, r"tokens must be \(N,\) with N > 4, got 4"),
        ({"tokens": tokens(40).view(8, 5)}, r"must have shape \(N,\), got \(8, 5\)"),
        ({"vocabulary": 3}, r"tokens must lie in 0\.\.2, got 0\.\.6"),
        ({"tokens": tokens(40) - 1}, r"tokens must lie in 0\.\.6, got -1\.\.5"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
    ],
)
def test_text_refuses(change, message):
    good = {"tokens": tokens(40), "vocabulary": 7, "batch_size": 4}
    with pytest.raises(ValueError, match=message):
        CharStream(**good | change)
