"""Autoencoders trained by stochastic Hessian-free, and one of its subproblems."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from labkit import hessian_free as hf
from labkit.errors import DivergedError
from labkit.hessian_free.optimizer import KINDS
from labkit.hessian_free.system import DAMP_TOWARDS, DAMPING_NORMS
from labkit.lab.datasets import Labelled, available, load
from labkit.lab.panels import Bars, Experiment, Lines, Pictures, knob
from labkit.lab.problem import Problem

# Rows for training, validation and test; the paper's, except for digits.
SIZES = {"digits": (1297, 250, 250), "usps": (8000, 1000, 2000)}
SIZES |= {"mnist": (50000, 10000, 10000), "curves": (20000, 2000, 8000)}
IMAGES = 16  # test images whose reconstructions are shown
# Where the merit function is looked at, see labkit.hessian_free.lsmr; at most these.
CHECKS = (5, 7, 9, 12, 15, 19, 24, 30, 38, 48, 60, 75, 94, 118, 148, 185, 232, 290)


@dataclass(frozen=True, eq=False, kw_only=True)
class Images(Problem):
    """Images, which are their own targets, and the settings for their autoencoder."""

    setting: hf.PaperSetting

    @property
    def parts(self) -> dict[str, torch.Tensor]:
        """Training, validation and test rows."""
        parts = {"train": self.fit, "validation": self.tune, "test": self.test}
        return {name: part.inputs for name, part in parts.items()}

    def network(self, seed: int, **given) -> tuple[hf.Autoencoder, torch.Generator]:
        """A net with sparse weights, and the generator that goes on to the batches."""
        X, g = self.fit.inputs, torch.Generator().manual_seed(seed)
        given |= {"incoming": self.setting.incoming, "generator": g, "dtype": X.dtype}
        net = hf.Autoencoder(hf.mirrored(self.setting.encoder), **given)
        return net.to(X.device), g


def load_images(
    data="digits", *, published=False, samples=None, dtype=torch.float32, device=None
) -> Images:
    """Load a data set, shuffle it once for all, and choose the settings for it.

    Parameters
    ----------
    data : {"digits", "usps", "mnist", "curves"}, the last a stand-in, drawn by us
    published : bool, take the paper's lambda_1, drop and theta; for digits, of USPS
    samples : int, optional, so many training rows at most; all if not given
    """
    if data not in SIZES:
        raise ValueError(f"unknown data {data!r}; there are {', '.join(SIZES)}")
    splits, options = available()[data].splits, {"dtype": dtype, "device": device}
    parts = [load(data, split, **options).inputs.flatten(1) for split in splits]
    if data == "mnist":  # its test part stays apart
        rows = torch.cat([_shuffled(parts[:-1]), parts[-1]])
    elif data == "curves":  # validation rows come out of the test part
        rows = torch.cat([parts[0], _shuffled(parts[1:])])
    else:
        rows = _shuffled(parts)
    fit, tune, test = rows.split(SIZES[data])
    fit, setting = fit[:samples], hf.SHORT[data]
    if published:
        paper = hf.PAPER["usps" if data == "digits" else data]
        names = ("theta", "damping", "damping_decay")
        setting = replace(setting, **{name: getattr(paper, name) for name in names})
    largest = {"max_batch_size": min(setting.max_batch_size, len(fit))}
    parts = (Labelled(data, each) for each in (fit, test, tune))
    return Images(*parts, setting=replace(setting, **largest))


def _shuffled(parts):
    rows = torch.cat(parts)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    return rows[order.to(rows.device)]


_live = partial(knob, restart=False)


@dataclass(frozen=True)
class TrainingKnobs:
    """What can be turned while SHF trains; looked for are the digits."""

    # fmt: off
    theta: float = _live(
        0.5, low=0.05, high=0.95, step=0.05, unit="relative", about="n",
        help="noise tolerated in the gradient",
        look_for="The variance test's bound; low, the batch is soon at its largest.")
    max_batch_size: int = _live(
        650, low=2, high=6000, label="largest batch", unit="rows",
        help="at most all training rows",
        look_for="Growth stops there, never back; the error stands where it is small.")
    damping_decay: float = _live(
        0.8, low=0.5, high=0.99, step=0.01, unit="factor", about="damping",
        help="of lambda, at steps that the model predicted well",
        look_for="The slope of the damping; at 0.99 the error is at 5 after 30 steps.")
    preconditioner: str = _live(
        "random_signs", choices=KINDS, help="c of d = c o y",
        look_for="Late iterations: more with none, fewer with jacobi and fisher.")
    maxiter: int = _live(
        150, low=1, high=300, label="budget", unit="iterations", about="iterations",
        help="of the next Krylov run; grows with the batch",
        look_for="At 5 done meets allowed and the error nearly stands.")
    patience: int = _live(
        20, low=0, high=100, unit="iterations",
        help="LSMR's with the merit; paper: 100",
        look_for="The gap between done and taken: the same step, found out later.")
    as_published: bool = _live(
        False, label="last iterate, as published",
        help="off: the iterate of least merit",
        look_for="Taken rises to done, rho falls, the batch is fitted too well.")
    input_noise: float = _live(
        0.0, low=0.0, high=0.5, step=0.02, unit="sd", about="noise",
        help="on the next batches; targets stay clean",
        look_for="At 0.3 the gradient's noise leaps sevenfold; the batch grows after.")
    damping_norm: str = _live(
        "identity", choices=DAMPING_NORMS, help="identity: the stated one",
        look_for="Late nothing; a run begun with scaled ends higher.")
    damp_towards: str = _live(
        "zero", choices=DAMP_TOWARDS, help="zero: the stated problem",
        look_for="Late nothing; begun with start, a momentum, it leads, then trails.")
    batch_size: int = knob(
        60, low=2, high=2500, label="first batch", unit="rows",
        help="what a run begins with",
        look_for="Some hundreds of rows at step 11, begun with 10 or with 300.")
    damping: float = knob(
        1.0, low=0.01, high=30.0, log=True, label="damping lambda_1",
        help="what a run begins with",
        look_for="Large, the error falls slowly; at 0.01 it is lower only at first.")
    seed: int = knob(
        0, low=0, high=99, help="of weights, batches and noise",
        look_for="Chance: seeds 0, 1 and 2 end apart.")
    # fmt: on


def knobs_of(problem: Images, **changes) -> TrainingKnobs:
    """The knobs at a problem's setting."""
    names = "theta batch_size max_batch_size damping damping_decay maxiter".split()
    values = {name: getattr(problem.setting, name) for name in names}
    return TrainingKnobs(**values | changes)


class Training:
    """SHF on a problem as the knobs say; ``turn`` them between two ``records``.

    A first batch above the largest, and a largest above the data, are cut.
    """

    def __init__(self, problem: Images, knobs, steps: int | None = None):
        X, valid, test = problem.parts.values()
        (self.net, g), setting = problem.network(knobs.seed), problem.setting
        start = {name: getattr(setting, name) for name in ("gamma", "atol", "ftol")}
        signs = torch.Generator(X.device).manual_seed(1000 + knobs.seed)
        start |= {"damping": knobs.damping, "generator": signs}
        self.optimizer = hf.HessianFree(self.net, **start)
        self.settings, self._rows, self._maxiter = hf.Settings(), len(X), None
        self.turn(knobs)
        data = {"validation": valid, "test": test, "generator": g, "steps": steps}
        first = min(knobs.batch_size, self.settings.max_batch_size)
        data |= {"batch_size": first, "settings": self.settings}
        self.records = hf.train(self.net, self.optimizer, X, **data)

    def turn(self, knobs):
        """Let the next step be taken with these."""
        names = ["damping_decay", "damping_norm", "damp_towards", "preconditioner"]
        if knobs.maxiter != self._maxiter:  # else it grows along with the batch
            names, self._maxiter = [*names, "maxiter"], knobs.maxiter
        for name in [*names, "patience", "as_published"]:
            self.optimizer.param_groups[0][name] = getattr(knobs, name)
        self.settings.theta, self.settings.input_noise = knobs.theta, knobs.input_noise
        self.settings.max_batch_size = min(knobs.max_batch_size, self._rows)


def training_rows(settings, problem: Images) -> Iterator[dict]:
    """One row per outer step; a run that stops being finite ends with a ``note``."""
    training, images = Training(problem, settings), problem.test.inputs[:IMAGES]
    net, g = training.net, torch.Generator().manual_seed(settings.seed)
    noise = torch.randn(images.shape, generator=g, dtype=images.dtype).to(images)
    step, before = 0, float(hf.squared_error(net, problem.tune.inputs))
    while True:
        training.turn(settings)
        try:
            record = next(training.records)
        except (DivergedError, FloatingPointError) as error:
            yield {"step": step + 1, "note": str(error)}
            return
        noisy = images + settings.input_noise * noise
        shown = torch.stack((images, noisy, net(noisy).detach())).cpu().numpy()
        yield _as_row(record, before) | {"pictures": shown}
        step, before = record.step, record.validation_error


# Of a record, as they are.
_FIELDS = (
    "step seconds rows n n_hat grew noise noise_bound batch_error batch_error_after "
    "validation_error test_error damping step_length iterations best maxiter status"
).split()


def _as_row(r, before: float) -> dict:
    """A record's numbers, and what the merit said; ``before``: validation error."""
    gains = {f"k={k}": 100 * (1 - value / before) for k, value in r.merit[1:]}
    row = {name: getattr(r, name) for name in _FIELDS} | gains
    row["rho"] = r.rho if math.isfinite(r.rho) else math.nan
    row["gain taken"] = gains.get(f"k={r.best}", math.nan)
    for reason in ("variance", "stalled"):
        row[f"next, {reason}"] = r.n_next if r.grew == reason else math.nan
    return row if r.n_average is None else row | {"n_average": r.n_average}


def _training_status(row) -> str:
    if "note" in row:
        return row["note"]
    said = "n = {n}, grows ({grew}); " if row["grew"] else "n = {n}; "
    said += "LSMR: {iterations} iterations, took {best}, stopped by {status}; "
    return (said + "validation {validation_error:.3f}").format_map(row)


_BATCH = {"n": "n", "n_average": "mean estimate"}
_BATCH |= {"next, variance": "by variance", "next, stalled": "by a stall"}
_NOISE = {"noise": "expected", "noise_bound": "theta² |gradient|²"}
_ERRORS = {"batch_error": "batch, before", "batch_error_after": "batch, after"}
_ERRORS |= {"validation_error": "validation", "test_error": "test"}
_KRYLOV = {"iterations": "done", "best": "taken", "maxiter": "allowed"}
_MARKS = ("next, variance", "next, stalled")
_MERIT = {"level": "gain taken", "level_label": "taken", "kept_label": "no less"}
_MERIT |= {"title": "Merit inside LSMR, this step", "x_title": "iteration"}
_MERIT |= {"y_title": "validation error falls [%]", "mixed_label": "less"}
_PANELS = (
    Lines(_BATCH, "Batch size, and what makes it grow", "rows", marks=_MARKS),
    Lines(_NOISE, "Variance test: noise of the gradient", "squared norm", log=True),
    Lines(_ERRORS, "Squared error per image", "error", log=True),
    Lines(_KRYLOV, "Krylov iterations", "iterations", log=True),
    Lines({"damping": "lambda"}, "Damping", "lambda", log=True),
    Lines({"rho": "rho", "step_length": "step length"}, "Actual to predicted", "ratio"),
    Bars(tuple(f"k={k}" for k in CHECKS), **_MERIT),
    Lines({"rows": "rows"}, "Rows drawn so far", "rows", log=True),
)
_CAPTION = (
    "The batch grows when the expected noise of the gradient rises above its bound, or "
    "when the validation error stalls; fewer Krylov iterations are taken than done, "
    "since LSMR goes back to where that error was least."
)
_SHOWN = (_PANELS, _CAPTION, _training_status)
FRONT = "input_noise", "theta", "damping_decay"
_LOOK = {"front": FRONT, "playable": {"input_noise": (0.0, 0.1, 0.3)}}
TRAINING = Experiment("training", TrainingKnobs, training_rows, *_SHOWN, **_LOOK)


def reconstructions(problem: Images, *, interactive=True) -> Pictures:
    """Where the live training shows test images."""
    side = math.isqrt(problem.fit.inputs.shape[1])
    caption = "Test images, what the network is given, and what it makes of it: "
    caption += "strokes sharpen as the error falls."
    shown = {"count": IMAGES, "side": (side, side), "caption": caption}
    rows = ("image", "noisy input", "reconstruction")
    return Pictures(rows, interactive=interactive, **shown)


@dataclass(frozen=True)
class KrylovKnobs:
    """What can be turned on the frozen subproblem; each makes another problem."""

    # fmt: off
    after: int = knob(
        20, choices=(1, 5, 10, 15, 20), label="after step", unit="steps",
        help="of the training",
        look_for="The later, the slower both methods are.")
    damping: float = knob(
        0.03, low=1e-3, high=10.0, log=True, label="damping lambda",
        help="of the frozen problem",
        look_for="At 1 both arrive within 40 iterations, at 0.001 neither in 120.")
    preconditioner: str = knob(
        "random_signs", choices=KINDS, help="of both methods",
        look_for="The value: jacobi is ahead for some 40 iterations, then far behind.")
    damping_norm: str = knob(
        "identity", choices=DAMPING_NORMS, help="of LSMR; CG: identity",
        look_for="The distance: with scaled LSMR settles away from the stated step.")
    damp_towards: str = knob(
        "zero", choices=DAMP_TOWARDS, help="of LSMR; CG: zero",
        look_for="The distance: with start LSMR settles away from the stated step.")
    patience: int = knob(
        20, low=0, high=100, unit="iterations", help="LSMR's with the merit",
        look_for="The mark of the stop moves to the right, that of the taken stays.")
    # fmt: on
