"""Calls of rtrl's public functions, for odd inputs; see :mod:`tests.odd`."""

from functools import partial

import torch

from labkit import rtrl
from labkit.rtrl import LEARNERS

from .conftest import make, make_cell, randn

B, D_X, N = 2, 3, 4
KINDS = {"rnn": rtrl.RNNCell, "lstm": rtrl.LSTMCell, "gru": rtrl.GRUCell}
KINDS |= {"rhn": rtrl.RHNCell}
OPTIONS = {"generator": None, "dtype": None, "device": None}


def learner(name):
    made = make(name, 2, make_cell("lstm", D_X, N), batch_size=B)
    made.step(randn(B, D_X))
    return made


def method_of(name, method):
    return lambda **given: getattr(learner(name), method)(**given)


def loaded(name, saved):
    made = learner(name)
    made.load_state_dict(saved)
    made.step(randn(B, D_X))


def loaded_with(name):
    """A state of which one entry is odd."""
    saved = learner(name).state_dict()
    keys = {f"k{i}": key for i, key in enumerate(saved)}
    right = {k: saved[key] for k, key in keys.items()}
    return lambda **given: loaded(name, {keys[k]: v for k, v in given.items()}), right


def made_of(name, **given):
    return LEARNERS[name].make(make_cell("rnn", D_X, N), **given)


def ranked(rank, other):
    cell = make_cell("rnn", D_X, N)
    made = rtrl.OK(cell, batch_size=B, rank=rank)
    made.change_rank(other)
    return made.step(randn(B, D_X))


def stepped(kind, call, **given):
    cell = make_cell(kind, D_X, N)
    return getattr(cell, call)(**given)


def read_on(task):
    return tuple(next(task))


def copied(**given):
    return read_on(rtrl.CopyTask(**given))


def read_text(**given):
    return read_on(rtrl.CharStream(**given))


def task_of(kind):
    options = {"level": 2} if kind is rtrl.CopyTask else {}
    tokens = () if kind is rtrl.CopyTask else (torch.arange(9) % 3, 3)
    return kind(*tokens, batch_size=2, **options)


def state_of(kind):
    def load(**given):
        task = task_of(kind)
        task.load_state_dict(given)
        return read_on(task)

    task = task_of(kind)
    next(task)
    return load, task.state_dict()


def loss_of(h, target):
    return rtrl.Readout(N, 3, dtype=torch.float64).loss(h, target)


def trained(x, target, restart, **given):
    cell = make_cell("rnn", D_X, N)
    made = make("OK", 2, cell, batch_size=B)
    right = {"learner": made, "readout": rtrl.Readout(N, 3, dtype=torch.float64)}
    right |= {"task": [(x, target, restart)]} | given
    if right["optimizer"] == "SGD":
        right["optimizer"] = torch.optim.SGD([cell.weight], lr=0.1)
    return [record.loss for record in rtrl.train(**right)]


TRAIN = {"x": randn(B, D_X), "target": torch.tensor([0, 2]), "steps": 1}
TRAIN |= {"restart": torch.tensor([True, False]), "loss": None, "clip": 1.0}
TRAIN |= {"watch": None, "optimizer": "SGD", "group": None, "capture": False}
MASK, MASKS = torch.tensor([True, False]), {"TBPTT": None}  # it has one window
GIVEN = {"dL_dh": randn(B, N)}
C = randn(3, 4)
TEXT = {"tokens": torch.arange(9) % 3, "vocabulary": 3, "batch_size": 2}
TEXT |= {"reset_every": 5, "reset_probability": 0.0, **OPTIONS}
COPY = {"batch_size": 2, "level": 2, "fixed": False, **OPTIONS}
STATE = {"x": randn(B, D_X)}
# Each public function with arguments that it takes.
CALLS = {
    **{
        f"{name}.{method}": (method_of(name, method), right)
        for name in LEARNERS
        for method, right in {
            "step": {"x": randn(B, D_X), "mask": MASKS.get(name, MASK)},
            "gradient": GIVEN,
            "per_sequence_gradient": GIVEN,
            "backward": GIVEN,
            "input_gradient": GIVEN,
            "reset": {"mask": MASKS.get(name, MASK)},
            "variance": GIVEN | {"xs": randn(2, B, D_X), "draws": 3},
        }.items()
    },
    **{f"{name}.load_state_dict": loaded_with(name) for name in LEARNERS},
    **{
        f"make {name}": (
            partial(made_of, name),
            {"rank": 2, "batch_size": 2, "generator": None},
        )
        for name in LEARNERS
    },
    "OK.change_rank": (ranked, {"rank": 2, "other": 1}),
    **{
        f"{kind.__name__}": (kind, {"input_size": 2, "hidden_size": 3, **OPTIONS})
        for kind in KINDS.values()
    },
    **{
        f"{kind}.{call}": (partial(stepped, kind, call), right)
        for kind in KINDS
        for state in [make_cell(kind, D_X, N).state_size]
        for call, right in {
            "step": STATE | {"state": randn(B, state)},
            "forward": STATE | {"state": randn(B, state)},
            "jvp": STATE | {"state": randn(B, state), "v": randn(B, 2, state)},
        }.items()
    },
    "Readout": (rtrl.Readout, {"hidden_size": 2, "classes": 3, **OPTIONS}),
    "Readout.loss": (loss_of, {"h": randn(B, N), "target": torch.tensor([0, 2])}),
    "optimal_low_rank": (
        rtrl.optimal_low_rank,
        {"C": C, "rank": 2, "signs": torch.ones(3, dtype=C.dtype), "generator": None},
    ),
    "best_low_rank": (rtrl.best_low_rank, {"C": C, "rank": 2}),
    "minimum_variance": (rtrl.minimum_variance, {"d": C.abs(), "rank": 2}),
    "water_level": (rtrl.water_level, {"d": C.abs(), "rank": 2}),
    "CopyTask": (copied, COPY),
    "CopyTask.observe": (
        lambda bits: task_of(rtrl.CopyTask).observe(bits),
        {"bits": 0.1},
    ),
    "CopyTask.load_state_dict": state_of(rtrl.CopyTask),
    "CharStream": (read_text, TEXT),
    "CharStream.load_state_dict": state_of(rtrl.CharStream),
    "from_torch": (rtrl.from_torch, {"module": torch.nn.LSTMCell(2, 3)}),
    "check_cell": (
        lambda **given: rtrl.check_cell(**given),
        {"cell": rtrl.RNNCell(2, 2, dtype=torch.float64), "tolerance": 1e-8},
    ),
    "train": (trained, TRAIN),
}
