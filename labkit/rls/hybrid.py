"""Combine RLS for some layers with other optimisers for the rest (HRLS)."""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from labkit.check import COUNT, check_kind, check_options
from labkit.rls.blocks import joint_norm
from labkit.rls.checks import choose_layers, reasons, trainable, unwrap
from labkit.rls.health import NumericalError, scaled, unscale
from labkit.rls.optimizer import RLS
from labkit.rls.states import (
    Stateful,
    check_keys,
    check_shapes,
    interrupt_held_back,
)
from labkit.rls.update import clip_factor

OPTIMIZER = import_module(torch.optim.Optimizer.__module__)


class Hybrid(Stateful):
    """Combine RLS and other optimisers in one: one joint clip, one step.

    This is HRLS of Zhang et al. 2021: RLS trains the hidden layers, and Adam the output
    layer with softmax and cross-entropy. P depends on the inputs only, so any loss
    works. ValueError if two optimisers share a parameter, if a parameter of the model
    belongs to none, or if an optimiser evaluates the loss several times (LBFGS).

    Parameters
    ----------
    rls : RLS
        Its ``max_grad_norm`` is the joint norm of all gradients, its own and the
        others'.
    *others : torch.optim.Optimizer, over all other parameters that are not frozen

    Notes
    -----
    ``param_groups`` and ``state`` are those of all optimisers, RLS first, so schedulers
    change the ``lr`` of all. Schedulers that cycle the momentum need
    ``cycle_momentum=False`` unless all have a momentum. ``defaults`` holds the options
    that all have in common. Hooks that are registered here run once in a step; those of
    ``rls`` do not run.

    Examples
    --------
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> rls = RLS(model, layers=["0"], max_grad_norm=5.0)
    >>> optimizer = Hybrid(rls, torch.optim.Adam(model[2].parameters()))
    >>> model(torch.ones(8, 3)).logsumexp(1).mean().backward()
    >>> optimizer.step()
    """

    def __init__(self, rls: RLS, *others: torch.optim.Optimizer):
        if not isinstance(rls, RLS):
            raise TypeError(f"rls must be an RLS, got {type(rls).__name__}")
        if not others:
            raise ValueError("Hybrid needs another optimizer beside RLS")
        for other in others:
            if not isinstance(other, torch.optim.Optimizer):
                kind = type(other).__name__
                raise TypeError(f"others must be torch optimizers, got {kind}")
            if isinstance(other, torch.optim.LBFGS):
                raise ValueError(
                    "LBFGS evaluates the loss again within a step; take AdamW"
                )
        self.rls, self.others = rls, others
        self.gradient_norm: Tensor | None = None  # (), joint, of the last step
        owned = [{id(p) for p in _parameters(each)} for each in self.parts]
        for name, parameter in rls.model.named_parameters():
            owners = sum(id(parameter) in own for own in owned)
            if owners > 1:
                raise ValueError(
                    f"parameter {name!r} is trained by two optimizers; give RLS "
                    "layers=[...] and the others the rest"
                )
            if owners == 0 and parameter.requires_grad:
                raise ValueError(
                    f"parameter {name!r} is trained by neither optimizer; give it to "
                    "one, or freeze it by requires_grad_(False)"
                )
        shared = set.intersection(*({*each.defaults} for each in self.parts))
        defaults = {k: v for k, v in self.other.defaults.items() if k in shared}
        self.__setstate__({"defaults": defaults})  # hooks of an Optimizer

    @property
    def parts(self) -> tuple[torch.optim.Optimizer, ...]:
        """Return RLS and the other optimisers."""
        return self.rls, *self.others

    @property
    def other(self) -> torch.optim.Optimizer:
        """Return the last optimiser, which takes new parameter groups."""
        return self.others[-1]

    @classmethod
    def for_model(
        cls,
        model: nn.Module,
        rest: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
        *,
        leave: Iterable[str] = (),
        time_steps: int = 1,
        max_fan_in: int = 8192,
        **options,
    ) -> "Hybrid":
        """Use RLS for every layer that it can train, and ``rest`` for everything else.

        Embeddings, norms, attention, shared parameters, and layers with too many inputs
        go to ``rest``. ValueError if nothing is left for one of the two.

        Parameters
        ----------
        model : nn.Module, also a ``DistributedDataParallel``
        rest : callable, parameters -> optimizer, such as ``partial(AdamW, lr=1e-4)``
            ``torch.optim.Muon`` gets the matrices, and AdamW the other parameters.
        leave : names of layers that are the other's too, such as the output layer
        time_steps : int
            T of (82) for Linear layers on sequences: 1 if the loss averages over all
            rows, T if it sums over T steps.
        max_fan_in, **options : of :class:`RLS`, for all its layers

        Examples
        --------
        >>> layers = nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)
        >>> model = nn.Sequential(*layers)
        >>> optimizer = Hybrid.for_model(model, torch.optim.AdamW, max_grad_norm=5.0)
        >>> [group.get("layer", "by AdamW") for group in optimizer.param_groups]
        ['0', '3', 'by AdamW']
        """
        bare, _ = unwrap(model)
        if isinstance(rest, torch.optim.Optimizer) or not callable(rest):
            kind = type(rest).__name__
            raise TypeError(
                "rest makes an optimizer of the parameters that are left, so it is a "
                f"class or a function: rest={kind}, or partial({kind}, lr=...)"
                if isinstance(rest, torch.optim.Optimizer)
                else f"rest must be callable, parameters -> optimizer, got {rest!r}"
            )
        check_kind("leave", leave, Iterable, "names of layers")
        check_options({"max_fan_in": max_fan_in}, {"max_fan_in": COUNT})
        names, left = trainable(bare, max_fan_in), [*leave]
        for name in left:
            choose_layers(bare, [name])  # or ValueError
        steps = {"time_steps": time_steps}
        layers = [
            {"layer": name} | (steps if isinstance(layer, nn.Linear) else {})
            for name, layer in names.items()
            if name not in left
        ]
        if not layers:
            raise ValueError(
                f"there is nothing for RLS to train in {type(bare).__name__}"
                + reasons(bare, left)
            )
        rls = RLS(model, layers=layers, max_fan_in=max_fan_in, **options)
        mine = {id(p) for p in _parameters(rls)}
        others = [p for p in bare.parameters() if p.requires_grad and id(p) not in mine]
        if not others:
            rls.close()
            raise ValueError("RLS can train all of this model: take RLS(model)")
        muon = getattr(torch.optim, "Muon", None)  # of torch 2.9
        if muon is None or getattr(rest, "func", rest) is not muon:
            return cls(rls, rest(others))
        matrices = [p for p in others if p.ndim == 2]
        made = [rest(matrices)] if matrices else []
        if flat := [p for p in others if p.ndim != 2]:
            made.append(torch.optim.AdamW(flat))
        return cls(rls, *made)

    @property
    def param_groups(self) -> list[dict]:
        """Return the parameter groups of all optimisers, RLS first."""
        return [group for each in self.parts for group in each.param_groups]

    @property
    def state(self) -> MutableMapping:
        """Return a mapping from parameter to its optimiser's state."""
        return _States(self.parts)

    @property
    def max_grad_norm(self) -> float | None:
        """Return the joint norm that all gradients are clipped to, or None."""
        return self.rls.max_grad_norm

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return self.rls._step_supports_amp_scaling

    def add_param_group(self, param_group: dict) -> None:
        """Add parameters to the last optimiser.

        ValueError if RLS trains one of them already.
        """
        given = param_group["params"]
        given = [given] if isinstance(given, Tensor) else list(given)
        mine = {id(p) for p in _parameters(self.rls)}
        if any(id(p) in mine for p in given):
            raise ValueError("RLS trains one of these parameters already")
        self.other.add_param_group(param_group | {"params": given})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients, and the inputs that RLS keeps with them."""
        for each in self.parts:
            each.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Clip all gradients together, then run all steps; errors as in `RLS.step`.

        An interrupt (Ctrl-C) that comes while weights change is raised at the end. An
        error that a hook of one of the other optimisers raises leaves the layers of RLS
        with their step taken.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if scaled(self) and not unscale(self, self.rls.blocks):
            return loss
        steps = self.rls.prepare()
        parameters = [p for each in self.others for p in _parameters(each)]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if any(g.is_sparse for g in gradients):
            raise ValueError("Hybrid needs dense gradients: nn.Embedding(sparse=False)")
        if not (steps or gradients):
            return loss
        norm = joint_norm([each.gradient for each in steps] + gradients)
        if norm.device.type == "cpu":
            self._check(steps, gradients)
        factor = clip_factor(norm, self.rls.max_grad_norm)
        with interrupt_held_back():
            if steps:
                self.rls.apply(steps, norm, factor)
            self.gradient_norm = norm
            failed = ~(norm < torch.inf)
            for g in gradients:  # gradients that are not finite become 0
                g.masked_fill_(failed, 0)
            if factor is not None and gradients:
                torch._foreach_mul_(gradients, factor)
            with _no_global_hooks():  # which run around this step
                for each in self.others:
                    each.step()
        return loss

    def _check(self, steps, gradients) -> None:
        """Raise NumericalError, on the CPU, if a gradient of the others is invalid."""
        if all(g.isfinite().all() for g in gradients):
            return
        kinds = " and ".join(type(each).__name__ for each in self.others)
        size = float(torch.stack([g.norm() for g in gradients]).norm())
        advice = "nothing was changed; lower its rate or clip by max_grad_norm"
        number = steps[0].number if steps else 0
        what = "the gradient's norm"
        raise NumericalError(f"(those of {kinds})", number, what, size, advice)

    def check(self) -> None:
        """Raise NumericalError for a failure of RLS; waits for an accelerator."""
        self.rls.check()

    def load_state_dict(self, state_dict: dict) -> None:
        """Restore a state dict of :meth:`state_dict`, also one of labkit 0.2.

        ValueError, and nothing is changed, if layers or shapes differ.
        """
        if isinstance(state_dict, Mapping) and {*state_dict} == {"rls", "other"}:
            state_dict = _joined(state_dict["rls"], state_dict["other"])
        with self.restoring(self._check_state_dict):
            super().load_state_dict(state_dict)

    def _check_state_dict(self, state_dict: dict) -> Any:
        """Return the saved state of each block of RLS, or raise ValueError."""
        check_keys(state_dict)
        for each, groups in self._split(state_dict["param_groups"]):
            saved = {"state": state_dict["state"], "param_groups": groups}
            if each is self.rls:
                ids = [number for group in groups for number in group["params"]]
                own = {i: saved["state"][i] for i in ids if i in saved["state"]}
                kept = self.rls.check_state_dict(saved | {"state": own})
            else:
                check_shapes(each, saved)
        return kept

    def _split(self, groups: list[dict]) -> Iterator[tuple]:
        """Yield each optimiser with its share of the groups."""
        groups = list(groups)
        for each in self.parts:
            n = len(each.param_groups) if each is not self.other else len(groups)
            yield each, groups[:n]
            groups = groups[n:]

    def __setstate__(self, state: dict) -> None:
        if "param_groups" not in state:  # a copy, or a new one
            super().__setstate__(state)
            return
        for each, groups in self._split(state["param_groups"]):
            own = [p for group in groups for p in group["params"]]
            kept = {p: _copied(state["state"].get(p, {})) for p in own}
            kept = defaultdict(dict, {p: each for p, each in kept.items() if each})
            if each is self.rls:
                self.rls._kept = self._kept
            each.__setstate__({"state": kept, "param_groups": groups})
        self.rls._kept = None

    def __getstate__(self):
        kept = ("rls", "others", "gradient_norm", "defaults")
        return {name: vars(self)[name] for name in kept}

    def __deepcopy__(self, memo):
        """Copy the optimiser together with its model, which must be copied before."""
        new = memo[id(self)] = type(self).__new__(type(self))
        new.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return new


class _States(MutableMapping):
    """A mapping over the states of several optimisers, by parameter."""

    def __init__(self, parts):
        self.parts = parts

    def _of(self, key):
        owners = (each for each in self.parts if key in each.state)
        return next(owners, None) or next(
            (e for e in self.parts if any(key is p for p in _parameters(e))),
            self.parts[-1],
        )

    def __getitem__(self, key):
        return self._of(key).state[key]

    def __setitem__(self, key, value):
        self._of(key).state[key] = value

    def __delitem__(self, key):
        del self._of(key).state[key]

    def __contains__(self, key):
        return any(key in each.state for each in self.parts)

    def __iter__(self):
        return (key for each in self.parts for key in each.state)

    def __len__(self):
        return sum(len(each.state) for each in self.parts)

    def __repr__(self):
        return repr(dict(self))


@contextmanager
def _no_global_hooks() -> Iterator[None]:
    """Prevent global optimiser hooks from running again within a step."""
    names = "_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"
    hooks = [getattr(OPTIMIZER, name, {}) for name in names]
    kept = [dict(each) for each in hooks]
    for each in hooks:
        each.clear()
    try:
        yield
    finally:
        for each, old in zip(hooks, kept, strict=True):
            each.update(old)


def _copied(kept: Mapping) -> dict:
    """Copy a state and its tensors: torch shares ``step`` with the checkpoint."""
    return {k: v.clone() if isinstance(v, Tensor) else v for k, v in kept.items()}


def _joined(rls: Mapping, other: Mapping) -> dict:
    """Join the two state dicts that labkit 0.2 wrote into one."""
    first = sum(len(group["params"]) for group in rls["param_groups"])
    later = [
        group | {"params": [first + number for number in group["params"]]}
        for group in other["param_groups"]
    ]
    state = {first + number: kept for number, kept in other["state"].items()}
    return {
        "state": {**rls["state"], **state},
        "param_groups": [*rls["param_groups"], *later],
    }


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
