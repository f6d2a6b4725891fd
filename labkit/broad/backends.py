"""Where the columns of a growing model live: in memory, nowhere, or on a mesh."""

import warnings
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from labkit.broad import distributed
from labkit.broad.factor import NotPositiveDefinite
from labkit.broad.nodes import Nodes
from labkit.broad.ridge import (
    chol1_start_from,
    chol1_update_from,
    sums_over,
    truncated,
)
from labkit.broad.solvers import SOLVERS
from labkit.broad.state import (
    largest_eigenvalue,
    safe_ridge,
    squared_norm,
    with_safe_ridge,
)
from labkit.clock import Clock


class Backend:
    """Columns of the training data and the solver's state, which grow together.

    Attributes
    ----------
    state
        What the solver carries; None before the start.
    solver : str
        The one at work.
    """

    state, solver = None, "chol-1"

    def __init__(self, Y: Tensor, ridge: float, capacity: int | None):
        self.Y, self.ridge, self.capacity = Y, ridge, capacity

    def grow(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        """Make the columns of ``nodes`` that are not there yet, and solve.

        Parameters
        ----------
        nodes : Nodes
            All nodes, old and new.
        Z : (l, f) tensor
            Features of this worker's samples.
        making : Clock
            Of making the columns.

        Raises
        ------
        NotPositiveDefinite
            All is then as it was.
        """
        (self._start if self.state is None else self._update)(nodes, Z, making)

    def truncate(self, k: int) -> None:
        """Go back to the first k columns."""
        self.state = truncated(self.state, k)

    def weights(self) -> Tensor:
        """W (k, c)."""
        return self.state.W


class Stored(Backend):
    """All columns in memory, for every solver."""

    def __init__(self, Y, ridge, capacity, solver: str, fallback: str | None):
        super().__init__(Y, ridge, capacity)
        self.solver, self.fallback = solver, fallback
        self.room = Y.new_empty(len(Y), capacity or 0)

    def _start(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        room = self._made(0, nodes, Z, making)
        A = room[:, : nodes.columns]
        if A.dtype == torch.float32:
            warn_below(self.ridge, squared_norm(A))
        start = SOLVERS[self.solver].start
        self.state, self.room = start(A, self.Y, self.ridge, self.capacity), room

    def _update(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        k = len(self.state.W)
        room = self._made(k, nodes, Z, making)
        columns = room[:, :k], room[:, k : nodes.columns], self.Y
        solver = self.solver
        try:
            state = SOLVERS[solver].update(self.state, *columns)
        except NotPositiveDefinite:
            if self.fallback in (None, solver):
                raise
            solver = self.fallback
            state = SOLVERS[solver].update(self.state, *columns)
        self.state, self.room, self.solver = state, room, solver

    def truncate(self, k: int) -> None:
        """Go back to the first k columns, or say that orig cannot."""
        if self.solver == "orig":
            raise ValueError(
                "orig keeps no state for fewer columns; drop_last needs another solver"
            )
        if self.solver in ("d-rdg", "r-inv"):
            start = SOLVERS[self.solver].start
            self.state = start(self.room[:, :k], self.Y, self.ridge, self.capacity)
        else:
            super().truncate(k)

    def _made(self, k: int, nodes: Nodes, Z: Tensor, making: Clock) -> Tensor:
        """The memory of the columns, or a larger copy, with those from k on made."""
        with making:
            room, grown = self.room, nodes.columns
            if room.shape[1] < grown:
                room = Z.new_empty(len(Z), grown)
                room[:, :k] = self.room[:, :k]
            nodes.between(k, grown).expand(Z, out=room[:, k:grown])
        return room


class Streamed(Backend):
    """No column is kept: Chol-1 from sums over chunks of the samples, made again."""

    def __init__(self, Y, ridge, capacity, chunk: int):
        super().__init__(Y, ridge, capacity)
        self.chunk = chunk

    def _start(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        sums = sums_over(chunks(nodes, 0, Z, self.Y, self.chunk, making))
        norm = largest_eigenvalue(sums.S)
        if Z.dtype == torch.float32:
            warn_below(self.ridge, norm)
        try:
            self.state = chol1_start_from(sums, self.ridge, self.capacity)
        except NotPositiveDefinite as lost:
            raise with_safe_ridge(lost, norm) from None
        self.norm = norm

    def _update(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        k = len(self.state.W)
        sums = sums_over(chunks(nodes, k, Z, self.Y, self.chunk, making))
        norm = self.norm + largest_eigenvalue(sums.S)
        try:
            self.state = chol1_update_from(self.state, sums)
        except NotPositiveDefinite as lost:
            raise with_safe_ridge(lost, norm) from None
        self.norm = norm


class Sharded(Backend):
    """On the workers of a mesh, in panels of new columns: Chol-1.

    Every worker makes a panel in full from its Z, since all need its products with
    their own columns, and keeps those that live there.
    """

    def __init__(self, Y, ridge, capacity, mesh):
        super().__init__(Y, ridge, capacity)
        self.empty = distributed.empty(Y, ridge, mesh, capacity)
        self.room = Y.new_empty(len(Y), 0)

    def _start(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        self._update(nodes, Z, making)
        if Z.dtype == torch.float32:
            A = self.room[:, : len(self.state.W)]
            warn_below(self.ridge, distributed.norm_bound(self.state.place, A))

    def _update(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        columns = self.empty.place.count(self.capacity or nodes.columns)
        if self.room.shape[1] < columns:
            larger = Z.new_empty(len(Z), columns)
            larger[:, : self.room.shape[1]] = self.room
            self.room = larger
        self._in_panels(nodes, Z, making)

    def truncate(self, k: int) -> None:
        """Go back to the first k columns of all workers."""
        self.state = distributed.truncated(self.state, k)

    def weights(self) -> Tensor:
        """W of all workers, on every one of them."""
        return distributed.whole(self.state)

    def _in_panels(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        state, pivots = self.state or self.empty, []
        k, grown = state.columns, nodes.columns
        for edges in pairwise([*range(k, grown, distributed.PANEL), grown]):
            state = self._panel(state, nodes, edges, Z, making)
            pivots.append(state.pivot)
        self.state = replace(state, pivot=torch.stack(pivots).amin())

    def _panel(self, state, nodes, edges, Z, making):
        here = len(state.W)
        with making:
            H = nodes.between(*edges).expand(Z)
        state = distributed.update(state, self.room[:, :here], H, self.Y)
        self.room[:, here : len(state.W)] = H[:, state.place.own(edges[0])]
        return state


class ShardedStream(Sharded):
    """On a mesh, with no column kept: all are made again, a chunk of samples a time."""

    def __init__(self, Y, ridge, capacity, mesh, chunk: int):
        super().__init__(Y, ridge, capacity, mesh)
        self.chunk = chunk

    def _start(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        self._in_panels(nodes, Z, making)

    _update = _start

    def _panel(self, state, nodes, edges, Z, making):
        (k, grown), own = edges, state.place.own(0)
        parts = chunks(nodes.between(0, grown), k, Z, self.Y, self.chunk, making, own)
        return distributed.update_from(state, distributed.sums_here(state, parts))


def chunks(nodes: Nodes, k: int, Z, Y, rows: int, making: Clock, own=slice(None)):
    """Yield columns up to k (of these the ``own``), those from k on, and Y, by rows."""
    old, new = nodes.between(0, k), nodes.between(k, nodes.columns)
    for z, y in zip(Z.split(rows), Y.split(rows), strict=True):
        with making:
            A, H = old.expand(z)[:, own], new.expand(z)
        yield A, H, y


def warn_below(ridge: float, norm: Tensor) -> None:
    """Warn of a ridge that the dtype cannot resolve where ``norm`` is |A|^2."""
    safe = safe_ridge(norm)
    if ridge < safe:
        warnings.warn(
            f"ridge {ridge:g} is below {safe:.1e}, the smallest that is safe in "
            f"{str(norm.dtype).removeprefix('torch.')} here (10 eps |A|^2); use "
            f"dtype='float64'",
            stacklevel=7,  # where `fit` was called
        )
