"""Autoencoders trained by stochastic Hessian-free: settings, data, nets and the run."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn

from labkit import hessian_free as hf
from labkit.lab.datasets import Labelled, available, load
from labkit.lab.problem import Problem


@dataclass(frozen=True, kw_only=True)
class PaperSetting:
    """The settings of Emirahmetoglu and Stewart for a data set (Table 1, section 6).

    The fields have the names of the options that they set.
    """

    encoder: tuple[int, ...]
    incoming: int = 10  # m0
    batch_size: int  # n1, the first
    max_batch_size: int  # nmax
    theta: float = 0.2
    damping: float  # lambda_1
    damping_decay: float = 0.99  # drop
    gamma: float = 0.7  # gamma_1
    maxiter: int = 150  # maxiter_1
    atol: float = 1e-8
    ftol: float


PAPER = {
    "mnist": PaperSetting(
        encoder=(784, 1000, 500, 250, 30),
        batch_size=300,
        max_batch_size=6000,
        damping=12.0,
        damping_decay=0.98,
        ftol=1e-5,
    ),
    "usps": PaperSetting(
        encoder=(256, 400, 200, 100, 50, 25),
        batch_size=200,
        max_batch_size=2000,
        damping=7.5,
        gamma=0.65,
        atol=1e-6,
        ftol=2e-5,
    ),
}
# In short runs the error falls faster from a smaller lambda than from the paper's.
SHORT = {
    name: replace(setting, theta=0.5, damping=0.5, damping_decay=0.7)
    for name, setting in PAPER.items()
}
SHORT["digits"] = replace(
    SHORT["usps"],
    encoder=(64, 32, 16, 8),
    batch_size=60,
    max_batch_size=650,
    damping=1.0,
    damping_decay=0.8,
    ftol=1e-5,
)

# Rows for training, validation and test; the paper's, except for digits.
SIZES = {
    "digits": (1297, 250, 250),
    "usps": (8000, 1000, 2000),
    "mnist": (50000, 10000, 10000),
}

PATIENCE = 20  # iterations that LSMR waits for a lower merit; the paper prints 100

MODULES = {
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "linear": nn.Identity,
    "relu": nn.ReLU,
}


def as_sequential(net: hf.Autoencoder) -> nn.Sequential:
    """Return the same net made of torch's own layers, with copies of the weights."""
    layers = []
    for W, name in zip(net.weights, net.activations, strict=True):
        layer = nn.Linear(len(W) - 1, W.shape[1], dtype=W.dtype, device=W.device)
        layer.weight.data, layer.bias.data = W.data[:-1].T.clone(), W.data[-1].clone()
        layers += [layer, MODULES[name]()]
    return nn.Sequential(*layers)


@dataclass(frozen=True, eq=False, kw_only=True)
class Images(Problem):
    """Images, which are their own targets, and the settings for their autoencoder."""

    setting: PaperSetting

    @property
    def parts(self) -> dict[str, torch.Tensor]:
        """The training, validation and test rows by name."""
        parts = {"train": self.fit, "validation": self.tune, "test": self.test}
        return {name: part.inputs for name, part in parts.items()}

    def network(self, seed: int, **options) -> tuple[hf.Autoencoder, torch.Generator]:
        """Return a net with sparse weights, and the generator that draws batches.

        Parameters
        ----------
        seed : int, of the weights, and then of the batches
        options : of :class:`~labkit.hessian_free.Autoencoder`
        """
        X, generator = self.fit.inputs, torch.Generator().manual_seed(seed)
        net = hf.Autoencoder(
            hf.mirrored(self.setting.encoder),
            incoming=self.setting.incoming,
            generator=generator,
            dtype=X.dtype,
            **options,
        )
        return net.to(X.device), generator


def setting_of(data: str, published: bool = False) -> PaperSetting:
    """Return the setting of a data set; for the arguments see :func:`load_images`."""
    if not published:
        return SHORT[data]
    paper = PAPER["usps" if data == "digits" else data]
    return replace(
        SHORT[data],
        theta=paper.theta,
        damping=paper.damping,
        damping_decay=paper.damping_decay,
    )


def load_images(
    data: str = "digits",
    *,
    published: bool = False,
    samples: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Images:
    """Load a data set, shuffle it in a fixed order, and choose its settings.

    Parameters
    ----------
    data : {"digits", "usps", "mnist"}
    published : bool
        Take the paper's lambda_1, drop and theta; for digits those of USPS.
    samples : int, optional
        Training rows at most; all if not given. Of the rows for validation and test
        there are then at most a fifth as many each, or 250 if that is more.
    dtype, device : of the rows

    Raises
    ------
    ValueError
        For another name.
    """
    if data not in SIZES:
        raise ValueError(f"unknown data {data!r}; there are {', '.join(SIZES)}")
    parts = [
        load(data, split, dtype=dtype, device=device).inputs.flatten(1)
        for split in available()[data].splits
    ]
    if data == "mnist":  # its test part stays apart
        rows = torch.cat([_shuffled(parts[:-1]), parts[-1]])
    else:
        rows = _shuffled(parts)
    fit, tune, test = rows.split(SIZES[data])
    if samples is not None:
        others = max(250, samples // 5)
        fit, tune, test = fit[:samples], tune[:others], test[:others]
    parts = (Labelled(data, each) for each in (fit, test, tune))
    return Images(*parts, setting=setting_of(data, published))


def _shuffled(parts):
    rows = torch.cat(parts)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    return rows[order.to(rows.device)]


class Training:
    """A run of SHF on a problem, whose knobs may be turned between two ``records``.

    Parameters
    ----------
    problem : Images
    knobs : :class:`~labkit.lab.books.hessian_free.TrainingKnobs`
        A ``max_batch_size`` above the number of rows stands for all rows.
    steps : int, optional, how many to take; without end if not given
    """

    def __init__(self, problem: Images, knobs: object, steps: int | None = None):
        self.problem = problem
        X, valid, test = problem.parts.values()
        (self.net, generator), setting = problem.network(knobs.seed), problem.setting
        self.optimizer = hf.HessianFree(
            self.net,
            damping=knobs.damping,
            gamma=setting.gamma,
            maxiter=setting.maxiter,
            atol=setting.atol,
            patience=PATIENCE,
            ftol=setting.ftol,
            generator=torch.Generator(X.device).manual_seed(1000 + knobs.seed),
        )
        self.settings, self._rows = hf.Settings(), len(X)
        self.turn(knobs)
        self.records = hf.train(
            self.net,
            self.optimizer,
            X,
            validation=valid,
            test=test,
            batch_size=min(knobs.batch_size, self.settings.max_batch_size),
            settings=self.settings,
            steps=steps,
            generator=generator,
        )

    def turn(self, knobs: object) -> None:
        """Set these knobs for the next step."""
        self.optimizer.param_groups[0]["damping_decay"] = knobs.damping_decay
        self.settings.theta, self.settings.input_noise = knobs.theta, knobs.input_noise
        self.settings.max_batch_size = min(knobs.max_batch_size, self._rows)


def looks(
    records: Iterable[hf.Record],
    spent: Callable[[hf.Record], float],
    budget: float,
    *,
    every: float = 0.0,
    taken: int = 0,
) -> Iterator[tuple[hf.Record, bool]]:
    """Yield records until a budget is spent, and whether a look is due after each.

    Parameters
    ----------
    records : of :func:`labkit.hessian_free.train` or ``train_martens``
    spent : callable
        Record -> the seconds, rows or passes that the run has used so far.
    budget : float, the run ends with the first record at which it is spent
    every : float
        A look is due each time that so much more is spent, and at the end. If it is 0,
        one is due after each step.
    taken : int, looks already taken, of a run that is resumed

    Yields
    ------
    (record, whether a look is due) : of each step

    Examples
    --------
    >>> steps = looks([10, 20, 30, 40, 50], float, 45, every=20)
    >>> [step for step, due in steps if due]
    [20, 40, 50]
    """
    for record in records:
        used = spent(record)
        due = used >= budget or not every or used // every > taken
        taken += due
        yield record, due
        if used >= budget:
            return
