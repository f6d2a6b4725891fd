"""The base class of the two estimators: growth, removal of nodes and history."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from labkit.at_once import at_once
from labkit.broad.factor import NotPositiveDefinite
from labkit.broad.leave_one_out import leave_one_out
from labkit.broad.nodes import ALL, CHUNK, Nodes, Preparation, Samples, Update, draw
from labkit.broad.parameters import (
    ADDED,
    check_parameters,
    groups_of,
    keeps_factor,
    recipe_of,
    ridges_of,
    warn_caller,
    warn_of_bottleneck,
)
from labkit.broad.ridge import truncated
from labkit.broad.solvers import SOLVERS, start_operations, update_operations
from labkit.broad.state import State, safe_ridge, squared_norm
from labkit.check import COUNT, check_options, check_squares
from labkit.clock import Clock
from labkit.precision import outside_modes


@dataclass(frozen=True, kw_only=True)
class Growth:
    """One entry of ``history_``: the fit, or one change of the columns."""

    columns: int  # after the change
    features: int  # feature nodes among them
    added: int  # columns; negative where they were dropped
    seconds: float  # of the solver
    node_seconds: float  # of drawing, tuning and making nodes
    operations: float  # of the solver, by the formulas of labkit.broad.solvers
    smallest_pivot: float  # of this step's factorisation
    solver: str  # that made the change
    fallback: bool  # whether the chosen solver had lost a pivot


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
    fallback: str | None = None

    _wide_shrink = 3.0  # the default for tables of many columns

    # Growing

    def _fit(self, X: np.ndarray, Y: np.ndarray) -> None:
        """Draw the first nodes and solve for validated X (l, d) and Y (l, c)."""
        check_parameters(self, X.shape[1])
        warn_of_bottleneck(self, X.shape[1])
        X, Y = self._tensor("X", X, self.dtype), self._tensor("y", Y, self.dtype)
        self._generator = torch.Generator().manual_seed(self._seed())
        self.nodes_ = Nodes(Preparation.fit(self.scaling, X, self._samples))
        self._X, self._Y = self.nodes_.prepare(X), Y
        self._Z = self._A = Y.new_zeros(len(Y), 0)
        self._state, self.solver_ = None, self.solver
        self.history_, self._stages = [], []
        groups = groups_of(self, X.shape[1])
        first = [Update(features=self.nodes_per_group)] * groups
        if self.n_enhancement:
            first.append(Update(extra=self.n_enhancement))
        self._grow(first)

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
        check_is_fitted(self)
        check_options({"n_enhancement": n_enhancement}, ADDED)
        self._grow([Update(extra=int(n_enhancement))])

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
        check_is_fitted(self)
        check_options(
            {"n_features": n_features, "n_own": n_own, "n_extra": n_extra}, ADDED
        )
        self._grow([Update(int(n_features), int(n_own), int(n_extra))])

    @at_once
    def drop_last(self, n: int) -> Self:
        """Remove the last n columns; nothing is factorised again.

        The factor of fewer columns is the leading block of the factor, so only the
        weights are computed anew. ``d-rdg`` and ``r-inv`` start again from the
        remaining columns.

        Raises
        ------
        ValueError, NotFittedError
            No column would be left, or the solver is ``orig``, which has no state for
            fewer columns.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        check_options({"n": n}, {"n": COUNT})
        k, n = self.nodes_.columns - int(n), int(n)
        if k < 1:
            raise ValueError(f"n must be < {self.nodes_.columns} columns, got {n}")
        if self.solver_ == "orig":
            raise ValueError("orig keeps no state for fewer columns; fit again")
        solving = Clock(self._Y.device)
        with solving:
            self._state, self._A = self._shortened(k)
        self.nodes_ = self.nodes_.between(0, k)
        self._Z = self._Z[:, : self.nodes_.features]
        self._stages = [stage for stage in self._stages if stage[0] < k]
        self._record(added=-n, seconds=solving.seconds)

    def _grow(self, updates: Sequence[Update]) -> None:
        """Draw the nodes of the updates and solve for the weights."""
        check_parameters(self, self.n_features_in_)  # which may have changed since
        nodes, Z, k = self.nodes_, self._Z, self.nodes_.columns
        recipe, generator = recipe_of(self, self.n_features_in_), torch.Generator()
        generator.set_state(self._generator.get_state())
        making, solving = Clock(Z.device), Clock(Z.device)
        with making:
            for update in updates:
                nodes, Z = draw(
                    nodes, self._X, Z, update, recipe, generator, self._samples
                )
            H = nodes.between(k, nodes.columns).expand(Z)
        chosen = self.solver_
        with solving:
            if k == 0:
                self.ridge_, self.loo_errors_ = self._choose_ridge(H)
                self._warn_of_ridge(H)
                self._state = self._start(H)
            else:
                self._state = self._update(H)
        self.nodes_, self._Z, self._generator = nodes, Z, generator
        self._A = self._joined(H)
        q, (l, c) = nodes.columns - k, self._Y.shape  # noqa: E741
        if k == 0:
            operations = start_operations(self.solver_, l, q, c)
        else:
            operations = update_operations(self.solver_, l, k, q, c)
        self._record(
            added=q,
            seconds=solving.seconds,
            node_seconds=making.seconds,
            operations=operations,
            fallback=self.solver_ != chosen,
        )

    def _record(
        self,
        *,
        added: int,
        seconds: float,
        node_seconds: float = 0.0,
        operations: float = 0.0,
        fallback: bool = False,
    ) -> None:
        """Keep the weights and add an entry to ``history_``."""
        growth = Growth(
            columns=self.nodes_.columns,
            features=self.nodes_.features,
            added=added,
            seconds=seconds,
            node_seconds=node_seconds,
            operations=operations,
            smallest_pivot=float(self._state.pivot),
            solver=self.solver_,
            fallback=fallback,
        )
        self.history_ = [*self.history_, growth]
        self._stages = [*self._stages, (growth.columns, self._state.W)]

    def _choose_ridge(self, A: Tensor) -> tuple[float, np.ndarray | None]:
        """Return the safe ridge with the least leave-one-out error, and all errors."""
        ridges, errors = ridges_of(self), None
        ridge = float(ridges[0])
        if np.ndim(self.ridge) or self.ridge is None:
            errors, norm = leave_one_out(A, self._Y, ridges)
            errors = errors.nan_to_num(torch.inf) / self._Y.numel()
            safe = min(safe_ridge(norm), max(ridges))
            unsafe = errors.new_tensor(ridges) < safe
            ridge = float(ridges[int(errors.masked_fill(unsafe, torch.inf).argmin())])
            errors = errors.cpu().numpy()
        return ridge, errors

    def _warn_of_ridge(self, A: Tensor) -> None:
        """Warn where float32 cannot resolve the ridge."""
        ridge = self.ridge_
        if A.dtype == torch.float32 and ridge < (safe := safe_ridge(squared_norm(A))):
            warn_caller(
                f"ridge {ridge:g} is below {safe:.1e}, the smallest that is safe "
                f"in float32 here (10 eps |A|^2); use dtype='float64'"
            )

    # What depends on where columns and samples are; :mod:`labkit.scale` has another

    _samples: ClassVar[Samples] = ALL

    def _seed(self) -> int:
        """Return the seed of all nodes."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _start(self, H: Tensor) -> State:
        """Return the solver's state for the first columns H."""
        return SOLVERS[self.solver_].start(H, self._Y, self.ridge_)

    def _update(self, H: Tensor) -> State:
        """Return the state with H, by the fallback after a lost pivot."""
        try:
            return SOLVERS[self.solver_].update(self._state, self._A, H, self._Y)
        except NotPositiveDefinite:
            if self.fallback in (None, self.solver_):
                raise
        self.solver_ = self.fallback
        return SOLVERS[self.solver_].update(self._state, self._A, H, self._Y)

    def _shortened(self, k: int) -> tuple[State, Tensor]:
        """Return the state of the first k columns, and the columns that are kept."""
        A = self._A[:, :k]
        if self.solver_ in ("d-rdg", "r-inv"):
            return self._start(A), A
        return truncated(self._state, k), A

    def _joined(self, H: Tensor) -> Tensor:
        """Return the columns that are kept, with those of H."""
        return torch.cat([self._A, H], 1)

    # Reading

    @property
    def weights_(self) -> np.ndarray:
        """The output weights W (k, c), in the order of growth."""
        check_is_fitted(self)
        return self._state.W.cpu().numpy().copy()

    @outside_modes()
    def expand(self, X: ArrayLike) -> np.ndarray:
        """Compute the expanded input A (l, k) of X (l, d)."""
        check_is_fitted(self)
        return self.nodes_.apply(self._validated(X)).cpu().numpy()

    @available_if(keeps_factor)
    def factor(self) -> Tensor:
        """Return the upper triangular F (k, k), F F^T = (A^T A + ridge I)^-1 or nearly.

        It exists only for solvers that keep F, and shares their memory.
        """
        check_is_fitted(self)
        return self._state.F

    @outside_modes()
    def _raw(self, X: ArrayLike) -> Tensor:
        """Compute A W (l, c), a chunk of samples at a time."""
        check_is_fitted(self)
        chunks = self._validated(X).split(CHUNK)
        return torch.cat([self.nodes_.apply(chunk) @ self._state.W for chunk in chunks])

    @outside_modes()
    def _staged_raw(self, X: ArrayLike) -> list[Tensor]:
        """Return A W at every size that the present columns went through."""
        check_is_fitted(self)
        A = self.nodes_.apply(self._validated(X))
        return [A[:, :k] @ W for k, W in self._stages]

    # Checking

    def __sklearn_is_fitted__(self) -> bool:
        return bool(getattr(self, "history_", None))

    def _validated(self, X: ArrayLike) -> Tensor:
        """Return X (l, d) as a tensor for a fitted model."""
        X = validate_data(self, X, reset=False, dtype="numeric")
        return self._tensor("X", X, str(self._Y.dtype).removeprefix("torch."))

    def _tensor(self, name: str, X: np.ndarray, dtype: str) -> Tensor:
        with np.errstate(over="ignore"):
            X = np.array(X, dtype, order="C")
        check_squares(name, X)
        return torch.from_numpy(X).to(self.device)
