r"""Compute the update of one block, which :meth:`RLS.step` calls for each block.

Equation numbers are those of Zhang et al. 2021. Some numbers stand for the same
equation for different layers: (38) is for FC output layers, (54) for hidden ones.

Shapes follow torch: N units, n inputs counted with the constant 1 where there is a
bias, and parameters with one row per unit, ``(N, n)``, the bias in the last column.
That is the transpose of the paper's $\Theta$; P is symmetric, so its products come from
the right. For recurrent layers ``steps`` is the number T of time steps that the loss
sums over; it is 1 for FC and CONV layers.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Theta(NamedTuple):
    """A weight and its bias as the one matrix (N, n) of the paper, changed in place."""

    weight: Tensor  # (N, ...)
    bias: Tensor | None  # (N,), the last column
    still: Tensor | None = None  # () bool: where it is True, nothing is added

    def sign(self) -> Tensor:
        """Return the signs of weight and bias, (N, n), with sgn(0) = 0."""
        rows = self.weight.flatten(1)
        if self.bias is None:
            signs = rows.sign()
        else:
            signs = torch.cat([rows, self.bias[:, None]], 1).sign_()
        return zeroed(signs, self.still)

    def mul_(self, factor: float | Tensor) -> None:
        """Multiply by a number."""
        if self.still is not None:
            factor = torch.where(self.still, 1.0, factor)
        self.weight.mul_(factor)
        if self.bias is not None:
            self.bias.mul_(factor)

    def parts(self, change: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield weight and bias, each with its part of a change (N, n)."""
        n = self.weight[0].numel()
        yield self.weight, change[:, :n].view_as(self.weight)
        if self.bias is not None:
            yield self.bias, change[:, n]

    def add_(self, change: Tensor) -> None:
        """Add a change (N, n), which is not modified."""
        if self.still is not None:
            change = change.masked_fill(self.still, 0)
        for own, each in self.parts(change):
            own.add_(each)

    def addcdiv_(self, change: Tensor, divisor: Tensor, *, value: float) -> None:
        """Add ``value * change / divisor``, where change is (N, n) and divisor ()."""
        for own, each in self.parts(change):
            own.addcdiv_(each, divisor, value=value)

    def addmm_(self, left: Tensor, right: Tensor) -> None:
        """Add the product ``left @ right``, (N, n)."""
        n = self.weight[0].numel()
        if self.weight.is_contiguous():
            self.weight.view(-1, n).addmm_(left, right[:, :n])
        else:  # a CONV weight in channels_last
            self.weight.add_((left @ right[:, :n]).view_as(self.weight))
        if self.bias is not None:
            self.bias.addmv_(left, right[:, n])


class Residuals(NamedTuple):
    """A gradient (N, n) kept as its two factors, ``dZ.T @ X``."""

    dZ: Tensor  # (M, N) derivatives of the loss by the linear outputs
    X: Tensor  # (M, n) inputs, or (M, n - 1) with `ones`
    ones: bool = False  # whether a last column of ones is left out of X

    def __matmul__(self, P: Tensor) -> Tensor:
        """Return the gradient times P (n, n), without forming the gradient: (N, n)."""
        XP = torch.addmm(P[-1], self.X, P[:-1]) if self.ones else self.X @ P
        return self.dZ.T @ XP

    def norm(self) -> Tensor:
        """Compute the Frobenius norm, (), by two M x M Gram matrices."""
        XX = self.X @ self.X.T
        if self.ones:
            XX.add_(1)
        squared = torch.dot(XX.flatten(), (self.dZ @ self.dZ.T).flatten())
        return squared.clamp(min=0).sqrt()  # rounding may leave it below 0


class Masked(NamedTuple):
    """A gradient (N, n) whose products are 0 where a step is not to be taken."""

    gradient: Tensor | Residuals
    still: Tensor  # () bool

    def __matmul__(self, P: Tensor) -> Tensor:
        """Return the product with P, (N, n), which is 0 where ``still`` is True."""
        return zeroed(self.gradient @ P, self.still)


def gain(
    P: Tensor,
    x_mean: Tensor,
    *,
    forgetting: float = 1.0,
    mean_weight: float = 0.1,
    steps: int = 1,
) -> tuple[Tensor, Tensor]:
    r"""Compute the gain vector and its normaliser.

    (38) $u = P_{s-1}\,\bar x$,  (39) $h = \lambda + k T\,\bar x^\top u$

    The result is (n,) and (); h > lambda as long as P is positive definite and x_mean
    is not zero. Cost 2 n^2.

    Parameters
    ----------
    P : (n, n) tensor
    x_mean : (n,) tensor
        $\bar x$, mean input over samples, positions and time; the last entry is 1 if
        there is a bias.
    forgetting, mean_weight, steps : $\lambda$ in (0, 1], $k$ > 0, $T$
    """
    u = P @ x_mean  # (38)
    h = forgetting + mean_weight * steps * (x_mean @ u)  # (39)
    return u, h


def rls_step(
    theta: Tensor | Theta,
    P: Tensor,
    x_mean: Tensor,
    gradient: Tensor | Residuals | Masked,
    *,
    velocity: Tensor | None = None,
    gained: tuple[Tensor, Tensor] | None = None,
    forgetting: float | Tensor = 1.0,
    mean_weight: float = 0.1,
    lr: float = 1.0,
    momentum: float | Tensor = 0.0,
    l1: float = 0.0,
    steps: int = 1,
    clip: float | Tensor | None = None,
) -> Tensor:
    r"""Run one step of one block in place: theta, velocity and P change.

    .. math::
        u &= P_{s-1}\,\bar x                                        &&(38) \\
        h &= \lambda + k T\,\bar x^\top u                           &&(39) \\
        h_c &= h / c                                                &&(c) \\
        \Omega_s &= \alpha\,\Omega_{s-1}
            - \tfrac{\eta}{h_c}\,\tilde\nabla_{s-1} P_{s-1}         &&(99) \\
        P_s &= \tfrac1\lambda P_{s-1} - \tfrac{kT}{\lambda h} u u^\top  &&(37) \\
        \Theta_s &= \Theta_{s-1} + \Omega_s
            - \gamma\,\mathrm{sgn}(\Theta_{s-1})\,P_s               &&(100)

    (37) is the product $v_i v_j$ with $v = u \sqrt{kT / (\lambda h)}$, which commutes
    also in floating point, where $(kT / \lambda h)\,u_i u_j$ need not: P stays
    symmetric to the last bit. An antisymmetric rounding error would grow by
    $1/\lambda$ at each step.

    (c) multiplies the gradient by the factor c of a clip. Without a clip $h_c$ is h.
    The numbering is ours.

    The result is h. Cost 2 n^2 N, or 2 M n (n + N) from M residuals; 3 n^2 for P, and
    2 n^2 N again with ``l1``.

    Parameters
    ----------
    theta : (N, n) tensor or Theta, $\Theta$, bias in the last column.
    P : (n, n) tensor, $P$, inverse of the inputs' running autocorrelation.
    x_mean : (n,) tensor, $\bar x$, mean input, last entry 1 if there is a bias.
    gradient : (N, n) tensor or Residuals, $\tilde\nabla$ of the minibatch loss.
        From residuals it is never formed: its product with P is ``dZ.T @ (X @ P)``.
    velocity : (N, n) tensor, $\Omega$, wanted with ``momentum`` only.
    gained : (u, h), optional
        The result of :func:`gain`, if it has been called: the optimiser checks the h of
        all blocks before it changes the first.
    forgetting, mean_weight, lr : $\lambda$, $k$, $\eta$
    momentum, l1, steps : $\alpha$, $\gamma$, $T$
    clip : float or () tensor, $c$, factor of the gradient, see :func:`clip_factor`.
    """
    preconditioned = gradient @ P
    u, h = gained or gain(
        P, x_mean, forgetting=forgetting, mean_weight=mean_weight, steps=steps
    )  # (38), (39)
    signs = theta.sign() if l1 else None
    h_clipped = h if clip is None else h / clip  # (c)
    descend(theta, velocity, preconditioned, h_clipped, lr=lr, momentum=momentum)
    v = u / (h * (forgetting / (mean_weight * steps))).sqrt()  # (37)
    divide_(P, forgetting)  # (37)
    P.addcmul_(v[:, None], v, value=-1)  # (37)
    if l1:
        theta.addmm_(signs.mul_(-l1), P)  # (100), with the new P
    return h


def descend(
    theta: Tensor | Theta,
    velocity: Tensor | None,
    preconditioned: Tensor,
    h: Tensor,
    *,
    lr: float,
    momentum: float | Tensor = 0.0,
) -> None:
    r"""Update theta by what stands for the gradient times P, (N, n).

    (99) $\Omega_s = \alpha\,\Omega_{s-1} - \tfrac{\eta}{h}\,\tilde\nabla P$,
    (100) $\Theta_s = \Theta_{s-1} + \Omega_s$

    Parameters
    ----------
    theta, velocity : (N, n) tensors, $\Theta$, $\Omega$; None without momentum
    preconditioned : (N, n) tensor, $\tilde\nabla P$
    h : () tensor, $h$
    lr, momentum : $\eta$, $\alpha$
    """
    if velocity is None:
        theta.addcdiv_(preconditioned, h, value=-lr)  # (99), (100)
    else:
        velocity.mul_(momentum).addcdiv_(preconditioned, h, value=-lr)  # (99)
        theta.add_(velocity)  # (100)


def divide_(P: Tensor, forgetting: float | Tensor) -> None:
    r"""Divide P by $\lambda$ in place, unless that is the number 1."""
    if isinstance(forgetting, Tensor) or forgetting != 1:
        P.div_(forgetting)


def zeroed(value: Tensor, still: Tensor | None) -> Tensor:
    """Set the value to 0 in place where a step must not be taken, and return it."""
    return value if still is None else value.masked_fill_(still, 0)


def or_one(factor: float, still: Tensor, like: Tensor) -> float | Tensor:
    """Return the factor, or a tensor () that is 1 where a step must not be taken."""
    if factor == 1:
        return factor
    return like.new_full((), factor).masked_fill_(still, 1)


def loss_mse(outputs: Tensor, targets: Tensor, *, batch_dim: int = 0) -> Tensor:
    r"""Average half the squared error, summed over outputs and time, over the batch.

    (57), (87): $\tilde J = \frac{1}{2M} \sum_t \lVert Z_t - Z^*_t \rVert_F^2$

    The scale matters to RLS, whose step, unlike Adam's, is proportional to it:
    ``nn.MSELoss`` divides by the number of outputs and lacks the factor 1/2. Outputs
    and targets are (M, N), (M, T, N), or (T, M, N) with ``batch_dim=1``; ValueError if
    their shapes differ.

    Examples
    --------
    >>> loss_mse(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.zeros(2, 2))
    tensor(1.2500)
    """
    if outputs.shape != targets.shape:
        raise ValueError(
            f"outputs have shape {tuple(outputs.shape)} and targets "
            f"{tuple(targets.shape)}; they must be equal (make class indices one-hot)"
        )
    M = outputs.shape[batch_dim]
    return (outputs - targets).square().sum() / (2 * M)  # (57), (87)


def loss_one_hot(outputs: Tensor, labels: Tensor) -> Tensor:
    """Compute :func:`loss_mse` of (M, N) outputs and one-hot targets of (M,) labels."""
    targets = torch.nn.functional.one_hot(labels, outputs.shape[-1])
    return loss_mse(outputs, targets.to(outputs.dtype))


def clip_factor(norm: Tensor, limit: float | None) -> Tensor | None:
    """Return the factor, at most 1, that reduces a gradient's norm to ``limit``.

    As in ``torch.nn.utils.clip_grad_norm_``, 1e-6 is added to the norm. The factor is 1
    if the norm is nan. The result is None without a limit.
    """
    if limit is None:
        return None
    return (limit / (norm + 1e-6)).nan_to_num_(nan=1.0).clamp_(max=1.0)
