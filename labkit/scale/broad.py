r"""Broad learning on several workers, which share the nodes, the samples or both.

Workers that share the *nodes* hold all samples, and each its own columns of A and F:
node i in the order of growth lives on worker i mod p, so that shares differ by one node
at most whatever the sizes of the updates, and no node ever moves. Workers that share
the *samples* hold their own rows of A and Y each, and the whole of F. All make the new
columns H from the seed that they share. The arithmetic is that of
:mod:`labkit.broad.triangular` and :mod:`labkit.broad.factor`.

An update from k to k + q nodes with c outputs makes these calls, none of which depends
on the number of samples:

========================  ====================  ====================
all-reduce of             numbers               over those who share
========================  ====================  ====================
own rows of these         (k q + q(q + c)) / p  samples
P, S and H^T Y            (k + q)(q + c)        nodes
V^T V and V^T z           q (q + c)             nodes
T                         k q                   nodes
========================  ====================  ====================

with p workers that share the nodes.

Zhu's appendix E-D instead sends A itself, and a message or two for each column; see
:mod:`labkit.broad.sweep`.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from labkit import broad
from labkit.broad.base import BroadLearning
from labkit.broad.factor import bordered, inverse_cholesky_
from labkit.broad.nodes import ALL, Samples
from labkit.broad.ridge import smallest_pivot, with_ridge
from labkit.broad.triangular import gram, mm, mm_upper, upper_mm, upper_t_mm
from labkit.scale.workers import Workers

PANEL = 512  # nodes that a start adds at a time


@dataclass(frozen=True)
class SharedState:
    """What one worker holds of Chol-1's state."""

    F: Tensor  # (k, k_w), its own columns
    z: Tensor  # (k_w, c), its own rows of F^T A^T Y
    W: Tensor  # (k, c)
    ridge: float
    pivot: Tensor  # ()


@dataclass(frozen=True)
class Mesh:
    """The workers that share the nodes and those that share the samples, if any do.

    Examples
    --------
    >>> mesh = Mesh()
    >>> list(range(7))[mesh.own(0)]
    [0, 1, 2, 3, 4, 5, 6]
    """

    nodes: Workers | None = None
    samples: Workers | None = None

    @property
    def p(self) -> int:
        """The number of workers that share the nodes."""
        return 1 if self.nodes is None else self.nodes.size

    def own(self, k: int) -> slice:
        """Return which of the nodes k, k + 1, ... live on this worker."""
        rank = 0 if self.nodes is None else self.nodes.rank
        return slice((rank - k) % self.p, None, self.p)

    def start(self, A: Tensor, Y: Tensor, ridge: float) -> SharedState:
        """Grow from no nodes to all columns of A (l, k), a panel at a time."""
        none = Y.new_zeros(0, Y.shape[1])
        state, pivots = SharedState(Y.new_zeros(0, 0), none, none, ridge, none), []
        for i in range(0, A.shape[1], PANEL):
            old, new = A[:, :i][:, self.own(0)], A[:, i : i + PANEL]
            state = self.update(state, old, new, Y)
            pivots.append(state.pivot)
        return replace(state, pivot=torch.stack(pivots).amin())

    def update(
        self, state: SharedState, A: Tensor, H: Tensor, Y: Tensor
    ) -> SharedState:
        r"""Add the columns H by Chol-1 (Algorithm 7), as one of the workers.

        (40) $P = A^T H, \; S = H^T H + \lambda I$    (a) $V = F^T P$
        (42a) $G = (S - V^T V)^{-1/2}$, upper    (42b) $T = -F V G$
        (41) $F \leftarrow [[F, T], [0, G]]$
        (50) $E = G^T (H^T Y - V^T z)$, $W \leftarrow [W + T E; G E]$

        (50) is the paper's $E = T^T A^T Y + G^T H^T Y$ with (42b) put in and
        $z = F^T A^T Y$, which E extends. The cost is (2 l k q + 2 l q^2 + 2 k^2 q +
        2 k q^2) / p + 2/3 q^3 operations for l samples at hand.

        Parameters
        ----------
        A : (l, k_w) tensor, this worker's nodes before the update
        H, Y : (l, q), (l, c) tensors, all new nodes and the labels

        Raises
        ------
        NotPositiveDefinite
            A pivot was lost; raised on every worker.
        """
        nodes, samples = self.nodes or ALL, self.samples or ALL
        F, z, W, (k, c), q = state.F, state.z, state.W, state.W.shape, H.shape[1]
        sums, new = H.new_zeros(k + q, q + c), self.own(k)
        P, S_HY = mm(A.T, H), mm(H[:, new].T, torch.cat([H, Y], 1))  # (40), own rows
        sums[:k, :q][self.own(0)], sums[k:][new] = samples.sum([P, S_HY])
        (sums,) = nodes.sum([sums])
        P, S, HY = sums[:k, :q], with_ridge(sums[k:, :q], state.ridge), sums[k:, q:]
        V = upper_t_mm(F, P, every=self.p)  # (a)
        VV, Vz = nodes.sum([gram(V), mm(V.T, z)])
        G = inverse_cholesky_(S - VV, offset=k)  # (42a)
        (T,) = nodes.sum([upper_mm(F, mm_upper(V, G).neg_(), every=self.p)])  # (42b)
        F = bordered(F, T[:, new], G[:, new])  # (41)
        E = G.T @ (HY - Vz)  # (50)
        W = torch.cat([W + T @ E, G @ E])  # (50)
        z = torch.cat([z, E[new]])
        return SharedState(F, z, W, state.ridge, smallest_pivot(G))

    def truncated(self, state: SharedState, k: int) -> SharedState:
        """Return the state of the first k nodes.

        It takes an all-reduce for (49) W = F z, and one for the pivot.
        """
        nodes, here = self.nodes or ALL, len(range(k)[self.own(0)])
        F, z = state.F[:k, :here].clone(), state.z[:here]
        (W,) = nodes.sum([upper_mm(F, z, every=self.p)])  # (49)
        diagonal = F[self.own(0)].diagonal()  # of the columns that are here, if any
        (most,) = nodes.largest([torch.cat([F.new_zeros(1), diagonal]).amax()])
        return replace(state, F=F, z=z, W=W, pivot=most.square().reciprocal())


@dataclass(eq=False, repr=False)
class OnWorkers(BroadLearning):
    """What the estimators do otherwise on several workers."""

    nodes: Workers | None = field(default=None, kw_only=True)
    samples: Workers | None = field(default=None, kw_only=True)

    @property
    def _mesh(self) -> Mesh:
        return Mesh(self.nodes, self.samples)

    @property
    def _samples(self) -> Samples | Workers:
        return self.samples or ALL

    def _fit(self, X: np.ndarray, Y: np.ndarray) -> None:
        if (self.solver, self.fallback) != ("chol-1", None) or np.ndim(self.ridge):
            raise ValueError(
                f"several workers need solver='chol-1' without fallback and one ridge, "
                f"got solver={self.solver!r}, fallback={self.fallback!r}, "
                f"ridge={self.ridge!r}"
            )
        super()._fit(X, Y)

    def _seed(self) -> int:
        seed = torch.tensor(super()._seed(), device=self.device)
        for workers in (self.samples, self.nodes):
            seed = seed if workers is None else workers.first(seed)
        return int(seed)

    def _choose_ridge(self, A: Tensor) -> tuple[float, None]:
        return 1.0 if self.ridge is None else float(self.ridge), None

    def _start(self, H: Tensor) -> SharedState:
        return self._mesh.start(H, self._Y, self.ridge_)

    def _update(self, H: Tensor) -> SharedState:
        return self._mesh.update(self._state, self._A, H, self._Y)

    def _joined(self, H: Tensor) -> Tensor:
        own = self._mesh.own(self.nodes_.columns - H.shape[1])
        return torch.cat([self._A, H[:, own]], 1)

    def _shortened(self, k: int) -> tuple[SharedState, Tensor]:
        state = self._mesh.truncated(self._state, k)
        return state, self._A[:, : len(state.z)]


class BroadMeshClassifier(OnWorkers, broad.BroadLearningClassifier):
    """A :class:`~labkit.broad.BroadLearningClassifier` on several workers.

    All workers fit and grow together, each with the training data of its own samples;
    each can predict on its own. The result is that of one process with all samples, up
    to rounding. It needs the solver ``chol-1``. ``ridge=None`` is 1 here, and
    ``factor`` returns this worker's columns of F.

    Parameters
    ----------
    nodes, samples : :class:`~labkit.scale.Workers`, optional
        Those that share the columns of the model, and those that share the samples.
    """

    def _labels_of(self, y: np.ndarray) -> np.ndarray:
        labels = super()._labels_of(y)
        if self.samples is None:
            return labels
        found = [labels] * self.samples.size
        dist.all_gather_object(found, labels, group=self.samples.group)
        return np.unique(np.concatenate(found))


class BroadMeshRegressor(OnWorkers, broad.BroadLearningRegressor):
    """A :class:`~labkit.broad.BroadLearningRegressor` on several workers.

    Its parameters are those of :class:`BroadMeshClassifier`.
    """

    def _mean_of(self, y: np.ndarray) -> np.ndarray:
        mean = super()._mean_of(y)
        if self.samples is None:
            return mean
        total = torch.from_numpy(mean * len(y)).to(self.device)
        total, count = self.samples.sum([total, total.new_tensor(len(y))])
        return (total / count).cpu().numpy()
