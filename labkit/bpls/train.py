"""Train by a generator that yields one record per solved layer."""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.bpls.activations import Activation, activation, invertible, per_layer
from labkit.bpls.solve import DTYPES
from labkit.bpls.targets import overshoot
from labkit.bpls.walk import (
    Activations,
    LayerStep,
    Settings,
    Weights,
    hidden_values,
    output_targets,
    scores,
    settings_of,
    walk,
)
from labkit.check import check_tensor
from labkit.clock import Clock
from labkit.errors import DivergedError
from labkit.precision import outside_modes


@dataclass(frozen=True)
class WalkEnd:
    """The result of a whole walk."""

    walk: int  # 0 for the first
    samples: int  # rows that it solved on
    blend: float  # f of line 20, the weight of the walk's solution; 1 in the first walk
    misses: int | None  # after blending; None for values
    accuracy: float | None  # 1 - misses / D
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
    hidden: list[Activation]  # one per hidden layer
    output: Activation


class Samples(NamedTuple):
    """Rows of inputs with their targets."""

    X: Tensor  # (D, M) inputs
    Y: Tensor  # (D, J) values, or (D,) int64 labels
    B: Tensor  # (D, J) targets of the output layer, before its activation

    @property
    def labelled(self) -> bool:
        """Return whether Y holds labels."""
        return self.Y.dtype == torch.int64


class Walked(NamedTuple):
    """A whole walk and the network that it has led to."""

    records: list[Record]  # output layer first
    weights: Weights  # after blending
    error: float  # number of misses, or the RMSE
    wrong: Tensor | None  # (D,) bool, which samples are missed
    cosine: float  # of the change of all weights with the negative gradient
    seconds: float


def train(
    X: Tensor,
    Y: Tensor,
    weights: Weights,
    activations: Activations = "sigmoid",
    settings: Settings | None = None,
    *,
    output: str | Activation = "identity",
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
    X : (D, M) tensor, inputs; a bias is a column of ones
    Y : (D, J) tensor of values, or (D,) int64 tensor of labels in 0..J-1
    weights : tuple of tensors, where to start, `random_weights`
    activations : str, Activation, or a sequence of one per hidden layer
    settings : Settings, optional
        It is read before each layer and between walks, so the caller may change it
        between two records.
    output : str or Activation, for values; for labels it is softmax
    **options : fields of `Settings`, where no object is given

    Raises
    ------
    TypeError, ValueError
        Settings out of range; an activation without inverse; tensors of other types
        than these; weights that do not fit X, Y or ``activations``; targets outside the
        range of an inverse without a clamp.
    DivergedError
        Targets, weights or an error that are not finite, which some interpretations of
        (5) lead to.
    """
    settings = settings_of(settings, options)
    settings.check()
    check_samples(X, Y, weights)
    hidden = [invertible(a) for a in per_layer(activations, len(weights) - 1)]
    network = Network(tuple(W.detach() for W in weights), hidden, activation(output))
    clock = Clock(X.device)
    with clock:
        data = rows = gathered(X, Y, network, settings.clamp)
    best, least, f, given = None, math.inf, 1.0, (X, Y)
    for tau in count():
        done = yield from walk_records(
            data, rows, network, settings, walk_number=tau, f=f, clock=clock
        )
        network = network._replace(weights=done.weights)
        error, wrong = done.error, done.wrong
        kept = error < least
        if kept:
            best, least = done.weights, error
        yield walk_end(done, f, best, kept, len(data.X))
        if not data.labelled:
            return
        settings.check()
        clock = Clock(X.device)
        wanted = settings.data or given
        if wanted[0] is not given[0] or wanted[1] is not given[1]:
            given = wanted
            check_tensor("Y", given[1], dtype=torch.int64)  # labels, as before
            check_samples(*given, weights)
            with clock:
                data = gathered(*given, network, settings.clamp)
                error, wrong = judge(data, network)
                least = error = error.item()
            best, kept = network.weights, True
        if not error or (settings.stop and not kept) or tau >= settings.max_walks:
            return
        with clock:
            missed = wrong.nonzero_static(size=int(error)).squeeze(-1)
            rows = Samples(*(values.index_select(0, missed) for values in data))
        f = error / len(data.X)


def walk_records(
    data: Samples,
    rows: Samples,
    network: Network,
    settings: Settings,
    *,
    walk_number: int,
    f: float,
    clock: Clock,
) -> Generator[Record, None, Walked]:
    """Solve every layer once (lines 3 to 14) and blend the result in (line 20).

    It yields the records of all layers but the last, and returns the whole walk.

    Parameters
    ----------
    data : Samples, all of them, by which the new network is judged
    rows : Samples, those that are solved on
    network : Network, before the walk
    settings : Settings, read before each layer
    walk_number : int, walks before it
    f : float, of line 20
    clock : Clock, with the time since the walk before on it

    Raises
    ------
    ValueError, DivergedError
        As `train`.
    """
    old, B, records, solutions, before = network.weights, rows.B, [], [], 0.0
    with clock:
        H, gradients = differentiate(rows, network)
    layers = walk(H, B, network.hidden, settings, second_solve=data.labelled)
    for i in reversed(range(len(old))):  # layer i + 1
        with clock:
            solved = next(layers)
            solutions.insert(0, solved.W)
            numbers = measure(H[i], B, solved, old[i], gradients[i])
            if i == 0:
                new = blend(old, solutions, f)  # (20)
                numbers["error"], wrong = judge(data, network._replace(weights=new))
                numbers["along"] = cosine(solutions, old, gradients)
                numbers["finite"] = torch.stack([W.isfinite().all() for W in new]).all()
            numbers = read(numbers)
        records.append(
            Record(
                step=walk_number * len(old) + len(solutions),
                walk=walk_number,
                layer=solved.layer,
                samples=len(B),
                rank=int(numbers["rank"]),
                condition=numbers["condition"],
                residual=numbers["residual"],
                overshoot=numbers.get("overshoot", math.nan),
                clamped=numbers.get("clamped", math.nan),
                cosine=numbers["cosine"],
                seconds=clock.seconds - before,
                W=solved.W,
                B=B,
            )
        )
        B, before = solved.B, clock.seconds
        if i:
            yield records[-1]
    error = numbers["error"]
    if not (math.isfinite(error) and numbers["finite"]):
        raise DivergedError(
            f"walk {walk_number}: the error or the weights are not finite"
        )
    return Walked(
        records=records,
        weights=new,
        error=error,
        wrong=wrong,
        cosine=numbers["along"],
        seconds=clock.seconds,
    )


def walk_end(done: Walked, f: float, best: Weights, kept: bool, samples: int) -> Record:
    """Return the last record of a walk with its `WalkEnd`."""
    *upper, last = done.records
    labelled = done.wrong is not None
    end = WalkEnd(
        walk=last.walk,
        samples=last.samples,
        blend=f,
        misses=int(done.error) if labelled else None,
        accuracy=1 - done.error / samples if labelled else None,
        rmse=None if labelled else done.error,
        kept=kept,
        seconds=done.seconds,
        rank=last.rank,
        condition=max(record.condition for record in done.records),
        overshoot=upper[0].overshoot,
        clamped=sum(record.clamped for record in upper) / len(upper),
        cosine=done.cosine,
        weights=done.weights,
        best=best,
    )
    return replace(last, end=end)


def blend(old: Sequence[Tensor], new: Sequence[Tensor], f: float) -> Weights:
    r"""Blend old and new weights, layer by layer (Algorithm 2, line 20).

    (20) $W \leftarrow (1 - f)\,W + f\,W'$
    """
    return tuple((1 - f) * W + f * V for W, V in zip(old, new, strict=True))  # (20)


@outside_modes()
def measure(
    H: Tensor, B: Tensor, solved: LayerStep, W: Tensor, gradient: Tensor
) -> dict[str, Tensor]:
    """Measure a solved layer, with values H below it and weights W before it."""
    R = B - H @ solved.V
    numbers = {
        "rank": solved.info.rank,
        "condition": solved.info.condition,
        "residual": R.square().mean().sqrt(),
        "cosine": cosine([solved.W], [W], [gradient]),
    }
    if solved.T is not None:
        numbers["overshoot"] = overshoot(solved.T - H, solved.V, R)
        numbers["clamped"] = (solved.T != solved.C).to(H.dtype).mean()
    return numbers


def cosine(
    new: Sequence[Tensor], old: Sequence[Tensor], gradients: Sequence[Tensor]
) -> Tensor:
    """Return the cosine of layers' change with the negative gradient; 0 for none."""
    change = torch.cat([(V - W).flatten() for V, W in zip(new, old, strict=True)])
    descent = -torch.cat([gradient.flatten() for gradient in gradients])
    smallest = torch.finfo(change.dtype).tiny
    return F.cosine_similarity(change, descent, 0, smallest)


def read(numbers: dict[str, Tensor]) -> dict[str, float]:
    """Read numbers from a device, with one wait."""
    values = torch.hstack([*numbers.values()]).tolist()
    return dict(zip(numbers, values, strict=True))


def gathered(X: Tensor, Y: Tensor, network: Network, clamp: float | None) -> Samples:
    """Detach samples from their graphs, and add the targets of the output layer."""
    X, Y, classes = X.detach(), Y.detach(), network.weights[-1].shape[-1]
    B = output_targets(Y, network.output, clamp, classes=classes, dtype=X.dtype)
    return Samples(X, Y, B)


def judge(data: Samples, network: Network) -> tuple[Tensor, Tensor | None]:
    """Return the number of misses and a mask of them; for values the RMSE and None."""
    S = scores(data.X, network.weights, network.hidden)
    if not data.labelled:
        return (network.output.value(S) - data.Y).square().mean().sqrt(), None
    wrong = S.argmax(-1) != data.Y
    return wrong.sum(), wrong


@outside_modes()
def differentiate(
    data: Samples, network: Network
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Compute the hidden values H_0..H_L and the gradient of the loss in one pass.

    The loss is the cross-entropy of labels, or half the mean squared error of values.
    """
    with torch.enable_grad():
        leaves = tuple(W.detach().requires_grad_() for W in network.weights)
        H = hidden_values(data.X, leaves, network.hidden)
        S = H[-1] @ leaves[-1]
        if data.labelled:
            loss = F.cross_entropy(S, data.Y)
        else:
            loss = (network.output.value(S) - data.Y).square().mean() / 2
        gradients = torch.autograd.grad(loss, leaves)
    return [h.detach() for h in H], gradients


def check_samples(X: Tensor, Y: Tensor, weights: Weights) -> None:
    """Check that X (D, M), Y and the weights fit, and that labels are in range.

    Raises
    ------
    TypeError, ValueError
    """
    check_tensor("X", X, shape=("D", "M"), dtype=DTYPES, finite=True)
    if not len(X):
        raise ValueError("X must have rows, got none")
    if len(weights) < 2:
        raise ValueError(
            f"a walk needs a hidden layer, so at least two weights; got {len(weights)}"
        )
    rows, width = X.shape[-2:]
    for layer, W in enumerate(weights, start=1):
        check_tensor(f"W_{layer}", W, shape=(width, "N"), like=X, finite=True)
        width = W.shape[-1]
    check_tensor("Y", Y, dtype=(torch.int64, X.dtype), finite=True)
    labelled = Y.dtype == torch.int64
    shape = (rows,) if labelled else (rows, width)
    name = "labels Y" if labelled else "values Y (labels are int64)"
    check_tensor(name, Y, shape=shape, dtype=Y.dtype)
    if labelled:
        least, most = torch.stack(Y.aminmax()).tolist()
        if least < 0 or most >= width:
            raise ValueError(f"labels must lie in 0..{width - 1}, got {least}..{most}")
