"""RLS for some layers and another optimiser for the rest (HRLS)."""

from collections.abc import Callable, Iterable

import torch
from torch import nn

from labkit.rls.blocks import joint_norm
from labkit.rls.checks import choose_layers, trainable, unwrap
from labkit.rls.health import NumericalError, scaled, unscale
from labkit.rls.optimizer import RLS
from labkit.rls.update import clip_factor

SHAPED = "exp_avg", "exp_avg_sq", "momentum_buffer"  # states of a parameter's shape


class Hybrid(torch.optim.Optimizer):
    """RLS and another optimiser as one: one joint clip, one step.

    HRLS of Zhang et al. 2021: hidden layers by RLS, the output layer by Adam under
    softmax and cross-entropy. P depends on inputs alone, so any loss will do.
    ValueError if the two share a parameter, one of the model belongs to neither, or the
    other evaluates the loss again (LBFGS).

    Parameters
    ----------
    rls : RLS
        Its ``max_grad_norm`` is the joint norm of all gradients, its own and the
        other's.
    other : torch.optim.Optimizer, over all other parameters that are not frozen.

    Notes
    -----
    ``param_groups`` and ``state`` are those of both, RLS first, so schedulers turn the
    ``lr`` of both; those that cycle the momentum want ``cycle_momentum=False``.

    Examples
    --------
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> rls = RLS(model, layers=["0"], max_grad_norm=5.0)
    >>> optimizer = Hybrid(rls, torch.optim.Adam(model[2].parameters()))
    >>> model(torch.ones(8, 3)).logsumexp(1).mean().backward()
    >>> optimizer.step()
    """

    def __init__(self, rls: RLS, other: torch.optim.Optimizer):
        if isinstance(other, torch.optim.LBFGS):
            raise ValueError("LBFGS evaluates the loss again within a step; take AdamW")
        self.rls, self.other = rls, other
        self.gradient_norm = None  # (), joint, of the last step, unclipped
        mine, theirs = (set(map(id, _parameters(each))) for each in (rls, other))
        for name, parameter in rls.model.named_parameters():
            owners = (id(parameter) in mine) + (id(parameter) in theirs)
            if owners == 2:
                raise ValueError(
                    f"parameter {name!r} is trained by both optimizers; give RLS "
                    "layers=[...] and the other one the rest"
                )
            if owners == 0 and parameter.requires_grad:
                raise ValueError(
                    f"parameter {name!r} is trained by neither optimizer; give it to "
                    "one, or freeze it by requires_grad_(False)"
                )
        self.__setstate__({"defaults": {}})  # hooks of an Optimizer; groups are theirs

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
        """RLS for every layer that it can train, another optimiser for all else.

        Embeddings, norms, attention, parameters that layers share, and layers with too
        many inputs are the rest. ValueError if nothing is left for either.

        Parameters
        ----------
        model : nn.Module, also a ``DistributedDataParallel``
        rest : callable, parameters -> optimizer, such as ``partial(AdamW, lr=1e-4)``
        leave : names of layers that are the other's too, such as the output layer
        time_steps : int
            T of (82) for Linear layers on sequences: 1 where the loss averages over all
            rows, T where it sums over T steps.
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
        names, left = trainable(bare, max_fan_in), [*leave]
        for name in left:
            choose_layers(bare, [name])  # or ValueError
        steps = {"time_steps": time_steps}
        layers = [
            {"layer": name} | (steps if isinstance(layer, nn.Linear) else {})
            for name, layer in names.items()
            if name not in left
        ]
        rls = RLS(model, layers=layers, max_fan_in=max_fan_in, **options)
        mine = set(map(id, _parameters(rls)))
        others = [p for p in bare.parameters() if p.requires_grad and id(p) not in mine]
        if not others:
            rls.close()
            raise ValueError("RLS can train all of this model: take RLS(model)")
        return cls(rls, rest(others))

    @property
    def param_groups(self) -> list[dict]:
        """Groups of both, RLS first."""
        return self.rls.param_groups + self.other.param_groups

    @property
    def state(self) -> dict:
        """State of both by parameter; what a parameter has may be changed."""
        return {**self.rls.state, **self.other.state}

    @property
    def max_grad_norm(self):
        """Joint norm that all gradients are clipped to, or None."""
        return self.rls.max_grad_norm

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return self.rls._step_supports_amp_scaling

    def add_param_group(self, param_group: dict):
        """Give more parameters to the other optimiser; ValueError if RLS has one."""
        given = param_group["params"]
        given = [given] if isinstance(given, torch.Tensor) else list(given)
        mine = set(map(id, _parameters(self.rls)))
        if any(id(p) in mine for p in given):
            raise ValueError("RLS trains one of these parameters already")
        self.other.add_param_group(param_group | {"params": given})

    def zero_grad(self, set_to_none=True):
        """Clear all gradients, and the inputs that came with those of RLS."""
        self.rls.zero_grad(set_to_none)
        self.other.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure=None):
        """Clip all gradients together, then let both step; errors as of `RLS.step`."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if scaled(self) and not unscale(self, self.rls.blocks):
            return loss
        steps = self.rls.prepare()
        parameters = _parameters(self.other)
        gradients = [p.grad for p in parameters if p.grad is not None]
        if any(g.is_sparse for g in gradients):
            raise ValueError("Hybrid needs dense gradients: nn.Embedding(sparse=False)")
        if not (steps or gradients):
            return loss
        norm = joint_norm([each.gradient for each in steps] + gradients)
        factor = clip_factor(norm, self.rls.max_grad_norm)
        at_hand = norm.device.type == "cpu"
        if at_hand and not all(g.isfinite().all() for g in gradients):
            name, what = (
                f"(those of {type(self.other).__name__})",
                "the gradient's norm",
            )
            size = float(torch.stack([g.norm() for g in gradients]).norm())
            advice = "nothing was changed; lower its rate or clip by max_grad_norm"
            number = steps[0].number if steps else 0
            raise NumericalError(name, number, what, size, advice)
        if steps:
            self.rls.apply(steps, norm, factor)
        self.gradient_norm = norm
        failed = ~(norm < torch.inf)
        for g in gradients:  # one that is not finite becomes no gradient
            g.masked_fill_(failed, 0)
        if factor is not None and gradients:
            torch._foreach_mul_(gradients, factor)
        self.other.step()
        return loss

    def check(self):
        """Raise for a failure of RLS on an accelerator; waits for it."""
        self.rls.check()

    def state_dict(self) -> dict:
        """State of both."""
        return {"rls": self.rls.state_dict(), "other": self.other.state_dict()}

    def load_state_dict(self, state: dict):
        """Restore what :meth:`state_dict` gave.

        ValueError, and nothing is changed, if it is of other layers or shapes.
        """
        if not isinstance(state, dict) or {*state} != {"rls", "other"}:
            raise ValueError(
                'a state of Hybrid has "rls" and "other"; this one has '
                + (", ".join(map(repr, state)) or "nothing")
            )
        _check_shapes(self.other, state["other"])
        self.rls.check_state_dict(state["rls"])
        self.other.load_state_dict(state["other"])
        self.rls.load_state_dict(state["rls"])

    def __getstate__(self):
        kept = {name: vars(self)[name] for name in ("rls", "other", "gradient_norm")}
        return {"defaults": {}} | kept


def _parameters(optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _check_shapes(optimizer, saved):
    """Raise ValueError if a state is of parameters of other shapes."""
    shapes = [tuple(p.shape) for p in _parameters(optimizer)]
    for number, kept in saved["state"].items():
        for name in {*SHAPED} & {*kept}:
            found = tuple(kept[name].shape) if kept[name] is not None else None
            if found is not None and [found] != shapes[number : number + 1]:
                raise ValueError(
                    f"{name} of parameter {number} of {type(optimizer).__name__} has "
                    f"shape {found} in this checkpoint: it is of another network"
                )
