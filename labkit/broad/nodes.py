r"""The random part of a broad learning model: feature and enhancement nodes.

Zhu's paper, section II-B, equations (9) to (19):

(9) $Z_i = \phi(X W_i + \beta_i)$    (10) $Z = [Z_1, \dots, Z_n]$
(11) $H_j = \xi(Z W_j + \beta_j)$

with $\phi$ the affine map of each node to [0, 1] and $\xi = \tanh$. Random weights are
drawn once and kept; only the output weights are learned, elsewhere. What the paper's
text leaves open (the autoencoder, the two scalings, orthonormal weights) follows the
original authors' published recipe, which reproduces the paper's accuracies.

A (l, k) is the expanded input and Z (l, f) its feature nodes. Every enhancement node is
computed from Z, so that A can be made at any time from Z alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from labkit.check import check_options, integer

BIAS = 0.1  # the constant input of every node
ROUNDINGS = 16  # of a mean, up to which a standard deviation counts as 0
CHUNK = 8192  # samples at a time, where they are not needed all at once
SCALINGS = ("sample", "feature", "none")


class Samples:
    """The training samples from which nodes are drawn: all of them are at hand.

    Where a worker has only its own samples, as in :mod:`labkit.scale`, a subclass
    returns the sums and the maxima over those of all.
    """

    def sum(self, sums: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the sums over all samples from those over the samples at hand."""
        return sums

    def largest(self, values: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the largest values, entry by entry, from those at hand."""
        return values


ALL = Samples()


@dataclass(frozen=True)
class Update:
    """The nodes that one update adds: a feature group and enhancement nodes."""

    features: int = 0
    own: int = 0  # enhancement nodes of the new features only
    extra: int = 0  # enhancement nodes of all features

    def __post_init__(self) -> None:
        counts = {field: getattr(self, field) for field in ("features", "own", "extra")}
        check_options(counts, dict.fromkeys(counts, integer(0)), "Update")
        if self.features + self.extra == 0 or (self.own and not self.features):
            raise ValueError(f"an update needs features or extra nodes, got {self}")

    @property
    def columns(self) -> int:
        """The number of nodes that the update adds."""
        return self.features + self.own + self.extra


@dataclass(frozen=True)
class Features:
    """One group of feature nodes."""

    weight: Tensor  # (d + 1, n)
    low: Tensor  # (n,) least value of each node on the training data
    span: Tensor  # (n,) greatest minus least
    columns: tuple[int, int]  # their range of columns in Z

    def __call__(self, X: Tensor) -> Tensor:
        """Compute the nodes of prepared X (l, d + 1), in [0, 1] on training data."""
        return (X @ self.weight - self.low) / self.span  # (9)


@dataclass(frozen=True)
class Enhancement:
    """One group of enhancement nodes."""

    weight: Tensor  # (f + 1, n), the common scale included
    reads: tuple[int, int]  # the range of columns of Z that they see

    def __call__(self, Z: Tensor, out: Tensor | None = None) -> Tensor:
        """Compute the nodes from all features Z (l, f)."""
        Z = Z[:, slice(*self.reads)]
        H = torch.addmm(BIAS * self.weight[-1], Z, self.weight[:-1], out=out)
        return H.tanh_()  # (11)


@dataclass(frozen=True)
class Preparation:
    """The scaling of inputs before the constant 0.1 is appended.

    ``"sample"`` standardises every row to mean 0 and standard deviation 1 (divisor
    d - 1), as in the paper's experiments, and is meant for images. ``"feature"``
    standardises every column by the training data's mean and standard deviation.
    ``"none"`` leaves the inputs as they are.
    """

    scaling: str
    mean: Tensor | None = None  # (d,), of "feature"
    deviation: Tensor | None = None  # (d,), of "feature"; 1 of a constant column

    def __call__(self, X: Tensor) -> Tensor:
        """Scale X (l, d) and append the constant column; return (l, d + 1)."""
        if self.scaling == "sample":
            mean = X.mean(1, keepdim=True)
            X = X - mean
            X = X / deviation(X.square().sum(1, keepdim=True), X.shape[1] - 1, mean)
        elif self.scaling == "feature":
            X = (X - self.mean) / self.deviation
        return torch.cat([X, X.new_full((len(X), 1), BIAS)], 1)

    @classmethod
    def fit(cls, scaling: str, X: Tensor, samples: Samples = ALL) -> "Preparation":
        """Fit the preparation to training inputs X (l, d)."""
        if scaling != "feature":
            return cls(scaling)
        total, count = samples.sum([X.sum(0), X.new_tensor(len(X))])
        mean = total / count
        (squares,) = samples.sum([(X - mean).square().sum(0)])
        return cls(scaling, mean, deviation(squares, count, mean))


@dataclass(frozen=True)
class Recipe:
    """The settings for drawing nodes; the defaults are the paper's for MNIST."""

    shrink: float = 0.8  # largest pre-activation of an enhancement group
    orthonormal: bool = True  # enhancement weights
    sparse_penalty: float = 1e-3  # of the autoencoder
    sparse_iter: int = 50  # ADMM steps


@dataclass(frozen=True)
class Nodes:
    """All groups of nodes, in the order of their columns in A."""

    prepare: Preparation
    groups: tuple[Features | Enhancement, ...] = ()

    @property
    def columns(self) -> int:
        """The width k of A."""
        return sum(group.weight.shape[1] for group in self.groups)

    @property
    def features(self) -> int:
        """The width f of Z."""
        return sum(
            group.weight.shape[1]
            for group in self.groups
            if isinstance(group, Features)
        )

    def with_group(self, group: Features | Enhancement) -> "Nodes":
        """Return these nodes with one more group."""
        return replace(self, groups=(*self.groups, group))

    def features_of(self, X: Tensor) -> Tensor:
        """Compute Z (l, f) from raw inputs X (l, d)."""
        Z = self.groups[0].weight.new_empty(len(X), self.features)
        for x, z in zip(X.split(CHUNK), Z.split(CHUNK), strict=True):
            x = self.prepare(x)
            for group in self.groups:
                if isinstance(group, Features):
                    z[:, slice(*group.columns)] = group(x)  # (10)
        return Z

    def expand(self, Z: Tensor, out: Tensor | None = None) -> Tensor:
        """Compute A (l, k) from Z (l, f); 2 l f operations per enhancement node."""
        widths = [group.weight.shape[1] for group in self.groups]
        A = Z.new_empty(len(Z), sum(widths)) if out is None else out
        for group, block in zip(self.groups, A.split(widths, 1), strict=True):
            if isinstance(group, Features):
                block.copy_(Z[:, slice(*group.columns)])
            else:
                group(Z, out=block)
        return A

    def apply(self, X: Tensor) -> Tensor:
        """Compute A (l, k) from raw X (l, d); the training inputs give A itself."""
        return self.expand(self.features_of(X))

    def between(self, i: int, j: int) -> "Nodes":
        """Return the nodes of the columns i to j, without j."""
        kept = []
        for group in self.groups:
            n = group.weight.shape[1]
            start, stop = max(i, 0), min(j, n)
            if start < stop:
                whole = stop - start == n
                kept.append(group if whole else _narrowed(group, start, stop))
            i, j = i - n, j - n
        return replace(self, groups=tuple(kept))


def draw(
    nodes: Nodes,
    X: Tensor,
    Z: Tensor,
    update: Update,
    recipe: Recipe,
    generator: Generator,
    samples: Samples = ALL,
) -> tuple[Nodes, Tensor]:
    """Draw the nodes of an update or of a start by (9) and (11), group by group.

    Parameters
    ----------
    nodes : Nodes, those so far
    X : (l, d + 1) tensor, the prepared training inputs
    Z : (l, f) tensor, features of the training data so far
    recipe, generator : Recipe, torch.Generator
    samples : Samples, which adds up what is summed over the training data

    Returns
    -------
    nodes : Nodes, with those of the update
    Z : (l, f + features) tensor
    """
    f = Z.shape[1]
    if update.features:
        group, new = _features(X, f, update.features, recipe, generator, samples)
        nodes, Z = nodes.with_group(group), torch.cat([Z, new], 1)  # (10)
    for n, reads in ((update.own, (f, Z.shape[1])), (update.extra, (0, Z.shape[1]))):
        if n:
            nodes = nodes.with_group(
                _enhancement(Z, reads, n, recipe, generator, samples)
            )
    return nodes, Z


def _features(
    X: Tensor, f: int, n: int, recipe: Recipe, generator: Generator, samples: Samples
) -> tuple[Features, Tensor]:
    """Draw and tune a group of n feature nodes after f others; return it and Z_i."""
    d = X.shape[1]
    W = uniform(d, n, generator).to(X)
    gram, cross = X.new_zeros(n, n), X.new_zeros(n, d)
    for x in X.split(CHUNK):
        M = rows_to_unit_range(x @ W)
        gram.addmm_(M.T, M)
        cross.addmm_(M.T, x)
    gram, cross = samples.sum([gram, cross])
    tuned = sparse_autoencoder(gram, cross, recipe.sparse_penalty, recipe.sparse_iter)
    T = torch.cat([x @ tuned.T for x in X.split(CHUNK)])
    minus_low, high = samples.largest([-T.amin(0), T.amax(0)])
    low, span = -minus_low, nonzero(high + minus_low)
    group = Features(tuned.T.contiguous(), low, span, (f, f + n))
    return group, (T - low) / span  # (9)


def _enhancement(
    Z: Tensor,
    reads: tuple[int, int],
    n: int,
    recipe: Recipe,
    generator: Generator,
    samples: Samples,
) -> Enhancement:
    """Draw a group of n enhancement nodes, scaled by the training data; see (11)."""
    seen = Z[:, slice(*reads)]
    W = uniform(seen.shape[1] + 1, n, generator)
    W = (orthonormal(W) if recipe.orthonormal else W).to(Z)
    chunks = seen.split(CHUNK)
    largest = torch.stack([(z @ W[:-1] + BIAS * W[-1]).amax() for z in chunks]).amax()
    (largest,) = samples.largest([largest])
    scale = recipe.shrink / torch.where(largest > 0, largest, 1)
    return Enhancement(W * scale, reads)


def sparse_autoencoder(
    gram: Tensor, cross: Tensor, penalty: float = 1e-3, steps: int = 50, rho: float = 1
) -> Tensor:
    r"""Minimise $\frac12 \|M w - X\|^2 + \mu \|w\|_1$ by ADMM from 0; numbering ours.

    (1) $w \leftarrow (M^T M + \rho I)^{-1} (M^T X + \rho (o - u))$
    (2) $o \leftarrow soft(w + u, \mu / \rho)$    (3) $u \leftarrow u + w - o$

    Cost 2 n^2 d operations per step.

    Parameters
    ----------
    gram, cross : (n, n), (n, d) tensors, $M^T M$, $M^T X$
    penalty, rho : float, $\mu$, $\rho$

    Returns
    -------
    o : (n, d) tensor, $o$
    """
    L = torch.linalg.cholesky(
        gram + rho * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    )
    o, u = torch.zeros_like(cross), torch.zeros_like(cross)
    for _ in range(steps):
        w = torch.cholesky_solve(cross + rho * (o - u), L)  # (1)
        o = torch.nn.functional.softshrink(w + u, penalty / rho)  # (2)
        u = u + w - o  # (3)
    return o


def uniform(rows: int, columns: int, generator: Generator) -> Tensor:
    """Draw numbers uniform in [-1, 1], in float64 on the generator's device."""
    shares = torch.rand(
        (rows, columns),
        generator=generator,
        dtype=torch.float64,
        device=generator.device,
    )
    return shares * 2 - 1


def orthonormal(W: Tensor) -> Tensor:
    """Return W (m, n) with orthonormal columns, or orthonormal rows if n > m.

    It is an orthonormal basis of the same range, from a QR factorisation with fixed
    signs. The original recipe takes another basis of that range, from an SVD.
    """
    if W.shape[1] > W.shape[0]:
        return orthonormal(W.T).T
    Q, R = torch.linalg.qr(W)
    return Q * torch.where(R.diagonal() < 0, -1, 1)


def rows_to_unit_range(M: Tensor) -> Tensor:
    """Map every row of M (l, n) to [-1, 1]; a constant row stays as it is."""
    low, high = M.amin(1, keepdim=True), M.amax(1, keepdim=True)
    span = high - low
    return torch.where(span > 0, 2 * (M - low) / nonzero(span) - 1, M)


def deviation(squares: Tensor, count: Tensor | int, mean: Tensor) -> Tensor:
    """Return the root of squares / count, or 1 where the mean's rounding explains it.

    The mean of equal numbers such as 0.1 differs from them by a few roundings.
    """
    found = (squares / count).sqrt()
    rounding = ROUNDINGS * torch.finfo(mean.dtype).eps * mean.abs()
    return torch.where(found > rounding, found, 1)


def nonzero(x: Tensor) -> Tensor:
    """Return x with 1 in the place of 0, to divide by."""
    return torch.where(x > 0, x, 1)


def _narrowed(group: Features | Enhancement, i: int, j: int) -> Features | Enhancement:
    weight = group.weight[:, i:j].clone()  # a pickled view would keep the whole tensor
    if isinstance(group, Enhancement):
        return replace(group, weight=weight)
    f = group.columns[0]
    return Features(weight, group.low[i:j], group.span[i:j], (f + i, f + j))
