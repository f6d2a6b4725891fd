"""An estimator's nodes on a mesh: made in panels, summed up, kept where they live."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from labkit.broad.distributed import (
    PANEL,
    ShardedState,
    sums_here,
    update,
    update_from,
)
from labkit.broad.nodes import Nodes


def grow_on_mesh(
    state: ShardedState, nodes: Nodes, Z: Tensor, Y: Tensor, room: Tensor
) -> ShardedState:
    """Add the columns of ``nodes`` that are not in the state yet.

    Every worker makes a panel of new columns in full from Z, since all need its
    products with their own columns, and keeps those that live there.

    Parameters
    ----------
    Z : (l, f) features of this worker's samples.  Y : (l, c).
    room : (l, at least k_w) holds this worker's nodes and receives the new ones.
    """
    pivots = []
    for i, j in _panels(state, nodes):
        H, old = nodes.between(i, j).expand(Z), len(state.W)
        state = update(state, room[:, :old], H, Y)
        room[:, old : len(state.W)] = H[:, state.place.own(i)]
        pivots.append(state.pivot)
    return replace(state, pivot=torch.stack(pivots).amin())


def stream_on_mesh(
    state: ShardedState, nodes: Nodes, Z: Tensor, Y: Tensor, chunk: int
) -> ShardedState:
    """:func:`grow_on_mesh` with no column kept: all are made again, chunk by chunk."""
    pivots, own = [], state.place.own(0)
    for i, j in _panels(state, nodes):
        old, new = nodes.between(0, i), nodes.between(i, j)
        chunks = zip(Z.split(chunk), Y.split(chunk), strict=True)
        made = ((old.expand(z)[:, own], new.expand(z), y) for z, y in chunks)
        state = update_from(state, sums_here(state, made))
        pivots.append(state.pivot)
    return replace(state, pivot=torch.stack(pivots).amin())


def _panels(state: ShardedState, nodes: Nodes) -> Iterator[tuple[int, int]]:
    return pairwise([*range(state.columns, nodes.columns, PANEL), nodes.columns])


def room_on_mesh(
    state: ShardedState, Z: Tensor, k: int, room: Tensor | None = None
) -> Tensor:
    """Memory for this worker's nodes among k: the same, or a larger copy."""
    columns = state.place.count(state.capacity or k)
    if room is not None and columns <= room.shape[1]:
        return room
    larger = Z.new_empty(len(Z), columns)
    if room is not None:
        larger[:, : room.shape[1]] = room
    return larger
