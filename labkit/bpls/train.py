"""Training as a generator: one record per layer solved."""

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.bpls.activations import CLAMP, Activation, invertible
from labkit.bpls.targets import check_reading, overshoot
from labkit.bpls.walk import (
    LayerStep,
    Weights,
    hidden_values,
    output_targets,
    scores,
    walk,
)


@dataclass(frozen=True)
class WalkEnd:
    """What a whole walk came to."""

    walk: int  # 0 for the first
    samples: int  # rows that it solved on
    blend: float  # f of line 20, the weight of the walk's solution; 1 in the first walk
    misses: int | None  # over all samples after blending; None without labels
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
    """One layer solved."""

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


class Clock:
    """Seconds spent computing, without those between ``stop`` and ``start``."""

    def __init__(self):
        self.total = 0.0
        self.start()

    def start(self) -> None:
        """Go on."""
        self._since = time.perf_counter()

    def stop(self) -> float:
        """Halt, and give the seconds since the last ``start``."""
        lap = time.perf_counter() - self._since
        self.total += lap
        return lap


def train(
    X: Tensor,
    Y: Tensor,
    weights: Weights,
    activations: str | Activation | Sequence[str | Activation] = "sigmoid",
    *,
    output: str | Activation = "identity",
    reading: str | int = "min_norm",
    clamp: float | None = CLAMP,
    max_walks: int = 20,
    stop: bool = True,
    turned: Callable[[], Mapping] | None = None,
    data: Callable[[], tuple[Tensor, Tensor]] | None = None,
    **solver,
) -> Iterator[Record]:
    r"""Train by walks; yields one `Record` per layer solved.

    With values Y this is Algorithm 1, one walk. With labels Y it is Algorithm 2: a walk
    over all samples with the second solve, then walks over the samples that the current
    network misses, each blended in by the share of misses,

    (20) $W \leftarrow (1 - f)\,W + f\,W'$,  $f = \#\mathrm{misses} / \#\mathrm{data}$,

    with 20 the line of Algorithm 2. Its line 19 starts from the current weights here.

    Parameters
    ----------
    X : (D, M) tensor
        Inputs; a bias is a column of ones.
    Y : (D, J) tensor of values, or (D,) int64 tensor of labels in 0..J-1
    weights : tuple of tensors
        Where to start, `random_weights`.
    activations : str, Activation, or a sequence of one per hidden layer
    output : str or Activation
        Output activation, for values. For labels it is softmax.
    reading : str or int
        Of equation (5); see `hidden_targets`.
    clamp : float or None
        See `clamp_targets`; for values also of the outputs.
    max_walks : int >= 0
        Cap on the walks over misses; 0 leaves the first walk only.
    stop : bool
        Stop at the first walk that does not lower the misses. The paper's own
        condition, line 18, lets later walks undo what earlier ones found; False shows
        it. The best weights are kept either way.
    turned : function of no arguments, optional
        Asked before every layer for options that take the place of those given:
        ``reading``, ``clamp``, ``ridge``, ``rcond``, ``method``; and before every walk
        on misses for ``max_walks`` and ``stop``.
    data : function of no arguments, optional
        Asked before every walk on misses for (X, Y), such as the same images with
        other noise. Where they are not the tensors of the walk before, the misses are
        counted anew on them, and the best weights are looked for from there on.
    **solver
        ``ridge``, ``rcond``, ``method`` of `solve_layer`.

    Yields
    ------
    Record

    Raises
    ------
    ValueError
        Negative ``max_walks``; an activation without inverse; weights that do not fit
        X, Y or ``activations``; targets outside the range of an inverse without a
        clamp.

    Notes
    -----
    The cosines cost a backward pass over the rows of a walk and change nothing.
    """
    activations = check_network(X, Y, weights, activations)
    check_walks(reading, clamp, max_walks)
    output = invertible(output)
    labelled = Y.dtype == torch.int64
    given = {"reading": reading, "clamp": clamp, "second_solve": labelled, **solver}
    now = partial(_now, given | {"max_walks": max_walks, "stop": stop}, turned)
    clock = Clock()
    to_output = {"classes": weights[-1].shape[-1], "dtype": X.dtype}
    targets = partial(output_targets, output=output, clamp=clamp, **to_output)
    B, rows = targets(Y), slice(None)
    best, fewest, f, step = weights, math.inf, 1.0, 0
    for tau in count():
        start = (X[rows], B[rows], Y[rows])
        layers = _layers(tau, step, start, weights, activations, output, now, clock)
        records, found, along = yield from layers  # lines 3 to 14
        step += len(records)
        weights = blend(weights, found, f)  # (20)
        error, miss = _judged(X, Y, weights, activations, output)
        kept = error < fewest
        if kept:
            best, fewest = weights, error
        lap = clock.stop()
        yield replace(
            records[-1],
            seconds=records[-1].seconds + lap,
            end=WalkEnd(
                walk=tau,
                samples=len(start[0]),
                blend=f,
                misses=len(miss) if labelled else None,
                accuracy=1 - len(miss) / len(X) if labelled else None,
                rmse=None if labelled else error,
                kept=kept,
                seconds=clock.total,
                rank=records[-1].rank,
                condition=max(record.condition for record in records),
                overshoot=records[0].overshoot,
                clamped=_mean([record.clamped for record in records[:-1]]),
                cosine=along,
                weights=weights,
                best=best,
            ),
        )
        if not labelled:
            return
        clock = Clock()
        fresh = (X, Y) if data is None else data()
        if fresh[0] is not X or fresh[1] is not Y:
            X, Y = fresh
            check_shapes(X, Y, weights)
            B, kept, best = targets(Y), True, weights
            fewest, miss = _judged(X, Y, weights, activations, output)
        options = now()
        if (
            not len(miss)
            or (options["stop"] and not kept)
            or tau >= options["max_walks"]
        ):
            return
        rows, f = miss, len(miss) / len(X)


def _now(given: Mapping, turned: Callable[[], Mapping] | None) -> Mapping:
    """Options as they stand, refused where no walk can take them."""
    options = given if turned is None else given | turned()
    check_walks(options["reading"], options["clamp"], options["max_walks"])
    return options


def _judged(X, Y, weights, activations, output) -> tuple:
    """Misses counted, and which they are; for values the RMSE, and None."""
    S = scores(X, weights, activations)
    if Y.dtype != torch.int64:
        return _rmse(S, Y, output), None
    miss = (S.argmax(-1) != Y).nonzero().squeeze(-1)
    return len(miss), miss


def _layers(
    tau, step, start, weights, activations, output, now, clock
) -> Generator[Record, None, tuple]:
    """One walk: yields the records of layers L + 1 to 2.

    Returns all records, the walk's weights, and the cosine over all of them.
    """
    X, B, Y = start
    H, gradients = differentiate(X, weights, activations, lambda S: loss(S, Y, output))
    records, found = [], []
    for layer in range(len(H), 0, -1):
        options = {k: v for k, v in now().items() if k not in ("max_walks", "stop")}
        solved = next(walk(H[:layer], B, activations[: layer - 1], **options))
        below = layer - 1
        step += 1
        change = solved.W - weights[below]
        measures = measure(H[below], B, solved)
        cosine = descent_cosine([change], [gradients[below]])
        record = Record(
            step,
            tau,
            layer,
            len(X),
            *measures,
            cosine,
            clock.stop(),
            solved.W,
            B,
        )
        records.append(record)
        found.insert(0, solved.W)
        if below:
            yield record
        clock.start()
        B = solved.B
    changes = [new - old for new, old in zip(found, weights, strict=True)]
    return records, tuple(found), descent_cosine(changes, gradients)


def blend(old: Weights, new: Weights, f: float) -> Weights:
    r"""Old weights and new, layer by layer (Algorithm 2, line 20).

    (20) $W \leftarrow (1 - f)\,W + f\,W'$
    """
    return tuple((1 - f) * W + f * V for W, V in zip(old, new, strict=True))  # (20)


def measure(H: Tensor, B: Tensor, solved: LayerStep) -> tuple:
    """Rank, condition, residual, overshoot and share clamped of a layer, as numbers."""
    rank, condition = int(solved.info.rank), float(solved.info.condition)
    R = B - H @ solved.V
    residual = float(R.square().mean().sqrt())
    if solved.T is None:
        return rank, condition, residual, math.nan, math.nan
    clamped = int(torch.count_nonzero(solved.T != solved.C)) / solved.T.numel()
    ratio = float(overshoot(solved.T - H, solved.V, R))
    return rank, condition, residual, ratio, clamped


def loss(S: Tensor, Y: Tensor, output: Activation) -> Tensor:
    """Cross-entropy of labels in nats, or half the mean squared error of values."""
    if Y.dtype == torch.int64:
        return F.cross_entropy(S, Y)
    return (output.value(S) - Y).square().mean() / 2


def differentiate(
    X: Tensor, weights: Weights, activations: Sequence[Activation], objective: Callable
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Hidden values H_0..H_L and the gradient of ``objective(S)``, in one pass."""
    with torch.enable_grad():
        leaves = tuple(W.detach().requires_grad_() for W in weights)
        H = hidden_values(X, leaves, activations)
        gradients = torch.autograd.grad(objective(H[-1] @ leaves[-1]), leaves)
    return [h.detach() for h in H], gradients


def descent_cosine(changes: Sequence[Tensor], gradients: Sequence[Tensor]) -> float:
    """Cosine of a change of weights with the negative gradient; 0 if either is 0."""
    change = torch.cat([c.flatten() for c in changes])
    gradient = torch.cat([g.flatten() for g in gradients])
    return float(F.cosine_similarity(change, -gradient, 0))


def check_network(X, Y, weights, activations) -> list[Activation]:
    """One invertible activation per hidden layer, and weights that fit X and Y.

    Raises
    ------
    ValueError
        Too many or too few activations, or one without inverse; see `check_shapes`.
    """
    hidden = len(weights) - 1
    if isinstance(activations, str | Activation):
        activations = [activations] * hidden
    if len(activations) != hidden:
        raise ValueError(
            f"{hidden} hidden layers need as many activations, got {len(activations)}"
        )
    check_shapes(X, Y, weights)
    return [invertible(a) for a in activations]


def check_shapes(X: Tensor, Y: Tensor, weights: Weights) -> None:
    """Raise ValueError unless the weights fit X (D, M), Y and each other."""
    if len(weights) < 2:
        raise ValueError(
            f"a walk needs a hidden layer, so at least two weights; got {len(weights)}"
        )
    widths = [X.shape[-1], *(W.shape[-1] for W in weights)]
    for layer, (W, width) in enumerate(zip(weights, widths, strict=False), start=1):
        if W.shape[-2] != width:
            raise ValueError(
                f"W_{layer} has {W.shape[-2]} rows, but the layer below has {width}"
            )
    if Y.dtype == torch.int64:
        least, most = int(Y.min()), int(Y.max())
        if least < 0 or most >= widths[-1]:
            raise ValueError(
                f"labels must lie in 0..{widths[-1] - 1}, got {least}..{most}"
            )
    elif Y.shape[-1] != widths[-1]:
        raise ValueError(f"Y has {Y.shape[-1]} columns for {widths[-1]} outputs")


def check_walks(reading, clamp, max_walks) -> None:
    """Raise ValueError for options of `train` that no walk can take."""
    check_reading(reading)
    if clamp is not None and not 0 <= clamp < 0.5:
        raise ValueError(f"clamp must lie in [0, 0.5), got {clamp}")
    if max_walks < 0:
        raise ValueError(f"max_walks must be >= 0, got {max_walks}")


def _rmse(S: Tensor, Y: Tensor, output: Activation) -> float:
    return float((output.value(S) - Y).square().mean().sqrt())


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)
