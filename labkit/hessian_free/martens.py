r"""The baseline: Hessian-free optimisation with conjugate gradients (Martens 2010).

Each step computes the curvature on one chunk of the data, in turn; the gradient, the
backtracking and the line search use all rows. The "batch" variant uses the chunk for
these too; it overfits its chunks until the loss diverges.

As in his code, lambda is not squared here: it is the square of the lambda of
:class:`~labkit.hessian_free.HessianFree`.
"""

import math
from itertools import chain

import torch
from torch import Tensor, nn

from labkit.check import INSIDE, POSITIVE
from labkit.collectives import mean_over
from labkit.hessian_free.cg import STOPS, cg
from labkit.hessian_free.linearise import linearise, weights_of
from labkit.hessian_free.losses import SQUARED, LossLike, check_pair, check_rows
from labkit.hessian_free.step import (
    HFStep,
    Newton,
    Rows,
    adapted_damping,
    line_search,
    pair_of,
    read,
)
from labkit.hessian_free.vectors import Blocks, add, copied, dot, scaled

DECAY = 0.95  # share of the last direction that CG starts from
SHRINK = 0.8  # of the line search
ROWS = 4096  # rows of the gradient at a time, to limit the memory of activations
OPTIONS = STOPS | {"damping": POSITIVE, "damping_decay": INSIDE, "alpha": INSIDE}


class MartensHF(Newton):
    r"""Hessian-free optimisation as Martens published it.

    (1) $g = \nabla f$ on the gradient's rows
    (2) $M = (\overline{(\nabla f_i)^2} + \lambda)^{3/4}$ entrywise
    (3) $(A^T A + \lambda I)\, p = -g$ by CG, preconditioned by M, from $p_0$
    (4) $p = p_k$, going back over CG's kept iterates while $f(w + p_k)$ falls
    (5) $\rho = (f(w + p) - f(w)) / (\langle g, p \rangle + \tfrac12 |A p|^2)$ on the
    chunk
    (6) $\lambda' = \tfrac32 \lambda \; (\rho < \tfrac14), \;
    \tfrac23 \lambda \; (\rho > \tfrac34)$
    (7) $w' = w + s p$, s the first of 1, 0.8, 0.64, ... that lowers f enough
    (8) $p_0' = 0.95\,p_K$, CG's last iterate whichever was taken

    Parameters
    ----------
    model, loss : see :class:`~labkit.hessian_free.HessianFree`
    damping : float
        $\lambda$ > 0 of the first step. He chose 45 for sums of cross-entropies; a few
        units suit the mean squared error of small nets.
    damping_decay : float in (0, 1), the factor of (6)
    maxiter, tolerance : see :func:`labkit.hessian_free.cg`
    alpha : float in (0, 1), $\alpha$, sufficient decrease of the line search
    """

    ranges = OPTIONS

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: LossLike = "squared",
        damping: float = 45.0,
        damping_decay: float = 2 / 3,
        maxiter: int = 250,
        tolerance: float = 5e-4,
        alpha: float = 0.01,
    ):
        options = {
            "damping": damping,
            "damping_decay": damping_decay,
            "alpha": alpha,
            "maxiter": maxiter,
            "tolerance": tolerance,
        }
        super().__init__(model, options, loss)

    @torch.no_grad()
    def step(
        self,
        inputs: Tensor | None = None,
        targets: Tensor | None = None,
        *,
        chunk: Rows | None = None,
    ) -> HFStep:
        """Take one step, on rows for the gradient and a chunk for the curvature.

        The losses of the record, and its ``merit`` at CG's kept iterates, are those of
        ``inputs``.

        Parameters
        ----------
        inputs, targets : tensor
            Rows of the gradient; in the published method all rows.
        chunk : tensor or (inputs, targets), optional
            Rows of the curvature. If not given, those of the gradient: the "batch"
            variant.
        """
        group = self.param_groups[0]
        damping = group["damping"]
        rows = inputs, targets
        pair = rows if chunk is None else pair_of(chunk, "chunk")
        check_rows(self.model, *rows)
        if self.loss != SQUARED:
            for name, data in (("inputs", rows), ("chunk", pair)):
                check_pair(self.model, self.loss, name, *data)
        w, p0 = copied(weights_of(self.model)), self.warm_start()
        f0, g, squares = self._gradient(w, *rows)  # (1)
        M = tuple((t + damping).pow_(0.75) for t in squares)  # (2)
        point = self.linearised(*pair, w)
        c0 = point.loss()

        def B(p):
            return add(point.transpose_map(point.forward_map(p)), damping, p)

        def f(p, s=1.0, rows=rows):
            return self.mean_loss(*rows, add(w, s, p))

        stops = {name: group[name] for name in STOPS}
        b = scaled(g, -1.0)
        solved = cg(B, b, x0=p0, preconditioner=M, keep=True, **stops)  # (3)
        (k, p, f1), merit = _backtrack(solved.kept or ((0, solved.x),), f)  # (4)
        Ap = point.forward_map(p)
        scalars = dot(g, p), 0.5 * Ap.square().sum(), f0, c0
        scalars += () if chunk is None else (f(p, rows=pair),)
        (slope, curvature, f0, c0, *c1), lengths = read(*scalars, d=p, x0=p0)
        c1, q = c1[0] if c1 else f1, slope + curvature
        rho = (c1 - c0) / q if c1 < c0 and q != 0 else -math.inf  # (5)
        trial = lambda s: (f1 if s == 1 else float(f(p, s)), None)  # noqa: E731
        alpha = group["alpha"]
        s, loss, _ = line_search(trial, f0, slope, alpha=alpha, shrink=SHRINK)  # (7)
        damping_next = adapted_damping(damping, rho, group["damping_decay"])  # (6)
        warm = scaled(solved.x, DECAY)  # (8)
        return self._finish(
            w,
            add(w, s, p),  # (7)
            warm,
            {"damping": damping_next},
            n=point.n,
            loss=f0,
            loss_after=loss,
            rho=rho,
            slope=slope,
            predicted=q,
            step_length=s,
            gamma=DECAY,
            iterations=solved.iterations,
            best=k,
            status=solved.status,
            merit=merit,
            rnorm=solved.rnorm,
            q=solved.q,
            **lengths,
        )

    def _gradient(self, w, inputs, targets):
        """Return what :func:`gradient_pass` returns, for the rows of all workers."""
        f, g, squares = gradient_pass(self.model, w, inputs, targets, loss=self.loss)
        if self.process_group is None:
            return f, g, squares
        each, k = [f, *g, *squares], 1 + len(g)
        f, *blocks = mean_over(each, self.process_group, weight=len(inputs))
        return f, tuple(blocks[: k - 1]), tuple(blocks[k - 1 :])


def gradient_pass(
    model: nn.Module,
    weights: Blocks,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    loss: LossLike = "squared",
) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return f, (), grad f and the mean of (grad f_i)^2 over examples, by slices."""
    targets = inputs if targets is None else targets
    N = len(inputs)
    f, g, squares = 0.0, scaled(weights, 0.0), scaled(weights, 0.0)
    for X, T in zip(inputs.split(ROWS), targets.split(ROWS), strict=True):
        point = linearise(model, X, T, loss=loss, weights=weights)
        share = len(X) / N
        f = f + share * point.loss()
        g = add(g, share, point.transpose_map(point.residual))
        raw = point.residual * math.sqrt(len(X))
        squares = add(squares, 1 / N, point.sum_squares(raw))
    return f, g, squares


def _backtrack(kept, f):
    """Go back from the last iterate while the loss falls.

    It returns (k, p, f) of the iterate where it ends, and all losses. The first two
    losses, which are needed in any case, are read at once.
    """
    newest, older = kept[:-3:-1], kept[-3::-1]
    values = torch.stack([f(p) for _, p in newest]).tolist()
    judged = zip(newest, values, strict=True)
    judged = chain(judged, (((k, p), float(f(p))) for k, p in older))
    best, losses = (0, None, math.inf), []
    for (k, p), value in judged:
        losses.append((k, value))
        if losses[1:] and not value < best[2]:
            break
        best = (k, p, value)
    return best, tuple(reversed(losses))
