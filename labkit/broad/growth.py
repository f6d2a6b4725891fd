"""What the two estimators share: parameters at the door, nodes, solver, history."""

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from labkit.broad.cost import start_operations, update_operations
from labkit.broad.distributed import ShardedState, empty, norm_bound, whole
from labkit.broad.distributed import truncated as truncated_on_mesh
from labkit.broad.factor import NotPositiveDefinite
from labkit.broad.mesh import ALONE, Place
from labkit.broad.mesh_growth import grow_on_mesh, room_on_mesh, stream_on_mesh
from labkit.broad.nodes import (
    CHUNK,
    SCALINGS,
    Nodes,
    Preparation,
    Recipe,
    add_enhancement,
    add_features,
)
from labkit.broad.ridge import (
    Sums,
    chol1_start_from,
    chol1_update_from,
    sums_over,
    truncated,
)
from labkit.broad.solvers import SOLVERS, solver_named
from labkit.broad.state import (
    FactorState,
    check_room,
    largest_eigenvalue,
    safe_ridge,
    squared_norm,
)
from labkit.broad.triangular import gram

DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class Growth:
    """One line of ``history_``: the fit, or one change of the columns."""

    columns: int  # after it
    features: int  # feature nodes among them
    added: int  # columns; negative where they were dropped
    seconds: float  # of the solver; with ``chunk`` of making the columns too
    node_seconds: float  # of drawing, tuning and making nodes
    operations: float  # of the solver, by structured count
    smallest_pivot: float  # of this step's factorisation
    solver: str  # the one that did it
    fallback: bool  # whether the chosen solver had lost a pivot
    factor_error: float | None = None  # |F^T R F - I|, once asked for


class BroadLearning(BaseEstimator):
    """Growth of nodes and weights; what targets mean is up to the estimators."""

    def __init__(
        self,
        n_groups=6,
        nodes_per_group=10,
        n_enhancement=3000,
        *,
        ridge=1e-6,
        solver="chol-1",
        scaling="sample",
        shrink=0.8,
        orthonormal=True,
        sparse_penalty=1e-3,
        sparse_iter=50,
        dtype="float64",
        device=None,
        random_state=None,
        capacity=None,
        chunk=None,
        fallback=None,
        mesh=None,
    ):
        self.n_groups = n_groups
        self.nodes_per_group = nodes_per_group
        self.n_enhancement = n_enhancement
        self.ridge = ridge
        self.solver = solver
        self.scaling = scaling
        self.shrink = shrink
        self.orthonormal = orthonormal
        self.sparse_penalty = sparse_penalty
        self.sparse_iter = sparse_iter
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.capacity = capacity
        self.chunk = chunk
        self.fallback = fallback
        self.mesh = mesh

    # Growing

    def _fit(self, X: np.ndarray, Y: np.ndarray):
        """Draw the first nodes and solve; X (l, d), Y (l, c) validated."""
        self._check_parameters(X.shape[1])
        began = time.perf_counter()
        X, Y = self._tensor(X), self._tensor(Y)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        seed = self._place.first_of(torch.tensor(seed, device=X.device))
        self._generator = torch.Generator().manual_seed(int(seed))
        self._X, self._Y = X, Y
        prepare = Preparation.fit(self.scaling, X, self._place)
        nodes, Z = Nodes(prepare), X.new_zeros(len(X), 0)
        for _ in range(self.n_groups):
            nodes, Z = self._with_features(nodes, Z, self.nodes_per_group)
        nodes = self._with_enhancement(nodes, Z, self.n_enhancement)
        self.history_, self.solver_ = [], self.solver
        self._stages = []
        k = nodes.columns
        if self.mesh is not None:
            made = time.perf_counter()
            state = empty(Y, self.ridge, self.mesh, self.capacity)
            room, state = self._grow_on_mesh(state, nodes, Z, None)
        elif self.chunk is None:
            room = X.new_empty(len(X), self.capacity or k)
            A = nodes.expand(Z, out=room[:, :k])
            made = time.perf_counter()
            state = self._start(A)
        else:
            made = time.perf_counter()
            room, state = None, self._start_streaming(nodes, Z)
        operations = start_operations(self.solver, len(X), k, Y.shape[1])
        self._accept(nodes, Z, room, state, k, operations, began, made, False)
        return self

    def add_nodes(self, n_enhancement: int):
        """Add enhancement nodes that see all present features (14), (18).

        Parameters
        ----------
        n_enhancement : how many, >= 1.

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
        _check_count("n_enhancement", n_enhancement, 1)
        self._check_growth(n_enhancement)
        began = time.perf_counter()
        nodes = self._with_enhancement(self.nodes_, self._Z, n_enhancement)
        return self._grow(nodes, self._Z, began)

    def add_feature_nodes(self, n_features: int = 10, n_own: int = 0, n_extra: int = 0):
        """Add one feature group with enhancement nodes (15), (19).

        Parameters
        ----------
        n_features : feature nodes, >= 1.
        n_own : enhancement nodes that see these features only.
        n_extra : enhancement nodes that see all features, these included.

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
        _check_count("n_features", n_features, 1)
        _check_count("n_own", n_own, 0)
        _check_count("n_extra", n_extra, 0)
        self._check_growth(n_features + n_own + n_extra)
        began = time.perf_counter()
        nodes, Z = self._with_features(self.nodes_, self._Z, n_features)
        if n_own:
            new = (Z.shape[1] - n_features, Z.shape[1])
            nodes = self._with_enhancement(nodes, Z, n_own, new)
        if n_extra:
            nodes = self._with_enhancement(nodes, Z, n_extra)
        return self._grow(nodes, Z, began)

    def drop_last(self, n: int):
        """Remove the last n columns; nothing is factorised again.

        The factor of fewer columns is the leading block of the factor, so only the
        weights are computed anew. ``d-rdg`` and ``r-inv`` start again from the
        remaining columns; ``orig`` has no state for fewer columns and refuses.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        _check_count("n", n, 1)
        k = self.nodes_.columns - n
        if k < 1:
            raise ValueError(f"n must be < {self.nodes_.columns} columns, got {n}")
        if self.solver_ == "orig":
            raise ValueError(
                "orig keeps no state for fewer columns; drop_last needs another solver"
            )
        began = time.perf_counter()
        nodes = self.nodes_.between(0, k)
        Z = self._Z[:, : nodes.features]
        if self.mesh is not None:
            state = truncated_on_mesh(self._state, k)
        elif self.solver_ in ("d-rdg", "r-inv"):
            state = self._start(self._room[:, :k])
        else:
            state = truncated(self._state, k)
        self._stages = [stage for stage in self._stages if stage[0] < k]
        self._accept(nodes, Z, self._room, state, -n, 0.0, began, began, False)
        return self

    def _grow(self, nodes: Nodes, Z: Tensor, began: float):
        k, grown = self.nodes_.columns, nodes.columns
        q, l = grown - k, len(Z)  # noqa: E741
        fallback = False
        if self.mesh is not None:
            made = time.perf_counter()
            room, state = self._grow_on_mesh(self._state, nodes, Z, self._room)
        elif self.chunk is None:
            room = self._room
            if room.shape[1] < grown:
                room = Z.new_empty(l, grown)
                room[:, :k] = self._room[:, :k]
            A, H = room[:, :k], room[:, k:grown]
            nodes.expand(Z, out=H, since=len(self.nodes_.groups))
            made = time.perf_counter()
            try:
                state = SOLVERS[self.solver_].update(self._state, A, H, self._Y)
            except NotPositiveDefinite:
                if self.fallback is None or self.solver_ == self.fallback:
                    raise
                state = SOLVERS[self.fallback].update(self._state, A, H, self._Y)
                self.solver_, fallback = self.fallback, True
        else:
            made = time.perf_counter()
            room, state = None, self._update_streaming(nodes, Z)
        operations = update_operations(self.solver_, l, k, q, self._Y.shape[1])
        self._accept(nodes, Z, room, state, q, operations, began, made, fallback)
        return self

    def _start(self, A: Tensor):
        if A.dtype == torch.float32:
            self._warn(squared_norm(A))
        start = SOLVERS[self.solver_].start
        return start(A, self._Y, self.ridge, self.capacity)

    def _start_streaming(self, nodes: Nodes, Z: Tensor) -> FactorState:
        chunks = zip(Z.split(self.chunk), self._Y.split(self.chunk), strict=True)
        sums = sums_over((z[:, :0], nodes.expand(z), y) for z, y in chunks)
        self._norm = largest_eigenvalue(sums.S)
        if Z.dtype == torch.float32:
            self._warn(self._norm)
        try:
            sums = Sums(None, sums.S, sums.HY)
            return chol1_start_from(sums, self.ridge, self.capacity)
        except NotPositiveDefinite as lost:
            raise self._named(lost, self._norm) from None

    def _update_streaming(self, nodes: Nodes, Z: Tensor) -> FactorState:
        old, since = self.nodes_, len(self.nodes_.groups)
        chunks = zip(Z.split(self.chunk), self._Y.split(self.chunk), strict=True)
        sums = sums_over(
            (old.expand(z), nodes.expand(z, since=since), y) for z, y in chunks
        )
        norm = self._norm + largest_eigenvalue(sums.S)  # an upper bound
        try:
            state = chol1_update_from(self._state, sums)
        except NotPositiveDefinite as lost:
            raise self._named(lost, norm) from None
        self._norm = norm
        return state

    def _grow_on_mesh(self, state: ShardedState, nodes: Nodes, Z: Tensor, room):
        if self.chunk is not None:
            return None, stream_on_mesh(state, nodes, Z, self._Y, self.chunk)
        first, room = room is None, room_on_mesh(state, Z, nodes.columns, room)
        state = grow_on_mesh(state, nodes, Z, self._Y, room)
        if first and Z.dtype == torch.float32:
            self._warn(norm_bound(state.place, room[:, : len(state.W)]))
        return room, state

    def _named(self, lost: NotPositiveDefinite, norm: Tensor) -> NotPositiveDefinite:
        return NotPositiveDefinite(lost.index, lost.pivot, safe_ridge(norm))

    def _warn(self, norm: Tensor) -> None:
        safe = safe_ridge(norm)
        if self.ridge < safe:
            warnings.warn(
                f"ridge {self.ridge:g} is below {safe:.1e}, the smallest that is safe "
                f"in {self.dtype} here (10 eps |A|^2); use dtype='float64'",
                stacklevel=4,
            )

    def _accept(self, nodes, Z, room, state, added, operations, began, made, fallback):
        pivot = float(state.pivot)  # waits for the device
        now = time.perf_counter()
        self.nodes_, self._Z, self._room, self._state = nodes, Z, room, state
        self._W = state.W if self.mesh is None else whole(state)
        self._stages.append((nodes.columns, self._W))
        self.history_.append(
            Growth(
                columns=nodes.columns,
                features=nodes.features,
                added=added,
                seconds=now - made,
                node_seconds=made - began,
                operations=operations,
                smallest_pivot=pivot,
                solver=self.solver_,
                fallback=fallback,
            )
        )

    def _with_features(self, nodes: Nodes, Z: Tensor, n: int):
        prepared = _Prepared(nodes.prepare, self._X, self.chunk or CHUNK)
        g, place = self._generator, self._place
        return add_features(nodes, prepared, Z, n, self._recipe(), g, place)

    def _with_enhancement(self, nodes: Nodes, Z: Tensor, n: int, reads=None):
        if n == 0:
            return nodes
        g, place = self._generator, self._place
        return add_enhancement(nodes, Z, n, self._recipe(), g, reads, place)

    def _recipe(self) -> Recipe:
        return Recipe(
            self.shrink, self.orthonormal, self.sparse_penalty, self.sparse_iter
        )

    # Looking

    @property
    def _place(self) -> Place:
        return ALONE if self.mesh is None else Place.on(self.mesh)

    @property
    def coef_(self) -> np.ndarray:
        """W (k, c), the output weights in the order of growth."""
        check_is_fitted(self, "history_")
        return self._W.cpu().numpy()

    def expand(self, X) -> np.ndarray:
        """A (l, k), the expanded input of X (l, d)."""
        check_is_fitted(self)
        return self.nodes_.apply(self._validated(X)).cpu().numpy()

    def factor_error(self) -> float:
        """Largest entry of |F^T R F - I| on the training data; noted in ``history_``.

        In float64 about 0.04 eps |A|^2 / ridge. Only for solvers that keep F; costs
        more than an update: 2 l k^2 operations.
        """
        check_is_fitted(self)
        if not isinstance(self._state, FactorState):
            keeper = "a worker" if self.mesh is not None else self.solver_
            raise ValueError(f"{keeper} keeps no inverse Cholesky factor")
        F, step = self._state.F, self.chunk or CHUNK
        error = self.ridge * gram(F)
        for z in self._Z.split(step):
            error += gram(self.nodes_.expand(z) @ F)
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

    def _tensor(self, X: np.ndarray) -> Tensor:
        return torch.tensor(X, dtype=DTYPES[self.dtype], device=self.device)

    def _validated(self, X) -> Tensor:
        return self._tensor(validate_data(self, X, reset=False, dtype="numeric"))

    def _check_parameters(self, d: int) -> None:
        _check_count("n_groups", self.n_groups, 1)
        _check_count("nodes_per_group", self.nodes_per_group, 1)
        _check_count("n_enhancement", self.n_enhancement, 0)
        _check_count("sparse_iter", self.sparse_iter, 1)
        for name in ("ridge", "shrink", "sparse_penalty"):
            _check_positive(name, getattr(self, name))
        solver_named(self.solver)
        _check_choice("dtype", self.dtype, DTYPES)
        _check_choice("scaling", self.scaling, SCALINGS)
        _check_choice("fallback", self.fallback, (None, "chol-2"))
        if self.scaling == "sample" and d < 2:
            raise ValueError(
                f"scaling='sample' standardises every row and needs 2 features or "
                f"more, got n_features={d}; use scaling='feature'"
            )
        if self.fallback is not None and self.solver != "chol-1":
            raise ValueError(
                f"fallback={self.fallback!r} needs solver='chol-1', got {self.solver!r}"
            )
        if self.mesh is not None and (self.solver, self.fallback) != ("chol-1", None):
            raise ValueError(
                f"mesh needs solver='chol-1' without fallback, got "
                f"solver={self.solver!r}, fallback={self.fallback!r}"
            )
        if self.chunk is not None:
            _check_count("chunk", self.chunk, 1)
            if self.solver != "chol-1" or self.fallback is not None:
                raise ValueError(
                    f"chunk needs solver='chol-1' without fallback, the one that needs "
                    f"only sums over samples; got solver={self.solver!r}, "
                    f"fallback={self.fallback!r}"
                )
        if self.capacity is not None:
            _check_count("capacity", self.capacity, 1)
            first = self.n_groups * self.nodes_per_group + self.n_enhancement
            check_room(first, self.capacity)

    def _check_growth(self, q: int) -> None:
        if self.capacity is not None:
            check_room(self.nodes_.columns + q, self.capacity)


class _Prepared:
    """Chunks of prepared inputs that can be walked through again."""

    def __init__(self, prepare: Preparation, X: Tensor, chunk: int):
        self.prepare, self.X, self.chunk = prepare, X, chunk

    def __iter__(self):
        return (self.prepare(x) for x in self.X.split(self.chunk))


def _check_count(name: str, value, least: int) -> None:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")


def _check_positive(name: str, value) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")


def _check_choice(name: str, value, choices) -> None:
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {listed}; got {value!r}")
