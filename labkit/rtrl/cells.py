r"""Recurrent cells whose immediate derivative is a Kronecker product (Lemma 1).

Each new state entry of unit j depends on the pre-activations z^1_j .. z^K_j and on the
old state entries of unit j, and on nothing else. Then, with everything per sequence,

    F = h_hat (x) D                     d s_t / d theta at fixed s_{t-1}
    H = J_direct + D W_h^T              d s_t / d s_{t-1}, second term in the h columns

=========  =====================  ==============================================
symbol     shape                  meaning
=========  =====================  ==============================================
n, d_x     ints                   units, input size
K, S       ints                   weight blocks, size of the state (n or 2 n)
m          n + d_x + 1            length of h_hat = [h_{t-1}, x_t, 1]
W          (m, K n)               ``weight``: rows [h, x, 1], blocks side by side
D          (b, S/n, K, n)         D[p, k, j] = d s_t[p n + j] / d z^k_j
direct     (b, S/n, S/n, n)       d s_t[p n + j] / d s_{t-1}[q n + j], without z
H          (b, S, S)              state Jacobian
=========  =====================  ==============================================

Deviation from the paper: its Lemma 1 lets the state depend on the z's only; the RHN's
carry path and the LSTM's cell also read the old state point by point, which adds the
diagonal blocks J_direct to H and leaves F as it is.

A new cell is a subclass of :class:`Cell` with one function, ``new_state``, from which
the rest follows, as for :class:`GRUCell`; :func:`~labkit.rtrl.check_cell` checks it.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from labkit.check import COUNT, check_making, check_options, check_tensor, described
from labkit.precision import outside_modes


class CellStep(NamedTuple):
    """One step of a cell, per sequence."""

    state: Tensor  # (b, S) new state
    h: Tensor  # (b, n) the part of it that the readout sees
    H: Tensor  # (b, S, S) d state / d old state
    h_hat: Tensor  # (b, m) = [old h, x, 1]
    D: Tensor  # (b, S/n, K, n) compact d state / d z


class Linearised(NamedTuple):
    """The derivatives of one step of a cell before any Jacobian is built."""

    state: Tensor  # (b, S)
    h_hat: Tensor  # (b, m)
    D: Tensor  # (b, S/n, K, n)
    direct: Tensor | None  # (b, S/n, S/n, n), None where it is zero


def rest(a: Tensor, b: Tensor) -> Tensor:
    """Return a (1 - b), computed in one kernel."""
    return torch.addcmul(a, a, b, value=-1)


def normal_parameter(
    shape: tuple[int, ...],
    generator: torch.Generator | None,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
) -> nn.Parameter:
    """Draw a weight from N(0, 0.01^2)."""
    check_making(generator, dtype, device)
    weight = torch.empty(shape, dtype=dtype, device=device)
    return nn.Parameter(weight.normal_(0, 0.01, generator=generator))


class Cell(nn.Module):
    """A recurrent cell: one parameter ``weight`` (m, K n), and its Jacobians.

    A subclass defines ``blocks``, ``new_state``, and ``parts`` if there is more than
    one. For speed it may define ``linearise`` too.

    Parameters
    ----------
    input_size, hidden_size : int >= 1, $d_x$, $n$
    generator : torch.Generator, optional, of the weights, N(0, 0.01^2), bias included
    dtype, device : optional, of the weights, and so of everything computed from them

    Attributes
    ----------
    weight : (m, K n) parameter, $W$, rows [h, x, 1], blocks side by side
    state_size, augmented_size : int, S, and m = n + d_x + 1
    """

    blocks: int  # K
    parts: int = 1  # S / n

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        sizes = {"input_size": input_size, "hidden_size": hidden_size}
        check_options(sizes, dict.fromkeys(sizes, COUNT))
        if not hasattr(self, "blocks"):
            raise TypeError(
                f"{type(self).__name__} must say how many weight blocks it has: put "
                "`blocks = K` into the class, K the number of its pre-activations z"
            )
        self.input_size, self.hidden_size = input_size, hidden_size
        self.state_size = self.parts * hidden_size
        self.augmented_size = hidden_size + input_size + 1
        shape = (self.augmented_size, self.blocks * hidden_size)
        self.weight = normal_parameter(shape, generator, dtype, device)

    def initial_state(self, batch_size: int) -> Tensor:
        """Return zeros (b, S) of the weights' dtype and device."""
        return self.weight.new_zeros(batch_size, self.state_size)

    def hidden(self, state: Tensor) -> Tensor:
        """Return the part (..., n) of the state that the readout sees, the last n."""
        return state[..., -self.hidden_size :]

    def augment(self, x: Tensor, state: Tensor) -> Tensor:
        """Return h_hat = [h, x, 1], (b, m)."""
        return torch.cat([self.hidden(state), x, x.new_ones(*x.shape[:-1], 1)], dim=-1)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        """Return the new state (b, S) from x (b, d_x) and state (b, S).

        The result is differentiable by autograd.
        """
        self._check_pair(x, state)
        return self.new_state(self._blocks(self.augment(x, state)), state)

    @torch.no_grad()
    @outside_modes()
    def step(self, x: Tensor, state: Tensor) -> CellStep:
        r"""Compute one step and its Jacobian, H = J_direct + D W_h^T.

        The result is not differentiable.

        Cost 2 b m K n for the state, 2 b K (S/n) n^2 for H.

        Parameters
        ----------
        x : (b, d_x) tensor, $x$, input
        state : (b, S) tensor, $s$, old state
        """
        check_tensor("x", x, shape=("b", self.input_size))
        self._check_pair(x, state)
        new = self.linearise(x, state)
        H = self.jacobian(new)
        return CellStep(
            state=new.state, h=self.hidden(new.state), H=H, h_hat=new.h_hat, D=new.D
        )

    @torch.no_grad()
    def jvp(self, x: Tensor, state: Tensor, v: Tensor) -> tuple[Linearised, Tensor]:
        r"""Compute one step and H v without building H; cost 2 b r K n^2.

        (1) $H v = J_{direct}\,v + D\,(W_h^T v)$

        Parameters
        ----------
        x, state, v : (b, d_x), (b, S) and (b, r, S) tensors, $x$, $s$ and $v$
        """
        new = self.linearise(x, state)
        Wv = self.hidden(v) @ self.weight[: self.hidden_size]  # (b, r, K n)
        Wv = Wv.unflatten(-1, (self.blocks, -1))
        Hv = torch.einsum("bpkj,brkj->brpj", new.D, Wv)  # (1)
        if new.direct is not None:
            old = v.unflatten(-1, (self.parts, -1))
            Hv = Hv + torch.einsum("bpqj,brqj->brpj", new.direct, old)  # (1)
        return new, Hv.flatten(2)

    @torch.no_grad()
    def vjp(self, new: Linearised, delta: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return d L / d z and d L / d old state from delta (b, S), d L / d state.

        (1) $\delta_z = D^T \delta$
        (2) $\delta' = J_{direct}^T\,\delta + W_h\,\delta_z$
        """
        rows = delta.unflatten(-1, (self.parts, -1))
        dz = torch.einsum("bpj,bpkj->bkj", rows, new.D).flatten(1)  # (1)
        W_h = self.weight[: self.hidden_size]
        old = torch.zeros_like(delta)
        if new.direct is not None:
            old = torch.einsum("bpj,bpqj->bqj", rows, new.direct).flatten(1)  # (2)
        self.hidden(old).addmm_(dz, W_h.T)  # (2)
        return dz, old

    @torch.no_grad()
    def jacobian(self, new: Linearised) -> Tensor:
        r"""Return H (b, S, S), as a transposed view of contiguous memory.

        (1) $H = J_{direct} + D\,W_h^T$, the second term in the columns of h
        """
        n = self.hidden_size
        W_h = self.weight[:n].unflatten(1, (self.blocks, n))  # (l, k, j)
        b = new.D.shape[0]
        # Built transposed, (b, column, p, j): both factors are then read in order.
        make = new.D.new_empty if self.parts == 1 else new.D.new_zeros
        HT = make(b, self.state_size, self.parts, n)
        columns = HT[:, -n:]
        torch.mul(W_h[:, None, 0], new.D[:, None, :, 0], out=columns)  # (1)
        for k in range(1, self.blocks):
            columns.addcmul_(W_h[:, None, k], new.D[:, None, :, k])  # (1)
        if new.direct is not None:
            blocks = HT.view(b, self.parts, n, self.parts, n)  # (b, q, j, p, j)
            blocks.diagonal(dim1=2, dim2=4).add_(new.direct.transpose(1, 2))  # (1)
        return HT.flatten(2).mT

    def new_state(self, z: Tensor, state: Tensor) -> Tensor:
        """Return the new state (..., S); unit j reads z[..., j] and its old state.

        It uses operations of torch that autograd can differentiate. The parts of a
        state lie side by side, h the last.

        Parameters
        ----------
        z : (..., K, n) tensor, $z$, pre-activations
        state : (..., S) tensor, $s$, old state
        """
        raise NotImplementedError(f"{type(self).__name__} must say its new_state")

    @torch.no_grad()
    def linearise(self, x: Tensor, state: Tensor) -> Linearised:
        r"""Return the new state, h_hat, D and the direct path without an (S, S) matrix.

        By default it back-propagates through ``new_state`` once for each part p of the
        state: units do not mix, so that a sum over them may be differentiated.

        (1) $D_{pkj} = \partial \sum_i s_{pi} / \partial z_{kj}$
        (2) $J_{pqj} = \partial \sum_i s_{pi} / \partial s'_{qj}$, s' the old state
        """
        h_hat = self.augment(x, state)
        with torch.enable_grad():
            z = self._blocks(h_hat.detach()).detach().requires_grad_()
            old = state.detach().requires_grad_()
            new = self.new_state(z, old)
            sums = new.unflatten(-1, (self.parts, -1)).sum((0, 2))
            by = [
                torch.autograd.grad(
                    each, (z, old), retain_graph=True, materialize_grads=True
                )
                for each in sums
            ]
        D, direct = (torch.stack(each, 1) for each in zip(*by, strict=True))  # (1), (2)
        direct = direct.unflatten(-1, (self.parts, -1))  # (2)
        return Linearised(new.detach(), h_hat, D, direct)

    def _check_pair(self, x: Tensor, state: Tensor) -> None:
        """Raise an error unless x is (..., d_x) and state (..., S), like the weight."""
        check_tensor("x", x, shape=("...", self.input_size), like=self.weight)
        shape = (*x.shape[:-1], self.state_size)
        check_tensor("state", state, shape=shape, like=self.weight)

    def _blocks(self, h_hat: Tensor) -> Tensor:
        """Return z = h_hat W as (b, K, n)."""
        return (h_hat @ self.weight).unflatten(-1, (self.blocks, -1))


class RNNCell(Cell):
    r"""A plain tanh cell: h' = tanh(z), S = n, K = 1."""

    blocks = 1

    def new_state(self, z: Tensor, state: Tensor) -> Tensor:
        """See :meth:`Cell.new_state`."""
        return torch.tanh(z[..., 0, :])

    @torch.no_grad()
    def linearise(self, x: Tensor, state: Tensor) -> Linearised:
        r"""Return the step of the plain cell, whose J_direct is 0.

        (1) $h' = \tanh z, \; z = \hat h W$  (2) $D = 1 - h'^2$
        """
        h_hat = self.augment(x, state)
        h = torch.tanh(self._blocks(h_hat)[:, 0])  # (1)
        D = (1 - h * h)[:, None, None]  # (2)
        return Linearised(h, h_hat, D, None)


class RHNCell(Cell):
    r"""A recurrent highway cell of depth 1 with a coupled gate; S = n, K = 2.

    Blocks [candidate | carry]: c = 2 sig(z1) - 1, f = sig(z2), h' = f h + (1 - f) c.
    """

    blocks = 2

    def new_state(self, z: Tensor, state: Tensor) -> Tensor:
        """See :meth:`Cell.new_state`."""
        c, f = 2 * torch.sigmoid(z[..., 0, :]) - 1, torch.sigmoid(z[..., 1, :])
        return f * state + (1 - f) * c

    @torch.no_grad()
    def linearise(self, x: Tensor, state: Tensor) -> Linearised:
        r"""Return the step from the old h and $z = \hat h W$; the numbers are ours.

        (1) $c = 2\sigma(z_1) - 1, \; f = \sigma(z_2)$    (2) $h' = f h + (1 - f) c$
        (3) $D_1 = (1 - f)(1 - c^2) / 2, \; D_2 = (h - c) f (1 - f)$
        (4) $J_{direct} = f$
        """
        h_hat = self.augment(x, state)
        s, f = torch.sigmoid(self._blocks(h_hat)).unbind(1)  # (1)
        c = 2 * s - 1  # (1)
        gated = f * (state - c)
        new = c + gated  # (2)
        by_c = 2 * rest(rest(s, s), f)  # (3): (1 - c^2) / 2 is 2 s (1 - s)
        D = torch.stack([by_c, rest(gated, f)], 1)[:, None]  # (3)
        return Linearised(new, h_hat, D, f[:, None, None])  # (4)


class LSTMCell(Cell):
    r"""An LSTM without peepholes, with the state s = [cell; h]; S = 2 n, K = 4.

    Blocks [i | f | o | g]: cell' = f cell + i g, h' = o tanh(cell'). The cell is part
    of the state but not of h_hat.
    """

    blocks, parts = 4, 2

    def new_state(self, z: Tensor, state: Tensor) -> Tensor:
        """See :meth:`Cell.new_state`."""
        i, f, o = torch.sigmoid(z[..., :3, :]).unbind(-2)
        cell = f * state[..., : self.hidden_size] + i * torch.tanh(z[..., 3, :])
        return torch.cat([cell, o * torch.tanh(cell)], dim=-1)

    @torch.no_grad()
    def linearise(self, x: Tensor, state: Tensor) -> Linearised:
        r"""Return the step with $z = \hat h W$, the cell c and $h' = o\,t$.

        The numbers are ours.

        (1) $i, f, o = \sigma(z_1), \sigma(z_2), \sigma(z_3), \; g = \tanh z_4$
        (2) $c' = f c + i g$    (3) $t = \tanh c', \; e = o\,(1 - t^2)$
        (4) $D_{c'} = [g\,i(1-i),\; c f(1-f),\; 0,\; i(1-g^2)]$
        (5) $D_{h'} = e \circ D_{c'}$, its third block $t\,o(1-o)$
        (6) $J_{direct}: c \mapsto (f, e f)$
        """
        h_hat = self.augment(x, state)
        z = self._blocks(h_hat)
        i, f, o = torch.sigmoid(z[:, :3]).unbind(1)  # (1)
        g = torch.tanh(z[:, 3])  # (1)
        old = state[:, : self.hidden_size]
        cell = f * old + i * g  # (2)
        t = torch.tanh(cell)  # (3)
        h, e = o * t, o * (1 - t * t)  # (3)
        none = torch.zeros_like(e)
        by_i, by_f, by_g = g * rest(i, i), old * rest(f, f), i * (1 - g * g)  # (4)
        of_cell = torch.stack([by_i, by_f, none, by_g, f], 1)  # (4), (6)
        of_h = e[:, None] * of_cell  # (5), (6)
        of_h[:, 2] = t * rest(o, o)  # (5)
        both = torch.stack([of_cell, of_h], 1)
        D, of_old = both[:, :, :4], both[:, :, 4]
        direct = torch.stack([of_old, none[:, None].expand_as(of_old)], 2)
        return Linearised(torch.cat([cell, h], 1), h_hat, D, direct)


class GRUCell(Cell):
    r"""A GRU that resets after the product, as torch's does; S = n, K = 4.

    Blocks [r | u | a | c]: h' = u h + (1 - u) tanh(c + r a). All four read [h, x, 1];
    torch's is the case where a reads no x and c no h, which training does not maintain.
    Autograd computes its Jacobians: it is an example of a cell that a user can write.
    """

    blocks = 4

    def new_state(self, z: Tensor, state: Tensor) -> Tensor:
        """See :meth:`Cell.new_state`."""
        r, u = torch.sigmoid(z[..., :2, :]).unbind(-2)
        new = torch.tanh(z[..., 3, :] + r * z[..., 2, :])
        return new + u * (state - new)


def from_torch(module: nn.RNNCell | nn.LSTMCell) -> Cell:
    """Make a cell that computes what a recurrent cell of torch does.

    Its weights are copied, in their dtype and on their device; the two biases of torch
    are one here, their sum. The state of an LSTM is [cell; h]. TypeError for another
    module than an nn.RNNCell with tanh or an nn.LSTMCell.

    Examples
    --------
    >>> cell = from_torch(nn.LSTMCell(3, 4))
    >>> cell(torch.zeros(2, 3), cell.initial_state(2)).shape
    torch.Size([2, 8])
    """
    kinds = {nn.RNNCell: RNNCell, nn.LSTMCell: LSTMCell}
    kind, other = type(module), getattr(module, "nonlinearity", "tanh")
    if kind not in kinds or other != "tanh":
        raise TypeError(
            "module must be a torch.nn.RNNCell with tanh or an nn.LSTMCell, "
            f"got {described(module)}"
        )
    W = torch.cat([module.weight_hh, module.weight_ih], 1)  # (K n, n + d_x)
    bias = torch.zeros_like(W[:, 0])
    if module.bias:
        bias = module.bias_hh + module.bias_ih
    W = torch.cat([W, bias[:, None]], 1)
    if kind is nn.LSTMCell:
        i, f, g, o = W.chunk(4)
        W = torch.cat([i, f, o, g])
    cell = kinds[kind](
        module.input_size, module.hidden_size, dtype=W.dtype, device=W.device
    )
    with torch.no_grad():
        cell.weight.copy_(W.T)
    return cell
