"""Implement RLS as a torch optimiser (Algorithms 1 and 2 of the paper)."""

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from labkit.check import check_kind, check_options
from labkit.rls.blocks import Block, BlockStep, joint_norm, pool, zeroed
from labkit.rls.capture import Capture, check_inputs
from labkit.rls.checks import (
    LAYER_OPTIONS,
    OPTIONS,
    check_fan_in,
    check_time_steps,
    check_weights,
    choose_layers,
    unwrap,
)
from labkit.rls.health import (
    check_finite,
    check_healthy,
    check_noted,
    count,
    healthy,
    note,
    scaled,
    unscale,
)
from labkit.rls.states import (
    Stateful,
    check_checkpoint,
    check_keys,
    interrupt_held_back,
    restored,
)
from labkit.rls.update import clip_factor, gain, rls_step

COUNTS = ("step", "h", "resets")  # of every block, ()


class RLS(Stateful):
    r"""Implement recursive least squares for FC, CONV, RNN, LSTM and GRU layers.

    RLS is gradient descent whose step size is a matrix for each layer (for each of the
    two blocks of a recurrent layer): P, the inverse autocorrelation of its mean inputs.
    :func:`rls_step` computes the step and documents the equations; this class keeps the
    state. Zhang et al. 2021, Algorithms 1 and 2. ValueError if an option is out of
    range, a layer does not exist or cannot be trained, or a parameter would be left
    out.

    Parameters
    ----------
    model : nn.Module
        Forward hooks read the inputs of its layers, in training mode only, until
        :meth:`close`, another RLS on the same layer, or the end of this object. Frozen
        layers are left out. If it is a ``DistributedDataParallel``, each worker steps
        with the inputs and gradients of the whole minibatch; see the notes.
    forgetting : float
        $\lambda$ in (0, 1]. Below 1, P grows without bound in every direction that the
        inputs do not excite.
    mean_weight : float
        $k$ > 0, weight of a minibatch's mean in P, relative to ``P0_scale``.
    lr : float or tensor of one number
        $\eta$ >= 0, step factor of all layers; in the theory it is 1 for the last. The
        host never reads a tensor.
    momentum : float, $\alpha$ in [0, 1); RLS+M has 0.5, which doubles the step.
    l1 : float, $\gamma$ >= 0; RLS+R has 1e-5, for LSTMs 1e-6. With biases, as printed.
    weight_decay : float >= 0
        Weights and biases of a layer are multiplied by 1 - lr * weight_decay before
        each of its steps, as in AdamW. This is not in the paper.
    P0_scale : float > 0; P starts as that times the identity.
    max_grad_norm : float, optional
        Joint L2 norm to which the raw gradients of all layers are clipped, as
        ``clip_grad_norm_`` does between ``backward`` and ``step``; ``math.inf`` for
        none. If it is given, the optimiser controls the gradient: if a Linear layer has
        more units than the batch has rows, its weight gradient is never formed and its
        ``.grad`` stays None, and a change of the ``.grad`` of its bias raises
        RuntimeError. If it is None, every ``.grad`` exists between ``backward`` and
        ``step`` and may be changed.
    layers : sequence, optional
        The layers to train: names in the model, modules, or dicts such as ``{"layer":
        "2", "lr": 0.1}`` with options of their own. ``"time_steps"`` is also an option,
        the T of (82) for a Linear layer that is applied at T time steps. None means all
        layers, and then every parameter of the model must belong to one.
    on_failure : {"raise", "reset"}
        What to do if P is no longer definite (h < lambda) or has outgrown the
        precision: raise an error, or reset this P, skip the step of its block, and
        count that in ``state[weight]["resets"]``.
    max_fan_in : int, largest side of P; 8192 is 256 MiB in float32. ValueError above.

    Notes
    -----
    The scale of the inputs matters. The step of a layer is its gradient times P, which
    starts as the identity and shrinks only along the mean input, so from many starts
    ``lr=1`` diverges for a large spread. Scale the inputs to a standard deviation of
    about 1, or give ``max_grad_norm``.

    The layers are Linear, Conv1d to Conv3d and ConvTranspose1d to ConvTranspose3d, RNN,
    LSTM and GRU (one layer, one direction), and subclasses that keep the forward. Each
    group of a CONV layer has its own P and its own step.
    A transposed layer is a CONV layer on its input with zeros between the pixels; each
    output is linear in its receptive field, so (65) to (74) hold, with those zeros in
    the mean (72). The two linear outputs of a GRU take those of an RNN's place in (7).
    Parameters stay in float32 under ``torch.autocast``; ``torch.amp.GradScaler`` works.
    For parameters in bfloat16 or float16, P and a copy, ``master``, are in float32. For
    rows without a loss, such as padding, see :meth:`row_weights`.

    On the CPU ``step`` raises NumericalError if a gradient is not finite or a P is not
    healthy, and then has changed nothing. On an accelerator it never waits for the
    device: a block that failed is not changed, and :meth:`check` raises.

    The state of a block, in ``state[weight]``, is ``P`` (n, n), ``velocity`` (N, n) if
    there is momentum, ``master`` (N, n) for half precision, and ``h``, ``step``,
    ``resets`` (). With g groups P is (g, n, n). Each layer is one parameter group.

    The multiply-adds of a block with M rows, N units and n inputs are M n (n + N)
    instead of the weight gradient's M n N, or n^2 N in addition to them, whichever is
    chosen above; n^2 for P, and n^2 N again with ``l1``. float32 is enough for lambda =
    1, and float64 is advised below.

    For several workers, wrap the model and then call ``RLS(ddp_model)``; names of
    layers and checkpoints are those of the bare model. With equal shares of the
    minibatch every worker has the same result as one process with all rows, to
    rounding, and the same as the other workers, to the last bit, so failures and resets
    happen on all at once. Unequal shares work if each worker scales its loss by $p M_r
    / M$, M_r its own rows of M, since ``DistributedDataParallel`` averages over the p
    workers. Besides the gradient, which is formed there also with ``max_grad_norm``, a
    step sends the mean inputs, one all-reduce of $\sum (n' + 2)$ numbers, n' the inputs
    without the 1 for the bias. P is not sent and not divided. This is tested with gloo,
    not with NCCL. FSDP is refused.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> optimizer = RLS(model, momentum=0.5, max_grad_norm=5.0)
    >>> model(torch.ones(8, 3)).square().mean().backward()
    >>> optimizer.step()
    """

    keeps_inputs = False  # whether every row of every input is needed

    def __init__(
        self,
        model: nn.Module,
        *,
        forgetting: float = 1.0,
        mean_weight: float = 0.1,
        lr: float | Tensor = 1.0,
        momentum: float = 0.0,
        l1: float = 0.0,
        weight_decay: float = 0.0,
        P0_scale: float = 1.0,
        max_grad_norm: float | None = None,
        layers: Iterable | None = None,
        on_failure: str = "raise",
        max_fan_in: int = 8192,
    ):
        model, group = unwrap(model)
        defaults = {
            "forgetting": forgetting,
            "mean_weight": mean_weight,
            "lr": lr,
            "momentum": momentum,
            "l1": l1,
            "weight_decay": weight_decay,
            "P0_scale": P0_scale,
            "time_steps": None,
        }
        own = {"on_failure": on_failure, "max_grad_norm": max_grad_norm}
        check_options(defaults | own, OPTIONS, "RLS")
        if group is not None and self.keeps_inputs:
            raise ValueError(
                f"{type(self).__name__} needs every row of the whole minibatch, but "
                "workers of a DistributedDataParallel share only means: train the bare "
                "model in one process"
            )
        owned = "cheaper" if max_grad_norm is not None and group is None else "never"
        residuals = "always" if self.keeps_inputs else owned
        groups, self.captures = [], []
        for name, module, options in choose_layers(model, layers):
            parameters = list(module.parameters())
            groups.append({"params": parameters, "layer": name, **options})
            T, shared = options.get("time_steps"), group is not None
            self.captures.append(Capture(name, module, T, residuals, shared))
        super().__init__(groups, defaults)
        self.model, self.process_group = model, group
        check_fan_in(self.blocks, max_fan_in)
        limit = max_grad_norm and float(max_grad_norm)  # never 0
        self.max_grad_norm, self.on_failure = limit, on_failure
        self.gradient_norm: Tensor | None = None  # (), of the last step, unclipped
        if any(group["forgetting"] < 1 for group in self.param_groups):
            warnings.warn(
                "with forgetting < 1, P grows without bound in directions that the "
                "inputs do not excite: keep runs short, use float64, or forgetting=1",
                stacklevel=2,
            )

    @property
    def blocks(self) -> list[Block]:
        """Return all blocks, layer by layer."""
        return [block for capture in self.captures for block in capture.blocks]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients and their inputs; ``model.zero_grad()`` leaves these."""
        super().zero_grad(set_to_none)
        for block in self.blocks:
            block.clear()

    def add_param_group(self, param_group: dict) -> None:
        """Raise ValueError: RLS chooses its layers when it is made."""
        if hasattr(self, "model"):
            raise ValueError(
                "RLS trains layers, not parameters: make it anew with layers=[...], or "
                "give the parameters to another optimizer through Hybrid"
            )
        super().add_param_group(param_group)

    @property
    def _step_supports_amp_scaling(self) -> bool:  # asked by torch.amp.GradScaler
        return any(capture.residuals != "never" for capture in self.captures)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Update every layer that a gradient has reached since the last step.

        A layer without a gradient does not change, and neither does one whose gradient
        was set to exactly 0, in place or by another tensor. RuntimeError, with the
        cause, if the inputs that belong to a gradient were not seen, or if a change of
        ``.grad`` would be lost; for NumericalError see the class.
        """
        loss = None
        if closure is not None:
            check_kind("closure", closure, Callable, "a function, or None")
            with torch.enable_grad():
                loss = closure()
        if scaled(self) and not unscale(self, self.blocks):
            return loss
        if steps := self.prepare():
            norm = joint_norm([each.gradient for each in steps])
            self.apply(steps, norm, clip_factor(norm, self.max_grad_norm))
        return loss

    @torch.no_grad()
    def pending(self) -> list[BlockStep]:
        """Return the steps that are due after the last passes, without a change.

        This is for instruments, between ``backward`` and ``step``. Blocks whose
        gradient has been set to zero since it came are left out. With several workers,
        each sees the mean inputs of its own rows here; :meth:`prepare` adds them up.
        """
        reached = self._reached(zeroed(self.blocks, self.process_group is None))
        return self._steps_of(reached, [block.inputs for block, _ in reached])

    @torch.no_grad()
    def prepare(self) -> list[BlockStep]:
        """Run the first half of ``step``: drop cleared passes, sum over workers.

        Returns the steps of :meth:`pending`, with the mean inputs of all workers.
        """
        zero = zeroed(self.blocks, self.process_group is None)
        for block in self.blocks:
            if block in zero and block.put_there():  # as torch makes a state by zeros
                pairs = zip(self.param_groups, self.captures, strict=True)
                group = next(group for group, c in pairs if block in c.blocks)
                self.state.setdefault(block.weight, self._first_state(block, group))
            if block in zero or block.cleared():
                block.clear()
        reached = self._reached(zero)
        inputs = [block.inputs for block, _ in reached]
        if self.process_group is not None and any(each.rows for each in inputs):
            inputs = pool([block for block, _ in reached], self.process_group)
        return self._steps_of(reached, inputs)

    def _reached(self, zero: list[Block]) -> list[tuple[Block, dict]]:
        """Return the blocks with a gradient, or factors of one, and their options."""
        check_time_steps(self.param_groups, self.captures)
        for capture in self.captures:
            if capture.replaced():
                reason = capture.unseen(capture.blocks[0])
                raise RuntimeError(f"layer {capture.name!r} cannot step: {reason}")
        alone = self.process_group is None
        return [
            (block, group)
            for group, capture in zip(self.param_groups, self.captures, strict=True)
            for block in capture.blocks
            if block not in zero
            and not block.cleared()
            and (
                block.weight.grad is not None
                or (alone and block.inputs.total is not None)
            )
        ]

    def _steps_of(self, reached, inputs) -> list[BlockStep]:
        """Return each block's step from the sums of its inputs, without a change."""
        if not reached:
            return []
        known = zip([block for block, _ in reached], inputs, strict=True)
        check_inputs(self.captures, known, self._on_cpu(reached[0][0].weight))
        totals, rows = [list(column) for column in zip(*inputs, strict=True)][:2]
        if any(isinstance(each, Tensor) for each in rows):
            pairs = zip(totals, rows, strict=True)
            rows = [torch.as_tensor(each).to(total) for total, each in pairs]
        means, steps = torch._foreach_div(totals, rows), []
        for (block, group), each, mean in zip(reached, inputs, means, strict=True):
            state = self.state.get(block.weight) or self._first_state(block, group)
            x_mean = block.x_mean(mean)
            unformed = block.weight.grad is None and block.residuals
            gradient = block.factors() if unformed else block.gradient()
            T = each.rows / each.sequences
            step = BlockStep(block, group, state, x_mean, T, gradient)
            steps.append(step._replace(gained=self.gain(step)))
        return steps

    def _first_state(self, block: Block, group: dict) -> dict:
        """Return the state of a block before its first step."""
        zero = torch.zeros((), dtype=block.dtype, device=block.weight.device)
        state = {name: zero.clone() for name in COUNTS}
        if block.weight.dtype != block.dtype:
            state["master"] = block.joined()
        if group["momentum"]:
            state["velocity"] = torch.zeros_like(zero).expand(block.shape).clone()
        return self.new_state(block, group["P0_scale"]) | state

    @torch.no_grad()
    @interrupt_held_back()
    def apply(self, steps: list[BlockStep], norm: Tensor, clip: Tensor | None) -> None:
        """Run the second half of ``step``: apply the steps of :meth:`prepare`.

        ``norm`` is the joint norm of the gradients, and ``clip`` their common factor.
        An interrupt (Ctrl-C) that comes meanwhile is raised at the end.
        """
        h = torch.stack([each.h for each in steps])
        if on_cpu := self._on_cpu(norm):  # raise before anything changes
            check_finite(steps, norm)
            sound = healthy(steps, h).tolist()
            if self.on_failure == "raise":
                check_healthy(steps, sound)
        for each in steps:
            self.state[each.block.weight] = each.state
        taken = self._decided(steps, sound) if on_cpu else self._masked(steps, norm, h)
        for each in taken:
            each.decay()
            self.update(each, each.velocity(), clip)
        self.gradient_norm = norm
        for block in self.blocks:
            block.clear()

    def _decided(self, steps, sound) -> list[BlockStep]:
        """Return the steps to take, on the CPU; reset each P that is not healthy."""
        for each, trusted in zip(steps, sound, strict=True):
            if not trusted:
                each.state.update(self.new_state(each.block, each.options["P0_scale"]))
                each.state["resets"] += 1
        taken = [each for each, trusted in zip(steps, sound, strict=True) if trusted]
        count(taken)
        return taken

    def _masked(self, steps, norm, h) -> list[BlockStep]:
        """Return all steps, on an accelerator, masked where they must not be taken."""
        count(steps)
        # nan where the norm is not finite
        fine = sound = healthy(steps, torch.add(h, norm, alpha=0))
        still = ~sound
        if self.on_failure == "reset":
            fine = (norm < torch.inf).expand_as(sound)
            for each, lost in zip(steps, still & fine, strict=True):
                fresh = self.new_state(each.block, each.options["P0_scale"])
                for key, start in fresh.items():
                    each.state[key].copy_(start.where(lost, each.state[key]))
                each.state["resets"] += lost
        note(steps, fine)
        there = zip(steps, still, h.masked_fill_(still, torch.inf), strict=True)
        return [each.masked(flag, h) for each, flag, h in there]

    def new_state(self, block: Block, P0_scale: float) -> dict:
        """Return what a block stores at first: P, a multiple of the identity."""
        n, device = block.fan_in, block.weight.device
        P = torch.eye(n, dtype=block.dtype, device=device).mul_(P0_scale)
        return {"P": P.expand(*block.batch, n, n).clone() if block.batch else P}

    def gain(self, each: BlockStep) -> tuple[Tensor, Tensor]:
        """Return the gain vector u and the normaliser h of a block or of its groups."""
        rule = each.chosen("forgetting", "mean_weight") | {"steps": each.time_steps}
        if each.block.groups == 1:
            return gain(each.state["P"], each.x_mean, **rule)
        parts = zip(each.state["P"], each.x_mean, strict=True)
        u, h = zip(*(gain(*part, **rule) for part in parts), strict=True)
        return torch.stack(u), torch.stack(h)

    def update(
        self, each: BlockStep, velocity: Tensor | None, clip: Tensor | None
    ) -> None:
        """Update weights and P of one block, with ``velocity`` if there is momentum."""
        with each.parameters() as theta:
            both, grouped = (theta, velocity), each.block.groups > 1
            for i, part in enumerate(each.by_group()):
                own = [t[i] if grouped and t is not None else t for t in both]
                rls_step(
                    own[0],
                    part.state["P"],
                    part.x_mean,
                    part.factor,
                    velocity=own[1],
                    gained=part.gained,
                    steps=part.time_steps,
                    **part.rate(clip),
                    **part.chosen("forgetting", "mean_weight", "momentum", "l1"),
                )

    @staticmethod
    def _on_cpu(value: Tensor) -> bool:
        """Return whether a value can be read without waiting for a device."""
        return value.device.type == "cpu"

    def check(self) -> None:
        """Raise NumericalError for a failure at any step; waits once for the device."""
        check_noted({block.name: self.state[block.weight] for block in self.blocks})

    def check_state_dict(self, state_dict: dict) -> dict[Block, Mapping]:
        """Return what a state dict holds of each block, or raise a ValueError."""
        check_keys(state_dict)
        groups, blocks = self.param_groups, self.blocks
        needed = [] if not blocks else [*self.new_state(blocks[0], 1.0), *COUNTS]
        return check_checkpoint(state_dict, groups, blocks, needed)

    def load_state_dict(self, state_dict: dict) -> None:
        """Restore a state dict from any device, on the device of the weights.

        Options that an older version lacked get their defaults. ValueError, and nothing
        is changed, if layers or shapes differ, or a tensor is missing.
        """
        with self.restoring(self.check_state_dict):
            super().load_state_dict(state_dict)

    def __setstate__(self, state: dict) -> None:
        if vars(self).get("_kept") is not None:  # torch would cast P to half precision
            own = {
                block.weight: restored(kept, block)
                for block, kept in self._kept.items()
            }
            state = state | {"state": defaultdict(dict, own)}
        super().__setstate__(state)
        for group in vars(self).get("param_groups", ()):
            for name in LAYER_OPTIONS:
                group.setdefault(name, self.defaults[name])

    def __deepcopy__(self, memo):
        """Copy the optimiser together with its model, which must be copied before."""
        if id(self.model) not in memo:
            raise TypeError(
                f"a copy of {type(self).__name__} alone would train nothing: copy the "
                "model with it, model, optimizer = copy.deepcopy((model, optimizer))"
            )
        new = memo[id(self)] = type(self).__new__(type(self))
        new.__setstate__(copy.deepcopy(super().__getstate__(), memo))
        vars(new).update({k: v for k, v in vars(self).items() if k not in vars(new)})
        new.model = memo[id(self.model)]
        new.gradient_norm = copy.deepcopy(self.gradient_norm, memo)
        new.captures = [each.of(memo[id(each.module)]) for each in self.captures]
        return new

    def close(self) -> None:
        """Remove the hooks from the model; the optimiser cannot train it afterwards."""
        for capture in self.captures:
            capture.close()

    @contextmanager
    def row_weights(self, weights: Tensor | None) -> Iterator[None]:
        r"""Weigh the rows of the inputs in the forward passes of a ``with`` block.

        Rows that have no part in the loss, such as padding, should have none in P. With
        a mask that is False there, a padded batch steps as one without padding.

        Parameters
        ----------
        weights : tensor of numbers >= 0 or bool, of the shape that the inputs of the
            layers have without their last dimension, such as (b, T), or (b,) for whole
            examples; None for 1 everywhere. Recurrent layers take (b, T) whatever their
            ``batch_first``. A layer behind a pooling, with inputs (b, n), counts all
            its rows. CONV layers take (b,) only.
        """
        if weights is not None:
            check_weights(weights)
            if self.keeps_inputs:
                raise ValueError(f"{type(self).__name__} takes every row as it is")
        before = [capture.weights for capture in self.captures]
        for capture in self.captures:
            capture.weights = weights
        try:
            yield
        finally:
            for capture, old in zip(self.captures, before, strict=True):
                capture.weights = old
