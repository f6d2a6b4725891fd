"""A weight, its bias, and what backward passes have left since the last step.

``DistributedDataParallel`` averages the gradients over the workers. What it knows
nothing of is the mean input of the whole minibatch, (31), (51), (72), (92): its sum
over the workers, :func:`pool`, is all that RLS adds. P then changes in the same way
everywhere and is never sent.
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
    """Inputs of one block, summed over rows."""

    total: Tensor | None = None  # (n - 1,), or (n,) without bias: sum over the rows
    rows: int | Tensor = 0  # samples x positions x time steps, or their weights' sum
    sequences: int | Tensor = 0  # rows that count as one: rows / sequences is T


NONE = InputSum()


@dataclass(eq=False)
class Block:
    """A weight with its bias, and what passes have left since the last step.

    With g groups of a CONV layer, all matrices have the groups before their own
    dimensions: weight and bias are (g, N / g, n), and each group has its own P.
    """

    name: str  # of the module, with ".ih" or ".hh" for recurrent ones
    weight: nn.Parameter  # (N, ...)
    bias: nn.Parameter | None  # (N,)
    inputs_first: bool = False  # weight (n - 1 channels, N, ...), of ConvTranspose
    groups: int = 1
    inputs: InputSum = NONE  # added up over backward passes
    # (M, n - 1) inputs and (M, N) derivatives of the loss by the linear outputs, of
    # passes whose weight gradient was not formed
    residuals: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    # the gradient that came with the inputs, and its version then
    seen_gradient: tuple[Tensor, int] | None = None
    arrived: bool = False  # whether a backward pass has reached the parameters
    missed: bool = False  # whether the gradient has a part of a pass in evaluation mode
    # what backward passes bring before their gradients are there, by the pass
    under_way: dict[int, list] = field(default_factory=dict)

    def listen(self) -> list:
        """Hear which gradients arrive, from now on; returns handles to end it."""
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
        """That of P and of all sums: of the weight, at least float32."""
        return working_dtype(self.weight)

    @property
    def batch(self) -> tuple[int, ...]:
        """Dimensions before those of a matrix: the groups, if there are several."""
        return (self.groups,) if self.groups > 1 else ()

    @property
    def apart(self) -> bool:
        """Whether a step changes a matrix of its own, which is then written back."""
        return self.groups > 1 or self.weight.dtype != self.dtype

    @property
    def units(self) -> int:
        """N, of all groups."""
        if self.inputs_first:
            return self.weight.shape[1] * self.groups
        return len(self.weight)

    @property
    def n_inputs(self) -> int:
        """Numbers that one unit sees, without the one for the bias."""
        return self.weight.numel() // self.units

    @property
    def fan_in(self) -> int:
        """Side n of P: inputs, and one for the bias."""
        return self.n_inputs + (self.bias is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of weight and bias as one matrix, (N, n) or (g, N / g, n)."""
        return (*self.batch, self.units // self.groups, self.fan_in)

    @property
    def theta(self) -> Theta:
        """Weight and bias as one matrix (N, n), without a copy: one group only."""
        return Theta(self._by_units(self.weight), self.bias)

    def joined(self) -> Tensor:
        """A copy of weight and bias as one matrix."""
        return self._join(self.weight.detach(), self.bias)

    def write(self, theta: Tensor) -> None:
        """Put a matrix into weight and bias, in their dtype."""
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
        """A tensor like the weight, one row per unit; a view."""
        if self.groups > 1:
            weight = weight.unflatten(0, (self.groups, -1))
        first = len(self.batch)
        return weight.transpose(first, first + 1) if self.inputs_first else weight

    def witness(self) -> nn.Parameter:
        """The parameter whose gradient says whether the inputs still count."""
        return self.weight if self.bias is None else self.bias

    def cleared(self) -> bool:
        """Whether the gradient that came with the inputs has been cleared since.

        By ``model.zero_grad()``, say, after a step that was skipped.
        """
        return self.seen_gradient is not None and self.witness().grad is None

    def touched(self) -> bool:
        """Whether that gradient was changed since it came, or another put there."""
        if (grad := self.witness().grad) is None or self.seen_gradient is None:
            return False
        then, version = self.seen_gradient
        return grad is not then or grad._version != version

    def put_there(self) -> bool:
        """Whether there is a gradient that came without a backward pass."""
        grads = [p.grad for p in (self.weight, self.bias) if p is not None]
        return not (self.arrived or self.missed) and any(g is not None for g in grads)

    def some_left(self) -> Tensor:
        """Whether any gradient that is there has an entry other than 0, () bool."""
        own = [p.grad for p in (self.weight, self.bias) if p is not None]
        return torch.stack([grad.any() for grad in own if grad is not None]).any()

    def see(self, inputs: InputSum | None, *factors: Tensor) -> None:
        """Take what a backward pass brings: inputs, None if not read, and residuals.

        They count once the gradient is there, and with it; what came with one that has
        been cleared is forgotten.
        """
        if self.cleared() or zeroed([self]):
            self._forget()
        backward = current_backward()
        self.under_way.setdefault(backward, []).append((inputs, factors))

    def arrive(self, parameter: nn.Parameter) -> None:
        """Count what has brought the gradient that is now there."""
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
        """Remember the gradient as it is now, to tell later whether it was changed."""
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
        """(N, n): gradient by weight and bias, a new tensor."""
        own = [p for p in (self.weight, self.bias) if p is not None]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        G = self._join(*grads, *[None] * (2 - len(grads)))
        n = self.n_inputs
        for X, dZ in self.residuals:
            G[:, :n].addmm_(dZ.T, X)  # that of the bias has been formed
        return G

    def factors(self) -> Residuals:
        """The gradient of passes that all left residuals; no ones in X."""
        X, dZ = self.residuals[0]
        if len(self.residuals) > 1:
            X, dZ = map(torch.cat, zip(*self.residuals, strict=True))
        return Residuals(dZ, X, self.bias is not None)

    def x_mean(self, mean: Tensor) -> Tensor:
        """Mean input (n,), or (g, n), from that of all groups without the bias."""
        return self.with_ones(mean.to(self.dtype).view(*self.batch, self.n_inputs))

    def with_ones(self, inputs: Tensor) -> Tensor:
        """Inputs (..., n - 1) with a last 1 if there is a bias."""
        if self.bias is None:
            return inputs
        return nn.functional.pad(inputs, (0, 1), value=1)


def zeroed(blocks: Sequence[Block], alone: bool = False) -> list[Block]:
    """Those whose gradient was changed since it came and is exactly 0 now.

    By ``model.zero_grad(set_to_none=False)``, say, or by zeros put there by hand; if
    ``alone``, also where no inputs came with it. Waits for an accelerator where
    gradients were changed, by clipping for instance.
    """
    touched = [b for b in blocks if b.touched() or (alone and b.put_there())]
    if not touched:
        return []
    some = torch.stack([block.some_left() for block in touched]).tolist()
    return [block for block, left in zip(touched, some, strict=True) if not left]


def pool(blocks: Sequence[Block], group: "ProcessGroup") -> list[InputSum]:
    r"""Inputs of each block, added up over all workers by one all-reduce.

    Every worker's rows weigh the same, however many each has, so that x_mean is that of
    the whole minibatch. A block that no row has reached on this worker counts as 0.
    ``rows`` and ``sequences`` are () tensors: nothing waits for the device. Payload:
    $\sum (n' + 2)$ numbers, n' the inputs of a block without the one for the bias.
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
    """One block before its step: what is known of it, and nothing changed yet."""

    block: Block
    options: Mapping[str, Any]  # the parameter group
    state: dict  # what the optimiser keeps of the block, from this step on
    x_mean: Tensor  # (n,)
    time_steps: float | Tensor  # T, () if there are several workers
    gradient: Tensor | Residuals  # (N, n)
    gained: tuple[Tensor, Tensor] | None = None  # u and h, of `gain`
    still: Tensor | None = None  # () bool on an accelerator: whether nothing changes

    def masked(self, still: Tensor, h: Tensor) -> "BlockStep":
        """The same step, or one that changes nothing where ``still`` is True.

        ``h`` is inf there. So an accelerator decides without a word to the host, and
        the step itself knows of no mask: all that it is given is masked.
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
        """Weight and bias as one matrix, to be changed: (N, n), or (g, N / g, n).

        It stands still where this step does. Of half precision it is the copy in
        single precision that the state keeps, unless the weights were changed since.
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
        """Make weights and biases smaller by the share lr * weight_decay."""
        if self.options["weight_decay"]:
            with self.parameters() as theta:
                theta.mul_(1 - self.options["lr"] * self.options["weight_decay"])

    def velocity(self) -> Tensor | None:
        """(N, n), at rest where momentum begins; None without, and none is kept."""
        momentum = self.options["momentum"]  # a tensor where the step may be masked
        if not isinstance(momentum, Tensor) and not momentum:
            self.state.pop("velocity", None)
            return None
        if "velocity" not in self.state:
            self.state["velocity"] = self.x_mean.new_zeros(self.block.shape)
        return self.state["velocity"]

    @property
    def factor(self) -> Tensor | Residuals | Masked:
        """The gradient as a factor of P, 0 where the step is not to be taken."""
        if self.still is None:
            return self.gradient
        return Masked(self.gradient, self.still)

    @property
    def h(self) -> Tensor:
        """Normaliser of (39), (); of groups the least."""
        h = self.gained[1]
        return h.amin() if h.ndim else h

    @property
    def number(self) -> int:
        """Of this step of the block, from 1; waits for an accelerator."""
        return int(self.state["step"]) + 1

    def rate(self, clip: Tensor | None) -> dict[str, Any]:
        """Options ``lr`` and ``clip`` of the step.

        A rate that is a tensor becomes part of the clip, so that nobody reads it.
        """
        lr = self.options["lr"]
        if not isinstance(lr, Tensor):
            return {"lr": lr, "clip": clip}
        lr = lr.detach().to(self.x_mean)
        return {"lr": 1.0, "clip": lr if clip is None else lr * clip}

    def by_group(self) -> Iterator["BlockStep"]:
        """The same step of each group, on views of its part."""
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
        """Some of the options, by name."""
        return {name: self.options[name] for name in names}


def joint_norm(gradients: Sequence[Tensor | Residuals]) -> Tensor:
    """Frobenius norm of all gradients as one, (); ValueError if devices differ."""
    formed = [each for each in gradients if isinstance(each, Tensor)]
    norms = list(torch._foreach_norm(formed)) if formed else []
    norms += [each.norm() for each in gradients if isinstance(each, Residuals)]
    if len(devices := {norm.device for norm in norms}) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise ValueError(f"RLS steps on one device, and there are gradients on {names}")
    return torch.linalg.vector_norm(torch.stack(norms))
