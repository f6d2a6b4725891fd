"""The base class of the two estimators: growth, removal of nodes and history."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from functools import wraps
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from labkit.arrays import Matrix, SparseRows, joined, plain, weights_of_rows
from labkit.broad.backends import Backend, ByRows, Sharded, Stored, Streamed, chunks
from labkit.broad.mesh import ALONE, Place
from labkit.broad.nodes import CHUNK, Nodes, Preparation, Update, draw
from labkit.broad.parameters import (
    ADDED,
    check_parameters,
    drops,
    groups_of,
    keeps_factor,
    recipe_of,
    ridge_of,
    warn_of_bottleneck,
)
from labkit.broad.ridge import truncated
from labkit.broad.solvers import (
    rows_operations,
    start_operations,
    update_operations,
)
from labkit.broad.state import check_room
from labkit.broad.triangular import gram
from labkit.check import COUNT, check_options, check_squares
from labkit.clock import Clock


def at_once(method: Callable) -> Callable:
    """Make a method change its estimator all at once when it succeeds, or not at all.

    The method changes a shallow copy, which shares all attributes, so it must replace
    attributes rather than write into them. An error, an interrupt or a lack of memory
    leaves the estimator as it was.
    """

    @wraps(method)
    def change(self: "BroadLearning", *args: Any, **options: Any) -> "BroadLearning":
        changed = copy(self)
        method(changed, *args, **options)
        self.__dict__ = changed.__dict__
        return self

    return change


@dataclass(frozen=True)
class Growth:
    """One entry of ``history_``: the fit, or one change of columns or samples."""

    columns: int  # after the change
    features: int  # feature nodes among them
    added: int  # columns; negative where they were dropped
    seconds: float  # of the solver
    node_seconds: float  # of drawing, tuning and making nodes
    operations: float  # of the solver, by the formulas of labkit.broad.solvers
    smallest_pivot: float  # of this step's factorisation
    solver: str  # that made the change
    fallback: bool  # whether the chosen solver had lost a pivot
    samples: int  # seen so far
    factor_error: float | None = None  # |F^T R F - I|, once it is measured


@dataclass(eq=False, repr=False)
class BroadLearning(BaseEstimator):
    """Base class of estimators that grow; the subclasses interpret the targets."""

    n_groups: int | None = None
    nodes_per_group: int = 10
    n_enhancement: int = 1000
    _: KW_ONLY
    ridge: float | Sequence[float] | None = None
    solver: str = "chol-1"
    scaling: str = "feature"
    shrink: float | None = None
    orthonormal: bool = True
    sparse_penalty: float = 1e-3
    sparse_iter: int = 50
    dtype: str = "float64"
    device: str | None = None
    random_state: Any = None
    capacity: int | None = None
    chunk: int | None = None
    fallback: str | None = None
    mesh: Any = None

    _wide_shrink = 3.0  # the default for tables of many columns

    # Growing

    def _fit(
        self,
        X: Matrix,
        Y: np.ndarray,
        weight: np.ndarray | None,
        counts: np.ndarray | None = None,
        keep: bool = True,
    ) -> Self:
        """Draw the first nodes and solve for validated X (l, d), Y (l, c), weight (l,).

        ``counts`` (l,) is the weight without that of classes: how often every sample
        counts where one is left out. ``keep`` says whether to keep the samples, or only
        a triangle that can add more.
        """
        check_parameters(self, X.shape[1], weight, keep)
        warn_of_bottleneck(self, *X.shape, keep)
        groups = groups_of(self, X.shape[1])
        first = [Update(features=self.nodes_per_group)] * groups
        first += [Update(extra=self.n_enhancement)] if self.n_enhancement else []
        self.history_, self._stages, self.n_samples_seen_ = [], [], 0
        self._X, Y = self._tensor("X", X), self._tensor("y", Y)
        root = self._root(weight)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        seed = self._place.first_of(torch.tensor(seed, device=Y.device))
        self._generator = torch.Generator().manual_seed(int(seed))
        how = self.scaling, self._X, None if root is None else root**2, self._place
        self.nodes_ = Nodes(Preparation.fit(*how))
        self._Z = Y.new_zeros(len(Y), 0)
        self._columns = self._backend(Y, root, keep)
        if counts is not None:
            self._columns.counts = self._tensor("sample_weight", counts[:, None])[:, 0]
        self._grow(first, len(Y))
        self.ridge_, loo = self._columns.ridge, self._columns.loo
        self.loo_errors_ = None if loo is None else loo.cpu().numpy()
        if not keep:
            self._X = self._Z = self._generator = None
        return self

    def _take(self, X: Matrix, Y: np.ndarray, weight: np.ndarray | None) -> Self:
        """Add validated samples X, Y with their weights to the model."""
        columns = copy(self._kept("partial_fit"))
        c = columns.Y.shape[1]
        if Y.shape[1] != c:
            raise ValueError(f"y must have {c} outputs as before, got {Y.shape[1]}")
        dtype = str(self._W.dtype).removeprefix("torch.")
        X, Y = self._tensor("X", X, dtype), self._tensor("y", Y, dtype)
        making, whole = (Clock(self._W.device) for _ in range(2))
        with whole:
            with making:
                Z = self.nodes_.features_of(X)
            columns.take(self.nodes_, Z, Y, self._root(weight, dtype), making)
        self._columns = columns
        if self._X is not None:
            self._X, self._Z = joined(self._X, X), torch.cat([self._Z, Z])
        done = rows_operations(columns.solver, len(Y), self.nodes_.columns)
        state, stages = columns.state, self._stages[:-1]
        self._stages = [(k, truncated(state, k).W) for k, _ in stages]
        return self._noted(0, done, making, whole, len(Y))

    @at_once
    def add_nodes(self, n_enhancement: int) -> Self:
        """Add enhancement nodes that see all present features (14), (18).

        Returns
        -------
        self

        Raises
        ------
        NotPositiveDefinite
            A pivot was lost. The model stays as it was.
        ValueError, NotFittedError
        """
        self._kept("add_nodes", samples=True)
        check_options({"n_enhancement": n_enhancement}, ADDED)
        return self._grow([Update(extra=int(n_enhancement))])

    @at_once
    def add_feature_nodes(
        self, n_features: int = 10, n_own: int = 0, n_extra: int = 0
    ) -> Self:
        """Add one feature group with enhancement nodes (15), (19); see `add_nodes`.

        Parameters
        ----------
        n_features : int >= 1, feature nodes
        n_own : int, enhancement nodes that see these features only
        n_extra : int, enhancement nodes that see all features, these included

        Returns
        -------
        self
        """
        self._kept("add_feature_nodes", samples=True)
        check_options(
            {"n_features": n_features, "n_own": n_own, "n_extra": n_extra}, ADDED
        )
        return self._grow([Update(int(n_features), int(n_own), int(n_extra))])

    @available_if(drops)
    @at_once
    def drop_last(self, n: int) -> Self:
        """Remove the last n columns; nothing is factorised again.

        The factor of fewer columns is the leading block of the factor, so only the
        weights are computed anew. ``d-rdg`` and ``r-inv`` start again from the
        remaining columns; ``orig`` has no state for fewer columns, nor this method.

        Raises
        ------
        ValueError, NotFittedError
            No column would be left.

        Returns
        -------
        self
        """
        columns = copy(self._kept("drop_last"))
        check_options({"n": n}, {"n": COUNT})
        k = self.nodes_.columns - n
        if k < 1:
            raise ValueError(f"n must be < {self.nodes_.columns} columns, got {n}")
        making, whole = (Clock(self._W.device) for _ in range(2))
        with whole:
            columns.truncate(k)
        self._columns = columns
        self.nodes_ = self.nodes_.between(0, k)
        if self._Z is not None:
            self._Z = self._Z[:, : self.nodes_.features]
        self._stages = [stage for stage in self._stages if stage[0] < k]
        return self._noted(-n, 0.0, making, whole)

    @at_once
    def compact(self) -> Self:
        """Drop the training data and the solver's state; nodes and weights stay.

        Use this for a finished model: its pickle then holds what prediction needs, and
        no sample. It can no longer grow, drop nodes or add samples, and raises a
        ValueError if asked to.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        self._X = self._Z = self._generator = self._columns = None
        return self

    def _kept(self, who: str, samples: bool = False) -> Backend:
        """Return the backend, or raise a ValueError if its data were dropped."""
        check_is_fitted(self)
        if self._columns is None:
            raise ValueError(f"{who} needs what compact() has dropped; fit again")
        if samples and self._X is None:
            raise ValueError(
                f"{who} needs all samples, and a model begun by partial_fit keeps none "
                f"of them; begin it by fit, and partial_fit keeps them too"
            )
        return self._columns

    def _grow(self, updates: Sequence[Update], samples: int = 0) -> Self:
        """Draw the nodes of the updates and solve for the weights."""
        k, q = self.nodes_.columns, sum(update.columns for update in updates)
        if self.capacity is not None:
            check_room(k + q, self.capacity)
        nodes, Z, columns = self.nodes_, self._Z, copy(self._columns)
        generator = torch.Generator()
        generator.set_state(self._generator.get_state())
        recipe = recipe_of(self, self.n_features_in_)
        weight = None if columns.root is None else columns.root**2
        how = recipe, generator, self._place, weight
        X = _Prepared(nodes.prepare, self._X, self.chunk or CHUNK)
        making, whole = (Clock(Z.device) for _ in range(2))
        with whole:
            with making:
                for each in updates:
                    nodes, Z = draw(nodes, X, Z, each, *how)
            columns.grow(nodes, Z, making)
        self.nodes_, self._Z = nodes, Z
        self._columns, self._generator = columns, generator
        solver, l, c = columns.solver, len(Z), columns.Y.shape[1]  # noqa: E741
        if k:
            operations = update_operations(solver, l, k, q, c)
        else:
            operations = start_operations(solver, l, q, c)
        return self._noted(q, operations, making, whole, samples)

    def _noted(
        self,
        added: int,
        operations: float,
        making: Clock,
        whole: Clock,
        samples: int = 0,
    ) -> Self:
        """Keep the weights and add an entry to ``history_``."""
        columns, nodes = self._columns, self.nodes_
        fallback = bool(self.history_) and columns.solver != self.solver_
        self.solver_, self._W = columns.solver, columns.weights()
        self._stages = [*self._stages, (nodes.columns, self._W)]
        self.n_samples_seen_ += samples
        size = nodes.columns, nodes.features, added
        cost = whole.seconds - making.seconds, making.seconds, operations
        did = float(columns.state.pivot), self.solver_, fallback, self.n_samples_seen_
        self.history_ = [*self.history_, Growth(*size, *cost, *did)]
        return self

    # Reading

    @property
    def _place(self) -> Place:
        return ALONE if self.mesh is None else Place.on(self.mesh)

    @property
    def coef_(self) -> np.ndarray:
        """The output weights W (k, c), in the order of growth."""
        check_is_fitted(self)
        return self._W.cpu().numpy()

    def expand(self, X: Matrix) -> np.ndarray:
        """Compute the expanded input A (l, k) of X (l, d)."""
        check_is_fitted(self)
        return self.nodes_.apply(self._validated(X)).cpu().numpy()

    @available_if(keeps_factor)
    def factor(self) -> Tensor:
        """Return the upper triangular F (k, k), F F^T = (A^T A + ridge I)^-1 or nearly.

        It is a view, and exists only for solvers that keep F.
        """
        return self._kept("factor").state.F

    @available_if(keeps_factor)
    def factor_error(self) -> float:
        """Return the largest entry of |F^T R F - I| on the training data.

        It is noted in ``history_``, and in float64 is about 0.04 eps |A|^2 / ridge.
        The method exists only for solvers that keep F and costs 2 l k^2 operations,
        more than an update.
        """
        columns, F = self._kept("factor_error", samples=True), self.factor()
        error = columns.state.ridge * gram(F)
        rows = self._Z, columns.Y, columns.root, self.chunk or CHUNK, Clock("cpu")
        for _, A, _ in chunks(self.nodes_, 0, *rows):
            error += gram(A @ F)
        error.diagonal().sub_(1)
        largest = float(error.abs().amax())
        last = replace(self.history_[-1], factor_error=largest)
        self.history_ = [*self.history_[:-1], last]
        return largest

    def _raw(self, X: Matrix) -> Tensor:
        """Compute A W (l, c), a chunk of samples at a time."""
        X = self._validated(X)
        chunks = X.split(int(self.chunk or CHUNK))
        return torch.cat([self.nodes_.apply(x) @ self._W for x in chunks])

    def _staged_raw(self, X: Matrix) -> Iterator[Tensor]:
        A = self.nodes_.apply(self._validated(X))
        for k, W in self._stages:
            yield A[:, :k] @ W

    # Checking

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _door(
        self,
        X: Matrix,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        reset: bool = True,
        **how: Any,
    ) -> tuple[Matrix, np.ndarray, np.ndarray | None]:
        """Return X, y and weights as checked arrays, without the rows of weight 0."""
        how |= {"accept_sparse": "csr", "reset": reset}
        given = plain(y, "y")
        try:
            X, y = validate_data(self, plain(X), given, **how)
        except OverflowError as error:
            raise ValueError("X or y holds a number that leaves float64") from error
        if sparse.issparse(y):
            raise TypeError(f"y must be dense, got {type(y).__name__}")
        if how.get("y_numeric") and y.dtype.kind not in "fiub":
            raise ValueError(f"y must hold numbers, got the dtype {y.dtype}")
        if how.get("y_numeric") and not np.isfinite(y).all():  # None became nan
            at = tuple(map(int, np.argwhere(~np.isfinite(y))[0]))
            raise ValueError(f"y must be finite, got {np.asarray(given)[at]} at {at}")
        weight, rows = weights_of_rows(sample_weight, X)
        return X[rows], y[rows], weight

    def __sklearn_is_fitted__(self) -> bool:
        return bool(getattr(self, "history_", None))

    def _root(
        self, weight: np.ndarray | None, dtype: str | None = None
    ) -> Tensor | None:
        """Return the square roots (l, 1) of the weights of rows."""
        if weight is None:
            return None
        return self._tensor("sample_weight", weight[:, None] ** 0.5, dtype)

    def _tensor(
        self, name: str, X: Matrix, dtype: str | None = None
    ) -> Tensor | SparseRows:
        if sparse.issparse(X):
            X = X.astype(dtype or self.dtype)
            check_squares(name, X.data)
            return SparseRows(X, self.device)
        with np.errstate(over="ignore"):
            X = np.array(X, dtype or self.dtype, order="C")
        check_squares(name, X)
        return torch.from_numpy(X).to(self.device)

    def _validated(self, X: Matrix) -> Tensor | SparseRows:
        try:
            X = validate_data(
                self, plain(X), reset=False, dtype="numeric", accept_sparse="csr"
            )
        except OverflowError as error:
            raise ValueError("X holds a number that leaves float64") from error
        return self._tensor("X", X, str(self._W.dtype).removeprefix("torch."))

    def _backend(self, Y: Tensor, root: Tensor | None, keep: bool) -> Backend:
        options = Y, root, ridge_of(self, keep), self.capacity
        if not keep:
            return ByRows(*options, self.chunk or CHUNK)
        if self.mesh is not None:
            return Sharded(*options, self.chunk, self.mesh)
        if self.chunk is not None:
            return Streamed(*options, self.chunk)
        return Stored(*options, self.solver, self.fallback)


class _Prepared:
    """An iterable over chunks of prepared inputs, which can be iterated repeatedly."""

    def __init__(self, prepare: Preparation, X: Tensor, chunk: int) -> None:
        self.prepare, self.X, self.chunk = prepare, X, chunk

    def __iter__(self) -> Iterator[Tensor]:
        return (self.prepare(x) for x in self.X.split(int(self.chunk)))
