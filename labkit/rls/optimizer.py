"""Implement RLS as a torch optimiser (Algorithms 1 and 2 of the paper)."""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from labkit.check import check_options
from labkit.precision import outside_modes
from labkit.rls.block_step import BlockStep, NumericalError
from labkit.rls.capture import Block, Capture, blocks_of
from labkit.rls.checks import OPTIONS, check_fan_in, check_model, choose_layers
from labkit.rls.update import clip_factor, gain, joint_norm, rls_step


class RLS(torch.optim.Optimizer):
    r"""Implement recursive least squares for FC, CONV, RNN and LSTM layers.

    RLS is gradient descent whose step size is a matrix for each layer (for each of the
    two blocks of a recurrent layer): P, the inverse autocorrelation of its mean inputs.
    :func:`rls_step` computes the step and documents the equations; this class keeps the
    state. Zhang et al. 2021, Algorithms 1 and 2. ValueError if an option is out of
    range, a layer does not exist or cannot be trained, or a parameter would be left
    out.

    Parameters
    ----------
    model : nn.Module
        Forward hooks read the inputs of its layers until :meth:`close`, another RLS on
        the same layer, or the end of this object. Frozen layers are left out.
    lr : float or tensor of one number
        $\eta$ >= 0, step factor of all layers; in the theory it is 1 for the last. The
        host never reads a tensor.
    forgetting : float
        $\lambda$ in (0, 1]. Below 1, P grows without bound in every direction that the
        inputs do not excite.
    mean_weight : float
        $k$ > 0, weight of a minibatch's mean in P, relative to ``P0_scale``.
    momentum : float, $\alpha$ in [0, 1); RLS+M has 0.5, which doubles the step.
    l1 : float, $\gamma$ >= 0; RLS+R has 1e-5, for LSTMs 1e-6. With biases, as printed.
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
    workers : optional, such as ``labkit.scale.workers()``; see the notes.

    Notes
    -----
    A step takes what autograd has left in ``.grad``, and for a layer whose weight
    gradient is not formed the factors of it besides. Their sum is what is clipped.

    The scale of the inputs matters. The step of a layer is its gradient times P, which
    starts as the identity and shrinks only along the mean input, so from many starts
    ``lr=1`` diverges for a large spread. Scale the inputs to a standard deviation of
    about 1, or give ``max_grad_norm``.

    All rows that go through a layer enter P, also those without a loss, such as
    padding. Pack the others before it: ``layer(x[mask])`` for inputs (b, T, n) and a
    mask (b, T) that is False there.

    The layers are Linear, Conv1d to Conv3d without groups, RNN and LSTM (one layer, one
    direction), and subclasses that keep the forward. Parameters are in float32 or
    float64, and stay so under ``torch.autocast``.

    On the CPU ``step`` raises NumericalError if a gradient is not finite or a P is not
    healthy, and then has changed nothing. On an accelerator it never waits for the
    device: a block that failed is not changed, and :meth:`check` raises. An interrupt
    (Ctrl-C) that comes while weights change may leave some layers with the step taken.

    The state of a block, in ``state[weight]``, is ``P`` (n, n), ``velocity`` (N, n) if
    there is momentum, and ``h``, ``step``, ``resets`` (). Each layer is one parameter
    group.

    The multiply-adds of a block with M rows, N units and n inputs are M n (n + N)
    instead of the weight gradient's M n N, or n^2 N in addition to them, whichever is
    chosen above; n^2 for P, and n^2 N again with ``l1``. float32 is enough for lambda =
    1, and float64 is advised below.

    With ``workers``, every worker trains the bare model on rows of its own and begins
    with the weights of the first one. One sum a step, of the gradients and the inputs'
    sums, makes all of them step as one process with all rows, to rounding, and equal to
    the last bit, so failures and resets happen on all at once. Gradients are averaged;
    for unequal shares each worker scales its loss by $p M_r / M$, M_r its own rows of M
    on p workers. P is not sent and not divided. A model that is wrapped in
    DistributedDataParallel after ``RLS(model)`` without ``workers`` is not noticed:
    each worker's P then follows its own rows only, and the weights drift apart.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> optimizer = RLS(model, momentum=0.5, max_grad_norm=5.0)
    >>> model(torch.ones(8, 3)).square().mean().backward()
    >>> optimizer.step()
    """

    forms_gradients = False  # whether the gradient itself is always needed

    def __init__(
        self,
        model: nn.Module,
        lr: float | Tensor = 1.0,
        *,
        forgetting: float = 1.0,
        mean_weight: float = 0.1,
        momentum: float = 0.0,
        l1: float = 0.0,
        P0_scale: float = 1.0,
        max_grad_norm: float | None = None,
        layers: Iterable | None = None,
        on_failure: str = "raise",
        max_fan_in: int = 8192,
        workers: Any = None,
    ):
        check_model(model)
        defaults = {
            "forgetting": forgetting,
            "mean_weight": mean_weight,
            "lr": lr,
            "momentum": momentum,
            "l1": l1,
            "P0_scale": P0_scale,
        }
        own = {"on_failure": on_failure, "max_grad_norm": max_grad_norm}
        own["max_fan_in"] = max_fan_in
        check_options(defaults | own, OPTIONS, "RLS")
        alone = workers is None and not self.forms_gradients
        unformed = alone and max_grad_norm is not None
        groups, self.captures, chosen = [], [], choose_layers(model, layers)
        for name, module, _ in chosen:  # before an earlier RLS loses its hooks
            for block in blocks_of(name, module):
                size = block.weight.dtype.itemsize
                check_fan_in(block.name, block.fan_in, size, max_fan_in)
        for name, module, options in chosen:
            T = options.pop("time_steps", None)
            self.captures.append(Capture(name, module, T, unformed))
            parameters = list(module.parameters())
            groups.append({"params": parameters, "layer": name, **options})
        super().__init__(groups, defaults)
        self.model, self.workers, self.on_failure = model, workers, on_failure
        self.max_grad_norm = max_grad_norm
        self.other = None  # the other optimizer of a `Hybrid`
        self.gradient_norm = None  # (), of the last step, unclipped
        if workers is not None:
            with torch.no_grad():
                for each in [*model.parameters(), *model.buffers()]:
                    each.copy_(workers.first(each))
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

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Note that a GradScaler, which asks here, changes gradients without a mark."""
        for capture in self.captures:
            capture.changed = True
        return False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients and their inputs."""
        super().zero_grad(set_to_none)
        for capture in self.captures:
            capture.forget()

    def add_param_group(self, param_group: dict) -> None:
        """Raise ValueError: RLS chooses its layers when it is made."""
        if hasattr(self, "model"):
            raise ValueError(
                "RLS trains layers, not parameters: make it anew with layers=[...], or "
                "give the parameters to another optimizer through Hybrid"
            )
        super().add_param_group(param_group)

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Update every layer that a gradient has reached since the last step.

        A layer without a gradient does not change, and neither does one that got no
        rows. RuntimeError, with the cause, if the inputs that belong to a gradient were
        not seen, or if a change of ``.grad`` would be lost; for NumericalError see the
        class.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad(), outside_modes():
            grads = self._gradients()
            if self.workers is not None:
                grads = self._summed(grads)
            steps = self._steps(grads)
            others = {p: grads[p] for p in self._others() if grads[p] is not None}
            if not (steps or others):
                return loss
            norm = joint_norm([each.gradient for each in steps] + [*others.values()])
            self._check_on_cpu(steps, norm)
            limit = math.inf if self.max_grad_norm is None else self.max_grad_norm
            clip = clip_factor(norm, limit)
            finite, known = norm < math.inf, self._on_cpu(norm)
            for each in steps:
                self.state[each.block.weight] = each.state
                taken, number = finite & each.sound, each.state["step"] + 1
                if not known or taken:
                    kept = each.block.tensors() | each.state
                    new = (
                        kept
                        if known
                        else {name: value.clone() for name, value in kept.items()}
                    )
                    theta = Block(each.block.name, new["weight"], new.get("bias"))
                    self.advance(each, theta, new, clip)
                    new["step"].copy_(number)
                    new["h"].copy_(each.h)
                    for name, value in () if known else kept.items():
                        value.copy_(torch.where(taken, new[name], value))
                if not known or not taken:
                    self._note(each, ~taken & (each.rows > 0), finite, number)
            for p, g in others.items():
                p.grad = g.mul_(clip).masked_fill_(~finite, 0)
            if self.other is not None:
                self.other.step()
            self.gradient_norm = norm
            for capture in self.captures:
                capture.forget()
        return loss

    def advance(self, each: BlockStep, theta: Block, state: dict, clip: Tensor) -> None:
        """Take the step of one block: what is given of it changes in place."""
        options = each.options
        rls_step(
            theta,
            state["P"],
            each.x_mean,
            each.gradient,
            velocity=state.get("velocity"),
            forgetting=options["forgetting"],
            mean_weight=options["mean_weight"],
            lr=options["lr"],
            momentum=options["momentum"],
            l1=options["l1"],
            steps=each.time_steps,
            clip=clip,
        )

    def gain(
        self, block: Block, options: Mapping, state: dict, x_mean: Tensor, T: Tensor
    ) -> Tensor:
        """Return the normaliser h of a block."""
        forgetting, k = options["forgetting"], options["mean_weight"]
        _, h = gain(state["P"], x_mean, forgetting=forgetting, mean_weight=k, steps=T)
        return h

    def new_state(self, block: Block, P0_scale: float) -> dict:
        """Return what a block stores at first: P, a multiple of the identity."""
        like = block.weight
        P = torch.eye(block.fan_in, dtype=like.dtype, device=like.device)
        return {"P": P.mul_(P0_scale)}

    def pending(self) -> list[BlockStep]:
        """Return the steps that are due after the last passes, without a change.

        This is for instruments, between ``backward`` and ``step``. With several
        workers, each sees its own gradients and inputs here.
        """
        with torch.no_grad():
            return self._steps(self._gradients())

    def check(self) -> None:
        """Raise NumericalError for a failure at any step; waits once for the device."""
        known = [block for block in self.blocks if block.weight in self.state]
        noted = [self.state[block.weight]["failed_at"] for block in known]
        first = torch.stack(noted).tolist() if noted else []
        failed = [
            (step, block.name) for step, block in zip(first, known, strict=True) if step
        ]
        if failed:
            step, name = min(failed)
            what = "h is not finite or below forgetting, or a gradient is not finite"
            advice = "the block was left as it was"
            raise NumericalError(name, int(step), what, None, advice)

    def close(self) -> None:
        """Remove the hooks from the model; the optimiser cannot train it afterwards."""
        for capture in self.captures:
            capture.close()

    def _others(self) -> list[Tensor]:
        """Return the parameters of the other optimiser of a hybrid."""
        groups = [] if self.other is None else self.other.param_groups
        return [p for group in groups for p in group["params"]]

    def _gradients(self) -> dict[Tensor, Tensor | None]:
        """Return what autograd has left, of each layer's inputs and parameters."""
        for capture in self.captures:
            capture.refresh()
        keys = [
            each
            for capture in self.captures
            for each in (capture.leaf, *capture.own.values())
        ]
        return {each: each.grad for each in keys + self._others()}

    def _summed(self, grads: dict) -> dict[Tensor, Tensor | None]:
        """Sum inputs, and average gradients, over the workers, by one call.

        Each worker sends the same list, with zeros for what its rows did not reach, and
        whether they did; so all decide alike.
        """
        present = [float(grad is not None) for grad in grads.values()]
        filled = [
            torch.zeros_like(each) if grad is None else grad
            for each, grad in grads.items()
        ]
        flags = filled[0].new_tensor(present)
        *sums, flags = self.workers.sum([*filled, flags])
        shares = {capture.leaf: 1 for capture in self.captures}  # inputs are summed
        return {
            each: total / shares.get(each, self.workers.size) if flag else None
            for each, total, flag in zip(grads, sums, flags.tolist(), strict=True)
        }

    def _steps(self, grads: dict[Tensor, Tensor | None]) -> list[BlockStep]:
        """Return each block's step from gradients and sums of inputs."""
        steps = []
        for options, capture in zip(self.param_groups, self.captures, strict=True):
            if not capture.reached(grads):
                continue
            sums = grads[capture.leaf]
            rows, T = sums[-2], sums[-2] / sums[-1]
            for block, x_mean in zip(capture.blocks, capture.means(sums), strict=True):
                state = self._state_of(block, options)
                h = self.gain(block, options, state, x_mean, T)
                G = capture.gradient(block, grads)
                steps.append(
                    BlockStep(
                        block=block,
                        options=options,
                        state=state,
                        x_mean=x_mean,
                        rows=rows,
                        time_steps=T,
                        gradient=G,
                        h=h,
                    )
                )
        return steps

    def _state_of(self, block: Block, options: Mapping) -> dict:
        """Return a block's state as the next step finds it."""
        state = dict(self.state.get(block.weight, {}))
        if "step" not in state:
            zero = block.weight.new_zeros(())
            names = ("step", "h", "resets", "failed_at")
            state |= {name: zero.clone() for name in names}
            state |= self.new_state(block, options["P0_scale"])
        if not options["momentum"]:
            state.pop("velocity", None)
        elif "velocity" not in state:
            state["velocity"] = torch.zeros_like(block.joined(block.weight, block.bias))
        return state

    def _note(
        self, each: BlockStep, failed: Tensor, finite: Tensor, number: Tensor
    ) -> None:
        """Start a lost P again, or note the number of the first step that failed."""
        state = each.state
        if self.on_failure == "reset":
            lost, failed = failed & finite, failed & ~finite
            fresh = self.new_state(each.block, each.options["P0_scale"])
            for name, start in fresh.items():
                state[name].copy_(torch.where(lost, start, state[name]))
            state["resets"] += lost
        state["failed_at"] += number * (failed & (state["failed_at"] == 0))

    def _check_on_cpu(self, steps: list[BlockStep], norm: Tensor) -> None:
        """Raise NumericalError where the failure of a step can be read at once."""
        if not self._on_cpu(norm):
            return
        if not norm < math.inf:
            lost = [
                each for each in steps if not joint_norm([each.gradient]) < math.inf
            ]
            name = f"(those of {type(self.other).__name__})"
            name = lost[0].block.name if lost else name
            number = int(steps[0].state["step"]) + 1 if steps else 0
            what = "the gradient's norm"
            advice = "nothing was changed; lower lr or clip by max_grad_norm"
            raise NumericalError(name, number, what, float(norm), advice)
        for each in steps if self.on_failure == "raise" else ():
            if each.rows > 0 and not each.sound:
                forgetting, value = each.options["forgetting"], float(each.h)
                what = f"h, which must be at least forgetting = {forgetting},"
                if forgetting <= value < math.inf:
                    what = "the trace of P, wound up by forgetting < 1,"
                    value = float(each.state["P"].trace())
                advice = "start P again by on_failure='reset', or take forgetting=1"
                number = int(each.state["step"]) + 1
                raise NumericalError(each.block.name, number, what, value, advice)

    def __setstate__(self, state: dict) -> None:
        """Take over what a state dict holds; ValueError if it is of other layers."""
        names = [group.get("layer") for group in state["param_groups"]]
        own = [group["layer"] for group in self.param_groups]
        if names != own:
            raise ValueError(f"this checkpoint is of layers {names}, not {own}")
        options = {p: group for group in self.param_groups for p in group["params"]}
        for block in self.blocks:
            kept = state["state"].get(block.weight)
            if not kept:
                continue
            wanted = self._state_of(block, options[block.weight] | {"momentum": 0.5})
            for name, value in wanted.items():
                found = torch.as_tensor(kept.get(name, value)).to(value, copy=True)
                if found.shape != value.shape:
                    raise ValueError(
                        f"{name} of layer {block.name!r} has shape "
                        f"{tuple(found.shape)} in this checkpoint, and the layer needs "
                        f"{tuple(value.shape)}: it is of another network"
                    )
                if name in kept:
                    kept[name] = found
        super().__setstate__(state)

    def __reduce_ex__(self, protocol):
        raise TypeError(
            f"{type(self).__name__} reads its model by hooks, which cannot be copied "
            "or pickled: make both anew, and load the state_dict() of each"
        )

    @staticmethod
    def _on_cpu(value: Tensor) -> bool:
        """Return whether a value can be read without waiting for a device."""
        return value.device.type == "cpu"
