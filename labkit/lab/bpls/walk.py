"""The live experiments of BPLS: its walks, and the paper's toy."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from labkit import bpls
from labkit.bpls.toy import SIZES, THEORY
from labkit.bpls.train import blend
from labkit.errors import DivergedError
from labkit.lab.panels import Experiment, Lines, knob
from labkit.lab.problem import Problem, percent, with_noise

ONE_OUTPUT = "one output"  # interpretation (5f), its first output
NAMES = (*bpls.INTERPRETATIONS, ONE_OUTPUT)
INVERTIBLE = tuple(a.name for a in bpls.ACTIVATIONS.values() if a.inverse is not None)


def interpretation_of(name: str) -> str | int:
    """What `labkit.bpls` calls the interpretation with this name."""
    return 0 if name == ONE_OUTPUT else name


def seeded(seed: int) -> torch.Generator:
    """A generator of random numbers with this seed."""
    return torch.Generator().manual_seed(seed)


def start_weights(problem: Problem, *hidden: int, seed=0, **options):
    """`random_weights` of a network with these hidden layers, in the problem's type."""
    X = problem.fit.inputs
    sizes = (X.shape[1], *hidden, problem.classes)
    options |= {"dtype": X.dtype, "device": X.device, "generator": seeded(seed)}
    return bpls.random_weights(sizes, **options)


_live = partial(knob, restart=False)


@dataclass(frozen=True)
class WalkKnobs:
    """What can be turned while BPLS walks.

    The stop rule is off, as in line 18 of Algorithm 2: there is a run to turn knobs in.
    """

    # fmt: off
    sigma: float = _live(
        0.0, low=0.0, high=1.0, step=0.05, label="pixel noise", unit="sd",
        help="sigma of the training images, from the next walk on", about="misses",
        look_for="The misses leap and settle higher; the test, on clean images, holds "
        "up to 0.4.")
    label_noise: float = _live(
        0.0, low=0.0, high=0.8, step=0.05, unit="share", about="test",
        help="labels drawn at random, from the next walk on",
        look_for="The test accuracy falls walk by walk; back at 0 a few walks mend it.")
    interpretation: str = _live(
        "min_norm", choices=NAMES, help="of equation (5)", look_for="The overshoot, 1 "
        "for min_norm; a run begun with identity and mean collapses.")
    clamp: float = _live(
        1e-2, low=1e-8, high=0.4, log=True, unit="of the range",
        help="distance to the ends", look_for="The share it moves; a run begun at 1e-6 "
        "starts ten points lower, 1e-8 ends it.")
    ridge: float = _live(
        1e-4, low=1e-10, high=1e-1, log=True, unit="relative",
        help="of the mean diagonal of H'H", look_for="Condition of the input layer: a "
        "hundredfold ridge, a tenth of it.")
    stop: bool = _live(
        False, label="stop rule", help="end at the first walk whose misses do not fall",
        look_for="How soon a run ends, and what more walks gain, or undo under noise.")
    walks: int = _live(
        200, low=0, high=1000, label="at most", unit="walks",
        help="on the misses, after the first",
        look_for="The walk that a run ends with; 0: the first walk only.")
    activation: str = knob(
        "sigmoid", choices=INVERTIBLE, help="another network", look_for="Targets moved "
        "by the clamp: none with identity, two thirds at first with softmax.")
    width: int = knob(
        50, low=2, high=200, label="hidden width", unit="neurons", about="test",
        help="another network", look_for="First walk: with identity the same from ten "
        "neurons on, with sigmoid rising to the end.")
    depth: int = knob(
        1, low=1, high=4, label="hidden layers", unit="layers", help="another network",
        look_for="First walk: identity stays, sigmoid loses forty points with the "
        "third layer.")
    seed: int = knob(
        0, low=0, high=99, help="of weights and noise", look_for="Chance: the first "
        "walks of six seeds differ by four points in the test.")
    # fmt: on


def walk_rows(knobs, problem: Problem) -> Iterator[dict]:
    """One row per layer solved.

    ``accuracy so far`` is of the network with the layers solved up to here put in,
    blended as line 20 of Algorithm 2 will; halfway through a walk the layers do not fit
    each other. Other columns end in ``output``, ``input`` or ``hidden``, the layer
    solved. A walk that no inverse lets through, or that diverges, ends with a ``note``.
    """
    acts = [bpls.activation(knobs.activation)] * knobs.depth
    hidden = [knobs.width] * knobs.depth
    weights = current = start_weights(problem, *hidden, seed=knobs.seed)
    settings, level, step = bpls.Settings(), None, 0

    def obey():
        """Tell the walks what the knobs say; noise only between two walks."""
        nonlocal level
        settings.interpretation = interpretation_of(knobs.interpretation)
        settings.clamp, settings.ridge = knobs.clamp, knobs.ridge
        settings.max_walks, settings.stop = knobs.walks, knobs.stop
        wanted = {"input_noise": knobs.sigma, "label_noise": knobs.label_noise}
        if level != wanted and current is weights:
            level, noisy = wanted, with_noise(problem, **wanted, seed=knobs.seed).fit
            settings.data = noisy.inputs, noisy.targets

    obey()
    try:
        for record in bpls.train(*settings.data, weights, acts, settings):
            X, y = settings.data
            step, i = record.step, record.layer - 1
            f = record.samples / len(y)  # all in the first walk, then the misses
            (W,) = blend(weights[i : i + 1], (record.W,), f)
            current = (*current[:i], W, *current[i + 1 :])
            row = _row(record, knobs.depth + 1)
            row["accuracy so far"] = percent(bpls.scores(X, current, acts), y)
            if record.end:
                weights = current = record.end.weights
                S = bpls.scores(problem.test.inputs, weights, acts)
                row |= {"test": percent(S, problem.test.targets)}
            yield row
            obey()
    except (ValueError, DivergedError) as error:  # such as a clamp too narrow
        yield {"step": step + 1, "note": str(error)}


def _row(record, top) -> dict:
    """A record as a row, its columns named after the layer."""
    place = {1: "input", top: "output"}.get(record.layer, "hidden")
    row = {"step": record.step, "walk": record.walk, "layer": record.layer}
    row["rows"] = record.samples
    for name in ("condition", "cosine", "residual"):
        row[f"{name} {place}"] = getattr(record, name)
    if record.layer > 1:
        row[f"overshoot {place}"] = round(record.overshoot, 4)
        row[f"clamped {place}"] = 100 * record.clamped
    if end := record.end:
        row |= {"train": 100 * end.accuracy, "misses": end.misses}
        row |= {"kept": end.kept, "blend": end.blend}
    return row


def _status(row) -> str:
    if "note" in row:
        return row["note"]
    text = f"walk {row['walk']}, layer {row['layer']} on {row['rows']:,} rows"
    if "misses" in row:
        fate = "kept" if row["kept"] else "not kept"
        text += f": {row['misses']:,} misses, test {row['test']:.1f} %, {fate}"
    return text


def _panel(columns, title, unit, log=False) -> Lines:
    return Lines(columns, title, unit, x_title="layers solved", log=log)


def _at(quantity, *places) -> dict[str, str]:
    return {f"{quantity} {place}": f"{place} layer" for place in places}


_UPPER, _ALL = ("output", "hidden"), ("output", "hidden", "input")
_PERCENT = {"accuracy so far": "layer by layer", "train": "walk done", "test": "test"}
_MISSES = {"misses": "misses", "rows": "rows of the walk"}
_CONDITION, _RATIO = _at("condition", *_ALL), "largest / smallest"
_PANELS = (
    _panel(_PERCENT, "Accuracy", "%"),
    _panel(_MISSES, "Misses, and the rows of a walk", "samples", log=True),
    _panel(_CONDITION, "Condition of the layer's matrix", _RATIO, log=True),
    _panel(_at("overshoot", *_UPPER), "Overshoot (1: residual repaired once)", "ratio"),
    _panel(_at("clamped", *_UPPER), "Targets that the clamp moved", "%"),
    _panel(_at("cosine", *_ALL), "Weight change and negative gradient", "cosine"),
)
_CAPTION = (
    "The first walk solves on all rows, each later one on the misses of the one "
    "before; accuracy counts only when a walk is done, since halfway the layers do not "
    "fit each other."
)
FRONT = "sigma", "label_noise", "interpretation"
_LOOK = {"front": FRONT}
_LOOK["playable"] = {"sigma": (0.0, 0.2, 0.4, 0.8)}
WALK = Experiment("walk", WalkKnobs, walk_rows, _PANELS, _CAPTION, _status, **_LOOK)


@dataclass(frozen=True)
class ToyKnobs:
    """What can be turned on the toy; its figure is over all runs, so it restarts."""

    # fmt: off
    kind: str = knob(
        "nonlinear", choices=("linear", "nonlinear"),
        help="hidden and output activation", look_for="Linear: both curves on the "
        "theory; nonlinear: the worst run far above the median.")
    sigma: float = knob(
        0.05, low=0.0, high=1.0, step=0.01, unit="of the outputs",
        help="noise on the training outputs", look_for="Linear: the error in "
        "proportion; nonlinear: a worst run of 2 even at 0.")
    interpretation: str = knob(
        "min_norm", choices=NAMES, help="of equation (5)",
        look_for="Linear: no difference, but for label; nonlinear: as printed, none "
        "has the least error.")
    clamp: float = knob(
        1e-2, low=1e-8, high=0.4, log=True, unit="of the range",
        help="of hidden targets", look_for="As printed the error is least near 1e-2; "
        "solved again it hardly minds what lies above.")
    seed: int = knob(
        0, low=0, high=99, help="of noise and weights",
        look_for="The medians stay; the error as printed moves with the worst runs.")
    # fmt: on


def toy_runs(kind, sigmas, runs, *, seed=0, device=None):
    """The toy, noisy outputs (sigmas, runs, 5, 2), and a random network for each run.

    All noises and methods see the same draws.
    """
    toy = bpls.toy_problem(kind, device=device)
    Y = bpls.noisy_outputs(toy, torch.tensor(sigmas), runs, generator=seeded(seed))
    options = {"generator": seeded(seed + 1), "dtype": toy.X.dtype, "device": device}
    return toy, Y, bpls.random_weights(SIZES, runs=(runs,), **options)


def toy_rows(knobs, *, each=20, most=250) -> Iterator[dict]:
    """One row per ``each`` runs: the RMSE over all so far, and the worst run."""
    toy, Y, start = toy_runs(knobs.kind, [knobs.sigma], each * most, seed=knobs.seed)
    how = {"interpretation": interpretation_of(knobs.interpretation)}
    how |= {"clamp": knobs.clamp, "ridge": 0.0}
    seen = {"plain": [], "again": []}
    for step in range(1, most + 1):
        rows = slice((step - 1) * each, step * each)
        row = {"step": step, "runs": step * each}
        for name, errors in seen.items():
            how["solve_again"] = name == "again"
            weights = bpls.toy_walk(toy, Y[0, rows], [W[rows] for W in start], **how)
            errors.append(bpls.toy_errors(toy, weights)[1])
            squares = torch.cat(errors)
            row[f"rmse {name}"] = float(bpls.rmse(squares))
            row[f"worst {name}"] = float(squares.max().sqrt())
            row[f"median {name}"] = float(squares.median().sqrt())
        if knobs.kind == "linear":
            row["theory"] = THEORY["test"] * knobs.sigma
        yield row


_ALL_RUNS = {"rmse plain": "as printed", "rmse again": "output solved again"}
_ALL_RUNS |= {"theory": "theory (linear)"}
_SINGLE = {"worst plain": "worst", "median plain": "median"}
_SINGLE |= {"worst again": "worst, again", "median again": "median, again"}
_STEP = "step of 20 runs"
_TOY_PANELS = (
    Lines(_ALL_RUNS, "Test RMSE over all runs so far", "RMSE", x_title=_STEP),
    Lines(_SINGLE, "Single runs", "test error", x_title=_STEP, log=True),
)
_TOY_CAPTION = (
    "In the non-linear toy single bad runs set the RMSE over all: the worst jumps, "
    "while the median hardly moves."
)
_TOY_FRONT = "sigma", "kind", "interpretation"
_TOY_LOOK = {"front": _TOY_FRONT, "playable": {"sigma": (0.0, 0.05, 0.2, 0.5)}}
TOY = Experiment("toy", ToyKnobs, toy_rows, _TOY_PANELS, _TOY_CAPTION, **_TOY_LOOK)
