"""What the two estimators share: parameters at the door, nodes, solver, history."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from labkit.arrays import plain
from labkit.broad.backends import Backend, Sharded, ShardedStream, Stored, Streamed
from labkit.broad.cost import start_operations, update_operations
from labkit.broad.mesh import ALONE, Place
from labkit.broad.nodes import CHUNK, SCALINGS, Nodes, Preparation, Recipe, Update, draw
from labkit.broad.solvers import SOLVERS
from labkit.broad.state import FactorState, check_room
from labkit.broad.triangular import gram
from labkit.clock import Clock
from labkit.ranges import (
    COUNT,
    POSITIVE,
    check,
    check_squares,
    integer,
    one_of,
    optional,
)

RANGES = {
    "n_groups": COUNT,
    "nodes_per_group": COUNT,
    "n_enhancement": integer(0),
    "ridge": POSITIVE,
    "solver": one_of(SOLVERS),
    "scaling": one_of(SCALINGS),
    "shrink": POSITIVE,
    "sparse_penalty": POSITIVE,
    "sparse_iter": COUNT,
    "dtype": one_of(("float64", "float32")),
    "capacity": optional(COUNT),
    "chunk": optional(COUNT),
    "fallback": optional(one_of(("chol-2",))),
}
ADDED = {"n_features": COUNT, "n_own": integer(0), "n_extra": integer(0)}


@dataclass(frozen=True)
class Growth:
    """One line of ``history_``: the fit, or one change of the columns."""

    columns: int  # after it
    features: int  # feature nodes among them
    added: int  # columns; negative where they were dropped
    seconds: float  # of the solver
    node_seconds: float  # of drawing, tuning and making nodes
    operations: float  # of the solver, by structured count
    smallest_pivot: float  # of this step's factorisation
    solver: str  # the one that did it
    fallback: bool  # whether the chosen solver had lost a pivot
    factor_error: float | None = None  # |F^T R F - I|, once asked for


@dataclass(eq=False, repr=False)
class BroadLearning(BaseEstimator):
    """Growth of nodes and weights; what targets mean is up to the estimators."""

    n_groups: int = 6
    nodes_per_group: int = 10
    n_enhancement: int = 3000
    _: KW_ONLY
    ridge: float = 1e-6
    solver: str = "chol-1"
    scaling: str = "sample"
    shrink: float = 0.8
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

    # Growing

    def _fit(self, X: np.ndarray, Y: np.ndarray):
        """Draw the first nodes and solve; X (l, d), Y (l, c) validated."""
        self._check_parameters(X.shape[1])
        self._warn_of_bottleneck(X.shape[1])
        first = [Update(features=self.nodes_per_group)] * self.n_groups
        first += [Update(extra=self.n_enhancement)] if self.n_enhancement else []
        self.history_, self._stages = [], []
        self._X, Y = self._tensor("X", X), self._tensor("y", Y)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        seed = self._place.first_of(torch.tensor(seed, device=Y.device))
        self._generator = torch.Generator().manual_seed(int(seed))
        self.nodes_ = Nodes(Preparation.fit(self.scaling, self._X, self._place))
        self._Z = Y.new_zeros(len(Y), 0)
        self._columns = self._backend(Y)
        return self._grow(first)

    def add_nodes(self, n_enhancement: int):
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
        check_is_fitted(self)
        check({"n_enhancement": n_enhancement}, {"n_enhancement": COUNT})
        return self._grow([Update(extra=n_enhancement)])

    def add_feature_nodes(self, n_features: int = 10, n_own: int = 0, n_extra: int = 0):
        """Add one feature group with enhancement nodes (15), (19); as `add_nodes`.

        Parameters
        ----------
        n_features : int >= 1, feature nodes
        n_own : int, enhancement nodes that see these features only
        n_extra : int, enhancement nodes that see all features, these included

        Returns
        -------
        self
        """
        check_is_fitted(self)
        check({"n_features": n_features, "n_own": n_own, "n_extra": n_extra}, ADDED)
        return self._grow([Update(n_features, n_own, n_extra)])

    def drop_last(self, n: int):
        """Remove the last n columns; nothing is factorised again.

        The factor of fewer columns is the leading block of the factor, so only the
        weights are computed anew. ``d-rdg`` and ``r-inv`` start again from the
        remaining columns; ``orig`` has no state for fewer columns and refuses. Raises
        ValueError where no column would be left, or before ``fit``.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        check({"n": n}, {"n": COUNT})
        k = self.nodes_.columns - n
        if k < 1:
            raise ValueError(f"n must be < {self.nodes_.columns} columns, got {n}")
        making, whole = (Clock(self._Z.device) for _ in range(2))
        with whole:
            self._columns.truncate(k)
        self.nodes_ = self.nodes_.between(0, k)
        self._Z = self._Z[:, : self.nodes_.features]
        self._stages = [stage for stage in self._stages if stage[0] < k]
        return self._noted(-n, 0.0, making, whole)

    def _grow(self, updates: Sequence[Update]):
        """Draw nodes and solve; where that fails all but the generator stays."""
        k, q = self.nodes_.columns, sum(update.columns for update in updates)
        if self.capacity is not None:
            check_room(k + q, self.capacity)
        nodes, Z, columns = self.nodes_, self._Z, self._columns
        sparse = self.sparse_penalty, self.sparse_iter
        recipe = Recipe(self.shrink, self.orthonormal, *sparse)
        how = recipe, self._generator, self._place
        X = _Prepared(nodes.prepare, self._X, self.chunk or CHUNK)
        making, whole = (Clock(Z.device) for _ in range(2))
        with whole:
            with making:
                for each in updates:
                    nodes, Z = draw(nodes, X, Z, each, *how)
            columns.grow(nodes, Z, making)
        self.nodes_, self._Z = nodes, Z
        solver, (l, c) = columns.solver, columns.Y.shape  # noqa: E741
        if k:
            operations = update_operations(solver, l, k, q, c)
        else:
            operations = start_operations(solver, l, q, c)
        return self._noted(q, operations, making, whole)

    def _noted(self, added: int, operations: float, making: Clock, whole: Clock):
        """Keep the weights, and write a line of ``history_``."""
        columns, nodes = self._columns, self.nodes_
        fallback = bool(self.history_) and columns.solver != self.solver_
        self.solver_, self._W = columns.solver, columns.weights()
        self._stages.append((nodes.columns, self._W))
        size = nodes.columns, nodes.features, added
        cost = whole.seconds - making.seconds, making.seconds, operations
        did = float(columns.state.pivot), self.solver_, fallback
        self.history_.append(Growth(*size, *cost, *did))
        return self

    # Looking

    @property
    def _place(self) -> Place:
        return ALONE if self.mesh is None else Place.on(self.mesh)

    @property
    def coef_(self) -> np.ndarray:
        """W (k, c), the output weights in the order of growth."""
        check_is_fitted(self)
        return self._W.cpu().numpy()

    def expand(self, X) -> np.ndarray:
        """A (l, k), the expanded input of X (l, d)."""
        check_is_fitted(self)
        return self.nodes_.apply(self._validated(X)).cpu().numpy()

    def factor_error(self) -> float:
        """Largest entry of |F^T R F - I| on the training data; noted in ``history_``.

        In float64 about 0.04 eps |A|^2 / ridge. Only for solvers that keep F; 2 l k^2
        operations, more than an update.
        """
        check_is_fitted(self)
        state = self._columns.state
        if not isinstance(state, FactorState):
            keeper = "a worker" if self.mesh is not None else self.solver_
            raise ValueError(f"{keeper} keeps no inverse Cholesky factor")
        error = state.ridge * gram(state.F)
        for z in self._Z.split(self.chunk or CHUNK):
            error += gram(self.nodes_.expand(z) @ state.F)
        error.diagonal().sub_(1)
        found = float(error.abs().amax())
        self.history_[-1] = replace(self.history_[-1], factor_error=found)
        return found

    def _raw(self, X) -> Tensor:
        """A W (l, c), a chunk of samples at a time."""
        X = self._validated(X)
        chunks = X.split(self.chunk or CHUNK)
        return torch.cat([self.nodes_.apply(x) @ self._W for x in chunks])

    def _staged_raw(self, X) -> Iterator[Tensor]:
        A = self.nodes_.apply(self._validated(X))
        for k, W in self._stages:
            yield A[:, :k] @ W

    # Checking

    def __sklearn_is_fitted__(self) -> bool:
        return bool(getattr(self, "history_", None))

    def _tensor(self, name: str, X: np.ndarray, dtype=None) -> Tensor:
        with np.errstate(over="ignore"):
            X = np.array(X, dtype or self.dtype, order="C")
        check_squares(name, X)
        return torch.from_numpy(X).to(self.device)

    def _validated(self, X) -> Tensor:
        X = validate_data(self, plain(X), reset=False, dtype="numeric")
        return self._tensor("X", X, str(self._W.dtype).removeprefix("torch."))

    def _backend(self, Y: Tensor) -> Backend:
        options = Y, self.ridge, self.capacity
        if self.mesh is not None and self.chunk is not None:
            return ShardedStream(*options, self.mesh, self.chunk)
        if self.mesh is not None:
            return Sharded(*options, self.mesh)
        if self.chunk is not None:
            return Streamed(*options, self.chunk)
        return Stored(*options, self.solver, self.fallback)

    def _warn_of_bottleneck(self, d: int) -> None:
        """Warn where a table has more columns than there are nodes to see them."""
        if self.scaling != "sample" and d > self.n_groups * self.nodes_per_group:
            warnings.warn(
                f"{d} columns go through n_groups * nodes_per_group = "
                f"{self.n_groups * self.nodes_per_group} feature nodes; take as many",
                stacklevel=4,  # where `fit` was called
            )

    def _check_parameters(self, d: int) -> None:
        check({name: getattr(self, name) for name in RANGES}, RANGES)
        if self.ridge > float(np.finfo(self.dtype).max):
            raise ValueError(f"ridge {self.ridge:g} leaves {self.dtype}; use float64")
        if self.scaling == "sample" and d < 2:
            raise ValueError(
                f"scaling='sample' standardises every row and needs 2 features or "
                f"more, got n_features={d}; use scaling='feature'"
            )
        if self.fallback is not None and self.solver != "chol-1":
            raise ValueError(
                f"fallback={self.fallback!r} needs solver='chol-1', got {self.solver!r}"
            )
        plain = (self.solver, self.fallback) == ("chol-1", None)
        for name in ("mesh", "chunk"):  # both need sums over samples alone
            if getattr(self, name) is not None and not plain:
                raise ValueError(
                    f"{name} needs solver='chol-1' without fallback, got "
                    f"solver={self.solver!r}, fallback={self.fallback!r}"
                )


class _Prepared:
    """Chunks of prepared inputs that can be walked through again."""

    def __init__(self, prepare: Preparation, X: Tensor, chunk: int):
        self.prepare, self.X, self.chunk = prepare, X, chunk

    def __iter__(self):
        return (self.prepare(x) for x in self.X.split(self.chunk))
