r"""Chol-1 on many workers, which share the nodes, the samples or both.

A mesh with a dimension ``"nodes"`` shares the model: every worker holds its own columns
of A and F and its own rows of W and of $z = F^T A^T Y$, all samples, and the new
columns H, which it draws from the seed that all share. A mesh with a dimension
``"samples"`` shares the data: every worker holds its own rows of A, H and Y, and the
whole of F, z and W. A mesh with both does both. :class:`~labkit.broad.mesh.Place`
defines which nodes live on which worker; the arithmetic is that of
:mod:`~labkit.broad.triangular` and :mod:`~labkit.broad.factor`, as in
:func:`~labkit.broad.ridge.chol1_step`.

One update from k to k + q nodes with c outputs, on p workers that share the nodes,
``n = ceil(k / p)``, ``m = ceil(q / p)``:

==============  ===================  ================================
call            of                   numbers, all workers' together
==============  ===================  ================================
all-gather      P                    p n q
all-reduce      S - V^T V, E         q (q + c)
reduce-scatter  T, T E               p (m k + n c)
==============  ===================  ================================

If samples are shared, these follow one all-reduce of P, S and H^T Y, of
``(count + q) q + q c`` numbers with this worker's ``count`` of nodes. None depends on
the number of samples. Zhu's appendix E-D instead sends A itself; see docs/scaling.md.

Every function here must be called by all workers of the mesh.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labkit.broad.factor import check_factored, inverse_cholesky_
from labkit.broad.mesh import Place
from labkit.broad.ridge import smallest_pivot, with_ridge
from labkit.broad.state import check_room, check_start, naming_safe_ridge, squared_norm
from labkit.broad.triangular import gram, mm, mm_upper, upper_mm, upper_t_mm

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

PANEL = 512  # nodes that a start adds at a time


@dataclass(frozen=True)
class ShardedState:
    """The state of one worker, with ``capacity`` as in :mod:`labkit.broad.state`."""

    place: Place
    columns: int  # k, of all workers
    buffer: Tensor  # (room here, room), the own columns of F as rows
    z: Tensor  # (k_w, c), own rows of F^T A^T Y
    W: Tensor  # (k_w, c), own rows
    ridge: float
    pivot: Tensor  # ()
    capacity: int | None = None

    @property
    def F(self) -> Tensor:
        """The columns of F (k, k_w) on this worker, a view."""
        return self.buffer[: len(self.W), : self.columns].T


def start(
    A: Tensor,
    Y: Tensor,
    ridge: float,
    mesh: "DeviceMesh",
    capacity: int | None = None,
    panel: int = PANEL,
) -> ShardedState:
    r"""Grow from no nodes to the k columns of A, ``panel`` columns at a time.

    Parameters
    ----------
    A, Y : (l, k), (l, c) tensors, all nodes and labels of this worker's samples
    ridge : float, $\lambda$ > 0
    mesh : DeviceMesh with the dimensions ``"nodes"``, ``"samples"`` or both
    capacity : int, optional, columns to set aside, of all workers together

    Raises
    ------
    NotPositiveDefinite, ValueError
        Raised on every worker.
    """
    check_start(A, Y, ridge, capacity)
    state, pivots = empty(Y, ridge, mesh, capacity), []
    for i in range(0, A.shape[1], panel):
        H = A[:, i : i + panel]
        state = update(state, A[:, :i][:, state.place.own(0)], H, Y)
        pivots.append(state.pivot)
    return replace(state, pivot=torch.stack(pivots).amin())


def empty(
    Y: Tensor, ridge: float, mesh: "DeviceMesh", capacity: int | None = None
) -> ShardedState:
    """Return the state without nodes, from which the first :func:`update` grows."""
    place = Place.on(mesh)
    none = Y.new_zeros(0, Y.shape[1])
    room = capacity or 0
    buffer = Y.new_zeros(place.count(room), room)
    return ShardedState(place, 0, buffer, none, none, ridge, Y.new_ones(()), capacity)


def update(state: ShardedState, A: Tensor, H: Tensor, Y: Tensor) -> ShardedState:
    """Add the columns H by :func:`chol1_step`; every worker raises on a lost pivot.

    Parameters
    ----------
    A : (l, k_w) tensor, this worker's nodes before the update
    H : (l, q) tensor, all new nodes; ``H[:, place.own(k)]`` will live here
    Y : (l, c) tensor, as A and H of this worker's samples
    """
    own = H[:, state.place.own(state.columns)]
    with naming_safe_ridge(norm_bound, state.place, A, own):
        return update_from(state, sums_here(state, [(A, H, Y)]))


def sums_here(
    state: ShardedState, chunks: Iterable[tuple[Tensor, Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    r"""Compute the sums that an update needs, in one pass over this worker's samples.

    The cost is l q (2 k + q) / p operations.

    Returns
    -------
    P : (k_w, q) tensor, $A_w^T H$
    X : (q, q + c) tensor
        This worker's rows of $[H^T H, H^T Y]$ and zeros elsewhere; only the upper
        triangle of $H^T H$.
    """
    P = X = None
    for A, H, Y in chunks:
        q, rows = H.shape[1], state.place.rows(H.shape[1])
        if P is None:
            P, X = mm(A.T, H), H.new_zeros(q, q + Y.shape[1])
        else:
            P.T.addmm_(H.T, A)
        mine = H[:, rows]
        X[rows, rows] += gram(mine)
        X[rows, rows.stop : q].addmm_(mine.T, H[:, rows.stop :])
        X[rows, q:] += mm(mine.T, Y)
    return P, X


def update_from(state: ShardedState, sums: tuple[Tensor, Tensor]) -> ShardedState:
    r"""Perform :func:`update` from the sums of :func:`sums_here`, which it overwrites.

    (41) $F \leftarrow [[F, T], [0, G]]$
    """
    place, k, here = state.place, state.columns, len(state.W)
    q, own = len(sums[1]), place.own(k)
    buffer = _room_for(state, q)
    P, X = place.summed_over_samples(*sums)
    T, G, E, W = chol1_step(state.F, state.z, state.W, P, X, state.ridge, k, place)
    buffer[here : len(W), :k] = T.T  # (41)
    buffer[here : len(W), k : k + q] = G.T[own]  # (41)
    return replace(
        state,
        columns=k + q,
        buffer=buffer,
        z=torch.cat([state.z, E[own]]),
        W=W,
        pivot=smallest_pivot(G),
    )


def chol1_step(
    F: Tensor,
    z: Tensor,
    W: Tensor,
    P: Tensor,
    X: Tensor,
    ridge: float,
    k: int,
    place: Place,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Perform one update of Chol-1 on one worker (Zhu, Algorithm 7).

    (a) $V = F^T P$    (42a) $G = (S - V^T V)^{-1/2}$, upper, $G G^T = (\cdot)^{-1}$
    (42b) $T = -F V G$    (50) $E = G^T (H^T Y - V^T z)$, $W \leftarrow [W + T E; G E]$

    (50) is the paper's $E = T^T A^T Y + G^T H^T Y$ with (42b) put in and
    $z = F^T A^T Y$, which E extends, so that it needs only rows of F^T as the workers
    share them. The update from k to k + q nodes costs (2 k^2 q + 2 k q^2) / p + 2/3 q^3
    operations.

    Parameters
    ----------
    F, P : (k, k_w), (k_w, q) tensors, own columns of F and own rows of A^T H
    z, W : (k_w, c) tensors, own rows
    X : (q, q + c) tensor
        This worker's share of the sum [S, H^T Y], without ridge; only the upper
        triangle of S is read.
    ridge : float, $\lambda$

    Returns
    -------
    T, W : (k, q_w), (k_w + q_w, c) tensors, own columns and own rows
    G, E : (q, q), (q, c) tensors, the same on every worker
    """
    p, q = place.p, P.shape[1]
    V = upper_t_mm(F, place.gathered(P, k), every=p)  # (a)
    X[:, :q] -= gram(V)  # (42a)
    X[:, q:] -= mm(V.T, z)  # (50)
    X = place.summed(X)
    G, blocks = inverse_cholesky_(with_ridge(X[:, :q], ridge))  # (42a)
    check_factored(blocks, offset=k)
    E = G.T @ X[:, q:]  # (50)
    V = mm_upper(V, G).neg_()  # (42b)
    T = upper_mm(F, V, every=p)  # (42b)
    T, TE = place.scattered(T, T @ E, k)
    W = torch.cat([W + TE, (G @ E)[place.own(k)]])  # (50)
    return T, G, E, W


def truncated(state: ShardedState, k: int) -> ShardedState:
    """Return the state of the first k nodes; one reduce-scatter for (49) $W = F z$."""
    place, here = state.place, state.place.count(k)
    buffer = state.buffer if state.capacity else state.buffer[:here, :k].clone()
    F, z = state.buffer[:here, :k].T, state.z[:here]
    W = upper_mm(F, z, every=place.p)  # (49)
    _, W = place.scattered(W[:, :0], W, k)
    return replace(state, columns=k, buffer=buffer, z=z, W=W.clone())


def whole(state: ShardedState) -> Tensor:
    """Return W (k, c) in the order of growth on every worker; one all-gather."""
    return state.place.gathered(state.W, state.columns)


def norm_bound(place: Place, *blocks: Tensor) -> Tensor:
    """Sum the workers' squared norms: a bound on that of all columns together."""
    bound = squared_norm(*blocks).nan_to_num()  # of a worker without nodes
    return place.summed(*place.summed_over_samples(bound))


def _room_for(state: ShardedState, q: int) -> Tensor:
    """Return the state's memory with room for q more columns, or a larger copy."""
    k = state.columns + q
    if state.capacity is not None:
        check_room(k, state.capacity)
        return state.buffer
    larger = state.buffer.new_zeros(state.place.count(k), k)
    larger[: len(state.W), : state.columns] = state.buffer
    return larger
