"""Read the inputs of a layer, and hold its blocks.

Autograd itself adds up the inputs. The output of a layer depends on a leaf tensor whose
derivative is, by definition, the sum of the inputs of that forward pass. Its ``.grad``
thus belongs to the ``.grad`` of the weights: passes without a backward pass and
``torch.autograd.grad`` add nothing, several backward passes add up.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.layers import (
    WeakHook,
    current_backward,
    is_returned,
    remove_all,
    tensors,
)
from labkit.precision import outside_modes
from labkit.rls.checks import check_pass
from labkit.rls.inputs import KINDS, kind_of
from labkit.rls.update import Residuals


@dataclass(eq=False)
class Block:
    """A weight with its bias: the matrix Theta (N, n), which steps change in place."""

    name: str  # of the module, with ".ih" or ".hh" for recurrent ones
    weight: Tensor  # (N, ...)
    bias: Tensor | None  # (N,)

    @property
    def n_inputs(self) -> int:
        """Return the number of inputs of one unit, without the 1 for the bias."""
        return self.weight[0].numel()

    @property
    def fan_in(self) -> int:
        """Return the side n of P: the number of inputs, plus 1 if there is a bias."""
        return self.n_inputs + (self.bias is not None)

    def tensors(self) -> dict[str, Tensor]:
        """Return the weight, and the bias if there is one, by name."""
        own = {"weight": self.weight, "bias": self.bias}
        return {name: tensor for name, tensor in own.items() if tensor is not None}

    def joined(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return two tensors like weight and bias as one matrix, (N, n), a copy."""
        columns = [weight.flatten(1)] + ([] if bias is None else [bias[:, None]])
        return torch.cat(columns, 1)

    def parts(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return weight and bias, each with its part of a matrix (N, n)."""
        n = self.n_inputs
        pairs = [(self.weight, theta[:, :n].reshape(self.weight.shape))]
        return pairs if self.bias is None else [*pairs, (self.bias, theta[:, n])]

    def sign(self) -> Tensor:
        """Return the signs, (N, n)."""
        return self.joined(self.weight, self.bias).sign_()

    def add_(self, change: Tensor, alpha: float = 1) -> None:
        """Add a multiple of a matrix (N, n)."""
        for own, part in self.parts(change):
            own.add_(part, alpha=alpha)

    def addcmul_(self, change: Tensor, factor: Tensor, value: float) -> None:
        """Add a matrix (N, n) times a number times another."""
        for own, part in self.parts(change):
            own.addcmul_(part, factor, value=value)

    def addmm_(self, left: Tensor, right: Tensor, alpha: float) -> None:
        """Add a multiple of the product of two matrices."""
        if not self.weight.is_contiguous():  # that of a CONV layer in channels_last
            return self.add_(left @ right, alpha=alpha)
        n = self.n_inputs
        self.weight.flatten(1).addmm_(left, right[:, :n], alpha=alpha)
        if self.bias is not None:
            self.bias.addmv_(left, right[:, n], alpha=alpha)


def blocks_of(name: str, module: nn.Module) -> list[Block]:
    """Return the blocks of a layer, in the order in which its inputs are summed."""
    if not isinstance(module, nn.RNNBase):
        return [Block(name, module.weight, module.bias)]
    own = module._parameters
    return [
        Block(f"{name}.{kind}", own[f"weight_{kind}_l0"], own.get(f"bias_{kind}_l0"))
        for kind in ("ih", "hh")
    ]


class Capture:
    """A forward hook on one layer.

    ``time_steps`` is T if the input does not show it; None means the length of the
    sequence for recurrent layers and 1 for others. With ``unformed``, a Linear layer
    keeps (X, dZ) in the place of its weight gradient if it has a bias, and fewer rows
    than units, since X P is then cheaper than the gradient times P.
    """

    def __init__(
        self, name: str, module: nn.Module, time_steps: int | None, unformed: bool
    ):
        self.name, self.module, self.time_steps = name, module, time_steps
        self.blocks, self.sums = blocks_of(name, module), KINDS[kind_of(module)]
        self.own = {k: p for k, p in module._parameters.items() if p is not None}
        self.witness = self.blocks[0].bias  # its gradient shows what is still valid
        self.unformed = unformed and isinstance(module, nn.Linear)
        if self.witness is None:
            self.unformed, self.witness = False, self.blocks[0].weight
        self.superseded = False  # by a later optimiser
        for hook in module._forward_hooks.values():
            if isinstance(hook, WeakHook) and isinstance(hook.owner, Capture):
                hook.owner.superseded = True
                hook.let_go()
        arrived, read = WeakHook(self.arrived), WeakHook(self.read)
        handles = (
            self.witness.register_post_accumulate_grad_hook(arrived),
            module.register_forward_hook(read, with_kwargs=True),
        )
        self.close = weakref.finalize(self, remove_all, handles)
        self.close.atexit = False
        self.sizes = [block.n_inputs for block in self.blocks]
        self.leaf = self._leaf()
        self.forget()

    def _leaf(self) -> Tensor:
        """Make the tensor whose gradient is the sum of inputs, rows and sequences."""
        weight = self.blocks[0].weight
        return weight.new_zeros(sum(self.sizes) + 2, requires_grad=True)

    def forget(self) -> None:
        """Forget the inputs of all passes."""
        self.leaf.grad = None
        self.pending: list[tuple] = []  # (number, dZ, X) of a backward pass under way
        self.residuals: list[tuple] = []  # (dZ, X) of passes that formed no gradient
        self.seen = []  # X (rows, n) of passes, which KailathRLS keeps here
        self.last: tuple | None = None  # the witness's gradient as autograd left it
        self.changed = False  # whether it was changed by another since

    def hooked(self, owner: object) -> bool:
        """Return whether a hook on this module or parameter belongs to this capture."""
        return owner is self.module or owner is self.witness

    def replaced(self) -> bool:
        """Return whether a parameter of the layer is not the one of before."""
        now = self.module._parameters
        return any(now.get(name) is not own for name, own in self.own.items())

    def read(
        self, module: nn.Module, args: tuple, kwargs: dict, output: object
    ) -> object:
        """Read one forward pass, and return the output, which now leads to the leaf."""
        weight, bias = self.blocks[0].weight, self.blocks[0].bias
        trained = weight.requires_grad and self.witness.requires_grad
        if not (torch.is_grad_enabled() and trained):
            return None
        if self.replaced() or torch.jit.is_tracing():  # as within functional_call
            return None
        given = dict(zip(("input", "hx"), args, strict=False)) | kwargs
        x, start = given["input"], given.get("hx")
        check_pass(self.name, module, x, self.time_steps)
        with torch.no_grad(), outside_modes():
            totals, rows, T = self.sums(module, x, start, output)
            T = self.time_steps or T
            if rows % T:
                raise ValueError(
                    f"time_steps={T} does not divide the {rows} rows of the input"
                )
            counts = [weight.new_full((1,), each) for each in (rows, rows // T)]
            sums = torch.cat(totals + counts)
        if (self.leaf.dtype, self.leaf.device) != (weight.dtype, weight.device):
            self.leaf = self._leaf()
        if self.unformed and x.numel() < weight.numel():
            z = output.detach()
            return _Unformed.apply(self, sums, self.leaf, z, x, weight, bias)
        if isinstance(output, Tensor):
            return _Counted.apply(self, output, sums, self.leaf)
        y, *states = tensors(output)
        y, *states = _Counted.apply(self, y, sums, self.leaf, *states)
        return y, tuple(states) if isinstance(output[1], tuple) else states[0]

    def refresh(self) -> None:
        """Forget the inputs if their gradient has been cleared since it came."""
        grad = self.witness.grad
        if self.last is not None:
            changed = grad is not self.last[0] or grad._version != self.last[1]
            own = self.own.values()
            if changed and not any(p.grad is not None and p.grad.any() for p in own):
                self.forget()
            else:
                self.changed |= changed

    def arrived(self, parameter: nn.Parameter) -> None:
        """Note the gradient that has arrived, and keep the residuals of its pass."""
        now = current_backward()
        self.residuals += [(dZ, X) for number, dZ, X in self.pending if number == now]
        self.pending.clear()
        self.last = parameter.grad, parameter.grad._version

    def reached(self, grads: dict[Tensor, Tensor | None]) -> bool:
        """Return whether a gradient has come with its inputs.

        RuntimeError if one came without inputs, or if a change of it would be lost.
        """
        own = [grads[p] for p in self.own.values() if grads[p] is not None]
        if self.replaced():
            reason = (
                "its weight was replaced since RLS was made, as by pruning; make RLS "
                "anew, or leave the layer to another optimizer"
            )
        elif grads[self.leaf] is not None:
            if self.residuals and self.changed:
                raise RuntimeError(
                    f"the gradient of layer {self.name!r} was changed, but under "
                    "max_grad_norm most of it is not formed and would stay as it was: "
                    "leave clipping to RLS, or take max_grad_norm=None"
                )
            return bool(own)
        elif not any(each.any() for each in own):
            return False
        elif self.superseded:
            reason = "another RLS was made for this layer later; only the newest steps"
        else:
            reason = (
                "it came past the call of the layer, as by nn.functional, a traced "
                "model or torch.autograd.grad, or a part of the layer is frozen; call "
                "the layer, and loss.backward(), and freeze whole layers"
            )
        raise RuntimeError(
            f"layer {self.name!r} has a gradient, but no input of it was seen: {reason}"
        )

    def means(self, sums: Tensor) -> list[Tensor]:
        """Return each block's mean input, (n,), with a 1 for the bias."""
        totals = sums[:-2].split(self.sizes)
        return [
            nn.functional.pad(total / sums[-2], (0, block.bias is not None), value=1)
            for block, total in zip(self.blocks, totals, strict=True)
        ]

    def gradient(
        self, block: Block, grads: dict[Tensor, Tensor | None]
    ) -> Tensor | Residuals:
        """Return a block's gradient, (N, n): what autograd has left, and residuals."""
        if grads[block.weight] is None and self.residuals:
            dZ = stacked([dZ for dZ, _ in self.residuals])
            X = stacked([X for _, X in self.residuals])
            return Residuals(dZ, X, grads[block.bias])
        own = {
            name: torch.zeros_like(p) if grads[p] is None else grads[p]
            for name, p in block.tensors().items()
        }
        G = block.joined(own["weight"], own.get("bias"))
        for dZ, X in self.residuals:
            G[:, :-1] += dZ.T @ X
        return G


def stacked(parts: Sequence[Tensor]) -> Tensor:
    """Return matrices one below the other; one alone is not copied."""
    return torch.cat(parts) if len(parts) > 1 else parts[0]


class _Counted(torch.autograd.Function):
    """Pass on the outputs of a layer; the backward pass counts the inputs.

    The first output is the first tensor, as torch wants of a view changed in place.
    """

    @staticmethod
    def forward(ctx, capture, y, sums, leaf, *states):
        ctx.capture, ctx.sums = capture, sums
        ctx.set_materialize_grads(False)
        if states:
            return tuple(each.clone() for each in (y, *states))
        ctx.mark_dirty(y)  # so that an activation in place may follow
        return y

    @staticmethod
    def backward(ctx, dy, *grads):
        ctx.capture.refresh()
        return None, dy, None, ctx.sums, *grads


class _Unformed(torch.autograd.Function):
    """A linear layer whose backward pass keeps (X, dZ) and no weight gradient.

    It forms the gradient only where ``torch.autograd.grad`` returns it.
    The backward pass consists of differentiable operations, so it can be differentiated
    again, as for a gradient penalty; the weight gradient is then formed as usual.
    """

    @staticmethod
    def forward(ctx, capture, sums, leaf, z, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.capture, ctx.sums = capture, sums
        ctx.mark_dirty(z)
        return z

    @staticmethod
    def backward(ctx, dz):
        x, weight = ctx.saved_tensors
        ctx.capture.refresh()
        # copies, since the caller may fill the memory anew before the step
        X, dZ = (
            each.reshape(-1, each.shape[-1]).to(weight.dtype, copy=True)
            for each in (x, dz)
        )
        ctx.capture.pending.append((current_backward(), dZ.detach(), X.detach()))
        dW = dZ.T @ X if is_returned(ctx.next_functions[-2][0]) else None
        dx = None
        if ctx.needs_input_grad[4]:
            dx = (dz.to(weight.dtype) @ weight).to(x.dtype)
        return None, None, ctx.sums, None, dx, dW, dZ.sum(0)
