"""Backends of a growing model: its columns are stored, recomputed, or on a mesh."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, repeat
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labkit.broad import distributed
from labkit.broad.factor import NotPositiveDefinite
from labkit.broad.nodes import CHUNK, Nodes
from labkit.broad.parameters import warn_caller
from labkit.broad.ridge import (
    chol1_start_from,
    chol1_update_from,
    sums_over,
    truncated,
)
from labkit.broad.rows import leave_one_out, rows_start, rows_update
from labkit.broad.solvers import SOLVERS
from labkit.broad.state import (
    DaggerState,
    State,
    largest_eigenvalue,
    naming_safe_ridge,
    safe_ridge,
    squared_norm,
)
from labkit.clock import Clock

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Rows = Iterator[tuple[Tensor, Tensor, Tensor]]


class Backend:
    """The columns of the training data, and the state of the solver that grows by them.

    Parameters
    ----------
    Y : (l, c) tensor, targets
    root : (l, 1) tensor, optional
        Roots of the samples' weights; the rows of A and Y are multiplied by them.
    ridge : float, or list of float, from which the start chooses one
    capacity : int, optional, columns to set aside
    chunk : int, samples at a time

    Attributes
    ----------
    state : the solver's state; None before the start, or on a mesh without columns
    counts : (l,) tensor, how often every sample of the start counts; None for once
    loo : (r,) tensor, leave-one-out error of every ridge to choose from, or None
    """

    state, solver, counts, loo = None, "chol-1", None, None

    def __init__(
        self,
        Y: Tensor,
        root: Tensor | None,
        ridge: float | list[float],
        capacity: int | None,
        chunk: int = CHUNK,
    ) -> None:
        self.root, self.ridge, self.capacity, self.chunk = root, ridge, capacity, chunk
        self.Y = Y if root is None else root * Y

    def grow(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        """Make the columns of ``nodes`` that do not exist yet, and solve.

        After a NotPositiveDefinite the backend is as it was.

        Parameters
        ----------
        nodes : Nodes, all of them, old and new
        Z : (l, f) tensor, features of this worker's samples
        making : Clock, which measures the seconds in which columns are made
        """
        raise NotImplementedError

    def take(
        self, nodes: Nodes, Z: Tensor, Y: Tensor, root: Tensor | None, making: Clock
    ) -> None:
        """Add samples with features Z (n, f) and targets Y (n, c)."""
        state, Y = self.state, Y if root is None else root * Y
        for _, A, y in chunks(nodes, 0, Z, Y, root, self.chunk, making):
            state = rows_update(state, A, y)
        self.state = state
        self._keep(nodes, Z, Y, root)

    def truncate(self, k: int) -> None:
        """Go back to the first k columns."""
        self.state = truncated(self.state, k)

    def weights(self) -> Tensor:
        """Return the weights W (k, c)."""
        return self.state.W

    @property
    def _made(self) -> int:
        """The number of columns on this worker."""
        return 0 if self.state is None else len(self.state.W)

    def _keep(self, nodes: Nodes, Z: Tensor, Y: Tensor, root: Tensor | None) -> None:
        """Keep the targets and roots of new samples with those of the old."""
        if not (self.root is None and root is None):
            ones = (y.new_ones(len(y), 1) for y in (self.Y, Y))
            pairs = zip((self.root, root), ones, strict=True)
            self.root = torch.cat([one if r is None else r for r, one in pairs])
        self.Y = torch.cat([self.Y, Y])

    def _choose(
        self, blocks: Callable[[], Iterable[tuple[Tensor, Tensor]]], k: int
    ) -> None:
        """Choose the safe ridge with the least leave-one-out error."""
        if isinstance(self.ridge, float):
            return
        shape = len(self.Y), k
        errors, norm = leave_one_out(blocks, shape, self.ridge, self.counts)
        errors = errors.nan_to_num(torch.inf)
        count = len(self.Y) if self.root is None else self.root.square().sum()
        self.loo = errors / (count * self.Y.shape[1])
        ridges, safe = errors.new_tensor(self.ridge), safe_ridge(norm)
        least = min(safe, max(self.ridge))
        candidates = torch.where(ridges < least, torch.inf, errors)
        self.ridge = self.ridge[int(candidates.argmin())]

    def _warn_below(self, norm: Callable[[], Tensor]) -> None:
        """Warn if float32 cannot resolve the ridge, where ``norm()`` is |A|^2."""
        if self.Y.dtype == torch.float32 and self.ridge < (safe := safe_ridge(norm())):
            warn_caller(
                f"ridge {self.ridge:g} is below {safe:.1e}, the smallest that is safe "
                f"in float32 here (10 eps |A|^2); use dtype='float64'"
            )


class Stored(Backend):
    """A backend that keeps all columns in memory, for every solver."""

    def __init__(
        self,
        Y: Tensor,
        root: Tensor | None,
        ridge: float | list[float],
        capacity: int | None,
        solver: str,
        fallback: str | None,
    ) -> None:
        super().__init__(Y, root, ridge, capacity)
        self.solver, self.fallback = solver, fallback
        self.room = Y.new_empty(len(Y), capacity or 0)

    def grow(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        """Grow as :meth:`Backend.grow`; the fallback solves after a lost pivot."""
        k, solver = self._made, self.solver
        with making:
            room = widened(self.room, k, nodes.columns)
            H = room[:, k : nodes.columns]
            expanded(nodes.between(k, nodes.columns), Z, self.root, out=H)
        if self.state is None:
            rows = H.split(CHUNK), self.Y.split(CHUNK)
            self._choose(lambda: zip(*rows, strict=True), nodes.columns)
            self._warn_below(lambda: squared_norm(H))
            state = SOLVERS[solver].start(H, self.Y, self.ridge, self.capacity)
        else:
            columns = room[:, :k], H, self.Y
            try:
                state = SOLVERS[solver].update(self._kept_apart(), *columns)
            except NotPositiveDefinite:
                if self.fallback in (None, solver):
                    raise
                solver = self.fallback
                state = SOLVERS[solver].update(self.state, *columns)
        self.state, self.room, self.solver = state, room, solver

    def _kept_apart(self) -> State:
        """Return a state that an update may write into without changing the old one.

        Only the update of a ridge inverse overwrites what the state holds.
        """
        if not (self.capacity and isinstance(self.state, DaggerState)):
            return self.state
        buffer, k = torch.empty_like(self.state.buffer), self._made
        buffer[:k] = self.state.buffer[:k]
        return replace(self.state, buffer=buffer)

    def _keep(self, nodes: Nodes, Z: Tensor, Y: Tensor, root: Tensor | None) -> None:
        (l, width), k = self.room.shape, nodes.columns  # noqa: E741
        room = self.room.new_empty(l + len(Y), width)
        room[:l] = self.room
        expanded(nodes, Z, root, out=room[l:, :k])
        self.room = room
        super()._keep(nodes, Z, Y, root)

    def truncate(self, k: int) -> None:
        """Go back to the first k columns, for every solver but ``orig``."""
        if self.solver in ("d-rdg", "r-inv"):
            start = SOLVERS[self.solver].start
            self.state = start(self.room[:, :k], self.Y, self.ridge, self.capacity)
        else:
            super().truncate(k)


class Streamed(Backend):
    """A backend that keeps no column: Chol-1 from sums over chunks made each time."""

    norm = 0.0

    def grow(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        """Grow as :meth:`Backend.grow` describes."""
        rows = Z, self.Y, self.root, self.chunk, making
        sums = sums_over(chunks(nodes, self._made, *rows))
        norm = self.norm + largest_eigenvalue(sums.S)
        if self.state is None:
            blocks = partial(chunks, nodes, 0, *rows)
            self._choose(lambda: (block[1:] for block in blocks()), nodes.columns)
            self._warn_below(lambda: norm)
        with naming_safe_ridge(lambda: norm):
            if self.state is None:
                state = chol1_start_from(sums, self.ridge, self.capacity)
            else:
                state = chol1_update_from(self.state, sums)
        self.state, self.norm = state, norm


class ByRows(Backend):
    """A backend that keeps no sample, but only a triangle that adds any number."""

    solver = "bordered"

    def __init__(
        self,
        Y: Tensor,
        root: Tensor | None,
        ridge: float,
        capacity: int | None,
        chunk: int,
    ) -> None:
        super().__init__(Y, root, ridge, capacity, chunk)
        self._first = Y

    def grow(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        """Grow as :meth:`Backend.grow`, once, for the first samples."""
        self.state = rows_start(nodes.columns, self.Y, self.ridge)
        Y, self.Y = self._first, self.Y[:0].clone()
        self.take(nodes, Z, Y, self.root, making)
        self._first = self.root = None

    def _keep(self, *_: object) -> None:
        pass


class Sharded(Backend):
    """A backend for Chol-1 on the workers of a mesh, in panels of new columns.

    Every worker makes all columns of a panel from its Z, since it needs their products
    with its own columns. Without a ``chunk`` it keeps the columns that are its own;
    with one it keeps none and makes all of them again, ``chunk`` samples at a time.
    """

    def __init__(
        self,
        Y: Tensor,
        root: Tensor | None,
        ridge: float,
        capacity: int | None,
        chunk: int | None,
        mesh: "DeviceMesh",
    ) -> None:
        super().__init__(Y, root, ridge, capacity, chunk)
        self.state = distributed.empty(Y, ridge, mesh, capacity)
        self.room = Y.new_empty(len(Y), 0)

    def grow(self, nodes: Nodes, Z: Tensor, making: Clock) -> None:
        """Grow as :meth:`Backend.grow` describes."""
        place, k = self.state.place, self.state.columns
        if self.chunk is None:
            room = place.count(self.capacity or nodes.columns)
            self.room = widened(self.room, self._made, room)
        state, pivots = self.state, []
        for edges in pairwise(
            [*range(k, nodes.columns, distributed.PANEL), nodes.columns]
        ):
            panel = self._add_stored if self.chunk is None else self._add_streamed
            state = panel(state, nodes, edges, Z, making)
            pivots.append(state.pivot)
        self.state = replace(state, pivot=torch.stack(pivots).amin())
        if self.chunk is None and not k:
            A = self.room[:, : self._made]
            self._warn_below(lambda: distributed.norm_bound(place, A))

    def truncate(self, k: int) -> None:
        """Go back to the first k columns of all workers."""
        self.state = distributed.truncated(self.state, k)

    def weights(self) -> Tensor:
        """Return W of all workers, on every worker."""
        return distributed.whole(self.state)

    def _add_stored(
        self,
        state: distributed.ShardedState,
        nodes: Nodes,
        edges: tuple[int, int],
        Z: Tensor,
        making: Clock,
    ) -> distributed.ShardedState:
        """Add the columns between two edges, and keep those of this worker."""
        here = len(state.W)
        with making:
            H = expanded(nodes.between(*edges), Z, self.root)
        state = distributed.update(state, self.room[:, :here], H, self.Y)
        self.room[:, here : len(state.W)] = H[:, state.place.own(edges[0])]
        return state

    def _add_streamed(
        self,
        state: distributed.ShardedState,
        nodes: Nodes,
        edges: tuple[int, int],
        Z: Tensor,
        making: Clock,
    ) -> distributed.ShardedState:
        """Add the columns between two edges, and keep none of them."""
        (k, grown), own = edges, state.place.own(0)
        rows = Z, self.Y, self.root, self.chunk, making
        parts = chunks(nodes.between(0, grown), k, *rows, own)
        return distributed.update_from(state, distributed.sums_here(state, parts))


def widened(room: Tensor, k: int, columns: int) -> Tensor:
    """Return memory for ``columns``: ``room``, or a larger copy of its first k."""
    if room.shape[1] >= columns:
        return room
    larger = room.new_empty(len(room), columns)
    larger[:, :k] = room[:, :k]
    return larger


def expanded(
    nodes: Nodes, Z: Tensor, root: Tensor | None, out: Tensor | None = None
) -> Tensor:
    """Compute A (l, k) from Z (l, f), its rows multiplied by ``root`` (l, 1)."""
    A = nodes.expand(Z, out=out)
    return A if root is None else A.mul_(root)


def chunks(
    nodes: Nodes,
    k: int,
    Z: Tensor,
    Y: Tensor,
    root: Tensor | None,
    rows: int,
    making: Clock,
    own: slice = slice(None),
) -> Rows:
    """Yield, by rows, the ``own`` of the first k columns, the later ones, and Y."""
    old, new = nodes.between(0, k), nodes.between(k, nodes.columns)
    rows = int(rows)  # torch splits by no integer of NumPy
    roots: Sequence | Iterable = repeat(None) if root is None else root.split(rows)
    for z, y, r in zip(Z.split(rows), Y.split(rows), roots, strict=False):
        with making:
            A, H = expanded(old, z, r)[:, own], expanded(new, z, r)
        yield A, H, y
