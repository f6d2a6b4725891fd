r"""Compute the update of one block, which :meth:`RLS.step` calls for each block.

Equation numbers are those of Zhang et al. 2021. Some numbers stand for the same
equation for different layers: (38) is for FC output layers, (54) for hidden ones.

Shapes follow torch: N units, n inputs counted with the constant 1 where there is a
bias, and parameters with one row per unit, ``(N, n)``, the bias in the last column.
That is the transpose of the paper's $\Theta$; P is symmetric, so its products come from
the right. For recurrent layers ``steps`` is the number T of time steps that the loss
sums over; it is 1 for FC and CONV layers.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Residuals(NamedTuple):
    """The gradient (N, n) of a layer's weight and bias, that of the weight in factors.

    It is ``dZ.T @ X``, with ``bias`` as the last column.
    """

    dZ: Tensor  # (M, N) derivatives of the loss by the linear outputs
    X: Tensor  # (M, n - 1) inputs
    bias: Tensor  # (N,) derivative of the loss by the bias

    def __matmul__(self, P: Tensor) -> Tensor:
        """Return the gradient times P (n, n), without forming the gradient: (N, n)."""
        product = self.dZ.T @ (self.X @ P[:-1])
        return product.addr_(self.bias, P[-1])

    def formed(self) -> Tensor:
        """Return the gradient itself, (N, n)."""
        return torch.cat([self.dZ.T @ self.X, self.bias[:, None]], 1)

    def norm(self) -> Tensor:
        """Compute the Frobenius norm, (), by two M x M Gram matrices."""
        XX, ZZ = self.X @ self.X.T, self.dZ @ self.dZ.T
        squared = torch.dot(XX.flatten(), ZZ.flatten()).clamp(min=0)  # of rounding
        return (squared + self.bias.square().sum()).sqrt()


def gain(
    P: Tensor,
    x_mean: Tensor,
    *,
    forgetting: float = 1.0,
    mean_weight: float = 0.1,
    steps: float | Tensor = 1,
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
    theta: Tensor,
    P: Tensor,
    x_mean: Tensor,
    gradient: Tensor | Residuals,
    *,
    velocity: Tensor | None = None,
    forgetting: float = 1.0,
    mean_weight: float = 0.1,
    lr: float | Tensor = 1.0,
    momentum: float = 0.0,
    l1: float = 0.0,
    steps: float | Tensor = 1,
    clip: float | Tensor = 1.0,
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

    (c) multiplies the gradient by the factor c of a clip. The numbering is ours.

    The result is h. Cost 2 n^2 N, or 2 M n (n + N) from M residuals; 3 n^2 for P, and
    2 n^2 N again with ``l1``.

    Parameters
    ----------
    theta : (N, n) tensor, $\Theta$, bias in the last column.
        Or what changes in place like one, as a layer's weight and bias do together.
    P : (n, n) tensor, $P$, inverse of the inputs' running autocorrelation.
    x_mean : (n,) tensor, $\bar x$, mean input, last entry 1 if there is a bias.
    gradient : (N, n) tensor or Residuals, $\tilde\nabla$ of the minibatch loss.
        From residuals it is never formed: its product with P is ``dZ.T @ (X @ P)``.
    velocity : (N, n) tensor, $\Omega$, wanted with ``momentum`` only.
    forgetting, mean_weight, lr : $\lambda$, $k$, $\eta$
    momentum, l1, steps : $\alpha$, $\gamma$, $T$
    clip : float or () tensor, $c$, factor of the gradient, see :func:`clip_factor`.
    """
    preconditioned = gradient @ P
    u, h = gain(
        P, x_mean, forgetting=forgetting, mean_weight=mean_weight, steps=steps
    )  # (38), (39)
    signs = theta.sign() if l1 else None
    h_clipped = h / clip  # (c)
    descend(theta, velocity, preconditioned, h_clipped, lr=lr, momentum=momentum)
    v = u * (mean_weight * steps / (forgetting * h)).sqrt()  # (37)
    P.div_(forgetting).addcmul_(v[:, None], v, value=-1)  # (37)
    if l1:
        theta.addmm_(signs, P, alpha=-l1)  # (100), with the new P
    return h


def descend(
    theta: Tensor,
    velocity: Tensor | None,
    preconditioned: Tensor,
    h: Tensor,
    *,
    lr: float | Tensor,
    momentum: float = 0.0,
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
        theta.addcmul_(preconditioned, lr / h, value=-1)  # (99), (100)
    else:
        velocity.mul_(momentum).addcmul_(preconditioned, lr / h, value=-1)  # (99)
        theta.add_(velocity)  # (100)


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
    squares = nn.functional.mse_loss(outputs, targets, reduction="sum")
    return squares / (2 * M)  # (57), (87)


def loss_one_hot(outputs: Tensor, labels: Tensor) -> Tensor:
    """Compute :func:`loss_mse` of (M, N) outputs and one-hot targets of (M,) labels.

    ValueError if the outputs are not of this form: the classes are their last axis,
    while torch's losses read those of images and sequences from the second.
    """
    if outputs.ndim != 2:
        raise ValueError(
            f"outputs have shape {tuple(outputs.shape)}; they must be (M, N), M "
            "examples of N classes: move the classes last and flatten the other axes"
        )
    targets = torch.nn.functional.one_hot(labels, outputs.shape[-1])
    return loss_mse(outputs, targets.to(outputs.dtype))


def joint_norm(gradients: list[Tensor | Residuals]) -> Tensor:
    """Compute the Frobenius norm of all gradients together, ()."""
    formed = [each for each in gradients if isinstance(each, Tensor)]
    norms = list(torch._foreach_norm(formed)) if formed else []
    norms += [each.norm() for each in gradients if isinstance(each, Residuals)]
    return torch.linalg.vector_norm(torch.stack(norms))


def clip_factor(norm: Tensor, limit: float) -> Tensor:
    """Return the factor, at most 1, that reduces a gradient's norm to ``limit``.

    As in ``torch.nn.utils.clip_grad_norm_``, 1e-6 is added to the norm. The factor is 1
    if the norm is nan.
    """
    return (limit / (norm + 1e-6)).nan_to_num_(nan=1.0).clamp_(max=1.0)
