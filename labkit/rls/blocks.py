"""Hold a weight, its bias, and the sums of the backward passes since the last step.

``DistributedDataParallel`` averages the gradients over the workers, but not the mean
input of the minibatch, (31), (51), (72), (92). RLS adds only :func:`pool`, which sums
the inputs over the workers. P then changes in the same way on every worker and is never
sent.
"""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from labkit.collectives import sum_over
from labkit.layers import current_backward, working_dtype
from labkit.rls.update import Masked, Residuals, Theta, or_one

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class InputSum(NamedTuple):
    """The inputs of one block, summed over the rows."""

    total: Tensor | None = None  # (n - 1,), or (n,) without bias: sum over the rows
    rows: int | Tensor = 0  # samples x positions x time steps, or their weights' sum
    sequences: int | Tensor = 0  # rows that count as one: rows / sequences is T


NONE = InputSum()


@dataclass(eq=False)
class Block:
    """A weight with its bias, and what backward passes have stored since the last step.

    For a CONV layer with g groups, the group is the first dimension of all matrices:
    weight and bias are (g, N / g, n), and each group has its own P.
    """

    name: str  # of the module, with ".ih" or ".hh" for recurrent ones
    weight: nn.Parameter  # (N, ...)
    bias: nn.Parameter | None  # (N,)
    inputs_first: bool = False  # weight (n - 1 channels, N, ...), of ConvTranspose
    groups: int = 1
    inputs: InputSum = NONE  # added up over backward passes
    # (M, n - 1) inputs and (M, N) derivatives of the loss with respect to the linear
    # outputs, from the passes that did not form the weight gradient
    residuals: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    # the gradient that came with the inputs, and its version at that time
    seen_gradient: tuple[Tensor, int] | None = None
    arrived: bool = False  # whether a backward pass has reached the parameters
    missed: bool = False  # whether the gradient has a part of a pass in evaluation mode
    # inputs and residuals of backward passes whose gradients are not there yet, by pass
    under_way: dict[int, list] = field(default_factory=dict)

    def listen(self) -> list:
        """Register hooks that note arriving gradients, and return their handles."""
        link = weakref.ref(self)

        def arrived(parameter):
            if (block := link()) is not None:
                block.arrive(parameter)

        return [
            parameter.register_post_accumulate_grad_hook(arrived)
            for parameter in (self.weight, self.bias)
            if parameter is not None and parameter.requires_grad
        ]

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of P and of all sums: the weight's, but at least float32."""
        return working_dtype(self.weight)

    @property
    def batch(self) -> tuple[int, ...]:
        """Return the leading dimensions of the matrices: (g,) for g > 1, else ()."""
        return (self.groups,) if self.groups > 1 else ()

    @property
    def apart(self) -> bool:
        """Return whether a step changes a copy that is then written to the weight."""
        return self.groups > 1 or self.weight.dtype != self.dtype

    @property
    def units(self) -> int:
        """Return the number N of units of all groups."""
        if self.inputs_first:
            return self.weight.shape[1] * self.groups
        return len(self.weight)

    @property
    def n_inputs(self) -> int:
        """Return the number of inputs of one unit, without the 1 for the bias."""
        return self.weight.numel() // self.units

    @property
    def fan_in(self) -> int:
        """Return the side n of P: the number of inputs, plus 1 if there is a bias."""
        return self.n_inputs + (self.bias is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the joint shape of weight and bias, (N, n) or (g, N / g, n)."""
        return (*self.batch, self.units // self.groups, self.fan_in)

    @property
    def theta(self) -> Theta:
        """Return weight and bias as one matrix (N, n) without a copy, for one group."""
        return Theta(self._by_units(self.weight), self.bias)

    def joined(self) -> Tensor:
        """Return a copy of weight and bias as one matrix."""
        return self._join(self.weight.detach(), self.bias)

    def write(self, theta: Tensor) -> None:
        """Copy a matrix into the weight and the bias, in their dtype."""
        own, n = self._by_units(self.weight), self.n_inputs
        own.copy_(theta[..., :n].reshape(own.shape))
        if self.bias is not None:
            self.bias.copy_(theta[..., n].flatten())

    def _join(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        columns = [self._by_units(weight).flatten(len(self.batch) + 1)]
        if bias is not None:
            columns.append(bias.reshape(*self.shape[:-1], 1))
        return torch.cat(columns, -1).to(self.dtype)

    def _by_units(self, weight: Tensor) -> Tensor:
        """Return a view of a tensor like the weight with one row per unit."""
        if self.groups > 1:
            weight = weight.unflatten(0, (self.groups, -1))
        first = len(self.batch)
        return weight.transpose(first, first + 1) if self.inputs_first else weight

    def witness(self) -> nn.Parameter:
        """Return the parameter whose gradient says whether the inputs still count."""
        return self.weight if self.bias is None else self.bias

    def cleared(self) -> bool:
        """Return whether the gradient that came with the inputs has been cleared since.

        For example, ``model.zero_grad()`` clears it after a step that was skipped.
        """
        return self.seen_gradient is not None and self.witness().grad is None

    def touched(self) -> bool:
        """Return whether that gradient was changed or replaced since it came."""
        if (grad := self.witness().grad) is None or self.seen_gradient is None:
            return False
        then, version = self.seen_gradient
        return grad is not then or grad._version != version

    def put_there(self) -> bool:
        """Return whether there is a gradient that no backward pass has computed."""
        grads = [p.grad for p in (self.weight, self.bias) if p is not None]
        return not (self.arrived or self.missed) and any(g is not None for g in grads)

    def some_left(self) -> Tensor:
        """Return whether any gradient has a nonzero entry, as a () bool tensor."""
        own = [p.grad for p in (self.weight, self.bias) if p is not None]
        return torch.stack([grad.any() for grad in own if grad is not None]).any()

    def see(self, inputs: InputSum | None, *factors: Tensor) -> None:
        """Store what a backward pass brings: inputs, None if unread, and residuals.

        They count as soon as the gradient is there, and as long as it is. Those whose
        gradient has been cleared are forgotten.
        """
        if self.cleared() or zeroed([self]):
            self._forget()
        backward = current_backward()
        self.under_way.setdefault(backward, []).append((inputs, factors))

    def arrive(self, parameter: nn.Parameter) -> None:
        """Count the inputs and residuals of the gradient that has now arrived."""
        self.arrived = True
        backward = current_backward()
        for inputs, factors in self.under_way.pop(backward, ()):
            self.missed |= inputs is None
            if inputs is not None and self.inputs.total is not None:
                both = zip(self.inputs, inputs, strict=True)
                inputs = InputSum(*(a + b for a, b in both))
            self.inputs = inputs or self.inputs
            self.residuals += [factors] if factors else []
        known = self.inputs.total is not None or self.missed
        if parameter is self.witness() and known:
            self.note_gradient()

    def note_gradient(self) -> None:
        """Remember the gradient as it is now, so that a later change is noticed."""
        grad = self.witness().grad
        self.seen_gradient = None if grad is None else (grad, grad._version)

    def clear(self) -> None:
        """Forget all passes."""
        self._forget()
        self.under_way.clear()

    def _forget(self):
        self.inputs, self.seen_gradient = NONE, None
        self.arrived = self.missed = False
        self.residuals.clear()

    def gradient(self) -> Tensor:
        """Return the gradient of weight and bias, (N, n), as a new tensor."""
        own = [p for p in (self.weight, self.bias) if p is not None]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        G = self._join(*grads, *[None] * (2 - len(grads)))
        n = self.n_inputs
        for X, dZ in self.residuals:
            G[:, :n].addmm_(dZ.T, X)  # that of the bias has been formed
        return G

    def factors(self) -> Residuals:
        """Return the gradient as its factors, if all passes have left residuals."""
        X, dZ = self.residuals[0]
        if len(self.residuals) > 1:
            X, dZ = map(torch.cat, zip(*self.residuals, strict=True))
        return Residuals(dZ, X, self.bias is not None)

    def x_mean(self, mean: Tensor) -> Tensor:
        """Return the mean input (n,) or (g, n), with a 1 for the bias."""
        return self.with_ones(mean.to(self.dtype).view(*self.batch, self.n_inputs))

    def with_ones(self, inputs: Tensor) -> Tensor:
        """Return inputs (..., n - 1), with a last 1 added if there is a bias."""
        if self.bias is None:
            return inputs
        return nn.functional.pad(inputs, (0, 1), value=1)


def zeroed(blocks: Sequence[Block], alone: bool = False) -> list[Block]:
    """Return the blocks whose gradient was set to exactly 0 since it came.

    For example, ``model.zero_grad(set_to_none=False)`` does so, or a user by hand. With
    ``alone``, blocks count also if no inputs came with the gradient. The function waits
    for an accelerator only if gradients were changed, for instance by clipping.
    """
    touched = [b for b in blocks if b.touched() or (alone and b.put_there())]
    if not touched:
        return []
    some = torch.stack([block.some_left() for block in touched]).tolist()
    return [block for block, left in zip(touched, some, strict=True) if not left]


def pool(blocks: Sequence[Block], group: "ProcessGroup") -> list[InputSum]:
    r"""Sum the inputs of each block over all workers by one all-reduce.

    The rows of all workers weigh the same, however many each worker has, so x_mean is
    the mean over the whole minibatch. A block that no row has reached on this worker
    adds 0. ``rows`` and ``sequences`` are () tensors, so nothing waits for the device.
    Payload:
    $\sum (n' + 2)$ numbers, n' the inputs of a block without the 1 for the bias.
    """
    pieces = []
    for block in blocks:
        total, *counts = block.inputs
        if total is None:
            n = block.groups * block.n_inputs
            total = block.weight.new_zeros(n, dtype=block.dtype)
        pieces += [total, *(torch.as_tensor(count).to(total) for count in counts)]
    sums = sum_over(pieces, group)
    return [InputSum(*sums[i : i + 3]) for i in range(0, len(sums), 3)]


class BlockStep(NamedTuple):
    """A step of one block that is computed but not yet applied."""

    block: Block
    options: Mapping[str, Any]  # the parameter group
    state: dict  # what the optimiser keeps of the block, from this step on
    x_mean: Tensor  # (n,)
    time_steps: float | Tensor  # T, () if there are several workers
    gradient: Tensor | Residuals  # (N, n)
    gained: tuple[Tensor, Tensor] | None = None  # u and h, of `gain`
    still: Tensor | None = None  # () bool on an accelerator: whether nothing changes

    def masked(self, still: Tensor, h: Tensor) -> "BlockStep":
        """Return the same step, which changes nothing where ``still`` is True.

        ``h`` is inf there. An accelerator can thus decide without the host, and the
        step needs no mask because all of its arguments are masked.
        """
        u, like = self.gained[0], h
        options = dict(self.options)
        if self.gained[1].ndim:
            h = self.gained[1].masked_fill(still, torch.inf)
        options["forgetting"] = or_one(options["forgetting"], still, like)
        if options["momentum"]:
            options["momentum"] = or_one(options["momentum"], still, like)
        u = None if u is None else u.masked_fill(still, 0)
        return self._replace(options=options, gained=(u, h), still=still)

    @contextmanager
    def parameters(self) -> Iterator[Theta | Tensor]:
        """Yield weight and bias as one matrix to change: (N, n), or (g, N / g, n).

        Nothing changes where ``still`` is True. For half precision, the matrix is the
        copy in single precision in the state, unless the weights were changed since.
        """
        block, still = self.block, self.still
        if not block.apart:
            yield block.theta._replace(still=still)
            return
        theta = before = block.joined()
        if "master" in self.state:
            master = self.state["master"]
            unchanged = master.to(block.weight.dtype).to(block.dtype) == before
            theta = master.copy_(master.where(unchanged, before))
        before = theta.clone() if still is not None else None
        yield theta
        if still is not None:
            theta.copy_(before.where(still, theta))
        block.write(theta)

    def decay(self) -> None:
        """Multiply weights and biases by 1 - lr * weight_decay."""
        if self.options["weight_decay"]:
            with self.parameters() as theta:
                theta.mul_(1 - self.options["lr"] * self.options["weight_decay"])

    def velocity(self) -> Tensor | None:
        """Return the velocity (N, n), at first 0, or None if there is no momentum."""
        momentum = self.options["momentum"]  # a tensor where the step may be masked
        if not isinstance(momentum, Tensor) and not momentum:
            self.state.pop("velocity", None)
            return None
        if "velocity" not in self.state:
            self.state["velocity"] = self.x_mean.new_zeros(self.block.shape)
        return self.state["velocity"]

    @property
    def factor(self) -> Tensor | Residuals | Masked:
        """Return the gradient to multiply by P, masked if the step may be skipped."""
        if self.still is None:
            return self.gradient
        return Masked(self.gradient, self.still)

    @property
    def h(self) -> Tensor:
        """Return the normaliser of (39), (), the smallest one if there are groups."""
        h = self.gained[1]
        return h.amin() if h.ndim else h

    @property
    def number(self) -> int:
        """Return the number of this step, from 1; waits for an accelerator."""
        return int(self.state["step"]) + 1

    def rate(self, clip: Tensor | None) -> dict[str, Any]:
        """Return the options ``lr`` and ``clip`` of the step.

        A rate that is a tensor is multiplied into the clip, so that the host never
        reads it.
        """
        lr = self.options["lr"]
        if not isinstance(lr, Tensor):
            return {"lr": lr, "clip": clip}
        lr = lr.detach().to(self.x_mean)
        return {"lr": 1.0, "clip": lr if clip is None else lr * clip}

    def by_group(self) -> Iterator["BlockStep"]:
        """Yield the step of each group, on views of its part."""
        if self.block.groups == 1:
            yield self
            return
        for i in range(self.block.groups):
            state = {
                name: value[i] if value.ndim else value
                for name, value in self.state.items()
            }
            gained = tuple(part[i] for part in self.gained or ())
            yield self._replace(
                state=state,
                x_mean=self.x_mean[i],
                gradient=self.gradient[i],
                gained=gained or None,
            )

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return the options with these names."""
        return {name: self.options[name] for name in names}


def joint_norm(gradients: Sequence[Tensor | Residuals]) -> Tensor:
    """Compute the Frobenius norm of all gradients together, ().

    ValueError if they are on several devices.
    """
    formed = [each for each in gradients if isinstance(each, Tensor)]
    norms = list(torch._foreach_norm(formed)) if formed else []
    norms += [each.norm() for each in gradients if isinstance(each, Residuals)]
    if len(devices := {norm.device for norm in norms}) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise ValueError(f"RLS steps on one device, and there are gradients on {names}")
    return torch.linalg.vector_norm(torch.stack(norms))
