r"""The baseline: Hessian-free optimisation with conjugate gradients (Martens 2010).

Each step computes the curvature on one chunk of the data, in turn; the gradient, the
backtracking and the line search use all rows. The "batch" variant uses the chunk for
these too; it overfits its chunks until the loss diverges.

As in his code, lambda is not squared here: it is the square of the lambda of
:class:`~labkit.hessian_free.HessianFree`.
"""

import math

import torch
from torch import Tensor

from labkit.hessian_free.cg import cg
from labkit.hessian_free.checks import Rows, check_batch, pair_of
from labkit.hessian_free.linearise import linearised, weights_of
from labkit.hessian_free.options import MartensOptions
from labkit.hessian_free.step import HFStep, Newton, adapted_damping, line_search
from labkit.hessian_free.vectors import add, copied, dot, scaled

DECAY = 0.95  # share of the last direction that CG starts from
SHRINK = 0.8  # of the line search
ROWS = 4096  # rows of the gradient at a time, to limit the memory of activations


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

    kind = MartensOptions

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
        options = self.options
        damping, rows = options.damping, (inputs, targets)
        check_batch(self.model, self.loss, *rows)
        part = rows
        if chunk is not None:
            part = pair_of(chunk, "chunk")
            check_batch(self.model, self.loss, *part, "chunk")
        w = copied(weights_of(self.model))
        f0, g, squares = self._gradient(w, *rows)  # (1)
        M = tuple((t + damping).pow_(0.75) for t in squares)  # (2)
        point = self.linearised(*part, w)

        def B(p):
            return add(point.transpose_map(point.forward_map(p)), damping, p)

        def f(p, s=1.0, rows=rows):
            return self.mean_loss(*rows, add(w, s, p))

        solved = cg(
            B,
            scaled(g, -1.0),
            x0=self.warm_start(),
            preconditioner=M,
            maxiter=options.maxiter,
            tolerance=options.tolerance,
        )  # (3)
        (k, p, f1), merit = _backtrack(solved.kept or ((0, solved.x),), f)  # (4)
        Ap, slope = point.forward_map(p), dot(g, p)
        q = slope + 0.5 * point.dot(Ap, Ap)
        slope, q, f0, c0, c1 = torch.stack(
            [slope, q, f0, point.loss(), f(p, rows=part)]
        ).tolist()
        rho = (c1 - c0) / q if c1 < c0 and q else -math.inf  # (5)

        def trial(s):
            return (f1 if s == 1 else float(f(p, s))), None

        s, loss, _ = line_search(
            trial, f0, slope, alpha=options.alpha, shrink=SHRINK
        )  # (7)
        return self._finish(
            add(w, s, p),  # (7)
            scaled(solved.x, DECAY),  # (8)
            {"damping": adapted_damping(damping, rho, options.damping_decay)},  # (6)
            n=point.n,
            loss=f0,
            loss_after=loss,
            rho=rho,
            slope=slope,
            predicted=q,
            step_length=s,
            iterations=solved.iterations,
            best=k,
            status=solved.status,
            merit=merit,
        )

    def _gradient(self, w, inputs, targets):
        """Return f, grad f and the mean of (grad f_i)^2 over examples, by slices."""
        targets = inputs if targets is None else targets
        f, n = 0.0, len(inputs)
        g = squares = scaled(w, 0.0)
        for X, T in zip(inputs.split(ROWS), targets.split(ROWS), strict=True):
            point = linearised(self.model, X, T, self.loss, w)
            R, share = point.residual, len(X) / n
            f = f + share * point.loss()
            g = add(g, share, point.transpose_map(R))
            squares = add(squares, 1 / n, point.sum_squares(R * math.sqrt(len(X))))
        return f, g, squares


def _backtrack(kept, f):
    """Go back from the last iterate while the loss falls.

    It returns (k, p, f) of the iterate where it ends, and all losses.
    """
    best, losses = None, []
    for k, p in reversed(kept):
        value = float(f(p))
        losses.append((k, value))
        if best and not value < best[2]:
            break
        best = (k, p, value)
    return best, tuple(reversed(losses))
