r"""The baseline: Hessian-free optimisation with conjugate gradients (Martens 2010).

Curvature on one chunk of the data, in turn; gradient, backtracking and line search on
all rows, or on the chunk too (the "batch" variant, which overfits its chunks: lambda
falls because every chunk is fitted too well, until the loss runs away).

lambda is the unsquared coefficient here, as in his code: lambda of
:class:`~labkit.hessian_free.HessianFree` squared.
"""

import math

import torch
from torch import Tensor, nn

from labkit.hessian_free.cg import cg
from labkit.hessian_free.linearise import linearise, squared_error, weights_of
from labkit.hessian_free.optimizer import (
    HFStep,
    adapted_damping,
    check_damping,
    line_search,
)
from labkit.hessian_free.tuples import add, copied, dot, norm, scaled

DECAY = 0.95  # share of the last direction that CG starts from
ROWS = 4096  # of the gradient at once, which bounds the memory of its activations


class MartensHF(torch.optim.Optimizer):
    r"""Hessian-free optimisation as Martens published it, for squared loss.

    (1) $g = \nabla f$ on the gradient's rows
    (2) $M = (\overline{(\nabla f_i)^2} + \lambda)^{3/4}$ entrywise
    (3) $(A^T A + \lambda I)\, p = -g$ by CG, preconditioned by M, from $p_0$
    (4) $p = p_k$, going back over CG's kept iterates while $f(w + p_k)$ falls
    (5) $\rho = (f(w + p) - f(w)) / (\langle g, p \rangle + \tfrac12 |A p|^2)$ on the
    chunk
    (6) $\lambda' = \tfrac32 \lambda \; (\rho < \tfrac14), \;
    \tfrac23 \lambda \; (\rho > \tfrac34)$
    (7) $w' = w + s p$, s the first of 1, 0.8, 0.64, ... that lowers f enough
    (8) $p_0' = 0.95\,p_K$, of CG's last iterate whichever was taken

    Parameters
    ----------
    model : see :class:`~labkit.hessian_free.HessianFree`.
    damp : $\lambda$ > 0, the first one; 45 was chosen for sums of cross-entropies, a
        few units suit the mean squared error of small nets.
    drop : the factor of (6).
    maxiter, tolerance : of :func:`labkit.hessian_free.cg`.
    alpha : sufficient decrease of the line search.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        damp: float = 45.0,
        drop: float = 2 / 3,
        maxiter: int = 250,
        tolerance: float = 5e-4,
        alpha: float = 0.01,
    ):
        check_damping(damp, drop, 0.0)
        settings = {"damp": damp, "drop": drop, "alpha": alpha}
        settings |= {"maxiter": maxiter, "tolerance": tolerance}
        self.model = model
        trained = [p for p in model.parameters() if p.requires_grad]
        super().__init__(trained, settings)

    @torch.no_grad()
    def step(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        chunk: tuple[Tensor, Tensor] | Tensor | None = None,
    ) -> HFStep:
        """One step.

        Parameters
        ----------
        inputs, targets : the gradient's rows, all of them for the published method.
        chunk : inputs, or (inputs, targets), of the curvature; None: the same rows,
            which makes it the "batch" variant.

        Returns
        -------
        HFStep
            Losses on the gradient's rows; ``merit`` holds these at CG's kept iterates.
        """
        group = self.param_groups[0]
        damp = group["damp"]
        w = copied(weights_of(self.model))
        f0, g, squares = gradient_pass(self.model, w, inputs, targets)  # (1)
        M = tuple((t + damp).pow_(0.75) for t in squares)  # (2)
        here = (inputs, targets)
        pair = here if chunk is None else chunk
        pair = (pair, None) if isinstance(pair, Tensor) else pair
        point = linearise(self.model, *pair, weights=w)

        def B(p):
            Gp = point.transpose_map(point.forward_map(p))
            return add(Gp, damp, p)

        start = tuple(
            self.state[p]["warm"] if "warm" in self.state[p] else torch.zeros_like(t)
            for p, t in zip(group["params"], w, strict=True)
        )
        last, status, iterations, q, rnorm, kept = cg(
            B,
            scaled(g, -1.0),
            x0=start,
            preconditioner=M,
            maxiter=group["maxiter"],
            tolerance=group["tolerance"],
            keep=True,
        )  # (3)

        def f(p, s=1.0, rows=here):
            error = squared_error(self.model, *rows, weights=add(w, s, p))
            return 0.5 * float(error)

        kept = kept or ((0, last),)
        best, merit = _backtrack(kept, f)  # (4)
        k, p, f1 = best
        Ap = point.forward_map(p)
        scalars = [dot(g, p), 0.5 * Ap.square().sum(), point.loss(), norm(p)]
        scalars += [norm(start), dot(p, start)]
        slope, curvature, c0, length, before, inner = torch.stack(scalars).tolist()
        c1 = f1 if chunk is None else f(p, rows=pair)
        falls = c1 < c0 and slope + curvature != 0
        rho = (c1 - c0) / (slope + curvature) if falls else -math.inf  # (5)
        group["damp"] = adapted_damping(damp, rho, group["drop"])  # (6)
        s, loss, _ = line_search(
            lambda s: (f1 if s == 1 else f(p, s), None),
            f0,
            slope,
            alpha=group["alpha"],
            shrink=0.8,
        )  # (7)
        new = add(w, s, p)  # (7)
        warm = scaled(last, DECAY)  # (8)
        for parameter, value, start in zip(group["params"], new, warm, strict=True):
            parameter.copy_(value)
            self.state[parameter]["warm"] = start
        both = length * before
        return HFStep(
            n=point.n,
            loss=f0,
            loss_after=loss,
            damp=damp,
            damp_next=group["damp"],
            rho=rho,
            slope=slope,
            predicted=slope + curvature,
            step_length=s,
            iterations=iterations,
            best=k,
            status=status,
            merit=merit,
            rnorm=rnorm,
            arnorm=(),
            direction_norm=length,
            cosine=inner / both if both else math.nan,
            gamma=DECAY,
            point=None,
            q=q,
        )


def gradient_pass(model, weights, inputs, targets=None):
    """f, grad f and the mean over examples of (grad f_i)^2, in slices of rows."""
    targets = inputs if targets is None else targets
    N = len(inputs)
    f, g, squares = 0.0, scaled(weights, 0.0), scaled(weights, 0.0)
    for X, T in zip(inputs.split(ROWS), targets.split(ROWS), strict=True):
        point = linearise(model, X, T, weights=weights)
        share = len(X) / N
        f += share * float(point.loss())
        g = add(g, share, point.transpose_map(point.residual))
        raw = point.residual * math.sqrt(len(X))
        squares = add(squares, 1 / N, point.sum_squares(raw))
    return f, g, squares


def _backtrack(kept, f):
    """From the last iterate back while the loss falls: (k, p, f), and all losses."""
    k, p = kept[-1]
    best = (k, p, f(p))
    losses = [(k, best[2])]
    for k, p in reversed(kept[:-1]):
        value = f(p)
        losses.append((k, value))
        if not value < best[2]:
            break
        best = (k, p, value)
    return best, tuple(reversed(losses))
