r"""Compute squared gradients of single examples from one backward pass.

A layer sees inputs $x_{it}$ and, in the backward pass, deltas $d_{it}$, the derivatives
of the loss with respect to its linear outputs; i counts M examples, t the T positions
or time steps at which the layer uses its weight. Example i's share of the gradient is
$G_i = \sum_t d_{it} x_{it}^\top$. No function here changes its inputs (except
:func:`lstm_deltas`) or waits for a GPU. The equations are numbered here.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd

from labkit.layers import zeros_before


class Moments(NamedTuple):
    """Two sums over the examples' shares G_i of a gradient; both are () tensors."""

    squares: Tensor  # sum_i |G_i|^2
    norm2: Tensor  # |sum_i G_i|^2


def add(moments: Iterable[Moments]) -> Moments:
    """Add the moments of several parameters, as those of one vector."""
    squares, norms = zip(*moments, strict=True)
    return Moments(torch.stack(squares).sum(), torch.stack(norms).sum())


@torch.no_grad()
def weight_moments(x: Tensor, d: Tensor) -> Moments:
    r"""Compute the moments of the gradient of a weight that is used at T positions.

    (1) $|G_i|^2 = |x_i|^2 |d_i|^2$ for T = 1: squared inputs times squared deltas.
    (2) $|G_i|^2 = \sum_{t,u} \langle x_{it}, x_{iu} \rangle
    \langle d_{it}, d_{iu} \rangle$ for every T.
    (3) $|\sum_i G_i|^2$ is (2) with all M T rows as the positions of one example.

    For T > 1 the plain product $\sum_t |x_{it}|^2 |d_{it}|^2$ lacks the cross terms of
    (2) and may be wrong by any factor. Then either the Gram matrices of (2) are formed
    or the G_i themselves, whichever takes fewer multiplications: T^2 (n + N) or T n N
    per example; likewise for (3).

    Parameters
    ----------
    x : (M, T, n) tensor, inputs
    d : (M, T, N) tensor, deltas

    Notes
    -----
    Cost: M min(T^2 (n + N), T n N) + M T min(M T (n + N), n N) multiplications, the
    first term M (n + N) for T = 1.  By the choice neither the Gram matrices nor the G_i
    take more memory than x and d.

    Examples
    --------
    >>> x = torch.tensor([[[1.0, 2.0]], [[0.0, 1.0]]])
    >>> d = torch.tensor([[[3.0]], [[-1.0]]])
    >>> weight_moments(x, d)
    Moments(squares=tensor(46.), norm2=tensor(34.))
    """
    (M, T, n), N = x.shape, d.shape[2]
    if T > 1 and n * N <= T * (n + N):
        return formed_moments(torch.bmm(d.mT, x))
    if T == 1:
        squares = x.square().sum(2).flatten() @ d.square().sum(2).flatten()  # (1)
    else:
        squares = (torch.bmm(x, x.mT) * torch.bmm(d, d.mT)).sum()  # (2)
    if d.stride(0) < d.stride(1):  # a view with the time first: (3) has no order
        x, d = x.transpose(0, 1), d.transpose(0, 1)
    X, D = x.flatten(0, 1), d.flatten(0, 1)
    if M * T * (n + N) < n * N:
        norm2 = ((X @ X.T) * (D @ D.T)).sum().clamp_min(0)  # (3)
    else:
        norm2 = (D.T @ X).square().sum()
    return Moments(squares, norm2)


@torch.no_grad()
def bias_moments(d: Tensor) -> Moments:
    """Compute moments of a bias gradient, G_i = sum_t d_it, from (M, T, N) deltas."""
    return formed_moments(d.sum(1))


@torch.no_grad()
def formed_moments(G: Tensor) -> Moments:
    """Compute the moments of (M, ...) gradients that have been formed."""
    return Moments(G.square().sum(), G.sum(0).square().sum())


@torch.no_grad()
def conv_moments(
    module: _ConvNd, x: Tensor, d: Tensor, places: Sequence[int]
) -> Moments:
    """Compute the moments of the gradient of a CONV weight from one call.

    Inputs are (M, C, ...) and deltas (M, T, N), of T places as in a map. The moments
    are those of :func:`weight_moments` with the receptive fields as inputs. Where
    forming the G_i is cheaper, one convolution with a group per example does it without
    unfolding the maps; it follows cuDNN's TF32 setting, as the layer does.
    """
    (M, T, N), n = d.shape, module.weight[0].numel()
    if T == 1 or n * N > T * (n + N):
        return weight_moments(fields(module, x, places), d)
    G = getattr(nn.grad, f"conv{len(places)}d_weight")(
        padded(module, x, places).flatten(0, 1)[None],
        (M * N, *module.weight.shape[1:]),
        d.mT.reshape(1, M * N, *places),
        stride=module.stride,
        dilation=module.dilation,
        groups=M,
    )
    return formed_moments(G.view(M, N, n))


def fields(module: _ConvNd, x: Tensor, places: Sequence[int]) -> Tensor:
    """Return the receptive fields of (M, C, ...) maps at all places of the outputs.

    The layer has one group and zero padding, and one to three dimensions of a map. The
    result is (M, T, n), of T places with n = C k .. numbers each.
    """
    x, sides = padded(module, x, places), len(places)
    for i, size in enumerate(module.kernel_size):
        reach = module.dilation[i] * (size - 1) + 1
        x = x.unfold(2 + i, reach, module.stride[i])[..., :: module.dilation[i]]
    kernel_first = (0, 1, *range(2 + sides, 2 + 2 * sides), *range(2, 2 + sides))
    return x.permute(kernel_first).flatten(2 + sides).flatten(1, 1 + sides).mT


def padded(module: _ConvNd, x: Tensor, places: Sequence[int]) -> Tensor:
    """Return the maps with the layer's zeros, and without what no place reads."""
    pads = []
    for i, count in enumerate(places):
        before = zeros_before(module, i)
        reach = module.dilation[i] * (module.kernel_size[i] - 1)
        read = (count - 1) * module.stride[i] + reach + 1
        pads = [before, read - before - x.shape[2 + i], *pads]  # torch's last one first
    return F.pad(x, pads)


@torch.no_grad()
def embedding_moments(tokens: Tensor, d: Tensor, rows: int) -> Moments:
    r"""Compute the moments of an embedding's gradient; row j has the deltas of token j.

    $|G_i|^2 = \sum_{t,u} [j_{it} = j_{iu}] \langle d_{it}, d_{iu} \rangle$: (2) with
    one-hot inputs.

    Parameters
    ----------
    tokens : (M, T) integer tensor, j
    d : (M, T, N) tensor, deltas; M T^2 N multiplications, M T^2 numbers
    rows : int, of the embedding
    """
    same = tokens[:, :, None] == tokens[:, None, :]
    total = d.new_zeros(rows, d.shape[2])
    total.index_add_(0, tokens.flatten(), d.flatten(0, 1))
    return Moments((torch.bmm(d, d.mT) * same).sum(), total.square().sum())


@torch.no_grad()
def rnn_deltas(h: Tensor, dh: Tensor, W_hh: Tensor, nonlinearity: str) -> Tensor:
    r"""Compute derivatives of the loss with respect to an RNN layer's pre-activations.

    torch's fused layers do not return them; (4), (5) compute them from the states.
    $h_t = \phi(z_t)$, $z_t = W_{ih} x_t + W_{hh} h_{t-1} + b$; with $\partial_t$ the
    derivative by h_t not through later steps,

    (4) $e_t = \partial_t + W_{hh}^\top \delta_{t+1}$
    (5) $\delta_t = e_t \circ \phi'(z_t)$, where
    $\tanh' = 1 - h_t^2$ and $\mathrm{relu}' = [h_t > 0]$.

    Parameters
    ----------
    h : (T + 1, M, H) tensor, states h_0 .. h_T
    dh : (T, M, H) tensor, $\partial_1 .. \partial_T$
    W_hh : (H, H) tensor
    nonlinearity : {"tanh", "relu"}

    Returns
    -------
    deltas : (T, M, H) tensor; T M H^2 multiplications
    """
    slope = 1 - h[1:].square() if nonlinearity == "tanh" else (h[1:] > 0).to(h.dtype)
    deltas = torch.empty_like(dh)
    for t in reversed(range(len(dh))):
        e = dh[t] if t == len(dh) - 1 else dh[t] + deltas[t + 1] @ W_hh  # (4)
        torch.mul(e, slope[t], out=deltas[t])  # (5)
    return deltas


@torch.no_grad()
def lstm_deltas(
    z: Tensor, c_0: Tensor, dh: Tensor, dc: Tensor | None, W_hh: Tensor
) -> Tensor:
    r"""Compute derivatives of the loss with respect to an LSTM's pre-activations.

    $(z^i, z^f, z^g, z^o)_t = W_{ih} x_t + W_{hh} h_{t-1} + b$ in torch's order,
    $i, f, o = \sigma(z)$, $g = \tanh(z^g)$, $h_t = o_t \circ \tanh c_t$;

    (6) $c_t = f_t \circ c_{t-1} + i_t \circ g_t$
    (7) $e_t = \partial_t + W_{hh}^\top \delta_{t+1}$
    (8) $s_t = e_t \circ o_t \circ (1 - \tanh^2 c_t) + s_{t+1} \circ f_{t+1}$
    (9) $\delta_t = (s g i (1 - i),\; s c_{t-1} f (1 - f),\; s i (1 - g^2),\;
    e \tanh c\; o (1 - o))_t$

    Parameters
    ----------
    z : (T, M, 4 H) tensor, pre-activations, from inputs and states; overwritten
    c_0 : (M, H) tensor, the first cell state
    dh : (T, M, H) tensor, derivative by h_t not through later steps
    dc : (M, H) tensor or None, derivative by the last cell state that the layer returns
    W_hh : (4 H, H) tensor

    Returns
    -------
    deltas : (T, M, 4 H) tensor, in the memory of z; 4 T M H^2 multiplications
    """
    T, (M, H) = len(z), c_0.shape
    c = torch.empty(T + 1, M, H, dtype=z.dtype, device=z.device)
    deltas = z.view(T, M, 4, H)
    c[0] = c_0
    for t in range(T):  # by steps: small arrays stay in the cache
        deltas[t, :, :2].sigmoid_()  # gates, until (9) replaces them
        deltas[t, :, 2].tanh_()
        deltas[t, :, 3].sigmoid_()
        i, f, g, _ = deltas[t].unbind(1)
        torch.addcmul(f * c[t], i, g, out=c[t + 1])  # (6)
    through = torch.zeros_like(c_0) if dc is None else dc  # s_{t+1} f_{t+1}
    e = dh[-1]
    for t in reversed(range(T)):
        i, f, g, o = deltas[t].unbind(1)
        tanh_c = c[t + 1].tanh()
        eo = e * o
        eoc = eo * tanh_c
        s = torch.addcmul(through + eo, eoc, tanh_c, value=-1)  # (8)
        through = s * f
        si, fc = s * i, through * c[t]
        sig = si * g
        # (9), each over its gate: x (1 - y) as x - x y, one pass over memory
        torch.addcmul(sig, sig, i, value=-1, out=i)
        torch.addcmul(fc, fc, f, value=-1, out=f)
        torch.addcmul(si, sig, g, value=-1, out=g)
        torch.addcmul(eoc, eoc, o, value=-1, out=o)
        if t:
            e = torch.addmm(dh[t - 1], deltas[t].view(M, 4 * H), W_hh)  # (7)
    return deltas.flatten(2)
