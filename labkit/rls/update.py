r"""The update of one layer, as pure functions and their in-place twins.

Zhang, Song, Zhou, Ou, Deng, Yang, *Revisiting Recursive Least Squares for Training
Deep Neural Networks*, 2021. Equation numbers are the paper's; several are one equation
written for another layer kind, as (38) for FC output layers, (54) for hidden ones.

Shapes follow torch: N units, n inputs counted with the constant 1 where there is a
bias, and parameters with one row per unit, ``(N, n)``, the bias in the last column.
That is the transpose of the paper's $\Theta$; P is symmetric, so its products come from
the right. For recurrent layers ``steps`` is the number T of time steps that the loss
sums over; it is 1 for FC and CONV layers.
"""

from typing import NamedTuple

from torch import Tensor


class LayerState(NamedTuple):
    """Parameters of one layer and what RLS remembers of it."""

    theta: Tensor  # (N, n) weights, bias in the last column
    velocity: Tensor  # (N, n)
    P: Tensor  # (n, n) inverse of the inputs' running autocorrelation


def gain(
    P: Tensor, x_mean: Tensor, *, forgetting=1.0, ratio=0.1, steps=1
) -> tuple[Tensor, Tensor]:
    r"""Gain vector and its normaliser.

    (38) $u = P_{s-1}\,\bar x$,  (39) $h = \lambda + k T\,\bar x^\top u$

    Parameters
    ----------
    P : (n, n);  x_mean : (n,), mean of the inputs over samples, positions and time.
    forgetting, ratio, steps : $\lambda$, $k$, $T$; lambda in (0, 1], k > 0.

    Returns
    -------
    u : (n,);  h : (), greater than lambda as long as P is positive definite and
        x_mean is not zero.  Cost 2 n^2.
    """
    u = P @ x_mean  # (38)
    h = forgetting + ratio * steps * (x_mean @ u)  # (39)
    return u, h


def update_inverse_(
    P: Tensor, u: Tensor, h: Tensor, *, forgetting=1.0, ratio=0.1, steps=1
):
    r"""Rank-one update of P, in place; P stays symmetric to the last bit.

    (37) $P_s = \frac1\lambda P_{s-1} - \frac{kT}{\lambda h}\,u u^\top$

    The product $v_i v_j$ with $v = u \sqrt{kT / (\lambda h)}$ commutes also in floating
    point, where $c\,u_i u_j$ need not; an antisymmetric rounding error would grow by
    $1/\lambda$ at each step.

    Parameters
    ----------
    P : (n, n), changed.  u, h : from :func:`gain`.  Cost 3 n^2.
    forgetting, ratio, steps : $\lambda$, $k$, $T$.
    """
    v = u * (ratio * steps / (forgetting * h)).sqrt()
    if forgetting != 1:
        P.div_(forgetting)
    P.addcmul_(v[:, None], v, value=-1)  # (37)


def rls_step(
    state: LayerState,
    x_mean: Tensor,
    gradient: Tensor,
    *,
    forgetting=1.0,
    ratio=0.1,
    eta=1.0,
    momentum=0.0,
    l1=0.0,
    steps=1,
) -> LayerState:
    r"""One step of one layer, nothing changed in place.

    .. math::
        u &= P_{s-1}\,\bar x                                        &&(38) \\
        h &= \lambda + k T\,\bar x^\top u                           &&(39) \\
        \Omega_s &= \alpha\,\Omega_{s-1}
            - \tfrac{\eta}{h}\,\tilde\nabla_{s-1} P_{s-1}           &&(99) \\
        P_s &= \tfrac1\lambda P_{s-1} - \tfrac{kT}{\lambda h} u u^\top  &&(37) \\
        \Theta_s &= \Theta_{s-1} + \Omega_s
            - \gamma\,\mathrm{sgn}(\Theta_{s-1})\,P_s               &&(100)

    The optimiser does the same in place, with the product $\tilde\nabla P$ in the
    cheaper of two orders; a test holds the two equal.

    Parameters
    ----------
    state : parameters (N, n) and P (n, n) before the step;
        velocity : $\Omega$, (N, n).
    x_mean : (n,) mean input, last entry 1 if there is a bias.
    gradient : $\tilde\nabla$, (N, n) of the minibatch loss at ``state.theta``, clipped
        if at all.
    forgetting, ratio, eta : $\lambda$, $k$, $\eta$.
    momentum, l1, steps : $\alpha$, $\gamma$, $T$.

    Returns
    -------
    LayerState after the step.  Cost 2 n^2 N, twice that with ``l1``.
    """
    u, h = gain(state.P, x_mean, forgetting=forgetting, ratio=ratio, steps=steps)
    omega = momentum * state.velocity - eta / h * (gradient @ state.P)  # (99)
    P = state.P.clone()
    update_inverse_(P, u, h, forgetting=forgetting, ratio=ratio, steps=steps)
    theta = state.theta + omega - l1 * (state.theta.sign() @ P)  # (100)
    return LayerState(theta, omega, P)


def loss_mse(outputs: Tensor, targets: Tensor, *, batch_dim=0) -> Tensor:
    r"""Half the squared error, summed over outputs and time, averaged over the batch.

    (57), (87): $\tilde J = \frac{1}{2M} \sum_t \lVert Z_t - Z^*_t \rVert_F^2$

    The scale matters to RLS, which unlike Adam follows it: ``nn.MSELoss`` divides by
    the number of outputs and lacks the half.

    Parameters
    ----------
    outputs, targets : tensors of one shape, e.g. (M, N), (M, T, N), or (T, M, N) with
        ``batch_dim=1``.
    batch_dim : the dimension of length M.

    Returns
    -------
    loss : (), in the outputs' unit squared.

    Raises
    ------
    ValueError
        If the shapes differ; class indices must be made one-hot first.

    Examples
    --------
    >>> import torch
    >>> loss_mse(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.zeros(2, 2))
    tensor(1.2500)
    """
    if outputs.shape != targets.shape:
        raise ValueError(
            f"outputs have shape {tuple(outputs.shape)} and targets "
            f"{tuple(targets.shape)}; they must be equal (make class indices one-hot)"
        )
    return (outputs - targets).square().sum() / (
        2 * outputs.shape[batch_dim]
    )  # (57), (87)


def clip_factor(norm: Tensor, limit: float | None) -> Tensor | float:
    """Factor that brings a gradient of this norm down to ``limit``, at most 1.

    As ``torch.nn.utils.clip_grad_norm_``, with its 1e-6 beside the norm; None: 1.
    """
    return 1.0 if limit is None else (limit / (norm + 1e-6)).clamp(max=1.0)
