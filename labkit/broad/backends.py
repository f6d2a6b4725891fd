"""Where the columns of a growing model live: in memory, nowhere, or on a mesh."""

import warnings
from collections.abc import Callable
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
    naming_safe_ridge,
    safe_ridge,
    squared_norm,
)
from labkit.clock import Clock


class Backend:
    """Columns of the training data and the solver's state, which grow together.

    ``state`` is what the solver carries; None before the start, on a mesh empty.
    """

    state, solver = None, "chol-1"

    def __init__(self, Y: Tensor, ridge: float, capacity: int | None):
        self.Y, self.ridge, self.capacity = Y, ridge, capacity

    def grow(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        """Make those columns of all ``nodes`` that are not there yet, and solve.

        From Z (l, f), features of this worker's samples; ``making`` is the clock of
        making the columns. After a NotPositiveDefinite all is as it was.
        """
        raise NotImplementedError

    def truncate(self, k: int) -> None:
        """Go back to the first k columns."""
        self.state = truncated(self.state, k)

    def weights(self) -> Tensor:
        """W (k, c)."""
        return self.state.W

    @property
    def _made(self) -> int:
        """Columns that live here."""
        return 0 if self.state is None else len(self.state.W)

    def _warn_below(self, norm: Callable[[], Tensor]) -> None:
        """Warn of a ridge that float32 cannot resolve where ``norm()`` is |A|^2."""
        if self.Y.dtype == torch.float32 and self.ridge < (safe := safe_ridge(norm())):
            warnings.warn(
                f"ridge {self.ridge:g} is below {safe:.1e}, the smallest that is safe "
                f"in float32 here (10 eps |A|^2); use dtype='float64'",
                stacklevel=6,  # where `fit` was called
            )


class Stored(Backend):
    """All columns in memory, for every solver."""

    def __init__(self, Y, ridge, capacity, solver: str, fallback: str | None):
        super().__init__(Y, ridge, capacity)
        self.solver, self.fallback = solver, fallback
        self.room = Y.new_empty(len(Y), capacity or 0)

    def grow(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        """See :meth:`Backend.grow`; where the solver loses a pivot, its fallback."""
        k, solver = self._made, self.solver
        with making:
            room = widened(self.room, k, nodes.columns)
            H = room[:, k : nodes.columns]
            nodes.between(k, nodes.columns).expand(Z, out=H)
        if self.state is None:
            self._warn_below(lambda: squared_norm(H))
            state = SOLVERS[solver].start(H, self.Y, self.ridge, self.capacity)
        else:
            columns = room[:, :k], H, self.Y
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


class Streamed(Backend):
    """No column is kept: Chol-1 from sums over chunks of the samples, made again."""

    def __init__(self, Y, ridge, capacity, chunk: int):
        super().__init__(Y, ridge, capacity)
        self.chunk, self.norm = chunk, 0.0

    def grow(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        """See :meth:`Backend.grow`."""
        sums = sums_over(chunks(nodes, self._made, Z, self.Y, self.chunk, making))
        norm = self.norm + largest_eigenvalue(sums.S)
        if self.state is None:
            self._warn_below(lambda: norm)
        with naming_safe_ridge(lambda: norm):
            if self.state is None:
                state = chol1_start_from(sums, self.ridge, self.capacity)
            else:
                state = chol1_update_from(self.state, sums)
        self.state, self.norm = state, norm


class Sharded(Backend):
    """On the workers of a mesh, in panels of new columns: Chol-1.

    Every worker makes a panel in full from its Z, since all need its products with
    their own columns, and keeps those that live there.
    """

    def __init__(self, Y, ridge, capacity, mesh):
        super().__init__(Y, ridge, capacity)
        self.state = distributed.empty(Y, ridge, mesh, capacity)
        self.room = Y.new_empty(len(Y), 0)

    def grow(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        """See :meth:`Backend.grow`."""
        place, first = self.state.place, not self.state.columns
        room = place.count(self.capacity or nodes.columns)
        self.room = widened(self.room, self._made, room)
        self._in_panels(nodes, Z, making)
        if first:
            A = self.room[:, : self._made]
            self._warn_below(lambda: distributed.norm_bound(place, A))

    def truncate(self, k: int) -> None:
        """Go back to the first k columns of all workers."""
        self.state = distributed.truncated(self.state, k)

    def weights(self) -> Tensor:
        """W of all workers, on every one of them."""
        return distributed.whole(self.state)

    def _in_panels(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        state, pivots = self.state, []
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

    grow = Sharded._in_panels

    def _panel(self, state, nodes, edges, Z, making):
        (k, grown), own = edges, state.place.own(0)
        parts = chunks(nodes.between(0, grown), k, Z, self.Y, self.chunk, making, own)
        return distributed.update_from(state, distributed.sums_here(state, parts))


def widened(room: Tensor, k: int, columns: int) -> Tensor:
    """Memory of so many columns: ``room``, or a larger copy of its first k."""
    if room.shape[1] >= columns:
        return room
    larger = room.new_empty(len(room), columns)
    larger[:, :k] = room[:, :k]
    return larger


def chunks(nodes: Nodes, k: int, Z, Y, rows: int, making: Clock, own=slice(None)):
    """Yield columns up to k (of these the ``own``), those from k on, and Y, by rows."""
    old, new = nodes.between(0, k), nodes.between(k, nodes.columns)
    for z, y in zip(Z.split(rows), Y.split(rows), strict=True):
        with making:
            A, H = old.expand(z)[:, own], new.expand(z)
        yield A, H, y
