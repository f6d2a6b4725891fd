"""Odd inputs to every public function: a right kind of result, or a refusal in words.

A refusal is a ValueError or TypeError that labkit raises itself; what torch or Python
raise deep inside is none.
"""

import linecache
import math
import traceback
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from labkit import rtrl
from labkit.rtrl import LEARNERS, OK

from .conftest import make, make_cell, randn

B, D_X, N = 2, 3, 4
DRAWS = settings(
    max_examples=40,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def refusal(error):
    """Whether labkit raised this itself, in words."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno).strip()
    own = "/labkit/" in last.filename and line.startswith("raise")
    return own and isinstance(error, ValueError | TypeError) and len(str(error)) > 10


def finite(result):
    """All tensors of a result are finite where they are numbers."""
    if isinstance(result, torch.Tensor):
        return not result.is_floating_point() or bool(result.isfinite().all())
    if isinstance(result, Mapping):
        return finite([*result.values()])
    if isinstance(result, list | tuple):
        return all(map(finite, result))
    return not isinstance(result, float) or math.isfinite(result)


def tried(call, *args, **options):
    """Call; what it gives is finite, and what it raises is a refusal."""
    try:
        result = call(*args, **options)
    except Exception as error:
        if refusal(error):
            return
        raise
    assert finite(result)


def plain(value):
    """Whether a value is a dense tensor of real numbers."""
    dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
    return dense and value.device.type == "cpu" and value.is_floating_point()


# What is handed in

FIXED = [None, "x", "", 3, -1.5, True, math.nan, [], [1.0, 2.0], {}, object(), print]
FIXED += [np.ones((B, D_X)), np.float64(2), 1 + 2j, b"x", range(3), torch.float32]


def tensors(*shape):
    """Tensors near to what is asked for: of other shapes, dtypes, layouts, numbers."""
    good = randn(*shape)
    near = [good, good.float(), good.half(), good.bfloat16(), good.to("meta")]
    near += [good.to(torch.complex128), good.long(), good > 0, good.to_sparse()]
    near += [good[:-1], good[..., :-1], good[..., :0], good[None], good[0]]
    near += [torch.zeros(()), torch.zeros(0), torch.full_like(good, math.nan)]
    near += [value * torch.ones_like(good) for value in (1e38, 1e200, -math.inf, 0.0)]
    near += [good.clone().requires_grad_(), good.numpy(), good.tolist()]
    return st.sampled_from(near + FIXED)


def numbers():
    """Sizes and rates: of other kinds, and out of any range."""
    huge = [10**30, -(10**30), 2**31, 0, -1, 1, 2, 3.0, math.inf, -math.inf, 1e-300]
    huge += ["3", np.int64(2), np.float32(0.5), torch.tensor(2), torch.ones(2)]
    return st.sampled_from(huge + FIXED)


EVERY = list(LEARNERS)


def learner(name):
    cell = make_cell("lstm", D_X, N)
    made = make(name, 2, cell, batch_size=B)
    made.step(randn(B, D_X))
    return made


@pytest.mark.parametrize("name", EVERY)
@DRAWS
@given(tensors(B, D_X), st.one_of(st.none(), tensors(B)))
def test_step(name, x, mask):
    tried(learner(name).step, x, mask=mask)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "method", ["gradient", "per_sequence_gradient", "backward", "input_gradient"]
)
@DRAWS
@given(tensors(B, N))
def test_loss_derivatives(name, method, dL_dh):
    tried(getattr(learner(name), method), dL_dh)


@pytest.mark.parametrize("name", EVERY)
@DRAWS
@given(tensors(2, B, D_X), tensors(B, N), numbers())
def test_variance(name, xs, dL_dh, draws):
    tried(learner(name).variance, xs, dL_dh, draws)


@pytest.mark.parametrize("name", EVERY)
@DRAWS
@given(tensors(B))
def test_reset(name, mask):
    tried(learner(name).reset, mask)


@pytest.mark.parametrize("name", EVERY)
@DRAWS
@given(st.data())
def test_load_state_dict(name, data):
    made = learner(name)
    saved = made.state_dict()
    key = data.draw(st.sampled_from([*saved, "other"]))
    shape = saved[key].shape if key in made.kept() and saved[key].ndim else (3, 3)
    saved[key] = data.draw(tensors(*shape) if len(shape) > 1 else tensors(3, 3))
    tried(
        made.load_state_dict, data.draw(st.sampled_from([saved, saved, saved, [], 3]))
    )
    tried(made.step, randn(B, D_X))


@pytest.mark.parametrize("name", EVERY)
@DRAWS
@given(numbers(), numbers(), st.sampled_from(FIXED))
def test_making_a_learner(name, rank, batch_size, generator):
    cell = make_cell("rnn", D_X, N)
    tried(LEARNERS[name].make, cell, rank, batch_size=batch_size, generator=generator)


@DRAWS
@given(numbers(), st.sampled_from(["auto", "own", *FIXED]), numbers())
def test_ok(rank, decomposition, other):
    cell = make_cell("rnn", D_X, N)
    try:
        made = OK(cell, batch_size=B, rank=rank, decomposition=decomposition)
    except Exception as error:
        assert refusal(error), error
        return
    tried(made.change_rank, other)
    tried(made.step, randn(B, D_X))


KINDS = [rtrl.RNNCell, rtrl.LSTMCell, rtrl.GRUCell, rtrl.RHNCell, rtrl.Readout]


@pytest.mark.parametrize("kind", KINDS)
@DRAWS
@given(st.data())
def test_making_a_cell(kind, data):
    odd = data.draw(st.sampled_from(["generator", "dtype", "device"]))
    sizes = data.draw(st.tuples(numbers(), numbers()))
    tried(kind, *sizes)
    tried(kind, 2, 3, **{odd: data.draw(st.sampled_from([*FIXED, "cuda:99", "meta"]))})


@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("call", ["step", "forward", "jvp"])
@DRAWS
@given(tensors(B, D_X), st.data())
def test_a_cell(kind, call, x, data):
    cell = kind(D_X, N, dtype=torch.float64)
    state = data.draw(tensors(B, cell.state_size))
    more = (data.draw(tensors(B, 2, cell.state_size)),) if call == "jvp" else ()
    try:
        getattr(cell, call)(x, state, *more)  # numbers pass through as they are
    except Exception as error:
        assert refusal(error), error


@pytest.mark.parametrize(
    "call",
    [
        rtrl.optimal_low_rank,
        rtrl.best_low_rank,
        rtrl.minimum_variance,
        rtrl.water_level,
    ],
)
@DRAWS
@given(tensors(3, 4), numbers(), st.booleans())
def test_low_rank(call, value, rank, right):
    if plain(value) and value.isfinite().all() and (value.abs() > 1e100).any():
        return  # 1e200 squared is not finite: the right result is infinite
    tried(call, value, 2 if right else rank)


@DRAWS
@given(tensors(3, 3), st.sampled_from(FIXED))
def test_signs_and_generators(signs, generator):
    tried(rtrl.optimal_low_rank, randn(3, 3), 2, signs=signs)
    tried(rtrl.optimal_low_rank, randn(3, 3), 2, generator=generator)


@DRAWS
@given(st.data())
def test_copy(data):
    options = {"batch_size": 2, "level": 2}
    name = data.draw(st.sampled_from([*options, "generator", "device", "dtype"]))
    options[name] = data.draw(numbers())
    try:
        task = rtrl.CopyTask(**options)
    except Exception as error:
        assert refusal(error), error
        return
    tried(lambda: tuple(next(task)))
    tried(task.observe, data.draw(numbers()))
    saved = task.state_dict()
    key = data.draw(st.sampled_from([*saved, "other"]))
    saved[key] = data.draw(st.one_of(numbers(), tensors(2, 3)))
    tried(task.load_state_dict, saved)
    tried(task.load_state_dict, data.draw(st.sampled_from(FIXED)))


@DRAWS
@given(st.data())
def test_text(data):
    options = {"tokens": torch.arange(9) % 3, "vocabulary": 3, "batch_size": 2}
    more = ["reset_every", "reset_probability", "generator", "device", "dtype"]
    name = data.draw(st.sampled_from([*options, *more]))
    options[name] = data.draw(st.one_of(numbers(), tensors(9, 1)))
    try:
        task = rtrl.CharStream(**options)
    except Exception as error:
        assert refusal(error), error
        return
    tried(lambda: tuple(next(task)))
    saved = task.state_dict()
    key = data.draw(st.sampled_from([*saved, "other"]))
    saved[key] = data.draw(st.one_of(numbers(), tensors(2, 3)))
    tried(task.load_state_dict, saved)


@DRAWS
@given(tensors(B, N), st.one_of(tensors(B), tensors(B, N)))
def test_the_loss_of_a_readout(h, target):
    readout = rtrl.Readout(N, 3, dtype=torch.float64)
    if plain(h) and not (h.abs() < 1e30).all():
        return  # what is not finite goes on to the loss, where training sees it
    tried(readout.loss, h, target)


@DRAWS
@given(st.data())
def test_train(data):
    cell = make_cell("rnn", D_X, N)
    made = make("OK", 2, cell, batch_size=B)
    given_ = {
        "learner": made,
        "readout": rtrl.Readout(N, 3, dtype=torch.float64),
        "task": [(randn(B, D_X), torch.tensor([0, 2]), torch.tensor([True, False]))],
        "loss": None,
        "steps": 1,
        "optimizer": torch.optim.SGD([cell.weight], lr=0.1),
        "clip": 1.0,
        "watch": None,
    }
    name = data.draw(st.sampled_from([*given_, "x", "target", "restart"]))
    if name in given_:
        values = [value for value in FIXED if value is not print]
        given_[name] = data.draw(st.one_of(numbers(), st.sampled_from(values)))
    else:
        place = ("x", "target", "restart").index(name)
        step = list(given_["task"][0])
        step[place] = data.draw(tensors(B, D_X) if place == 0 else tensors(B))
        given_["task"] = [tuple(step)]
    if isinstance(given_["task"], str | bytes | dict | range):
        given_["task"] = [given_["task"]]
    tried(lambda: [record.loss for record in rtrl.train(**given_)])


@DRAWS
@given(st.one_of(st.sampled_from(FIXED), tensors(2, 2)), numbers())
def test_checks_and_conversions(value, tolerance):
    tried(rtrl.from_torch, value)
    tried(rtrl.check_cell, value)
    tried(rtrl.check_cell, rtrl.RNNCell(2, 2), tolerance=tolerance)
