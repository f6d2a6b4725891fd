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
from labkit.bpls.solve import weighed
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
from labkit.errors import DivergedError

SOUND = {"residual", "moved", "below"}  # not finite where a layer could not be solved


@dataclass(frozen=True)
class WalkEnd:
    """What a whole walk came to."""

    walk: int  # 0 for the first
    samples: int  # rows that it solved on
    blend: float  # f of line 20, the weight of the walk's solution; 1 in the first walk
    misses: (
        float | None
    )  # after blending, how many, or what they weigh; None: no labels
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
    weight: Tensor | None = None,
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
    X : (D, M) tensor, inputs, dense or in COO form; a bias is a column of ones
    Y : (D, J) tensor of values, or (D,) int64 tensor of labels in 0..J-1
    weights : tuple of tensors, where to start, `random_weights`
    activations : str, Activation, or a sequence of one per hidden layer
    settings : Settings, optional
        Read before each layer and between walks; the caller may change it between two
        records.
    output : str or Activation, for values; for labels it is softmax
    weight : (D,) tensor, optional
        Of the samples, >= 0: in every solve, count and mean a sample of weight 2 is
        there twice.
    **options : fields of `Settings`, where no object is given

    Raises
    ------
    ValueError
        Settings out of range; an activation without inverse; weights that do not fit X,
        Y or ``activations``; targets outside the range of an inverse without a clamp;
        a negative weight, or none that is positive.
    DivergedError
        Targets or an error that are no longer finite, as some interpretations of (5)
        end with.

    Notes
    -----
    A device is waited for once a layer, when its numbers are read. A layer that has no
    Cholesky factor, or whose weights lack rank for (5'), as with fewer misses than
    outputs, is then solved again with care.
    """
    settings = Settings(**options) if settings is None else settings
    settings.check()
    X, Y, weights = X.detach(), Y.detach(), tuple(W.detach() for W in weights)
    activations = check_network(X, Y, weights, activations)
    weight = checked_weight(weight, X)
    mass = len(X) if weight is None else weight.sum().item()
    output = invertible(output)
    labelled = Y.dtype == torch.int64
    to_output = {"classes": weights[-1].shape[-1], "dtype": X.dtype}
    clock = Clock(X.device)
    with clock:
        B = output_targets(Y, output, settings.clamp, **to_output)
    best, least, f, rows, step = weights, math.inf, 1.0, None, 0
    for tau in count():
        records, looks = [], []
        with clock:
            T, share = chosen(B, rows), relative(chosen(weight, rows))
            network = weights, activations, output
            data = chosen(X, rows), chosen(Y, rows)
            H, gradients = differentiate(*data, *network, share)
        how = {"settings": settings, "second_solve": labelled}
        how["root"] = None if share is None else share.sqrt()
        free = X.device.type == "cpu"  # to look costs nothing there
        layers = walk(H, T, activations, careful=free, **how)
        for i in reversed(range(len(weights))):  # lines 3 to 14, layer i + 1
            with clock:
                for again in (False, True):
                    if again:  # what is not finite: with care, or with a word
                        layers = walk(H[: i + 1], T, activations[:i], **how)
                    solved = next(layers)
                    seen = measure(H[i], T, solved, weights[i], gradients[i], share)
                    if i == 0:
                        found = solved.W, *(record.W for record in reversed(records))
                        after = blend(weights, found, f)  # (20)
                        network = after, activations, output
                        seen["error"], wrong = judge(X, Y, *network, weight)
                    seen = read(seen)
                    if all(math.isfinite(seen[name]) for name in SOUND & seen.keys()):
                        break
            step += 1
            looks.append(seen)
            seconds = clock.seconds - sum(r.seconds for r in records)
            told = numbers(seen, T, H[i]) | {"seconds": seconds}
            records.append(Record(step, tau, i + 1, len(T), **told, W=solved.W, B=T))
            if i:
                yield records[-1]
            T = solved.B
        weights, error = after, seen["error"]
        if not math.isfinite(error) or any(math.isnan(s["moved"]) for s in looks):
            raise DivergedError(
                f"walk {tau}: error or weights for some of its targets are not finite"
            )
        kept = error < least
        if kept:
            best, least = weights, error
        clamped = [record.clamped for record in records[:-1]]
        last = records[-1]
        end = {"rank": last.rank, "condition": max(r.condition for r in records)}
        end |= {"overshoot": records[0].overshoot, "cosine": cosine(*looks)}
        end |= {"clamped": sum(clamped) / len(clamped), "seconds": clock.seconds}
        end |= judged(error, mass, labelled) | {"kept": kept}
        end = WalkEnd(tau, last.samples, f, **end, weights=weights, best=best)
        yield replace(last, end=end)
        if not labelled:
            return
        settings.check()
        clock = Clock(X.device)
        wanted = settings.data or (X, Y)
        if wanted[0] is not X or wanted[1] is not Y:
            X, Y = wanted
            check_shapes(X, Y, weights)
            weight = checked_weight(weight, X)
            with clock:
                B = output_targets(Y, **to_output)
                error, wrong = judge(X, Y, weights, activations, output, weight)
                least = error = error.item()
            best, kept = weights, True
        if not error or (settings.stop and not kept) or tau >= settings.max_walks:
            return
        with clock:
            if weight is None:
                rows = wrong.nonzero_static(size=int(error)).squeeze(-1)
            else:
                rows = wrong.nonzero().squeeze(-1)
        f = error / mass


def blend(old: Weights, new: Weights, f: float) -> Weights:
    r"""Old weights and new, layer by layer (Algorithm 2, line 20).

    (20) $W \leftarrow (1 - f)\,W + f\,W'$
    """
    return tuple((1 - f) * W + f * V for W, V in zip(old, new, strict=True))  # (20)


def measure(H: Tensor, B: Tensor, solved: LayerStep, W: Tensor, gradient, share=None):
    """What `numbers` needs of a layer: with values H below it and weights W before."""
    root = None if share is None else share.sqrt()
    R = weighed(root, B - H @ solved.V)
    change, norm = solved.W - W, torch.linalg.vector_norm
    seen = {"rank": solved.info.rank, "condition": solved.info.condition}
    seen |= {"residual": norm(R), "moved": norm(change), "slope": norm(gradient)}
    seen["down"] = -(change * gradient).sum()
    if solved.T is not None:
        seen["overshoot"] = overshoot(weighed(root, solved.T - H), solved.V, R)
        seen["clamped"] = counted(solved.T != solved.C, share)
        seen["below"] = solved.B.sum()
    return seen


def read(seen: dict[str, Tensor]) -> dict[str, float]:
    """Numbers on a device as the host has them; it waits this once."""
    return dict(zip(seen, torch.hstack([*seen.values()]).tolist(), strict=True))


def numbers(seen: dict[str, float], B: Tensor, H: Tensor) -> dict:
    """What `measure` saw as fields of a `Record`."""
    told = {"rank": int(seen["rank"]), "condition": seen["condition"]}
    told["residual"] = seen["residual"] / B.numel() ** 0.5
    told["overshoot"] = seen.get("overshoot", math.nan)
    told["clamped"] = seen.get("clamped", math.nan) / H.numel()
    return told | {"cosine": cosine(seen)}


def cosine(*looks: dict[str, float]) -> float:
    """Of the change of these layers with the negative gradient; 0 if either is 0."""
    sizes = [math.hypot(*(s[name] for s in looks)) for name in ("moved", "slope")]
    down = sum(seen["down"] for seen in looks)
    return down / math.prod(sizes) if all(sizes) else 0.0


def judge(X, Y, weights, activations, output, weight=None):
    """Number or weight of misses, and which they are; for values the RMSE, and None."""
    S = scores(X, weights, activations)
    if Y.dtype != torch.int64:
        squares = (output.value(S) - Y).square()
        return weighed(relative(weight), squares).mean().sqrt(), None
    wrong = S.argmax(-1) != Y
    return counted(wrong, weight), wrong


def checked_weight(weight: Tensor | None, X: Tensor) -> Tensor | None:
    """Of X's type; ValueError unless None, or one >= 0 for each row, and not all 0."""
    if weight is None:
        return None
    fits = weight.shape == (len(X),) and bool((weight >= 0).all())
    if not fits or not 0 < weight.sum() < math.inf:
        raise ValueError(
            f"weight must be {len(X)} numbers >= 0, as X has rows, and not all 0; got "
            f"{weight}"
        )
    return weight.to(X.dtype)


def chosen(values: Tensor | None, rows: Tensor | None) -> Tensor | None:
    """These rows, or all for None: a sparse tensor has no slices."""
    return values if values is None or rows is None else values.index_select(0, rows)


def relative(weight: Tensor | None) -> Tensor | None:
    """Weights over their mean, as a column (D, 1); None where there are none."""
    return None if weight is None else (weight / weight.mean())[:, None]


def counted(found: Tensor, weight: Tensor | None) -> Tensor:
    """How many entries are true, or what they weigh."""
    if weight is None:
        return torch.count_nonzero(found)
    return (weight * found).sum()


def judged(error: float, mass: float, labelled: bool) -> dict:
    """An error of `judge` as the fields of a `WalkEnd`; mass: samples, or weight."""
    if labelled:
        error = type(mass)(error)
        return {"misses": error, "accuracy": 1 - error / mass, "rmse": None}
    return {"misses": None, "accuracy": None, "rmse": error}


def differentiate(X, Y, weights, activations, output, share=None):
    """Hidden values H_0..H_L and the gradient of the loss, in one pass.

    The loss is the cross-entropy of labels, or half the mean squared error of values.
    """
    with torch.enable_grad():
        leaves = tuple(W.detach().requires_grad_() for W in weights)
        H = hidden_values(X, leaves, activations)
        S = H[-1] @ leaves[-1]
        if Y.dtype == torch.int64:
            how = "mean" if share is None else "none"
            loss = F.cross_entropy(S, Y, reduction=how)
            loss = loss if share is None else share[:, 0] @ loss / len(loss)
        else:
            loss = weighed(share, (output.value(S) - Y).square()).mean() / 2
        gradients = torch.autograd.grad(loss, leaves)
    return [h.detach() for h in H], gradients


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
    labelled = Y.dtype == torch.int64
    if Y.ndim < (1 if labelled else 2) or Y.shape[-1 if labelled else -2] != len(X):
        raise ValueError(
            f"Y must be {len(X)} labels (int64) or rows of values, as X has rows; got "
            f"shape {tuple(Y.shape)}, {Y.dtype}"
        )
    if labelled:
        least, most = torch.stack(Y.aminmax()).tolist()
        if least < 0 or most >= widths[-1]:
            raise ValueError(
                f"labels must lie in 0..{widths[-1] - 1}, got {least}..{most}"
            )
    elif Y.shape[-1] != widths[-1]:
        raise ValueError(f"Y has {Y.shape[-1]} columns for {widths[-1]} outputs")
