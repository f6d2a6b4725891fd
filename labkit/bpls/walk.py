r"""Walk from the output to the input (Tomic et al. 2024, Algorithms 1 and 2).

A walk solves each layer once, the output layer first. The values $H_l$ of the network
before the walk stay fixed throughout. The new weights above a layer determine what the
layer should have produced, and that is the target of the next solve.

Weights are a tuple $W_1, \dots, W_{L+1}$ of (..., N_{l-1}, N_l) tensors for L hidden
layers. The only bias is a column of ones in the input. Leading dimensions are
independent networks: the Monte-Carlo toy runs a thousand at once.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.bpls.activations import (
    CLAMP,
    Activation,
    activation,
    check_inverse,
    clamp_targets,
    invertible,
    per_layer,
)
from labkit.bpls.solve import Solve, solve_layer
from labkit.bpls.targets import check_interpretation, hidden_targets
from labkit.check import (
    COUNT,
    POSITIVE,
    Range,
    check_making,
    check_options,
    integer,
)
from labkit.errors import DivergedError
from labkit.precision import outside_modes

LABEL_CLAMP = 1e-6  # of one-hot labels below the inverse softmax; scales all targets
RANGES = {
    "max_walks": integer(0),
    "scale": POSITIVE,
    "sizes": Range(
        "two widths >= 1 or more",
        lambda sizes: len(sizes) > 1 and all(map(COUNT.holds, sizes)),
    ),
}

Weights = tuple[Tensor, ...]
Activations = str | Activation | Sequence[str | Activation]


class LayerStep(NamedTuple):
    """One solved layer; without a layer below it, T, C and B are None."""

    layer: int  # l, from L + 1 down to 1
    W: Tensor  # (..., N_{l-1}, N_l) the layer's new weights
    V: Tensor  # the first estimate; W itself but for Algorithm 2
    info: Solve  # of the first estimate
    T: Tensor | None = None  # (..., D, N_{l-1}) corrected values below
    C: Tensor | None = None  # the same, clamped
    B: Tensor | None = None  # the targets of the layer below, a^{-1}(C)


@dataclass(eq=False)
class Settings:
    """Options of the walks, read and checked before every layer.

    The caller may change the object between two steps of `walk` or `train`.

    Attributes
    ----------
    interpretation : str or int, of equation (5); see `hidden_targets`
    clamp : float in (0, 0.5) or None
        See `clamp_targets`; it also holds for outputs that are values. With None,
        targets do not change, and one without an inverse raises an error.
    ridge, rcond, method : optional, see `solve_layer`
    max_walks : int >= 0, cap on the walks over misses; 0 leaves the first walk only
    stop : bool
        Whether to stop at the first walk that does not reduce the misses. The paper's
        own condition, line 18, lets later walks undo what earlier ones have learned;
        False follows it. The best weights are kept in both cases.
    data : pair of tensors, optional
        (X, Y) from the next walk on misses on, such as the same images with other
        noise. If they are not the tensors of the last walk, the misses are counted
        again on them, and the search for the best weights starts again.
    """

    interpretation: str | int = "min_norm"
    clamp: float | None = CLAMP
    ridge: float | None = None
    rcond: float | None = None
    method: str | None = None
    max_walks: int = 20
    stop: bool = True
    data: tuple[Tensor, Tensor] | None = None

    def check(self, outputs: float = math.inf) -> None:
        """Raise ValueError if a layer with so many outputs cannot use these settings.

        What `solve_layer` and `clamp_targets` take is checked there.
        """
        check_interpretation(self.interpretation, outputs)
        check_options({"max_walks": self.max_walks}, RANGES)


def settings_of(settings: Settings | None, options: Mapping[str, Any]) -> Settings:
    """Return the settings, or make them from options; TypeError if both are given."""
    if settings is None:
        return Settings(**options)
    if options:
        raise TypeError(
            f"settings are given, so these change nothing: {', '.join(options)}"
        )
    return settings


def random_weights(
    sizes: Sequence[int],
    *,
    scale: float = 1.0,
    runs: Sequence[int] = (),
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Weights:
    """Draw W_1..W_{L+1} from U[-scale, scale] (Algorithm 1, line 1).

    Parameters
    ----------
    sizes : sequence of int, M, N_1, ..., N_L, J
    scale : float, 1 in the paper
    runs : sequence of int, leading dimensions: so many independent networks
    generator : torch.Generator, optional
        Its device is where the numbers are drawn, in float64, so that every dtype and
        every ``device`` gets the same network.

    Raises
    ------
    ValueError, TypeError
        Fewer than two widths, or one below 1; a scale that is not > 0; a dtype or a
        device of which there are no such numbers.
    """
    check_options({"sizes": sizes, "scale": scale}, RANGES)
    check_making(generator, dtype, device)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    source = "cpu" if generator is None else generator.device
    weights = []
    for shape in pairwise(sizes):
        drawn = torch.rand(
            (*runs, *shape), generator=generator, dtype=torch.float64, device=source
        )
        weights.append((scale * (2 * drawn - 1)).to(dtype=dtype, device=device))
    return tuple(weights)


@outside_modes()
def hidden_values(
    X: Tensor, weights: Weights, activations: Activations
) -> list[Tensor]:
    r"""Compute H_0..H_L, the values of all layers but the output layer.

    (2), (3): $H_l = a_l(H_{l-1} W_l), \; H_0 = X$

    Parameters
    ----------
    X : (..., D, M) tensor, inputs
    weights : tuple of tensors, W_1..W_{L+1}
    activations : str, Activation, or a sequence of one per hidden layer

    Returns
    -------
    list of L + 1 tensors (..., D, N_l)

    Raises
    ------
    ValueError
        Another number of activations than of hidden layers.
    """
    H = [X]
    chosen = per_layer(activations, len(weights) - 1)
    for W, a in zip(weights[:-1], chosen, strict=True):
        H.append(a.value(H[-1] @ W))  # (2), (3)
    return H


@outside_modes()
def scores(X: Tensor, weights: Weights, activations: Activations) -> Tensor:
    r"""Compute the outputs before the output activation, (..., D, J).

    The arguments are those of `hidden_values`.

    (1) $S = H_L W_{L+1}$
    """
    return hidden_values(X, weights, activations)[-1] @ weights[-1]  # (1)


def output_targets(
    Y: Tensor,
    output: str | Activation = "identity",
    clamp: float | None = CLAMP,
    *,
    classes: int | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Compute the output layer's targets before its activation, B_{L+1}.

    Parameters
    ----------
    Y : (..., D, J) tensor of values, or (D,) int64 tensor of labels
        Labels become one-hot and go through the inverse softmax, clamped to [1e-6, 1].
    output, clamp : as for `train` and `clamp_targets`, for values
    classes, dtype : J and the type of the targets, for labels

    Raises
    ------
    ValueError
        If a value lies outside the range of the output activation and is not clamped.
    """
    if Y.dtype == torch.int64:
        onehot = F.one_hot(Y, -1 if classes is None else classes)
        onehot = onehot.to(torch.get_default_dtype() if dtype is None else dtype)
        return onehot.clamp(LABEL_CLAMP, 1).log()
    a = invertible(activation(output))
    C = clamp_targets(Y, a, clamp)
    B = a.inverse(C)
    check_inverse(B, C, a)
    return B


@outside_modes()
def layer_step(
    layer: int,
    H: Tensor,
    B: Tensor,
    a: Activation,
    *,
    interpretation: str | int = "min_norm",
    clamp: float | None = CLAMP,
    second_solve: bool = False,
    ridge: float | None = None,
    rcond: float | None = None,
    method: str | None = None,
) -> LayerStep:
    r"""Solve one layer and propagate its targets to the layer below.

    Algorithm 1, lines 6 and 8:

    (6) $V = (H^T H)^{-1} H^T B$    (5) $T = H + R\,V^+$ with $R = B - H V$

    and, with the clamp and the inverse activation that the paper leaves to the reader,

    (7) $C = \mathrm{clamp}_\varepsilon(T)$    (8) $B' = a^{-1}(C)$.

    Algorithm 1 keeps $W = V$. Algorithm 2 solves again on the corrected values, its
    lines 8 and 9:

    (9) $W = (C^T C)^{-1} C^T B$.

    (7) to (9) are our numbers.

    Parameters
    ----------
    layer : int, l, for the record only
    H : (..., D, N) tensor, values below the layer, of the network before the walk
    B : (..., D, J) tensor, the layer's targets
    a : Activation, of the values H
    interpretation : str or int, of (5); see `hidden_targets`
    clamp : float or None, see `clamp_targets`
    second_solve : bool, whether (9) is done
    ridge, rcond, method : see `solve_layer`
    """
    check_interpretation(interpretation, B.shape[-1])
    V, info = solve_layer(H, B, ridge=ridge, rcond=rcond, method=method)  # (6)
    T = hidden_targets(H, V, B, interpretation)  # (5)
    C = clamp_targets(T, a, clamp)  # (7)
    below = a.inverse(C)  # (8)
    if second_solve:
        W, _ = solve_layer(C, B, ridge=ridge, rcond=rcond, method=method)  # (9)
    else:
        W = V
    return LayerStep(layer=layer, W=W, V=V, info=info, T=T, C=C, B=below)


def walk(
    H: Sequence[Tensor],
    B: Tensor,
    activations: Activations,
    settings: Settings | None = None,
    *,
    second_solve: bool = False,
    **options: Any,
) -> Iterator[LayerStep]:
    r"""Solve every layer once, and yield a `LayerStep` for l = L + 1, ..., 1.

    All layers but the input layer are solved by `layer_step`, and that one by

    (6) $W_1 = (X^T X)^{-1} X^T B$, with $X = H_0$.

    Parameters
    ----------
    H : L + 1 tensors (..., D, N_l), `hidden_values` of the network before the walk
    B : (..., D, J) tensor, `output_targets`
    activations : str, Activation, or a sequence of one per hidden layer
    settings : Settings, optional, read before each layer
    second_solve : bool, see `layer_step`; what parts Algorithm 2 from Algorithm 1
    **options : fields of `Settings`, where there is no object that may change

    Raises
    ------
    ValueError
        Settings out of range; an activation without inverse; a target outside the range
        of an inverse without a clamp.
    DivergedError
        Values or targets that are not finite.

    Notes
    -----
    One factorisation serves all neurons of a layer, so a walk costs about D sum_l
    N_{l-1}^2 multiply-adds, mostly for the input layer.
    """
    settings = settings_of(settings, options)
    chosen = [invertible(a) for a in per_layer(activations, len(H) - 1)]
    try:
        for layer in range(len(H), 1, -1):
            settings.check(B.shape[-1])
            step = layer_step(
                layer,
                H[layer - 1],
                B,
                chosen[layer - 2],
                interpretation=settings.interpretation,
                clamp=settings.clamp,
                second_solve=second_solve,
                ridge=settings.ridge,
                rcond=settings.rcond,
                method=settings.method,
            )
            check_inverse(step.B, step.C, chosen[layer - 2])
            yield step
            B = step.B
        settings.check()
        W, info = solve_layer(
            H[0],
            B,
            ridge=settings.ridge,
            rcond=settings.rcond,
            method=settings.method,
        )  # (6), for l = 1
    except torch.linalg.LinAlgError as error:
        raise DivergedError(
            f"the values of a layer, or their squares, are not finite in {B.dtype}; "
            "scale the inputs down"
        ) from error
    yield LayerStep(layer=1, W=W, V=W, info=info)


def walked(
    X: Tensor, B: Tensor, weights: Weights, activations: Activations, **options: Any
) -> Weights:
    """Return the weights after one whole walk; ``options`` are those of `walk`.

    Examples
    --------
    >>> X = torch.tensor([[1.0, 1], [3, 1], [5, 1]], dtype=torch.float64)
    >>> Y = X @ torch.tensor([[2.0], [-1]], dtype=torch.float64)
    >>> generator = torch.Generator().manual_seed(0)
    >>> start = random_weights((2, 3, 1), generator=generator, dtype=torch.float64)
    >>> weights = walked(X, Y, start, "identity", ridge=0)
    >>> torch.allclose(scores(X, weights, "identity"), Y)
    True
    """
    H = hidden_values(X, weights, activations)
    steps = walk(H, B, activations, **options)
    return tuple(step.W for step in steps)[::-1]


def solve_output(
    X: Tensor, B: Tensor, weights: Weights, activations: Activations, **solver: Any
) -> Weights:
    r"""Solve the output layer again, on the hidden values of the new weights.

    (6) $W_{L+1} = (H_L^T H_L)^{-1} H_L^T B$

    This is our remedy for Algorithm 1, whose output weights fit the hidden values of
    the random network and not the final ones.
    """
    H = hidden_values(X, weights, activations)[-1]
    return (*weights[:-1], solve_layer(H, B, **solver)[0])  # (6), for l = L + 1
