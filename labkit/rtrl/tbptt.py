r"""Truncated back-propagation through time, the baseline (Benzing et al., section 4.1).

"Truncated" has two meanings for two uses:

* ``gradient`` is a sliding window for comparisons of gradients: it is the gradient of
  this step's loss alone, cut ``horizon`` steps back;
* ``backward`` serves for training: it returns the mean gradient of the losses of
  ``horizon`` steps every ``horizon`` steps, and None in between.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from labkit.rtrl.cells import Cell, Linearised
from labkit.rtrl.exact import rtrl_step
from labkit.rtrl.learner import Learner
from labkit.rtrl.low_rank import check_rank


def tbptt_count(n: int, m: int, K: int, P: int, r: int) -> tuple[int, int]:
    """Return the count of :class:`~labkit.rtrl.learners.Method` for one step.

    The window has r steps.
    """
    S = P * n  # back: the weights' gradient, through W, d z
    back = 2 * m * K * n + 2 * K * n * n + 2 * K * S + 2 * P * S
    return 2 * m * K * n + back, (r + 1) * (m + P * K * n + P * S + S + 1) + 1


class TBPTT(Learner):
    """Learner by back-propagation through the last ``horizon`` steps.

    It keeps h_hat and the compact derivatives of the window, O(horizon (m + K S))
    numbers per sequence, in a ring with one place more: a step writes there, and what
    it writes belongs to the window once the step is counted. The loop over the window
    runs in ``gradient``, not in ``step``. The weights must not change inside a window:
    ``backward`` guarantees that, ``gradient`` assumes it.

    Parameters
    ----------
    cell, batch_size, generator : see :class:`Learner`; nothing is drawn
    horizon : int, T >= 1 steps
    """

    draws, on_host = False, "TBPTT counts its steps on the host"
    tensors = ("h_hats", "Ds", "directs", "keeps", "deltas", "cut", "count")

    def __init__(
        self,
        cell: Cell,
        *,
        batch_size: int,
        horizon: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(cell, batch_size=batch_size, generator=generator)
        self.horizon = check_rank(horizon, name="horizon")
        P, K, n, places = cell.parts, cell.blocks, cell.hidden_size, horizon + 1
        self.places = places  # in the ring; step t has place t % places
        self.h_hats = self._zeros(places, cell.augmented_size)
        self.Ds = self._zeros(places, P, K, n)
        self.directs = self._zeros(places, P, P, n)
        self.keeps = self._zeros(places)  # 0 where the sequence began at that step
        self.deltas = self._zeros(places, cell.state_size)  # losses not yet used
        self.cut = self._zeros() + 1  # keeps of the step to come
        self.count = torch.zeros((), dtype=torch.int64)  # steps read; on the host

    def step(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Step as :meth:`Learner.step` does; a mask raises ValueError."""
        if mask is not None:
            raise ValueError(
                "TBPTT has one window for all sequences: step without a mask"
            )
        return super().step(x)

    def _advance(self, x: Tensor) -> dict[str, Tensor]:
        new = self.cell.linearise(x, self.state)
        slot = int(self.count) % self.places
        self.h_hats[:, slot], self.Ds[:, slot] = new.h_hat, new.D
        if new.direct is not None:
            self.directs[:, slot] = new.direct
        self.keeps[:, slot], self.deltas[:, slot] = self.cut, 0
        cut = torch.ones_like(self.cut)
        return {"state": new.state, "cut": cut, "count": self.count + 1}

    def _backward(self, delta: Tensor) -> Tensor | None:
        """Return the mean gradient of ``horizon`` losses, or None between updates."""
        count = int(self.count)
        self.deltas[:, (count - 1) % self.places] = delta
        if not count or count % self.horizon:
            return None
        grad = torch.zeros_like(self.cell.weight, requires_grad=False)
        for h_hat, dz in self._walk_back(self.deltas):
            grad.addmm_(h_hat.T, dz, alpha=1 / self.horizon)
        return grad

    def _per_sequence(self, delta: Tensor) -> Tensor:
        deltas = torch.zeros_like(self.deltas)
        # Nothing leads back from a state that was just set to 0.
        deltas[:, (int(self.count) - 1) % self.places] = delta * self.cut[:, None]
        grad = self._zeros(*self.cell.weight.shape)
        for h_hat, dz in self._walk_back(deltas):
            grad.baddbmm_(h_hat[..., None], dz[:, None])
        return grad

    def _window(self) -> list[tuple[int, Linearised]]:
        """Return the place and the derivatives of each step, newest first."""
        count = int(self.count)
        steps = range(count - 1, max(count - self.horizon, 0) - 1, -1)
        found = []
        for step in steps:
            at = step % self.places
            h_hat, D, direct = self.h_hats[:, at], self.Ds[:, at], self.directs[:, at]
            found.append((at, Linearised(self.state, h_hat, D, direct)))
        return found

    @torch.no_grad()
    def _walk_back(self, deltas: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield h_hat and d L / d z of every step of the window, newest first."""
        delta = torch.zeros_like(self.state)
        for at, new in self._window():
            dz, delta = self.cell.vjp(new, delta + deltas[:, at])
            delta = delta * self.keeps[:, at, None]
            yield new.h_hat, dz

    def _begun_anew(self) -> list[Tensor]:
        # Losses before the reset keep their gradient; only the way across it is cut.
        return [self.state, self.cut]

    def _influence(self) -> Tensor:
        """Return d s_t / d theta through the window."""
        G = self._zeros(self.cell.state_size, self.cell.weight.numel())
        for at, new in reversed(self._window()):
            G = G * self.keeps[:, at, None, None]
            G = rtrl_step(G, self.cell.jacobian(new), new.h_hat, new.D)
        return G * self.cut[:, None, None]
