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
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.bpls import solve
from labkit.bpls.activations import (
    CLAMP,
    Activation,
    clamp_targets,
    invertible,
    per_layer,
    send_back,
)
from labkit.bpls.checks import (
    DTYPES,
    check_generator,
    check_matrix,
    check_weights,
)
from labkit.bpls.solve import Solve, solve_layer
from labkit.bpls.targets import FLAG, check_interpretation, hidden_targets
from labkit.check import (
    COUNT,
    POSITIVE,
    check_device,
    check_options,
    check_tensor,
    described,
    integer,
    number,
    optional,
)

LARGEST = 2**40  # entries of a network's weights
LABEL_CLAMP = 1e-6  # of one-hot labels below the inverse softmax; scales all targets

RANGES = {
    "clamp": optional(number("in (0, 0.5)", lambda v: 0 < v < 0.5)),
    "ridge": solve.RANGES["ridge"],
    "rcond": solve.RANGES["rcond"],
    "method": solve.RANGES["method"],
    "max_walks": integer(0),
}

FLAGS = {"clamp": RANGES["clamp"], "second_solve": FLAG, "careful": FLAG}

Weights = tuple[Tensor, ...]


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

    def check(self) -> None:
        """Raise ValueError if no walk can use these settings."""
        check_interpretation(self.interpretation)
        check_options({name: getattr(self, name) for name in RANGES}, RANGES)

    def of_solve(self, careful: bool = True) -> dict:
        """Return checked keyword arguments for `solve_layer`.

        ``careful`` is True at least if no Cholesky factor is taken: a decomposition
        waits for a device anyway, and refuses what is not finite.
        """
        self.check()
        solver = {"ridge": self.ridge, "rcond": self.rcond, "method": self.method}
        decomposed = self.ridge == 0 or self.method in ("eigh", "svd")
        return solver | {"careful": careful or decomposed}

    def of_layer(self, careful: bool = True) -> dict:
        """Return checked keyword arguments for `layer_step`."""
        correction = {"interpretation": self.interpretation, "clamp": self.clamp}
        return correction | self.of_solve(careful)


def settings_of(settings: Settings | None, options: Mapping[str, Any]) -> Settings:
    """Return the settings, or make them from options; TypeError if both are given."""
    if settings is None:
        return Settings(**options)
    if not isinstance(settings, Settings):
        raise TypeError(f"settings must be Settings, got {described(settings)}")
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
    TypeError, ValueError
        Sizes that are not whole numbers >= 1, at least two, or weights with more than
        2**40 entries; a scale that is not > 0; a dtype that is not floating point; a
        device that is not there.
    """
    check_options({"scale": scale}, {"scale": POSITIVE})
    check_sizes(sizes, runs)
    check_generator(generator)
    check_device(device)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating-point type, got {dtype!r}")
    source = "cpu" if generator is None else generator.device
    scale = float(scale)
    draw = partial(torch.rand, generator=generator, dtype=torch.float64, device=source)
    return tuple(
        (scale * (2 * draw(*runs, *shape) - 1)).to(dtype=dtype, device=device)
        for shape in pairwise(sizes)
    )


def check_sizes(sizes: Sequence[int], runs: Sequence[int] = ()) -> None:
    """Raise ValueError for widths that no weights can have."""
    table = {"sizes": COUNT, "runs": COUNT}
    for name, values in (("sizes", sizes), ("runs", runs)):
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise TypeError(
                f"{name} must be a sequence of int, got {described(values)}"
            )
        for value in values:
            check_options({name: value}, table)
    if len(sizes) < 2:
        raise ValueError(f"sizes must have two widths or more, got {sizes!r}")
    entries = math.prod(runs) * sum(a * b for a, b in pairwise(sizes))
    if entries > LARGEST:
        raise ValueError(
            f"weights of the sizes {tuple(sizes)} would have {entries:.3g} entries"
        )


def hidden_values(
    X: Tensor,
    weights: Weights,
    activations: str | Activation | Sequence[str | Activation],
) -> list[Tensor]:
    r"""Compute H_0..H_L, the values of all layers but the output layer.

    (2), (3): $H_l = a_l(H_{l-1} W_l), \; H_0 = X$

    Parameters
    ----------
    X : (..., D, M) tensor, inputs, dense or in COO form
    weights : tuple of tensors, W_1..W_{L+1}
    activations : str, Activation, or a sequence of one per hidden layer

    Returns
    -------
    list of L + 1 tensors (..., D, N_l)

    Raises
    ------
    TypeError, ValueError
        Weights that do not fit X or each other; another number of activations.
    """
    check_matrix("X", X, ("...", "D", "M"), sparse=True)
    check_weights(X, weights)
    return forward(X, weights, per_layer(activations, len(weights) - 1))


def forward(
    X: Tensor, weights: Weights, activations: Sequence[Activation]
) -> list[Tensor]:
    """Compute what `hidden_values` does, of what has been checked."""
    H = [X]
    for W, a in zip(weights[:-1], activations, strict=True):
        H.append(a.value(H[-1] @ W))  # (2), (3)
    return H


def scores(
    X: Tensor,
    weights: Weights,
    activations: str | Activation | Sequence[str | Activation],
) -> Tensor:
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
    TypeError, ValueError
        If Y is neither labels nor values, or if a value lies outside the range of the
        output activation and is not clamped.
    """
    check_tensor("Y", Y, dtype=(torch.int64, *DTYPES))
    check_options({"clamp": clamp}, RANGES)
    if Y.dtype == torch.int64:
        check_labels(Y, classes)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if not isinstance(dtype, torch.dtype) or dtype not in DTYPES:
            raise TypeError(f"dtype must be float32 or float64, got {dtype!r}")
        onehot = F.one_hot(Y, -1 if classes is None else classes).to(dtype)
        return onehot.clamp(LABEL_CLAMP, 1).log()
    a = invertible(output)
    check_tensor("Y", Y, shape=("...", "D", "J"), dtype=DTYPES)
    return send_back(clamp_targets(Y, a, clamp), a)


def check_labels(Y: Tensor, classes: int | None) -> None:
    """Raise ValueError for labels out of range, if that needs no wait for a device."""
    check_options({"classes": classes}, {"classes": optional(integer(1, 10**7))})
    if Y.device.type != "cpu" or not Y.numel():
        return
    least, most = (int(value) for value in Y.aminmax())
    if least < 0 or (classes is not None and most >= classes):
        wanted = "0, 1, ..." if classes is None else f"0..{classes - 1}"
        raise ValueError(f"labels must lie in {wanted}, got {least}..{most}")


def layer_step(
    layer: int,
    H: Tensor,
    B: Tensor,
    a: str | Activation,
    *,
    interpretation: str | int = "min_norm",
    clamp: float | None = CLAMP,
    second_solve: bool = False,
    careful: bool = True,
    **solver: Any,
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
    a : str or Activation, of the values H
    interpretation : str or int, of (5); see `hidden_targets`
    clamp : float or None, see `clamp_targets`
    second_solve : bool, whether (9) is done
    careful : bool
        Whether each part checks that it was possible, which waits for a device. If it
        is False, a layer that could not be solved is not finite, and nothing waits.
    **solver : ``ridge``, ``rcond``, ``method``, ``root`` of `solve_layer`
    """
    check_options(
        {"clamp": clamp, "second_solve": second_solve, "careful": careful}, FLAGS
    )
    a, solver["careful"] = invertible(a), careful
    V, info = solve_layer(H, B, **solver)  # (6)
    T = hidden_targets(H, V, B, interpretation, careful)  # (5)
    C = clamp_targets(T, a, clamp)  # (7)
    below = send_back(C, a, careful)  # (8)
    W = solve_layer(C, B, **solver)[0] if second_solve else V  # (9)
    return LayerStep(layer, W, V, info, T, C, below)


def walk(
    H: Sequence[Tensor],
    B: Tensor,
    activations: Sequence[Activation],
    settings: Settings | None = None,
    *,
    second_solve: bool = False,
    careful: bool = True,
    root: Tensor | None = None,
    **options: Any,
) -> Iterator[LayerStep]:
    r"""Solve every layer once, and yield a `LayerStep` for l = L + 1, ..., 1.

    All layers but the input layer are solved by `layer_step`, and that one by

    (6) $W_1 = (X^T X)^{-1} X^T B$, with $X = H_0$.

    Parameters
    ----------
    H : L + 1 tensors (..., D, N_l), `hidden_values` of the network before the walk
    B : (..., D, J) tensor, `output_targets`
    activations : sequence of L `Activation`
    settings : Settings, optional, read before each layer
    second_solve : bool, see `layer_step`; what parts Algorithm 2 from Algorithm 1
    careful : bool, see `layer_step`
    root : (D, 1) tensor, optional, of the samples' weights, see `solve_layer`
    **options : fields of `Settings`, where there is no object that may change

    Notes
    -----
    One factorisation serves all neurons of a layer, so a walk costs about D sum_l
    N_{l-1}^2 multiply-adds, mostly for the input layer.
    """
    settings = settings_of(settings, options)
    if not isinstance(H, tuple | list) or not H:
        raise TypeError(
            f"H must be the values of one layer or more, got {described(H)}"
        )
    activations = per_layer(activations, len(H) - 1)
    for layer in range(len(H), 1, -1):
        step = layer_step(
            layer,
            H[layer - 1],
            B,
            activations[layer - 2],
            second_solve=second_solve,
            root=root,
            **settings.of_layer(careful),
        )
        yield step
        B = step.B
    solver = settings.of_solve(careful)
    W, info = solve_layer(H[0], B, root=root, **solver)  # (6), for l = 1
    yield LayerStep(1, W, W, info)


def walked(
    X: Tensor,
    B: Tensor,
    weights: Weights,
    activations: str | Activation | Sequence[str | Activation],
    **options: Any,
) -> Weights:
    """Return the weights after one whole walk; ``options`` are those of `walk`.

    Examples
    --------
    >>> X = torch.tensor([[1.0, 1], [3, 1], [5, 1]], dtype=torch.float64)
    >>> Y = X @ torch.tensor([[2.0], [-1]], dtype=torch.float64)
    >>> g = torch.Generator().manual_seed(0)
    >>> start = random_weights((2, 3, 1), generator=g, dtype=torch.float64)
    >>> weights = walked(X, Y, start, "identity", ridge=0)
    >>> torch.allclose(scores(X, weights, "identity"), Y)
    True
    """
    H = hidden_values(X, weights, activations)
    steps = walk(H, B, activations, **options)
    return tuple(step.W for step in steps)[::-1]


def solve_output(
    X: Tensor,
    B: Tensor,
    weights: Weights,
    activations: str | Activation | Sequence[str | Activation],
    **solver: Any,
) -> Weights:
    r"""Solve the output layer again, on the hidden values of the new weights.

    (6) $W_{L+1} = (H_L^T H_L)^{-1} H_L^T B$

    This is our remedy for Algorithm 1, whose output weights fit the hidden values of
    the random network and not the final ones.
    """
    H = hidden_values(X, weights, activations)[-1]
    return (*weights[:-1], solve_layer(H, B, **solver)[0])  # (6), for l = L + 1
