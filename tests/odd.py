"""Odd inputs to every public function: a right result, or a refusal in words.

    python -m tests.odd [EXAMPLES]

A refusal is an error that labkit raises itself, of ValueError, TypeError or one of the
kinds that its docstrings name, or by the system of a path; what torch, NumPy or Python
raise deep inside is none. What a caller's own model or function raises is the caller's.
In each draw of hypothesis one argument of a function is replaced by an odd one. The
command draws as often for each function, 30 times if not told, and prints how many of
the errors were raw.
"""

import copy
import linecache
import re
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import sklearn
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from scipy import sparse

import labkit
from labkit.broad import NotPositiveDefinite
from labkit.errors import DivergedError
from labkit.lab.datasets import DatasetUnavailable
from labkit.rls import NumericalError

# Each has a table CALLS: a call of keyword arguments, and such that are right.
ROOMS = ("bpls", "broad", "hessian_free", "instruments", "lab", "rls", "rtrl")
OWN, KNOWN = (str(Path(each.__file__).parent) for each in (labkit, sklearn))
REFUSED = ValueError, TypeError, DivergedError, NotPositiveDefinite, NumericalError
REFUSED += DatasetUnavailable, FloatingPointError, OSError, KeyError  # as documented
MODEL = "torch/nn/modules/"
MEMORY = 6 << 30  # bytes, which no example may need


def ignore(*_: object, **__: object) -> None:
    """Stand for a function: what a caller's own one raises is the caller's."""


Call = tuple[Callable, Mapping[str, object]]

PLAIN = [None, True, -1, 0, 3, 2.5, float("nan"), float("inf"), 1e300, 10**30, 10**400]
PLAIN += ["", "x", "cup", "meta", "cuda:77", b"x", [], (), {}, [1, 2], [None], [[]]]
PLAIN += [[[1.0], [1.0, 2.0]], {"a": 1}, object(), ignore, slice(2), 1j]
PLAIN += [np.float32(0.5), np.int64(1), torch.float16, torch.device("meta")]
PLAIN += [np.random.default_rng(0), range(3)]
ARRAYS = [np.array(1.0), np.ones((12, 4)), np.ones((20, 4, 2)), np.ones((20, 4)) * 1j]
ARRAYS += [np.full((20, 4), None), np.array([None, *range(19)], object), np.ones(0)]
ARRAYS += [np.array([10**400, *range(19)], object), np.full((20, 4), "a")]
ARRAYS += [np.full((20, 4), np.datetime64("2020-01-01")), np.full((20, 4), np.nan)]
ARRAYS += [np.full(20, np.inf), np.empty((0, 4)), np.empty((20, 0)), np.ones((1, 4))]
ARRAYS += [
    np.full((20, 4), 1e200),
    np.ones((20, 4), np.float16),
    np.ones((20, 4), bool),
]
ARRAYS += [np.ma.masked_equal(np.ones((20, 4)), 1), sparse.csr_array((20, 4))]
ARRAYS += [pd.DataFrame({"a": ["x"] * 20, "b": 1}), sparse.coo_array(np.eye(4))]
ARRAYS += [pd.DataFrame({"a": pd.array([None] * 20, "Int64")})]
TENSORS = [torch.tensor(2.0), torch.ones(0), torch.ones(2, 3, 4), torch.eye(4).double()]
TENSORS += [torch.ones(20, 4, device="meta"), torch.eye(20, 4).to_sparse()]
TENSORS += [torch.ones(20, 4, dtype=torch.complex128).conj(), torch.arange(20) % 3]
TENSORS += [-torch.ones(20, dtype=torch.int64), torch.full((20, 4), torch.nan)]
GENERAL = [*PLAIN, *ARRAYS, *TENSORS]
NUMBERS = [10**30, -(10**30), 10**400, 2**31, 0, -1, 1, 2, 3.0, 1e-300, "3", "ten"]
NUMBERS += [float("inf"), -float("inf"), float("nan"), np.int64(2), np.float32(0.5)]
NUMBERS += [torch.tensor(2), torch.ones(2), True, None]


def odd_for(right: object) -> list:
    """Return what may stand in the place of a right argument, near to it or far."""
    return [*GENERAL, *near(right), *near(right)]  # the near ones are likelier


def near(right: object) -> list:
    """Return values that differ from a right one by one property."""
    if isinstance(right, torch.Tensor):
        return near_tensor(right)
    if isinstance(right, np.ndarray):
        return near_array(right)
    if isinstance(right, bool) or right is None:
        return [0, 1, "true", None, True]
    if isinstance(right, int | float):
        return NUMBERS
    if isinstance(right, str):
        return ["", right.upper(), f"{right} ", right.encode(), [right], 0]
    if isinstance(right, list | tuple):
        some = [
            right[:-1],
            right[::-1],
            [*right, *right],
            [None, *right[1:]],
            right[:1],
        ]
        return [*some, *([right[0]] if right else [])]
    if isinstance(right, Mapping):
        return [{}, [*right], [*right.items()], {**right, "other": 1}]
    return []


def near_tensor(right: torch.Tensor) -> list:
    """Return tensors of other shapes, dtypes, devices, layouts and numbers."""
    some = [right.to(dtype) for dtype in (torch.float32, torch.half, torch.bfloat16)]
    some += [right.to(torch.complex128), right.long(), right > 0, right.to("meta")]
    some += [
        right[None],
        right.numpy(),
        right.tolist(),
        torch.zeros(()),
        torch.zeros(0),
    ]
    some += [right.to_sparse(), -right.long()]
    if right.ndim:
        some += [
            right[:-1],
            right[..., :-1],
            right[..., :0],
            right[:0],
            right[0],
            right.mT if right.ndim > 1 else right[::2],
        ]
    if right.is_floating_point():
        some += [torch.full_like(right, torch.nan), right.clone().requires_grad_()]
        some += [right * scale for scale in (1e38, 1e200, -torch.inf, 0.0, 1e-200)]
    else:
        some += [right.long() + 10**15, right.double() * torch.nan, right.long() - 9]
        some += [right * 0]
    return some


def near_array(right: np.ndarray) -> list:
    """Return arrays of other shapes, kinds and numbers."""
    some = [right.astype(kind) for kind in (np.float16, np.float32, int, complex, str)]
    some += [right.astype(object), right[:-1], right[..., :0], right[:0], right[None]]
    some += [right * scale for scale in (1e200, 0, -1)] + [
        right * np.nan,
        right.tolist(),
    ]
    some += [torch.from_numpy(right), torch.from_numpy(right).to("meta"), right[::-1]]
    missing = right.astype(object)
    missing[(0,) * right.ndim] = None
    return [*some, missing, np.asfortranarray(right), pd.DataFrame(right)]


def raw(error: Exception) -> bool:
    """Return whether an error is not one of labkit's, nor scikit-learn's, in words."""
    frames = traceback.extract_tb(error.__traceback__)
    if any(MODEL in frame.filename for frame in frames):
        return False
    last = frames[-1]
    line = linecache.getline(last.filename, last.lineno)
    own = last.filename.startswith(OWN) and "raise" in line
    known = re.search("convert|setting an array|could not be promoted", str(error))
    own = own or last.filename.startswith(KNOWN) or bool(known)
    own = own or isinstance(error, OSError)
    return not (own and isinstance(error, REFUSED) and len(str(error)) > 10)


def on_meta(value: object) -> bool:
    """Return whether a value is a tensor that holds no numbers."""
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def too_late(*_: object) -> None:
    """End a call that does not end by itself."""
    raise RuntimeError("the call has not ended after a minute")


def outcome(call: Callable, right: Mapping, argument: str, value: object) -> str:
    """Call with one argument replaced; return the raw error in words, or ""."""
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(60)
    try:
        result = call(**{k: copy.copy(v) for k, v in right.items()} | {argument: value})
        result = list(islice(result, 9)) if isinstance(result, Iterator) else result
    except Exception as error:
        if not raw(error):
            return ""
        where = [each for each in traceback.extract_tb(error.__traceback__)]
        inside = [each for each in where if each.filename.startswith(OWN)] or where
        place = f"{Path(inside[-1].filename).name}:{inside[-1].lineno}"
        return f"{type(error).__name__} at {place}: {str(error)[:90]}".replace(
            "\n", " "
        )
    finally:
        signal.alarm(0)
    return "a meta tensor was taken" if on_meta(value) else ""


def tables() -> dict[str, Call]:
    """Return every call that is tried, by room and name."""
    return {
        f"{room}: {name}": call
        for room in ROOMS
        for name, call in import_module(f"tests.{room}.odd").CALLS.items()
    }


def tried(call: Callable, right: Mapping, examples: int) -> tuple[int, list[str]]:
    """Try so many draws; return how many, and the raw errors."""
    found, count = [], 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def draw(data):
        nonlocal count
        argument = data.draw(st.sampled_from(sorted(right)))
        values = odd_for(right[argument])
        value = values[data.draw(st.integers(0, len(values) - 1))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = outcome(call, right, argument, value)
        count += 1
        if said:
            shown = repr(value).replace("\n", " ")[:60]
            found.append(f"{argument}={shown}: {said}")

    draw()
    return count, found


def in_memory() -> None:
    """Have a size that no machine has be refused by the system, too."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))


def main(examples: int = 30) -> int:
    """Try all functions, print what was found, and return the exit status."""
    in_memory()
    total, fallen = 0, 0
    for room in ROOMS:
        calls, tries, raws = import_module(f"tests.{room}.odd").CALLS, 0, 0
        for name, (call, right) in calls.items():
            count, found = tried(call, right, examples)
            tries, raws = tries + count, raws + len(found)
            for words in dict.fromkeys(found):
                print(f"{room}: {name}({words}")
        told = "{:13}{:4} functions, {:6} odd inputs, {:5} raw errors"
        print(told.format(room, len(calls), tries, raws), flush=True)
        total, fallen = total + tries, fallen + raws
    print(f"all: {total} odd inputs, {fallen} raw errors")
    return int(fallen > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
