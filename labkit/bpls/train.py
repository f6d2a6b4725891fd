"""Train by a generator that yields one record per solved layer."""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.bpls.activations import Activation, invertible, per_layer
from labkit.bpls.checks import check_shapes
from labkit.bpls.samples import (
    Judged,
    Samples,
    checked_weight,
    counted,
    judged,
)
from labkit.bpls.solve import weighed
from labkit.bpls.targets import overshoot
from labkit.bpls.walk import (
    LayerStep,
    Settings,
    Weights,
    hidden_values,
    output_targets,
    scores,
    settings_of,
    walk,
)
from labkit.check import described
from labkit.clock import Clock
from labkit.errors import DivergedError

# numbers of `measure` that are not finite if a layer could not be solved
SOUND = {"residual", "moved", "below"}


@dataclass(frozen=True)
class WalkEnd:
    """The result of a whole walk."""

    walk: int  # 0 for the first
    samples: int  # rows that it solved on
    blend: float  # f of line 20, the weight of the walk's solution; 1 in the first walk
    misses: float | None  # after blending: how many, or their weight; None: values
    accuracy: float | None  # 1 - misses / D, or over all weights
    rmse: float | None  # of the outputs over all entries of Y; None with labels
    kept: bool  # whether this is the best so far
    seconds: float  # computing time of the walk, scoring included
    rank: int  # of the input layer's matrix
    condition: float  # the largest over the layers
    overshoot: float  # of the output layer's residual; nan if it is zero
    clamped: float  # share of all hidden targets that the clamp moved
    cosine: float  # of the change of all weights with the negative gradient
    weights: Weights = field(repr=False)  # after blending
    best: Weights = field(repr=False)  # those with the fewest misses so far


@dataclass(frozen=True)
class Record:
    """One solved layer."""

    step: int  # layers solved so far, from 1
    walk: int  # 0 for the first walk, then one per walk on the misses
    layer: int  # l, from L + 1 (output) down to 1
    samples: int  # rows of the solve
    rank: int  # see `Solve`
    condition: float
    residual: float  # root mean square of B - H V, the layer's residual
    overshoot: float  # 1: the residual is repaired once; nan for layer 1
    clamped: float  # share of the targets below that the clamp moved; nan for layer 1
    cosine: float  # of the layer's weight change with the negative gradient
    seconds: float  # computing time of this step
    W: Tensor = field(repr=False)  # (N_{l-1}, N_l) new weights, before blending
    B: Tensor = field(repr=False)  # (D, N_l) targets that they were solved for
    end: WalkEnd | None = None  # with layer 1, when the walk is complete


class Network(NamedTuple):
    """Weights, and the activations between and after them."""

    weights: Weights
    activations: list[Activation]  # one per hidden layer
    output: Activation


class Walked(NamedTuple):
    """A whole walk and the network that it has led to."""

    records: list[Record]  # output layer first
    blend: float  # f of line 20
    cosine: float  # of the change of all weights with the negative gradient
    weights: Weights  # after blending
    error: float  # number or weight of the misses, or the RMSE
    wrong: Tensor | None  # (D,) bool, which samples are missed
    seconds: float


def train(
    X: Tensor,
    Y: Tensor,
    weights: Weights,
    activations: str | Activation | Sequence[str | Activation] = "sigmoid",
    settings: Settings | None = None,
    *,
    output: str | Activation = "identity",
    weight: Tensor | None = None,
    **options: Any,
) -> Iterator[Record]:
    r"""Train by walks, and yield one `Record` per solved layer.

    With values Y this is Algorithm 1, one walk. With labels Y it is Algorithm 2: a walk
    over all samples with the second solve, then walks over the samples that the current
    network misses, each blended in by the share of misses,

    (20) $W \leftarrow (1 - f)\,W + f\,W'$,  $f = \#\mathrm{misses} / \#\mathrm{data}$,

    where 20 is the line of Algorithm 2. Its line 19 starts from the current weights
    here. The cosines cost a backward pass over the rows of a walk and have no effect.

    Parameters
    ----------
    X : (D, M) tensor, inputs, dense or in COO form; a bias is a column of ones
    Y : (D, J) tensor of values, or (D,) int64 tensor of labels in 0..J-1
    weights : tuple of tensors, where to start, `random_weights`
    activations : str, Activation, or a sequence of one per hidden layer
    settings : Settings, optional
        It is read before each layer and between walks, so the caller may change it
        between two records.
    output : str or Activation, for values; for labels it is softmax
    weight : (D,) tensor, optional
        Weights of the samples, >= 0: in every solve, count and mean a sample of weight
        2 counts twice.
    **options : fields of `Settings`, where no object is given

    Raises
    ------
    TypeError, ValueError
        Settings out of range; an activation without inverse; tensors of other types
        than these; weights that do not fit X, Y or ``activations``; targets outside the
        range of an inverse without a clamp; a negative weight, or none that is
        positive.
    DivergedError
        Targets or an error that are not finite, which some interpretations of (5) lead
        to.

    Notes
    -----
    Training waits for a device once for each layer, when its numbers are read. A layer
    that has no Cholesky factor, or whose weights lack rank for (5'), for example with
    fewer misses than outputs, is then solved again with care.
    """
    settings = settings_of(settings, options)
    settings.check()
    check_shapes(X, Y, weights)
    activations = [invertible(a) for a in per_layer(activations, len(weights) - 1)]
    weights = tuple(W.detach() for W in weights)
    network = Network(weights, activations, invertible(output))
    given, clock = (X, Y), Clock(X.device)
    with clock:
        data = gathered(X, Y, weight, network, settings.clamp)
    best, least, f, rows, step, mass = weights, math.inf, 1.0, None, 0, data.mass()
    for tau in count():
        done = yield from walk_records(
            data, rows, network, settings, walk_number=tau, step=step, f=f, clock=clock
        )
        network = network._replace(weights=done.weights)
        error, wrong = done.error, done.wrong
        kept = error < least
        if kept:
            best, least = done.weights, error
        end = walk_end(done, best, kept, judged(error, mass, data.labelled))
        yield replace(done.records[-1], end=end)
        if not data.labelled:
            return
        settings.check()
        clock, step = Clock(X.device), step + len(weights)
        wanted = given if settings.data is None else checked_pair(settings.data)
        if wanted[0] is not given[0] or wanted[1] is not given[1]:
            given = wanted
            check_labels_stay(*given, network)
            with clock:
                data = gathered(*given, weight, network, settings.clamp)
                error, wrong = judge(data, network)
                least = error = error.item()
            best, kept, mass = network.weights, True, data.mass()
        if not error or (settings.stop and not kept) or tau >= settings.max_walks:
            return
        with clock:
            rows = rows_of(wrong, data, error)
        f = error / mass


def walk_records(
    data: Samples,
    rows: Tensor | None,
    network: Network,
    settings: Settings,
    *,
    walk_number: int,
    step: int,
    f: float,
    clock: Clock,
) -> Generator[Record, None, Walked]:
    """Solve every layer once (lines 3 to 14) and blend the result in (line 20).

    It yields the records of all layers but the last, and returns the whole walk.

    Parameters
    ----------
    data : Samples, all of them, by which the new network is judged
    rows : (d,) int64 tensor, of the samples that are solved on, or None for all
    network : Network, before the walk
    settings : Settings, read before each layer
    walk_number, step : int, of this walk, and layers solved before it
    f : float, of line 20
    clock : Clock, with the time since the walk before on it

    Raises
    ------
    ValueError, DivergedError
        As `train`.
    """
    records, measured, seconds = [], [], 0.0
    with clock:
        part = data.chosen(rows)
        T, share = part.B, part.share
        H, gradients = differentiate(part, network)
    how = {"settings": settings, "second_solve": data.labelled}
    how["root"] = None if share is None else share.sqrt()
    free = data.X.device.type == "cpu"  # checks cost nothing there
    layers = walk(H, T, network.activations, careful=free, **how)
    for i in reversed(range(len(network.weights))):  # layer i + 1
        with clock:
            # a layer that is not finite is solved again with care, which may raise
            again = walk(H[: i + 1], T, network.activations[:i], **how)
            for attempt in (layers, again):
                solved = next(attempt)
                W, gradient = network.weights[i], gradients[i]
                numbers = measure(H[i], T, solved, W, gradient, share)
                if i == 0:
                    new = solved.W, *(record.W for record in reversed(records))
                    after = blend(network.weights, new, f)  # (20)
                    changed = network._replace(weights=after)
                    numbers["error"], wrong = judge(data, changed)
                numbers = read(numbers)
                if all(math.isfinite(numbers[each]) for each in SOUND & numbers.keys()):
                    break
            layers = attempt
        measured.append(numbers)
        place = step + len(measured), walk_number
        lap, seconds = clock.seconds - seconds, clock.seconds
        records.append(record_of(solved, place, T, H[i], numbers, lap))
        if i:
            yield records[-1]
        T = solved.B
    error = numbers["error"]
    if not math.isfinite(error) or any(math.isnan(each["moved"]) for each in measured):
        raise DivergedError(
            f"walk {walk_number}: error or weights for some of its targets are not "
            "finite"
        )
    along = cosine(*measured)
    return Walked(records, f, along, after, error, wrong, clock.seconds)


def record_of(
    solved: LayerStep,
    place: tuple[int, int],
    B: Tensor,
    H: Tensor,
    numbers: dict[str, float],
    seconds: float,
) -> Record:
    """Write what `measure` has found as a `Record`; ``place`` is its step and walk."""
    return Record(
        *place,
        layer=solved.layer,
        samples=len(B),
        rank=int(numbers["rank"]),
        condition=numbers["condition"],
        residual=numbers["residual"] / B.numel() ** 0.5,
        overshoot=numbers.get("overshoot", math.nan),
        clamped=numbers.get("clamped", math.nan) / H.numel(),
        cosine=cosine(numbers),
        seconds=seconds,
        W=solved.W,
        B=B,
    )


def walk_end(done: Walked, best: Weights, kept: bool, error: Judged) -> WalkEnd:
    """Write a whole walk as a `WalkEnd`."""
    *upper, last = done.records
    return WalkEnd(
        walk=last.walk,
        samples=last.samples,
        blend=done.blend,
        misses=error.misses,
        accuracy=error.accuracy,
        rmse=error.rmse,
        kept=kept,
        seconds=done.seconds,
        rank=last.rank,
        condition=max(record.condition for record in done.records),
        overshoot=done.records[0].overshoot,
        clamped=sum(record.clamped for record in upper) / len(upper),
        cosine=done.cosine,
        weights=done.weights,
        best=best,
    )


def blend(old: Weights, new: Weights, f: float) -> Weights:
    r"""Blend old and new weights, layer by layer (Algorithm 2, line 20).

    (20) $W \leftarrow (1 - f)\,W + f\,W'$
    """
    return tuple((1 - f) * W + f * V for W, V in zip(old, new, strict=True))  # (20)


def measure(
    H: Tensor,
    B: Tensor,
    solved: LayerStep,
    W: Tensor,
    gradient: Tensor,
    share: Tensor | None = None,
) -> dict[str, Tensor]:
    """Measure a solved layer, with values H below it and weights W before it."""
    root = None if share is None else share.sqrt()
    R = weighed(root, B - H @ solved.V)
    change, norm = solved.W - W, torch.linalg.vector_norm
    numbers = {
        "rank": solved.info.rank,
        "condition": solved.info.condition,
        "residual": norm(R),
        "moved": norm(change),
        "slope": norm(gradient),
        "down": -(change * gradient).sum(),
    }
    if solved.T is not None:
        numbers["overshoot"] = overshoot(weighed(root, solved.T - H), solved.V, R)
        numbers["clamped"] = counted(solved.T != solved.C, share)
        numbers["below"] = solved.B.sum()
    return numbers


def read(numbers: dict[str, Tensor]) -> dict[str, float]:
    """Read numbers from a device, with one wait."""
    values = torch.hstack([*numbers.values()]).tolist()
    return dict(zip(numbers, values, strict=True))


def cosine(*layers: dict[str, float]) -> float:
    """Return the cosine between these layers' change and the negative gradient.

    The result is 0 if either is 0.
    """
    sizes = [
        math.hypot(*(each[name] for each in layers)) for name in ("moved", "slope")
    ]
    down = sum(each["down"] for each in layers)
    return down / math.prod(sizes) if all(sizes) else 0.0


def gathered(
    X: Tensor,
    Y: Tensor,
    weight: Tensor | None,
    network: Network,
    clamp: float | None,
) -> Samples:
    """Detach samples from their graphs, and add the targets of the output layer."""
    X, Y, classes = X.detach(), Y.detach(), network.weights[-1].shape[-1]
    weight = checked_weight(weight, X)
    B = output_targets(Y, network.output, clamp, classes=classes, dtype=X.dtype)
    return Samples(X, Y, B, weight)


def judge(data: Samples, network: Network) -> tuple[Tensor, Tensor | None]:
    """Return the misses or their weight, and a mask; for values the RMSE and None."""
    S = scores(data.X, network.weights, network.activations)
    if not data.labelled:
        squares = (network.output.value(S) - data.Y).square()
        return weighed(data.share, squares).mean().sqrt(), None
    wrong = S.argmax(-1) != data.Y
    return counted(wrong, data.weight), wrong


def rows_of(wrong: Tensor, data: Samples, error: float) -> Tensor:
    """Return the rows that are missed; without weights their number is known."""
    if data.weight is not None:
        return wrong.nonzero().squeeze(-1)
    return wrong.nonzero_static(size=int(error)).squeeze(-1)


def differentiate(
    data: Samples, network: Network
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Compute the hidden values H_0..H_L and the gradient of the loss in one pass.

    The loss is the cross-entropy of labels, or half the mean squared error of values.
    """
    Y, share = data.Y, data.share
    with torch.enable_grad():
        leaves = tuple(W.detach().requires_grad_() for W in network.weights)
        H = hidden_values(data.X, leaves, network.activations)
        S = H[-1] @ leaves[-1]
        if data.labelled:
            reduction = "mean" if share is None else "none"
            loss = F.cross_entropy(S, Y, reduction=reduction)
            loss = loss if share is None else share[:, 0] @ loss / len(loss)
        else:
            loss = weighed(share, (network.output.value(S) - Y).square()).mean() / 2
        gradients = torch.autograd.grad(loss, leaves)
    return [h.detach() for h in H], gradients


def checked_pair(data: object) -> tuple[Tensor, Tensor]:
    """Return ``Settings.data`` if it is a pair of tensors; TypeError if not."""
    pair = isinstance(data, tuple | list) and len(data) == 2
    if not pair or not all(isinstance(value, Tensor) for value in data):
        raise TypeError(
            f"data must be a pair of tensors, (X, Y), got {described(data)}"
        )
    return tuple(data)


def check_labels_stay(X: Tensor, Y: Tensor, network: Network) -> None:
    """Raise ValueError unless data that replace others are labels and fit."""
    if Y.dtype != torch.int64:
        raise ValueError(f"other data need labels (int64) as before, got {Y.dtype}")
    check_shapes(X, Y, network.weights)
