"""Record each layer's mean input as gradients flow back through it.

A forward hook reads the inputs. They count only if the backward pass that reached the
output of the layer also brings a gradient to its parameters. The mean input thus
belongs to ``.grad``: evaluation, ``no_grad``, discarded passes and
``torch.autograd.grad`` add nothing, and several backward passes add up.
"""

import weakref
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook

from labkit.layers import WeakHook, tensors
from labkit.rls.blocks import Block, InputSum
from labkit.rls.checks import check_pass, row_weights
from labkit.rls.layers import KINDS, blocks_of, kind_of, sequences, summed


class Capture:
    """A forward hook on one layer that fills the layer's blocks.

    ``time_steps`` is T if the input does not show it; None means the length of the
    sequence for recurrent layers and 1 for others. ``residuals`` says when a Linear
    layer keeps (X, dZ) instead of forming its weight gradient: "never", "always", or
    "cheaper", which means if there are fewer rows than units, and a bias, whose
    gradient shows whether they still count. ``shared`` says whether several workers
    train the layer.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        time_steps: int | None,
        residuals: str,
        shared: bool,
    ):
        self.name, self.module, self.time_steps = name, module, time_steps
        self.shared = shared
        if residuals == "always" and not isinstance(module, nn.Linear):
            raise ValueError(
                f"layer {name!r} is a {type(module).__name__}; this variant is for "
                "Linear layers only"
            )
        self.kind, self.own = kind_of(module), dict(module._parameters)
        self.residuals = residuals if self.kind is nn.Linear else "never"
        if residuals == "cheaper" and module._parameters.get("bias") is None:
            self.residuals = "never"
        self.blocks = blocks_of(name, module)
        self.weights: Tensor | None = None  # row weights of the next passes
        self.superseded = False  # by a later optimiser
        handles = [handle for block in self.blocks for handle in block.listen()]
        for hook in module._forward_hooks.values():
            if isinstance(hook, WeakHook) and isinstance(hook.owner, Capture):
                hook.owner.superseded = True  # that of an earlier optimiser
                hook.let_go()
        hook = WeakHook(self.read)
        handles.append(module.register_forward_hook(hook, with_kwargs=True))
        self.close = weakref.finalize(self, _remove, handles)
        self.close.atexit = False

    def hooked(self, module: nn.Module) -> bool:
        """Return whether the hook on this module belongs to this capture."""
        return module is self.module

    def of(self, module: nn.Module) -> "Capture":
        """Return a capture with the same options for a copy of the layer."""
        options = self.time_steps, self.residuals, self.shared
        return Capture(self.name, module, *options)

    def leave_unread(self, output: object) -> None:
        """Note a pass in evaluation mode, in case it produces a gradient."""

        def reached(_):
            for block in self.blocks:
                block.see(None)

        if watched := [y for y in tensors(output) if y.requires_grad]:
            register_multi_grad_hook(watched, reached, mode="any")

    def read(
        self, module: nn.Module, args: tuple, kwargs: dict, output: object
    ) -> Tensor | None:
        """Read one forward pass; return None or a replacement of the output."""
        if not torch.is_grad_enabled():
            return None
        if not module.training:
            return self.leave_unread(output)
        given = dict(zip(("input", "hx"), args, strict=False)) | kwargs
        start = given.get("hx")
        inputs = (given["input"],) if start is None else (given["input"], start)
        if any(module._parameters.get(name) is not p for name, p in self.own.items()):
            return None  # within functional_call, with other weights
        weight, x = self.blocks[0].weight, inputs[0]
        check_pass(self.name, module, x, self.time_steps, self.shared)
        weights = row_weights(self.name, module, x, self.weights)
        if not weight.requires_grad:  # frozen since the optimiser was made
            return None
        # rows < units: then X P is cheaper than the gradient times P
        cheaper = self.residuals == "cheaper" and x.numel() < weight.numel()
        if cheaper or self.residuals == "always":
            sequences(x.numel() // x.shape[-1], self.time_steps)  # may raise ValueError
            own = weight, self.blocks[0].bias
            keep = partial(self._keep_residual, weights)
            return _Residual.apply(output.detach(), x, *own, keep)
        with torch.no_grad():
            sums = KINDS[self.kind](module, inputs, output, self.time_steps, weights)

        def keep(gradient):
            for block, each in zip(self.blocks, sums, strict=True):
                block.see(each)

        # An activation in place takes a view, such as the output of a Linear layer on
        # (T, M, n), out of the graph; what it is a view of stays.
        outputs = tensors(output)
        bases = [y._base for y in outputs if y._base is not None]
        watched = outputs + [base for base in bases if base.requires_grad]
        register_multi_grad_hook(watched, keep, mode="any")
        return None

    def unseen(self, block: Block) -> str:
        """Return why a gradient came without its inputs, and what to do."""
        if self.superseded:
            return "another RLS was made for this layer later; only the newest steps"
        parameters = self.module._parameters
        for name, own in self.own.items():
            if parameters.get(name) is not own:
                if parameters.get(f"{name}_orig") is own:
                    return (
                        f"pruning has put its {name} behind a mask; call prune.remove, "
                        "or leave the layer to another optimizer"
                    )
                return f"its {name} was replaced since RLS was made; make RLS anew"
        if block.missed:
            return "run the forward pass in training mode, model.train()"
        if block.arrived:
            return (
                "its weight was used without a call of the layer, past hooks, as by "
                "torch.jit.trace, torch.jit.script or nn.functional; call the layer"
            )
        return (
            "it was put there without loss.backward(), as that of torch.autograd.grad; "
            "only a backward pass brings the inputs"
        )

    def replaced(self) -> bool:
        """Return whether a parameter was replaced by one that has a gradient."""
        now = {name: self.module._parameters.get(name) for name in self.own}
        others = [p for name, p in now.items() if p is not self.own[name]]
        return any(p is not None and p.grad is not None for p in others)

    @torch.no_grad()
    def _keep_residual(self, weights, x, dz):
        (block,) = self.blocks
        X = x.detach().reshape(-1, x.shape[-1]).to(block.dtype)
        dZ = dz.detach().reshape(-1, dz.shape[-1]).to(block.dtype)
        total, rows = summed(X, weights, block.dtype)
        block.see(InputSum(total, rows, sequences(rows, self.time_steps)), X, dZ)
        if block.bias is None:  # its gradient will not come
            block.arrive(block.weight)


def check_inputs(
    captures: Iterable[Capture],
    known: Iterable[tuple[Block, InputSum]],
    on_cpu: bool,
) -> None:
    """Raise RuntimeError if the inputs or a change of a gradient were lost.

    ``known`` are pairs of a block that has a gradient and the sum of its inputs. The
    number of rows is read only with ``on_cpu``, where reading does not wait for a
    device.
    """
    owner = {block: each for each in captures for block in each.blocks}
    for block, inputs in known:
        none = inputs.total is None or (on_cpu and not inputs.rows)
        if none or block.missed:
            part = "it" if none else "a part of it"
            raise RuntimeError(
                f"layer {block.name!r} has a gradient, but no input of {part} was "
                f"seen: {owner[block].unseen(block)}"
            )
        if block.residuals and block.touched():
            raise RuntimeError(
                f"the gradient of layer {block.name!r} was changed, but under "
                "max_grad_norm most of it is not formed and would stay as it was: "
                "leave clipping to RLS, or take max_grad_norm=None"
            )


class _Residual(torch.autograd.Function):
    """A linear layer whose backward pass keeps (X, dZ) and no weight gradient.

    The backward pass consists of differentiable operations, so it can be differentiated
    again, as for a gradient penalty; the weight gradient is then formed as usual.
    """

    @staticmethod
    def forward(ctx, z, x, weight, bias, keep):
        # weight is an input only so that z requires a gradient
        ctx.save_for_backward(x, weight)
        ctx.keep, ctx.bias_dtype = keep, None if bias is None else bias.dtype
        ctx.mark_dirty(z)  # not a view: a following in-place activation is allowed
        return z

    @staticmethod
    def backward(ctx, dz):
        x, weight = ctx.saved_tensors
        ctx.keep(x, dz)
        dx = db = None
        if ctx.needs_input_grad[1]:
            dx = (dz.to(weight.dtype) @ weight).to(x.dtype)
        if ctx.needs_input_grad[3]:
            db = dz.reshape(-1, dz.shape[-1]).sum(0, dtype=ctx.bias_dtype)
        return None, dx, None, db, None


def _remove(handles):
    for handle in handles:
        handle.remove()
