"""Training as a generator: one record per layer solved."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.bpls.activations import Activation, invertible, per_layer
from labkit.bpls.settings import Settings
from labkit.bpls.targets import overshoot
from labkit.bpls.walk import (
    LayerStep,
    Weights,
    hidden_values,
    output_targets,
    scores,
    walk,
)
from labkit.clock import Clock


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


def train(
    X: Tensor,
    Y: Tensor,
    weights: Weights,
    activations: str | Activation | Sequence[str | Activation] = "sigmoid",
    settings: Settings | None = None,
    *,
    output: str | Activation = "identity",
    **options,
) -> Iterator[Record]:
    r"""Train by walks; yields one `Record` per layer solved.

    With values Y this is Algorithm 1, one walk. With labels Y it is Algorithm 2: a walk
    over all samples with the second solve, then walks over the samples that the current
    network misses, each blended in by the share of misses,

    (20) $W \leftarrow (1 - f)\,W + f\,W'$,  $f = \#\mathrm{misses} / \#\mathrm{data}$,

    with 20 the line of Algorithm 2. Its line 19 starts from the current weights here.
    The cosines cost a backward pass over the rows of a walk and change nothing.

    Parameters
    ----------
    X : (D, M) tensor, inputs; a bias is a column of ones
    Y : (D, J) tensor of values, or (D,) int64 tensor of labels in 0..J-1
    weights : tuple of tensors, where to start, `random_weights`
    activations : str, Activation, or a sequence of one per hidden layer
    settings : Settings, optional
        Read before each layer and between walks; the caller may change it between two
        records.
    output : str or Activation, for values; for labels it is softmax
    **options : fields of `Settings`, where no object is given

    Raises
    ------
    ValueError
        Settings out of range; an activation without inverse; weights that do not fit X,
        Y or ``activations``; targets outside the range of an inverse without a clamp.
    DivergedError
        Targets that are no longer finite, as some interpretations of (5) end with.
    """
    settings = Settings(**options) if settings is None else settings
    settings.check()
    activations = check_network(X, Y, weights, activations)
    output = invertible(output)
    labelled = Y.dtype == torch.int64
    to_output = {"classes": weights[-1].shape[-1], "dtype": X.dtype}
    clock = Clock(X.device)
    with clock:
        B = output_targets(Y, output, settings.clamp, **to_output)
    best, least, f, rows, step = weights, math.inf, 1.0, slice(None), 0
    for tau in count():
        records = []
        with clock:
            T = B[rows]
            H, gradients = differentiate(X[rows], Y[rows], weights, activations, output)
        layers = walk(H, T, activations, settings, second_solve=labelled)
        for i in reversed(range(len(weights))):  # lines 3 to 14, layer i + 1
            with clock:
                solved = next(layers)
                seen = measure(H[i], T, solved, weights[i], gradients[i])
            step += 1
            seen["seconds"] = clock.seconds - sum(r.seconds for r in records)
            records.append(Record(step, tau, i + 1, len(T), **seen, W=solved.W, B=T))
            if i:
                yield records[-1]
            T = solved.B
        with clock:
            found = tuple(record.W for record in reversed(records))
            cosine = descent_cosine(found, weights, gradients)
            weights = blend(weights, found, f)  # (20)
            error, miss = judge(X, Y, weights, activations, output)
        kept = error < least
        if kept:
            best, least = weights, error
        clamped = [record.clamped for record in records[:-1]]
        last = records[-1]
        end = {"rank": last.rank, "condition": max(r.condition for r in records)}
        end |= {"overshoot": records[0].overshoot, "cosine": cosine}
        end |= {"clamped": sum(clamped) / len(clamped), "seconds": clock.seconds}
        end |= judged(error, len(X), labelled) | {"kept": kept}
        end = WalkEnd(tau, last.samples, f, **end, weights=weights, best=best)
        yield replace(last, seconds=last.seconds + clock.lap, end=end)
        if not labelled:
            return
        settings.check()
        clock = Clock(X.device)
        wanted = settings.data or (X, Y)
        if wanted[0] is not X or wanted[1] is not Y:
            X, Y = wanted
            check_shapes(X, Y, weights)
            with clock:
                B = output_targets(Y, **to_output)
                least, miss = judge(X, Y, weights, activations, output)
            best, kept = weights, True
        if not len(miss) or (settings.stop and not kept) or tau >= settings.max_walks:
            return
        rows, f = miss, len(miss) / len(X)


def blend(old: Weights, new: Weights, f: float) -> Weights:
    r"""Old weights and new, layer by layer (Algorithm 2, line 20).

    (20) $W \leftarrow (1 - f)\,W + f\,W'$
    """
    return tuple((1 - f) * W + f * V for W, V in zip(old, new, strict=True))  # (20)


def measure(H: Tensor, B: Tensor, solved: LayerStep, W: Tensor, gradient: Tensor):
    """Numbers of a `Record`, of a layer with values H below it and weights W before."""
    R = B - H @ solved.V
    overshot = clamped = math.nan
    if solved.T is not None:
        overshot = float(overshoot(solved.T - H, solved.V, R))
        clamped = int(torch.count_nonzero(solved.T != solved.C)) / solved.T.numel()
    seen = {"overshoot": overshot, "clamped": clamped}
    seen |= {"rank": int(solved.info.rank), "condition": float(solved.info.condition)}
    seen |= {"residual": float(R.square().mean().sqrt())}
    return seen | {"cosine": descent_cosine([solved.W], [W], [gradient])}


def judge(X, Y, weights, activations, output) -> tuple[float, Tensor | None]:
    """Number of misses, and which they are; for values the RMSE, and None."""
    S = scores(X, weights, activations)
    if Y.dtype != torch.int64:
        return float((output.value(S) - Y).square().mean().sqrt()), None
    miss = (S.argmax(-1) != Y).nonzero().squeeze(-1)
    return len(miss), miss


def judged(error: float, samples: int, labelled: bool) -> dict:
    """An error of `judge` as the fields of a `WalkEnd`."""
    if labelled:
        return {"misses": error, "accuracy": 1 - error / samples, "rmse": None}
    return {"misses": None, "accuracy": None, "rmse": error}


def differentiate(X, Y, weights, activations, output) -> tuple[list[Tensor], Weights]:
    """Hidden values H_0..H_L and the gradient of the loss, in one pass.

    The loss is the cross-entropy of labels, or half the mean squared error of values.
    """
    with torch.enable_grad():
        leaves = tuple(W.detach().requires_grad_() for W in weights)
        H = hidden_values(X, leaves, activations)
        S = H[-1] @ leaves[-1]
        if Y.dtype == torch.int64:
            loss = F.cross_entropy(S, Y)
        else:
            loss = (output.value(S) - Y).square().mean() / 2
        gradients = torch.autograd.grad(loss, leaves)
    return [h.detach() for h in H], gradients


def descent_cosine(new: Weights, old: Weights, gradients: Sequence[Tensor]) -> float:
    """Cosine of a change of weights with the negative gradient; 0 if either is 0."""
    change = torch.cat([(V - W).flatten() for V, W in zip(new, old, strict=True)])
    gradient = torch.cat([g.flatten() for g in gradients])
    return float(F.cosine_similarity(change, -gradient, 0))


def check_network(X, Y, weights, activations) -> list[Activation]:
    """One invertible activation per hidden layer; ValueError as `check_shapes`."""
    activations = per_layer(activations, len(weights) - 1)
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
