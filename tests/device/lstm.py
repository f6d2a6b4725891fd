"""The cell of ``nn.LSTM`` on accelerators, which torch does not have for the CPU."""

import torch
from torch import Tensor


def forward(from_x, from_h, c, b_ih=None, b_hh=None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns h', c', and the gates, which the backward pass is given."""
    z = from_x + from_h
    if b_ih is not None:
        z = z + b_ih + b_hh
    i, f, g, o = z.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c_new = f * c + i * g
    return o * c_new.tanh(), c_new, torch.cat([i, f, g, o], 1)


def backward(dh, dc, c, c_new, gates, has_bias) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives by pre-activations, c and bias; ``dh`` or ``dc`` may be None."""
    i, f, g, o = gates.chunk(4, 1)
    tanh_c = c_new.tanh()
    dh = torch.zeros_like(c) if dh is None else dh
    dc = dh * o * (1 - tanh_c**2) + (0 if dc is None else dc)
    slopes = dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g**2)
    dz = torch.cat([*slopes, dh * tanh_c * o * (1 - o)], 1)
    return dz, dc * f, dz.sum(0) if has_bias else None


KERNELS = {
    "_thnn_fused_lstm_cell": forward,
    "_thnn_fused_lstm_cell_backward_impl": backward,
}
