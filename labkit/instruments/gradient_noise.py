r"""Measure the noise of a minibatch's gradient, layer by layer, during training.

With g_i the gradient of example i's loss and M examples,

(1) $\bar g = \frac1M \sum_i g_i$
(2) $V = \frac{M}{M - 1} \bigl( \frac1M \sum_i |g_i|^2 - |\bar g|^2 \bigr)$,
unbiased for $\operatorname{tr} \Sigma$, the total variance of one example's gradient
(3) $S = |\bar g|^2 - V / M$, unbiased for $|G|^2$, the true gradient's squared norm
(4) $B = V / S$, the simple noise scale: McCandlish, Kaplan, Amodei and the OpenAI Dota
team, "An empirical model of large-batch training", 2018, $\operatorname{tr} \Sigma /
|G|^2$.

(2) and (3) are their two-batch-size estimates (appendix A.1) at sizes 1 and M.
"""

import math
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from labkit.check import COUNT, check_kind, check_options, one_of
from labkit.instruments.layer_calls import tensor_to_hook
from labkit.instruments.per_layer import Moments, add
from labkit.instruments.watched import KINDS, check_mixing, choose
from labkit.layers import WeakHook, current_backward, remove_all, tensors
from labkit.precision import outside_modes

EVERY = 20  # a measured step may then cost three plain ones within 1.1 on average


@dataclass(frozen=True, eq=False)
class Noise:
    """What one measured batch says about some parameters; all tensors are ().

    Attributes
    ----------
    examples : int, M
    squares : () tensor, sum_i |g_i|^2, in the squared unit of the gradient
    norm2 : () tensor, |g_bar|^2, of the batch's mean gradient
    """

    examples: int
    squares: Tensor
    norm2: Tensor

    @property
    def variance(self) -> Tensor:
        """Return V of (2), >= 0, or ``nan`` for a single example."""
        M = self.examples
        factor = M / (M - 1 or math.nan)
        return (factor * (self.squares / M - self.norm2)).clamp_min(0)  # (2)

    @property
    def signal(self) -> Tensor:
        """Return S of (3), an unbiased estimate that may be negative."""
        return self.norm2 - self.variance / self.examples  # (3)

    @property
    def noise_scale(self) -> Tensor:
        """Return B of (4), in examples: a biased ratio of unbiased estimates.

        It is ``inf`` where S <= 0: the batch is too small to see the true gradient. To
        average over measurements, average `variance` and `signal`, then divide.
        """
        return self.variance / self.signal.clamp_min(0)  # (4)


class GradientNoise:
    r"""Measure the noise of a model's gradient at regular steps of its training.

    One training pass in `every` is measured, from its own backward pass: the inputs and
    deltas of each watched layer give the squares of the gradients of all single
    examples, see `labkit.instruments.per_layer`. There is no further pass. The results,
    () tensors on the model's device, exist after ``loss.backward()``; nothing waits for
    a GPU until one is read.

    Parameters
    ----------
    model : nn.Module
        Called in the training loop.  Linear, Conv1d to Conv3d (one group), Embedding,
        RNN and LSTM layers (one layer, one direction) are understood; opacus and
        backpack-for-pytorch know more kinds.
    every : int
        Measure the first pass and then each `every`-th.  A pass is a call of `model` in
        training mode with gradients enabled.
    reduction : {"mean", "sum"}
        How the loss joins the M examples' losses.  The g_i are of those losses; a
        factor on the loss is in them, and drops out of the noise scale.
    layers : list of str or nn.Module, optional
        Which layers to watch.  Default: all that have parameters to train.
    batch_first : bool
        Whether inputs of Linear layers with three or more dimensions are (M, T, n) or
        (T, M, n), and indices (M, T) or (T, M).  Recurrent layers have their own.
    skip_unsupported : bool
        Leave out layers that are not understood or share a parameter, such as tied
        embeddings, with one warning that names them all.

    Attributes
    ----------
    passes : int, training passes so far; one that checkpointing runs again counts once

    Warns
    -----
    UserWarning
        When a measurement is read that leaves out a layer, which `skipped` then names:
        its examples' gradients do not add up to its parameters' gradient, since some of
        that comes past its call (``nn.functional`` with its weight, a penalty on the
        weight or on derivatives), or it is an embedding whose indices need not be those
        of the examples (a table of positions).

    Raises
    ------
    TypeError : if `model` is no module
    ValueError
        For an option out of range; for layers that do not exist, are not understood
        (several recurrent layers in one, ...) or share a parameter; for a
        BatchNorm in training mode, here or in a pass that is measured: it mixes the
        examples, so that none has a gradient of its own.
        Later, in the forward pass, for a PackedSequence; in the backward pass, where
        layers disagree on M.

    Notes
    -----
    *What is exact.*  All results are. For a Linear layer with one row per example, they
    are squared inputs times squared deltas, one product for all examples. For CONV
    layers, recurrent layers, and Linear layers on sequences or called several times in
    a pass that product would be wrong, since an example's gradient is a sum over
    positions; there Gram matrices or the examples' gradients are formed, whichever is
    cheaper by count. torch's recurrent layers do not return the deltas of their
    pre-activations; one backward recursion over the stored states computes them again.

    *Which pass.*  The window opens with the pass that is due and closes with the first
    call of the model after a backward pass has reached a watched layer. Passes in it
    that are discarded have no effect. Several calls before one backward pass count as
    more positions of the same examples. With gradient accumulation a measurement is of
    one forward and backward pass, not of ``.grad``, and M is that minibatch's.

    *What is left out.*  Layers that the pass did not reach, frozen parameters, layers
    that were frozen or had another parameter when the instrument was made, and the
    layers of the warning above. Whether gradients add up is seen from squared norms of
    what one backward pass brings to all parameters of a layer; it is not seen where
    that pass forms only some of them, as under RLS with ``max_grad_norm``. A row that
    the loss ignores (``ignore_index``) counts as an example with the gradient 0, though
    a mean does not count it: take such rows out before the model.

    *What it costs.*  A measured pass reads the gradients once, and needs one more
    product per layer, for the norm of the mean gradient, and for positions what
    `labkit.instruments.per_layer` counts; LSTM layers cost most, as
    ``benchmarks/instruments.py`` shows. On other passes the hooks return at once.
    Weights are bit-identical with and without. Copies of the model are not watched;
    deleting the instrument removes its hooks.

    Examples
    --------
    >>> model = nn.Linear(2, 1, bias=False)
    >>> noise = GradientNoise(model, reduction="sum")
    >>> model(torch.tensor([[1.0, 0.0], [3.0, 1.0]])).sum().backward()
    >>> noise.variance, noise.total.signal, noise.noise_scale
    (tensor(2.5000), tensor(3.), tensor(0.8333))
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int = EVERY,
        reduction: str = "mean",
        layers: Sequence[str] | None = None,
        batch_first: bool = True,
        skip_unsupported: bool = False,
    ):
        check_kind("model", model, nn.Module, "an nn.Module")
        check_options(
            {"every": every, "reduction": reduction},
            {"every": COUNT, "reduction": one_of(("mean", "sum"))},
        )
        check_kind("batch_first", batch_first, bool, "True or False")
        check_kind("skip_unsupported", skip_unsupported, bool, "True or False")
        self.every, self.reduction, self.batch_first = every, reduction, batch_first
        self.passes, self._silent = 0, False
        self._model = model
        watched, refused = choose(model, layers, skip_unsupported)
        self._layers = {
            module: _Layer(name, module, dict(module.named_parameters()))
            for name, module in watched.items()
        }
        self._skipped = {}
        self._leave_out(refused)
        self._window, self._last = None, _Window(None)
        self._handles = [model.register_forward_pre_hook(WeakHook(self._begin))]
        self._remove = weakref.finalize(self, remove_all, self._handles)

    @property
    def skipped(self) -> dict[str, str]:
        """Return the name of each layer left out so far, and why; it waits for a GPU.

        A layer that a measurement has left out is not watched again.
        """
        self._measured_window(wait=True)
        return self._skipped

    @property
    def measured(self) -> int | None:
        """Return the number of the pass at which the last measurement was due, or None.

        The first pass has the number 0.
        """
        return self._measured_window().number

    @property
    def per_layer(self) -> dict[str, Noise]:
        """Return the noise of each layer that the measured pass reached, by name.

        It waits for a GPU, since layers that are left out are not in it.
        """
        window = self._measured_window(wait=True)
        return {
            layer.name: self._noise(window, [window.found[layer.name]])
            for layer in self._layers.values()
            if layer.name in window.found
        }

    @property
    def total(self) -> Noise:
        """Return the noise of all those layers' parameters together.

        RuntimeError before the first measurement, or where it left out all layers. On a
        GPU it is ``nan`` if a layer does not add up, until `skipped` has been read.
        """
        window = self._measured_window()
        if not window.found:
            raise RuntimeError(
                f"nothing has been measured in {self.passes} training passes; a pass "
                "is a call of the model, in training mode, and its backward pass; "
                f"layers left out: {self._skipped}"
            )
        return self._noise(window, window.found.values())

    @property
    def variance(self) -> Tensor:
        """Return the total gradient variance, ``total.variance``."""
        return self.total.variance

    @property
    def noise_scale(self) -> Tensor:
        """Return the simple noise scale, ``total.noise_scale``."""
        return self.total.noise_scale

    def close(self) -> None:
        """Remove the hooks; the last measurement stays readable."""
        self._remove()
        self._last, self._window = self._measured_window(), None

    def hooked(self, module: nn.Module) -> bool:
        """Return whether the hook on this module belongs to this instrument."""
        return module is self._model or module in self._layers

    def _noise(self, window, moments) -> Noise:
        M, (squares, norm2) = window.examples, add(moments)
        if self.reduction == "mean":  # the pass had g_i / M
            squares = squares * M**2
        else:
            norm2 = norm2 / M**2
        return Noise(M, squares, norm2)

    def _measured_window(self, wait=False):
        """Return the window to read, without the layers it does not hold for."""
        window = self._window if self._window and self._window.found else self._last
        self._leave_out(window.leave_out(wait))
        return window

    def _leave_out(self, left):
        """Note layers and the reasons, and say so if there are any."""
        self._skipped.update(left)
        if left:
            reasons = [f"{name!r}: {why}" for name, why in left.items()]
            warnings.warn(
                f"GradientNoise leaves out layers {'; '.join(reasons)}", stacklevel=4
            )

    def _begin(self, model, args):
        """Count a call of the model before it runs, and open or close the window."""
        if not (model.training and torch.is_grad_enabled()):
            self._silent = model.training  # checkpointing's first run may be this
            return
        if current_backward() >= 0 and not self._silent:  # run again for a backward
            return
        self._silent = False
        if self._window and self._window.found:
            self._window.let_go()
            self._last, self._window = self._window, None
        elif self._window:  # a backward pass may have reached the inputs alone
            self._window.calls.clear()
            self._window.seen.clear()
        if self.passes % self.every == 0 and self._window is None:
            check_mixing(model)
            self._window = _Window(self.passes)
            # The hooks are registered again so that they run last: another hook, as
            # of a later optimiser, may replace a layer's output by its own tensor.
            remove_all(self._handles[1:])
            del self._handles[1:]
            for module in self._layers:
                hook = WeakHook(self._see)
                self._handles.append(
                    module.register_forward_hook(hook, with_kwargs=True)
                )
        self.passes += 1

    def _see(self, module, args, kwargs, output):
        """Record a call of a layer after it has run."""
        window = self._window
        if window is None or not (self._model.training and torch.is_grad_enabled()):
            return
        layer = self._layers[module]
        left = layer.name in self._skipped or layer.name in window.found
        if left or not layer.owns_its_parameters():
            return
        call = KINDS[type(module)](module, output, self.batch_first, *args, **kwargs)
        window.watch(layer, call, output)


@dataclass(eq=False)
class _Layer:
    name: str
    module: nn.Module
    parameters: dict[str, nn.Parameter]

    def owns_its_parameters(self) -> bool:
        """Return False within ``functional_call`` or if a parameter was replaced."""
        own = map(id, self.parameters.values())
        return list(own) == list(map(id, self.module.parameters()))


@dataclass(eq=False)
class _Window:
    """One measurement: calls of layers, and the moments from their backward pass."""

    number: int | None
    eps: float = 0.0  # of the coarsest dtype of the outputs
    # by layer: whether it is no embedding, and its inputs' dimensions, M and shape
    seen: dict[str, tuple] = field(default_factory=dict)
    calls: dict[str, list] = field(default_factory=dict)
    found: dict[str, Moments] = field(default_factory=dict)
    excess: dict[str, Tensor] = field(default_factory=dict)  # of norm2; or nan, 0
    handles: dict[str, dict] = field(default_factory=dict)  # by parameter

    @property
    def examples(self) -> int:
        """Return M; of embeddings alone, that of the indices with most dimensions."""
        return max(self.seen.values())[2]

    def watch(self, layer, call, output):
        """Wait for the gradients of a call's outputs, then of the layer's weights."""
        wanted = {
            name: parameter
            for name, parameter in layer.parameters.items()
            if parameter.requires_grad
        }
        outputs = tensors(output)
        if not wanted:
            return
        call.gradients = [None] * len(outputs)
        link = weakref.ref(self)
        for k, z in enumerate(outputs):
            if z.requires_grad:
                self.eps = max(self.eps, torch.finfo(z.dtype).eps)
                source, form = tensor_to_hook(z)
                source.register_hook(partial(_arrive, link, layer, call, k, form))
        if layer.name not in self.handles:
            # A weight's gradient is complete only after all deltas of its layer, so the
            # first one shows that all are there; it comes before any update.
            self.handles[layer.name] = {
                name: parameter.register_hook(partial(_finish, link, layer, name))
                for name, parameter in wanted.items()
            }

    def leave_out(self, wait):
        """Drop the layers whose moments are not those of the examples; return why."""
        left = {}
        for name, (plain, sides, count, _) in self.seen.items():
            M = self.examples
            square = (M, M) in {sizes for *_, sizes in self.seen.values()}
            if count != M or (square and sides + plain == 2):
                left[name] = (
                    f"its {count} indices need not be those of {M} examples, as in a "
                    "table of positions"
                )
        for name, excess in self.excess.items():
            if (wait or excess.is_cpu) and excess.isnan():
                left[name] = (
                    "its examples' gradients do not add up to its gradient, which "
                    "comes past its call, too: by its weight in a function, a penalty"
                )
        return {name: why for name, why in left.items() if self.found.pop(name, None)}

    def let_go(self):
        """Drop the calls that no backward pass has used."""
        for handles in self.handles.values():
            remove_all(handles.values())
        self.calls.clear()


def _arrive(link, layer, call, k, form, gradient):
    """Store the gradient of a call's output; a second backward pass overwrites it."""
    window = link()
    if window is None or layer.name in window.found:
        return
    # a table of positions is an embedding, too, which is judged when all are known
    plain = not isinstance(layer.module, nn.Embedding)
    for other, _, count, _ in window.seen.values():
        if plain and other and count != call.examples:
            raise ValueError(
                f"layer {layer.name!r} saw {call.examples} examples, others of this "
                f"pass {count}; say batch_first=False if Linear layers get (T, M, n), "
                "or choose layers=[...] that see one row or one sequence per example"
            )
    window.seen[layer.name] = plain, call.x.ndim, call.examples, call.x.shape[:2]
    calls = window.calls.setdefault(layer.name, [])
    if call not in calls:
        calls.append(call)
    # cuDNN's layers hand over None for an output that the loss does not depend on
    call.gradients[k] = None if gradient is None else form(gradient.detach())


@torch.no_grad()
@outside_modes()
def _finish(link, layer, parameter, gradient):
    """Reduce all deltas of a layer to its two moments, then drop them.

    They become ``nan`` with the last gradient of its parameters, where the squares of
    these add up to another number.
    """
    window, name = link(), layer.name
    if window is None:
        return
    handles = window.handles[name]
    if calls := window.calls.pop(name, None):
        # of calls with other numbers of examples the sum tells
        calls = [call for call in calls if call.examples == calls[0].examples]
        found = add(calls[0].moments(layer.module, calls, handles.keys()))
        window.found[name], window.excess[name] = found, found.norm2
    found = window.found.get(name)
    if found is None or gradient is None:  # None where RLS forms no gradient
        return
    handles.pop(parameter).remove()
    excess = window.excess[name]
    dense = gradient.detach().to_dense().flatten().to(excess)
    excess = excess - dense @ dense
    if not handles:
        # as wide as TF32 needs; not where the gradient is infinite, as of a scaled loss
        slack = window.eps**0.4 * (found.squares + found.norm2 - excess)
        excess = torch.zeros_like(excess).masked_fill(excess.abs() > slack, math.nan)
        window.found[name] = add([found, Moments(excess, excess)])
    window.excess[name] = excess
